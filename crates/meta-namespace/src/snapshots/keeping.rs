use super::rules::{
    Keep, Stamp, Written, born_of, chunk_of, gone_chunk, numbers_in, snapshots_in, stamped, what_to_keep,
};
use super::{damaged, inode_in, is_kept};
use crate::rows::{ChunkRow, Entry, IdRow, Inode, KeptInode, OldRow, ReclaimRow, RowFormat, SnapshotsRow, keys};
use braid_meta_engine::{
    AnyEngine, Awaited, Between, Counts, EngineError, Key, Lock, Overlay, Page, Passing, Pending, Row, ScanRange,
    Table, Tx, Unseen, Watch,
};
use braid_types::{ChunkId, ContainerId, InodeId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};

type Result<T> = std::result::Result<T, EngineError>;

/// Keeps, for snapshots, the rows that are changed. Idle until somebody makes a snapshot root.
#[derive(Debug, Default)]
pub struct Keeping {
    watch: Watch,
    known: Known,
    /// Planted bug, for tests of the tests: what changes is not kept.
    forgetful: bool,
}

impl Keeping {
    #[doc(hidden)]
    pub fn forgetful() -> Keeping {
        Keeping { forgetful: true, ..Keeping::default() }
    }

    /// There is a snapshot root, or is about to be: then all that is changed passes here, and nothing else is under way.
    pub async fn begin(&self, engine: &AnyEngine) -> Result<()> {
        match self.forgetful {
            true => Ok(()),
            false => self.watch.begin(engine).await,
        }
    }
}

impl Between for Keeping {
    fn unseen(&self) -> Option<Unseen<'_>> {
        self.watch.unseen()
    }

    fn over<'t>(&'t self, tx: &'t mut dyn Tx) -> Box<dyn Passing + 't> {
        Box::new(Change {
            tx,
            known: &self.known,
            seen: HashMap::new(),
            of_roots: HashMap::new(),
            writes: Overlay::default(),
        })
    }
}

/// Under which numbers rows of a root may have been kept since its newest snapshot, as it was when it was last looked at: with that what was kept is
/// read in one round trip with the root's own row, which says whether it is still so.
#[derive(Debug, Default)]
struct Known(Mutex<HashMap<InodeId, Vec<u64>>>);

/// Roots are few. Of those beyond, that were not looked at for a while, each costs a round trip once more.
const KNOWN_MAX: usize = 4096;

impl Known {
    /// Empty if there was no snapshot, `None` if nobody has looked.
    fn numbers(&self, root: InodeId) -> Option<Vec<u64>> {
        self.0.lock().get(&root).cloned()
    }

    fn learn(&self, root: InodeId, numbers: &[u64]) {
        let mut known = self.0.lock();
        if known.get(&root).is_some_and(|known| known == numbers) {
            return;
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(root, numbers.to_vec());
    }
}

/// A transaction whose writes wait until it is known what was there before.
struct Change<'t> {
    tx: &'t mut dyn Tx,
    known: &'t Known,
    /// What was read of the tables that are kept, as it is before the transaction.
    seen: HashMap<Key, Option<Row>>,
    /// Rows of roots that it has locked, and not written.
    of_roots: HashMap<Key, Option<Row>>,
    /// Of those tables, and of what is to be freed.
    writes: Overlay,
}

fn waits(table: Table) -> bool {
    is_kept(table) || table == Table::Reclaim
}

/// The same before it is known what was there.
struct Changed {
    key: Key,
    /// Below which it may lie.
    roots: Vec<InodeId>,
    /// `None`: nobody has looked.
    before: Option<Option<Row>>,
    after: Option<Row>,
    /// Nothing has to be looked up to know whether it has been kept.
    says_so: bool,
}

impl Changed {
    /// Where it may have been kept already, below roots of which rows may have been under these numbers.
    fn kept(&self, numbers: impl Fn(InodeId) -> Vec<u64>) -> Vec<Key> {
        let roots = if self.says_so { &[][..] } else { &self.roots };
        let of_root = |root: &InodeId| {
            let root = *root;
            numbers(root).into_iter().map(move |number| keys::old_row(root, &self.key, number)).collect::<Vec<_>>()
        };
        roots.iter().flat_map(of_root).collect()
    }
}

/// What was read to know what is to be kept.
struct Below {
    snapshots: BTreeMap<InodeId, SnapshotsRow>,
    /// Rows that were there before, and those that were kept.
    read: HashMap<Key, Option<Row>>,
}

impl Passing for Change<'_> {
    fn tx(&mut self) -> &mut dyn Tx {
        self
    }

    fn finish<'a>(self: Box<Self>) -> Awaited<'a, ()>
    where
        Self: 'a,
    {
        match self.writes.is_empty() {
            true => Awaited::ready(Ok(())),
            false => Awaited::waits(self.keep()),
        }
    }
}

impl Change<'_> {
    async fn keep(mut self: Box<Self>) -> Result<()> {
        let stamps = self.stamps()?;
        let roots: BTreeSet<InodeId> = stamps.values().map(|stamp| stamp.root).filter(|root| root.0 != 0).collect();
        if !roots.is_empty() {
            let changed = self.changed(&stamps)?;
            let below = self.look(roots, &changed).await?;
            if below.snapshots.values().any(|row| row.newest() > 0) {
                self.keep_below(&stamps, changed, below).await?;
            }
        }
        self.writes.check_inserts(|_| Ok(false))?;
        for (key, Pending { must_be_absent, row }) in self.writes.writes() {
            match row {
                Some(row) if *must_be_absent => self.tx.insert(key.clone(), row.clone()),
                Some(row) => self.tx.put(key.clone(), row.clone()),
                None => self.tx.delete(key.clone()),
            }
        }
        Ok(())
    }

    /// All inodes of which this transaction has seen or written the attributes.
    fn stamps(&self) -> Result<BTreeMap<InodeId, Stamp>> {
        let mut stamps = BTreeMap::new();
        let stamp = |inode: &Inode| Stamp { root: inode.snapshot_root, born: Some(inode.born) };
        for (key, row) in &self.seen {
            if let Some(inode) = row.as_ref().map(|row| inode_in(key, row).map_err(damaged)).transpose()?.flatten() {
                stamps.insert(inode.id, stamp(&inode));
            }
        }
        for (key, pending) in self.writes.writes() {
            let row = pending.row.as_ref();
            if let Some(inode) = row.map(|row| inode_in(key, row).map_err(damaged)).transpose()?.flatten() {
                // As it was before counts, which is where it is if it was there at all: nobody writes attributes that it has not read.
                stamps.entry(inode.id).or_insert(Stamp { root: inode.snapshot_root, born: None });
            }
        }
        Ok(stamps)
    }

    /// What is changed below what may be a snapshot root.
    fn changed(&self, stamps: &BTreeMap<InodeId, Stamp>) -> Result<Vec<Changed>> {
        let root_of = |key: &Key| stamps.get(&InodeId(key.partition())).map_or(InodeId(0), |stamp| stamp.root);
        let mut found = Vec::new();
        for (key, Pending { must_be_absent, row }) in self.writes.writes().filter(|(key, _)| is_kept(key.table())) {
            // Names lie below their directory, all else below its own inode; the root's own name lies where its root is not.
            let of_row = match row {
                Some(row) => inode_in(key, row).map_err(damaged)?.map(|inode| inode.snapshot_root),
                None => None,
            };
            let of_seen = match self.seen.get(key) {
                Some(Some(row)) => inode_in(key, row).map_err(damaged)?.map(|inode| inode.snapshot_root),
                _ => None,
            };
            let mut roots: Vec<InodeId> = [Some(root_of(key)), of_row, of_seen].into_iter().flatten().collect();
            roots.retain(|root| root.0 != 0);
            roots.dedup();
            if !roots.is_empty() {
                // Beside an inode that is made by this transaction nothing was.
                let stamp = stamps.get(&InodeId(key.partition()));
                let is_beside_new = key.table() != Table::Inodes && stamp.is_some_and(|stamp| stamp.born.is_none());
                let was_absent = *must_be_absent || is_beside_new;
                let before = if was_absent { Some(None) } else { self.seen.get(key).cloned() };
                // Attributes say themselves whether they have been kept.
                let says_so = is_beside_new || of_row.is_some() && (of_seen.is_some() || was_absent);
                found.push(Changed { key: key.clone(), roots, before, after: row.clone(), says_so });
            }
        }
        Ok(found)
    }

    /// In one round trip: the rows of roots, shared until the commit (who makes a snapshot writes them, so that each transaction is either in it
    /// or after it), what was there before that is not known, and what may have been kept of that already. Nothing of what is locked already
    /// is read again, and without anything to be read there is no round trip.
    async fn look(&mut self, roots: BTreeSet<InodeId>, changed: &[Changed]) -> Result<Below> {
        let mut read: HashMap<Key, Option<Row>> = std::mem::take(&mut self.of_roots);
        let of_roots = roots.iter().map(|root| keys::snapshots(*root)).filter(|key| !read.contains_key(key));
        let mut known: BTreeMap<InodeId, Vec<u64>> = BTreeMap::new();
        for root in &roots {
            let key = keys::snapshots(*root);
            match read.get(&key) {
                Some(row) => drop(known.insert(*root, numbers_in(snapshots_in(&key, row.as_ref())?.as_ref()))),
                None => known.extend(self.known.numbers(*root).map(|numbers| (*root, numbers))),
            }
        }
        // Below a root that has none any more nothing is kept.
        let may_have = |one: &&Changed| one.roots.iter().any(|root| known.get(root).is_none_or(|of| !of.is_empty()));
        let unknown = changed.iter().filter(may_have).filter(|one| one.before.is_none()).map(|one| one.key.clone());
        let kept = changed.iter().flat_map(|one| one.kept(|root| known.get(&root).cloned().unwrap_or_default()));
        let wanted: Vec<Key> = of_roots.chain(unknown).chain(kept).collect();
        if !wanted.is_empty() {
            let shares: fn(&Key) -> bool = |key| key.table() == Table::Snapshots;
            let rows = self.tx.get_sharing(&wanted, Lock::Exclusive, shares).await?;
            read.extend(wanted.into_iter().zip(rows));
        }
        let mut snapshots = BTreeMap::new();
        for root in roots {
            let key = keys::snapshots(root);
            let row = snapshots_in(&key, read.remove(&key).flatten().as_ref())?;
            self.known.learn(root, &numbers_in(row.as_ref()));
            snapshots.extend(row.map(|row| (root, row)));
        }
        Ok(Below { snapshots, read })
    }

    async fn read_too(&mut self, read: &mut HashMap<Key, Option<Row>>, missing: Vec<Key>) -> Result<()> {
        if !missing.is_empty() {
            let rows = self.tx.get(&missing, Lock::Exclusive).await?;
            read.extend(missing.into_iter().zip(rows));
        }
        Ok(())
    }

    async fn keep_below(
        &mut self,
        stamps: &BTreeMap<InodeId, Stamp>,
        changed: Vec<Changed>,
        below: Below,
    ) -> Result<()> {
        let Below { snapshots, mut read } = below;
        let newest = |root: InodeId| snapshots.get(&root).map_or(0, SnapshotsRow::newest);
        let of_snapshots: Vec<Changed> =
            changed.into_iter().filter(|one| one.roots.iter().any(|root| newest(*root) > 0)).collect();
        // A snapshot that is going has been kept for all the same: what it has will be the one's before it.
        let numbers = |root: InodeId| numbers_in(snapshots.get(&root));
        // Where there is another snapshot than was known.
        let before = of_snapshots.iter().filter(|one| one.before.is_none()).map(|one| one.key.clone());
        let kept = of_snapshots.iter().flat_map(|one| one.kept(numbers));
        let missing: Vec<Key> = before.chain(kept).filter(|key| !read.contains_key(key)).collect();
        self.read_too(&mut read, missing).await?;
        let written: Vec<Written> = of_snapshots
            .into_iter()
            .map(|Changed { key, before, after, .. }| {
                let before = before.unwrap_or_else(|| read.remove(&key).flatten());
                Written { key, before, after }
            })
            .collect();
        let mut keep: Vec<(Keep, &Written)> = Vec::new();
        for one in &written {
            keep.extend(what_to_keep(one, stamps, &newest)?.map(|keep| (keep, one)));
        }
        let once = keep.iter().filter_map(|(keep, one)| match keep {
            Keep::Once(root) => Some((root, one)),
            Keep::Surely(_) => None,
        });
        let olds: Vec<Key> = once
            .flat_map(|(root, one)| numbers(*root).into_iter().map(|number| keys::old_row(*root, &one.key, number)))
            .collect();
        let missing: Vec<Key> = olds.iter().filter(|old| !read.contains_key(*old)).cloned().collect();
        self.read_too(&mut read, missing).await?;
        let mut kept_already = olds.iter().map(|old| read.remove(old).flatten());
        // Chunks that stay although their rows go.
        let mut stay: BTreeSet<ChunkId> = BTreeSet::new();
        for (keep, one) in keep {
            let (root, is_kept) = match keep {
                Keep::Surely(root) => (root, false),
                Keep::Once(root) => {
                    let of_row: Vec<_> = kept_already.by_ref().take(numbers(root).len()).collect();
                    (root, of_row.iter().any(Option::is_some))
                }
            };
            let gone = gone_chunk(one)?;
            if is_kept {
                // What a restore has put back is named by an older snapshot.
                if let Some(chunk) = gone
                    && self.is_named(root, &one.key, chunk).await?
                {
                    stay.insert(chunk);
                }
                continue;
            }
            stay.extend(gone);
            let old = OldRow { born: born_of(one, stamps)?, row: one.before.clone().map(Bytes::from) };
            self.tx.put(keys::old_row(root, &one.key, newest(root)), old.encode());
        }
        self.stamp(&written, stamps, &newest)?;
        self.hold_back(&stay, stamps, &newest)
    }

    /// Does some snapshot name this chunk in this place?
    async fn is_named(&mut self, root: InodeId, key: &Key, chunk: ChunkId) -> Result<bool> {
        let page = self.tx.scan(&keys::old_rows_below(root, key), None, usize::MAX >> 1, Lock::Exclusive).await?;
        for (old_key, row) in &page.rows {
            let old = OldRow::decode(old_key, row).map_err(damaged)?;
            if let Some(row) = old.row
                && ChunkRow::decode(key, &row).map_err(damaged)?.chunk == chunk
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Rows that are written say after which snapshot.
    fn stamp(
        &mut self,
        written: &[Written],
        stamps: &BTreeMap<InodeId, Stamp>,
        newest: &impl Fn(InodeId) -> u64,
    ) -> Result<()> {
        for Written { key, after, before } in written {
            let Some(row) = after else { continue };
            let stamped = match key.table() {
                Table::Inodes => match Entry::decode(key, row).map_err(damaged)? {
                    Entry::Here(inode) => Some(Entry::Here(stamped(inode, stamps, newest)).encode()),
                    Entry::Elsewhere { .. } => None,
                },
                Table::InodeIds => match IdRow::decode(key, row).map_err(damaged)? {
                    IdRow::Attributes(inode) => Some(IdRow::Attributes(stamped(inode, stamps, newest)).encode()),
                    IdRow::At { .. } => None,
                },
                Table::Chunks => {
                    let row = ChunkRow::decode(key, row).map_err(damaged)?;
                    let stamp = stamps.get(&InodeId(key.partition()));
                    let root = stamp.map_or(InodeId(0), |stamp| stamp.root);
                    let is_new = row.born.is_none() && chunk_of(key, before.as_ref())? != Some(row.chunk);
                    is_new.then(|| ChunkRow { born: Some(newest(root)), ..row }.encode())
                }
                _ => None,
            };
            if let Some(row) = stamped {
                // Whether it must be absent stays.
                self.writes.put(key.clone(), row);
            }
        }
        Ok(())
    }

    /// What snapshots name is not freed.
    fn hold_back(
        &mut self,
        stay: &BTreeSet<ChunkId>,
        stamps: &BTreeMap<InodeId, Stamp>,
        newest: &impl Fn(InodeId) -> u64,
    ) -> Result<()> {
        let reclaimed: Vec<Key> = self
            .writes
            .writes()
            .filter(|(key, pending)| key.table() == Table::Reclaim && pending.row.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in reclaimed {
            match keys::reclaimed(&key) {
                Some(keys::Reclaimed::Chunk(chunk)) if stay.contains(&chunk) => self.writes.delete(key),
                Some(keys::Reclaimed::Inode(inode)) => {
                    let Some(Stamp { root, born: Some(born) }) = stamps.get(&inode).copied() else { continue };
                    let until = newest(root);
                    if born < until {
                        // Its rows of chunks stay where they are; those that came after the snapshot go.
                        self.tx.put(keys::kept_inode(root, inode), KeptInode { born, until }.encode());
                        self.writes.put(key, ReclaimRow { container: ContainerId(root.0) }.encode());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn read(&mut self, wanted: &[Key], lock: Lock, shares: fn(&Key) -> bool) -> Result<Vec<Option<Row>>> {
        let rows = self.tx.get_sharing(wanted, lock, shares).await?;
        let mut found = Vec::with_capacity(rows.len());
        for (key, row) in wanted.iter().zip(rows) {
            found.push(match self.writes.get(key) {
                Some(own) => own.cloned(),
                None => row.clone(),
            });
            if is_kept(key.table()) {
                self.seen.entry(key.clone()).or_insert(row);
            } else if key.table() == Table::Snapshots && lock != Lock::None && row.is_some() {
                // One that is not there cannot be locked: whether it has come since is looked at again.
                self.of_roots.insert(key.clone(), row);
            }
        }
        Ok(found)
    }

    async fn read_page(&mut self, prefix: &Key, after: Option<&Key>, limit: usize, lock: Lock) -> Result<Page> {
        let range = ScanRange::prefix(prefix, after);
        // Rows that are gone by now leave room for as many.
        let gone = self.writes.writes().filter(|(key, own)| own.row.is_none() && range.holds(key)).count();
        let stored = self.tx.scan(prefix, after, limit.saturating_add(gone), lock).await?;
        let more = stored.more;
        let mut page = self.writes.merge(&range, limit, stored.rows.iter().cloned().map(Ok))?;
        page.more |= more;
        for (key, row) in stored.rows {
            self.seen.entry(key).or_insert(Some(row));
        }
        Ok(page)
    }
}

impl Tx for Change<'_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        self.get_sharing(keys, lock, |_| false)
    }

    fn get_sharing<'a>(
        &'a mut self,
        keys: &'a [Key],
        lock: Lock,
        shares: fn(&Key) -> bool,
    ) -> Awaited<'a, Vec<Option<Row>>> {
        match keys.iter().any(|key| waits(key.table()) || key.table() == Table::Snapshots) {
            true => Awaited::waits(self.read(keys, lock, shares)),
            false => self.tx.get_sharing(keys, lock, shares),
        }
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, lock: Lock) -> Awaited<'a, Page> {
        match waits(prefix.table()) {
            true => Awaited::waits(self.read_page(prefix, after, limit, lock)),
            false => self.tx.scan(prefix, after, limit, lock),
        }
    }

    /// Housekeeping that goes through whole tables does not look for what it wrote itself.
    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        self.tx.scan_table(table, after, limit)
    }

    fn put(&mut self, key: Key, row: Row) {
        self.of_roots.remove(&key);
        if waits(key.table()) { self.writes.put(key, row) } else { self.tx.put(key, row) }
    }

    fn insert(&mut self, key: Key, row: Row) {
        self.of_roots.remove(&key);
        if waits(key.table()) { self.writes.insert(key, row) } else { self.tx.insert(key, row) }
    }

    fn delete(&mut self, key: Key) {
        self.of_roots.remove(&key);
        if waits(key.table()) { self.writes.delete(key) } else { self.tx.delete(key) }
    }

    fn add(&mut self, key: Key, by: Counts) {
        self.tx.add(key, by);
    }

    fn is_watched(&self) -> bool {
        true
    }

    fn spread(&self) -> u8 {
        self.tx.spread()
    }
}
