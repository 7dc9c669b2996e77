//! Snapshots of directories: made, listed, and let go of (docs/design/0028-snapshots.md).
//!
//! Promises: a snapshot is made in one transaction, and every other is in it or comes after it; what only a snapshot that is gone had is
//! freed a page at a time, and whoever serves the rows next goes on.

use super::ids::{Counter, next, take};
use crate::rows::{
    ChunkRow, HandleRow, IdRow, Inode, KeptInode, OldRow, ReclaimRow, RestampRow, RowFormat, SessionRow, SnapshotEntry,
    SnapshotsRow, keys,
};
use crate::snapshots::inode_in;
use crate::{Located, OpError, Place, Query, Unit};
use braid_api::admin::{self, KeptPage, KeptRow};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{ChunkId, ContainerId, InodeId, Name, SessionId, SnapshotHandle, Timestamp};
use std::collections::BTreeSet;

/// Of one root at once.
pub const SNAPSHOTS_MAX: usize = 256;
/// Snapshot roots.
pub const ROOTS_MAX: usize = 1024;
/// Rows of one look at all roots, and at all directories that are to be looked through.
const ALL: usize = usize::MAX >> 1;

/// What names a snapshot in ids of inodes while it exists. The ends stand for the directories in which snapshots are shown.
pub fn handle_of(number: u64) -> SnapshotHandle {
    SnapshotHandle(1 + (number % HANDLES) as u16)
}

const HANDLES: u64 = SnapshotHandle::MAX as u64 - 1;

/// A question that may be about something below one of these snapshot roots: their rows are read with what it reads first.
pub struct BelowOneOf<Q> {
    pub roots: Vec<InodeId>,
    pub query: Q,
}

impl<Q: Query> Query for BelowOneOf<Q> {
    type Answer = Q::Answer;

    fn ahead(&self) -> Vec<Key> {
        let mut first = self.query.ahead();
        first.extend(self.roots.iter().map(|root| keys::snapshots(*root)));
        first
    }

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Q::Answer, OpError> {
        unit.load(&self.ahead()).await?;
        self.query.ask(unit).await
    }
}

/// Makes a directory a snapshot root, if it is none. What is below it says so when it has been looked through.
pub struct MakeRoot {
    pub dir: InodeId,
}

impl Operation for MakeRoot {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let lock = keys::global("rename_lock");
        let mut first = super::keys_of(&self.dir.into());
        first.extend([lock.clone(), keys::snapshots(self.dir)]);
        unit.load(&first).await?;
        let mut dir = unit.find_dir(&self.dir.into()).await?;
        if unit.get::<SnapshotsRow>(&keys::snapshots(self.dir)).await?.is_some() {
            return Ok(());
        }
        // No directory comes to lie above or below another one meanwhile.
        unit.put_raw(lock, vec![1]);
        let all = roots(&mut unit).await?;
        let refused = |cause: String| Error::new(Code::Invalid, format_args!("directory {}", self.dir), cause);
        // By their places, and not by what rows say: one that was a root before may say so still, and what is below one that is being
        // prepared does not say so yet.
        for (root, _) in &all {
            if lies_below(&mut unit, self.dir, *root).await? {
                let cause =
                    format!("it lies below directory {root}, which has snapshots: they have all that is below it");
                return Err(refused(cause).into());
            }
            if lies_below(&mut unit, *root, self.dir).await? {
                return Err(refused(format!("directory {root} below it has snapshots of its own")).into());
            }
        }
        if all.len() >= ROOTS_MAX {
            return Err(refused(format!("{ROOTS_MAX} directories have snapshots already")).into());
        }
        dir.inode.snapshot_root = self.dir;
        unit.put(keys::snapshots(self.dir), &SnapshotsRow::default());
        unit.list_restamp(self.dir, vec![self.dir]);
        unit.store(&dir);
        unit.charge_without_limits().await
    }
}

/// All snapshot roots with their snapshots.
pub(crate) async fn roots(unit: &mut Unit<'_>) -> Result<Vec<(InodeId, SnapshotsRow)>, OpError> {
    let page = unit.scan_table(Table::Snapshots, None, ALL).await?;
    page.rows.iter().map(|(key, row)| Ok((InodeId(key.partition()), SnapshotsRow::decode(key, row)?))).collect()
}

/// A directory does not go while it has snapshots, or one with `tree` below it has: they are read there.
pub(super) async fn expect_no_snapshots(unit: &mut Unit<'_>, dir: &Inode, tree: bool) -> Result<(), OpError> {
    let has_some = |root: InodeId| {
        let cause = format_args!("directory {root} has snapshots: let go of them first (braid fs snapshot delete)");
        Error::new(Code::NotEmpty, format_args!("directory {}", dir.id), cause)
    };
    if dir.snapshot_root == dir.id && has_snapshots(unit, dir.id).await? {
        return Err(has_some(dir.id).into());
    }
    // Roots do not lie within one another. As long as nobody looks at what is changed there are none: that is decided here, since the first
    // may have come while this was on its way.
    if !tree || !unit.is_watched() || is_root(unit, dir.snapshot_root).await? {
        return Ok(());
    }
    for (root, _) in roots(unit).await?.into_iter().filter(|(_, row)| row.newest() > 0) {
        if lies_below(unit, root, dir.id).await? {
            return Err(has_some(root).into());
        }
    }
    Ok(())
}

/// A snapshot root goes. Whatever it still has, because that came in the same moment, is let go of.
pub(super) async fn retire_root(unit: &mut Unit<'_>, root: InodeId) -> Result<(), OpError> {
    let key = keys::snapshots(root);
    let Some(mut row) = unit.get::<SnapshotsRow>(&key).await? else { return Ok(()) };
    let numbers: Vec<u64> = row.kept.drain(..).map(|snapshot| snapshot.number).collect();
    for number in &numbers {
        let_go_of_handle(unit, *number).await?;
    }
    row.going.extend(numbers);
    match row.going.is_empty() {
        true => unit.delete(key),
        // It goes with the last of them.
        false => unit.put(key, &row),
    }
    Ok(())
}

/// Is it, or does it lie below, this directory?
async fn lies_below(unit: &mut Unit<'_>, mut at: InodeId, dir: InodeId) -> Result<bool, OpError> {
    while at != InodeId::ROOT && at != dir {
        // Who renames directories holds a lock: these stay as they are, and whoever else only reads them does not wait.
        match unit.get_shared::<IdRow>(&keys::inode_id(at)).await? {
            Some(IdRow::At { parent, .. }) => at = parent,
            // It has gone, or is about to.
            _ => break,
        }
    }
    Ok(at == dir)
}

/// Nothing goes from below a root to elsewhere, nor to below it, by a rename, as long as it has snapshots or is about to have some: what it
/// was is known there and not here, and who writes it would not be asked to stop.
pub(super) async fn expect_to_cross(
    unit: &mut Unit<'_>,
    what: &Located,
    from: &Located,
    to: &Located,
) -> Result<(), OpError> {
    // Where one is a root, the other is none: a root may go where there is none above it.
    let goes_along = what.inode.snapshot_root == what.inode.id && is_root(unit, what.inode.id).await?;
    let leaves = if goes_along { InodeId(0) } else { from.inode.snapshot_root };
    expect_one_root(unit, (leaves, Some(from.inode.id)), (to.inode.snapshot_root, Some(to.inode.id))).await
}

/// Two that say whose they are, and the directory where each lies, if that is known: are they of the same root, or of none?
async fn expect_one_root(
    unit: &mut Unit<'_>,
    (own, own_dir): (InodeId, Option<InodeId>),
    (other, other_dir): (InodeId, Option<InodeId>),
) -> Result<(), OpError> {
    if own == other {
        return Ok(());
    }
    // What lies below a root that is being prepared may not say so yet: there its place counts.
    let (root, dir) = match (is_root(unit, own).await?, is_root(unit, other).await?) {
        (false, false) => return Ok(()),
        (true, false) => (own, other_dir),
        (false, true) => (other, own_dir),
        (true, true) => return Err(Code::CrossDevice.into()),
    };
    match dir {
        Some(dir) if lies_below(unit, dir, root).await? => Ok(()),
        _ => Err(Code::CrossDevice.into()),
    }
}

/// A directory goes with all that is in it, of which the rows may not say yet below which root it lies: neither out of the tree of one, nor
/// into it; a root not below another one. Whoever asks holds the lock of renames, and so has who makes a root.
pub(super) async fn expect_tree_to_cross(
    unit: &mut Unit<'_>,
    moved: InodeId,
    from: InodeId,
    to: InodeId,
) -> Result<(), OpError> {
    if !unit.is_watched() {
        return Ok(());
    }
    for (root, _) in roots(unit).await?.into_iter().filter(|(root, _)| *root != moved) {
        if lies_below(unit, from, root).await? != lies_below(unit, to, root).await? {
            return Err(Code::CrossDevice.into());
        }
    }
    Ok(())
}

/// A second name where other snapshots are than where the first one is.
pub(super) async fn expect_to_link(unit: &mut Unit<'_>, file: &Located, to: &Inode) -> Result<(), OpError> {
    // One that has no name yet was where no snapshot shows it, and nobody has looked through it for what it says of that.
    if file.inode.nlink == 0 {
        return Ok(());
    }
    let dir = match &file.place {
        Place::Entry(dir, _) => Some(*dir),
        // It has more names than one, or had: where they are its row does not say.
        _ => None,
    };
    expect_one_root(unit, (file.inode.snapshot_root, dir), (to.snapshot_root, Some(to.id))).await
}

/// It is a root: it has snapshots, or had some a moment ago, or is being prepared.
pub(super) async fn is_root(unit: &mut Unit<'_>, root: InodeId) -> Result<bool, OpError> {
    Ok(root.0 != 0 && unit.get_shared::<SnapshotsRow>(&keys::snapshots(root)).await?.is_some())
}

async fn has_snapshots(unit: &mut Unit<'_>, root: InodeId) -> Result<bool, OpError> {
    Ok(is_root(unit, root).await?
        && unit.get::<SnapshotsRow>(&keys::snapshots(root)).await?.is_some_and(|row| row.newest() > 0))
}

/// Makes a snapshot of a root. All that is written to its files has been stored, and nobody writes them now.
#[derive(Clone)]
pub struct CreateSnapshot {
    pub root: InodeId,
    pub name: Name,
    pub now: Timestamp,
}

impl Operation for CreateSnapshot {
    type Output = SnapshotEntry;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<SnapshotEntry, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let of = || format!("snapshot {} of directory {}", self.name, self.root);
        let key = keys::snapshots(self.root);
        unit.load(&[super::keys_of(&self.root.into()), vec![key.clone()]].concat()).await?;
        unit.find_dir(&self.root.into()).await?;
        let Some(mut row) = unit.get::<SnapshotsRow>(&key).await? else {
            return Err(Error::new(Code::Busy, of(), "the directory is not prepared for snapshots").into());
        };
        if row.kept.iter().any(|snapshot| snapshot.name == self.name.as_bytes()) {
            return Err(Error::new(Code::Exists, of(), "there is one with this name").into());
        }
        if row.kept.len() + row.going.len() >= SNAPSHOTS_MAX {
            let cause = format_args!("it has {SNAPSHOTS_MAX} already, with those whose rows are being freed");
            return Err(Error::new(Code::NoSpace, of(), cause).into());
        }
        expect_looked_through(&mut unit, self.root).await?;
        let number = take_number(&mut unit, &of).await?;
        let snapshot = SnapshotEntry { number, name: self.name.as_bytes().to_vec(), made: self.now };
        row.kept.push(snapshot.clone());
        unit.put(key, &row);
        Ok(snapshot)
    }
}

/// The next number whose handle nobody takes for another snapshot's.
async fn take_number(unit: &mut Unit<'_>, of: &impl Fn() -> String) -> Result<u64, OpError> {
    let next = next(unit, Counter::Snapshots).await?;
    let all = roots(unit).await?;
    let used: BTreeSet<SnapshotHandle> =
        all.iter().flat_map(|(_, row)| &row.kept).map(|snapshot| handle_of(snapshot.number)).collect();
    // None is given a second time before.
    let known = if next < HANDLES { BTreeSet::new() } else { known_handles(unit).await? };
    let is_free = |number: &u64| !used.contains(&handle_of(*number)) && !known.contains(&handle_of(*number));
    let Some(number) = (next..next.saturating_add(HANDLES)).find(is_free) else {
        let cause = format!(
            "all {HANDLES} numbers by which mounts know snapshots are taken: by {} snapshots that there are, and by some that were looked at \
             before they were deleted, by mounts that have not ended since (braid admin status lists the mounts)",
            used.len()
        );
        return Err(Error::new(Code::NoSpace, of(), cause).into());
    };
    if number >= keys::SNAPSHOT_MAX {
        return Err(Error::new(Code::NoSpace, of(), "all numbers of snapshots are given").into());
    }
    take(unit, Counter::Snapshots, number + 1 - next).await?;
    Ok(number)
}

/// Handles of snapshots that are gone, under which somebody may have kept something or has a file open.
async fn known_handles(unit: &mut Unit<'_>) -> Result<BTreeSet<SnapshotHandle>, OpError> {
    let mut oldest = SessionId(u64::MAX);
    let sessions = unit.scan_table(Table::Sessions, None, ALL).await?;
    for (key, row) in &sessions.rows {
        // Also of a session that has ended: its client may come back.
        oldest = oldest.min(SessionRow::decode(key, row)?.first);
    }
    let page = unit.scan(&keys::handles(), None, ALL).await?;
    let mut known = BTreeSet::new();
    for (key, row) in &page.rows {
        if HandleRow::decode(key, row)?.next_session > oldest {
            known.extend(keys::of_handle(key));
        }
    }
    Ok(known)
}

/// A snapshot is not to be shown any more to anybody, though some may have been told of it.
async fn let_go_of_handle(unit: &mut Unit<'_>, number: u64) -> Result<(), OpError> {
    let next_session = SessionId(next(unit, Counter::Sessions).await?);
    unit.put(keys::handle(handle_of(number)), &HandleRow { next_session });
    Ok(())
}

/// Every inode below the root says whose snapshots have it.
async fn expect_looked_through(unit: &mut Unit<'_>, root: InodeId) -> Result<(), OpError> {
    let page = unit.scan_table(Table::SubtreeOps, None, ALL).await?;
    for (key, row) in &page.rows {
        let is_restamp = *key == keys::restamp(InodeId(key.partition()));
        if is_restamp && RestampRow::decode(key, row)?.roots.contains(&root) {
            let cause = "what is below it is still being prepared";
            return Err(Error::new(Code::Busy, format_args!("directory {root}"), cause).into());
        }
    }
    Ok(())
}

/// All snapshot roots with their snapshots: what a metadata server reads at its start.
pub struct ListSnapshots;

impl Operation for ListSnapshots {
    type Output = Vec<(InodeId, SnapshotsRow)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        roots(&mut Unit::new(tx, Lock::None)).await
    }
}

/// Of these inodes, those below this root; of one that is not found nobody knows.
pub struct FindBelow {
    pub root: InodeId,
    pub inodes: Vec<InodeId>,
}

impl Operation for FindBelow {
    type Output = Vec<InodeId>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        unit.load(&self.inodes.iter().map(|id| keys::inode_id(*id)).collect::<Vec<_>>()).await?;
        let mut found = Vec::new();
        for id in &self.inodes {
            match unit.find(&(*id).into()).await {
                Ok(located) if located.inode.snapshot_root != self.root => {}
                Ok(_) => found.push(*id),
                Err(OpError(error)) if error.code == Code::Stale => found.push(*id),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// A snapshot is gone: nobody reads it any more, and what only it has is freed.
pub struct DropSnapshot {
    pub root: InodeId,
    pub name: Name,
    /// It may have been shown to somebody.
    pub seen: bool,
}

impl Operation for DropSnapshot {
    type Output = u64;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let key = keys::snapshots(self.root);
        let mut row = unit.get::<SnapshotsRow>(&key).await?.unwrap_or_default();
        let Some(at) = row.kept.iter().position(|snapshot| snapshot.name == self.name.as_bytes()) else {
            let of = format_args!("snapshot {} of directory {}", self.name, self.root);
            return Err(Error::new(Code::NotFound, of, "there is none with this name").into());
        };
        let number = row.kept.remove(at).number;
        row.going.push(number);
        unit.put(key, &row);
        if self.seen {
            let_go_of_handle(&mut unit, number).await?;
        }
        Ok(number)
    }
}

/// Looks through a page of what was kept for snapshots of a root, for one that is gone. Answers where the next page begins.
pub struct SweepSnapshot {
    pub root: InodeId,
    pub number: u64,
    pub after: Option<Key>,
    pub limit: usize,
}

impl Operation for SweepSnapshot {
    type Output = Option<Key>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<Key>, OpError> {
        let key = keys::snapshots(self.root);
        let of_it = |key: &Key| keys::of_old_row(key).filter(|(_, number)| *number == self.number).map(|(of, _)| of);
        let all = keys::all_old_rows(self.root);
        // Whoever changes something has first the rows themselves, then the root's, then what was kept: so has this. What is kept meanwhile
        // is locked late.
        let page = Unit::new(tx, Lock::None).scan(&all, self.after.as_ref(), self.limit).await?;
        let mut unit = Unit::new(tx, Lock::Exclusive);
        unit.load(&page.rows.iter().filter_map(|(key, _)| of_it(key)).collect::<Vec<_>>()).await?;
        let Some(mut snapshots) = unit.get::<SnapshotsRow>(&key).await? else { return Ok(None) };
        if !snapshots.going.contains(&self.number) {
            return Ok(None);
        }
        let page = unit.scan(&all, self.after.as_ref(), self.limit).await?;
        let before = snapshots.before(self.number);
        let wanted = page.rows.iter().filter_map(|(key, _)| of_it(key)).flat_map(|of| {
            let older = before.map(|number| keys::old_row(self.root, &of, number));
            [Some(of), older].into_iter().flatten()
        });
        unit.load(&wanted.collect::<Vec<_>>()).await?;
        for (key, row) in &page.rows {
            if let Some(of) = of_it(key) {
                let old = OldRow::decode(key, row)?;
                unit.delete(key.clone());
                let Some(number) = before else {
                    self.let_go(&mut unit, &of, &old).await?;
                    continue;
                };
                let older = keys::old_row(self.root, &of, number);
                match (unit.get_raw(&older).await?, has_it(&of, &old, number)) {
                    (None, true) => unit.put(older, &old),
                    (None, false) if self.is_covered_by(&mut unit, &snapshots, &of).await? => {
                        unit.put(older, &OldRow { row: None, ..old });
                    }
                    // That snapshot has what was before.
                    _ => self.let_go(&mut unit, &of, &old).await?,
                }
            } else if let Some(inode) = keys::of_kept_inode(key) {
                let kept = KeptInode::decode(key, row)?;
                let has_it = |number: u64| kept.born < number && number <= kept.until;
                // Other snapshots that are gone may still have to be looked through for it: the last of them frees it.
                let of_others = snapshots.going.iter().any(|number| *number != self.number && has_it(*number));
                if !of_others && !snapshots.kept.iter().any(|snapshot| has_it(snapshot.number)) {
                    unit.delete(key.clone());
                    unit.put(keys::reclaim_inode(inode), &ReclaimRow { container: ContainerId(0) });
                }
            }
        }
        match page.rows.into_iter().next_back() {
            Some((last, _)) if page.more => Ok(Some(last)),
            _ => {
                snapshots.going.retain(|number| *number != self.number);
                // It is a root no more.
                match snapshots.kept.is_empty() && snapshots.going.is_empty() {
                    true => unit.delete(key),
                    false => unit.put(key, &snapshots),
                }
                Ok(None)
            }
        }
    }
}

/// Was the row this already when that older snapshot was made?
fn has_it(of: &Key, old: &OldRow, snapshot: u64) -> bool {
    let Some(row) = &old.row else { return old.born < snapshot };
    let row = row.to_vec();
    match of.table() {
        Table::Inodes | Table::InodeIds => match inode_in(of, &row) {
            Ok(Some(inode)) => inode.changed < snapshot,
            // Where an entry that leads elsewhere came later, that there was none is kept.
            _ => old.born < snapshot || of.table() == Table::Inodes,
        },
        Table::Chunks => ChunkRow::decode(of, &row).map_or(old.born < snapshot, |row| row.is_older_than(snapshot)),
        _ => old.born < snapshot,
    }
}

impl SweepSnapshot {
    /// Would an older snapshot without this version of an entry show the next one, because that leads elsewhere and does not say when it came?
    async fn is_covered_by(&self, unit: &mut Unit<'_>, snapshots: &SnapshotsRow, of: &Key) -> Result<bool, OpError> {
        if of.table() != Table::Inodes {
            return Ok(false);
        }
        let newer = snapshots.numbers_from(self.number + 1);
        let versions: Vec<Key> = newer.into_iter().map(|number| keys::old_row(self.root, of, number)).collect();
        unit.load(&versions).await?;
        for version in &versions {
            if let Some(next) = unit.get::<OldRow>(version).await? {
                let row = next.row.map(|row| row.to_vec());
                return Ok(row.is_some_and(|row| !matches!(inode_in(of, &row), Ok(Some(_)))));
            }
        }
        Ok(unit.get_raw(of).await?.is_some_and(|row| !matches!(inode_in(of, &row), Ok(Some(_)))))
    }

    /// Nothing needs this any more.
    async fn let_go(&self, unit: &mut Unit<'_>, of: &Key, old: &OldRow) -> Result<(), OpError> {
        let (Table::Chunks, Some(row)) = (of.table(), &old.row) else { return Ok(()) };
        let gone = ChunkRow::decode(of, row)?;
        if unit.get::<ChunkRow>(of).await?.is_some_and(|row| row.chunk == gone.chunk) {
            return Ok(());
        }
        let others = unit.scan(&keys::old_rows_below(self.root, of), None, ALL).await?;
        for (key, row) in &others.rows {
            if let Some(row) = OldRow::decode(key, row)?.row
                && ChunkRow::decode(of, &row)?.chunk == gone.chunk
            {
                return Ok(());
            }
        }
        unit.put(keys::reclaim_chunk(gone.chunk), &ReclaimRow { container: gone.container });
        Ok(())
    }
}

/// What snapshots alone have, page by page: [`braid_api::admin::AdminQuery::KeptRows`].
pub struct KeptRows {
    /// Behind this row, as the last page said.
    pub after: Option<Vec<u8>>,
    pub limit: usize,
}

impl Query for KeptRows {
    type Answer = KeptPage;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<KeptPage, OpError> {
        let after = self.after.as_ref().and_then(|bytes| Key::from_bytes(Table::OldRows, bytes));
        let page = unit.scan_table(Table::OldRows, after.as_ref(), self.limit).await?;
        let of = |key: &Key| keys::of_old_row(key).map(|(of, _)| (InodeId(key.partition()), of));
        let is_chunk = |(_, of): &(InodeId, Key)| of.table() == Table::Chunks;
        let wanted: BTreeSet<Key> =
            page.rows.iter().filter_map(|(key, _)| of(key)).filter(is_chunk).map(|(_, of)| of).collect();
        unit.load(&wanted.into_iter().collect::<Vec<_>>()).await?;
        // Versions of one row may name one chunk, and some of them may be on the page before.
        let mut told: BTreeSet<(Key, ChunkId)> = BTreeSet::new();
        if let Some((root, of)) = after.as_ref().and_then(of).filter(is_chunk) {
            let versions = unit.scan(&keys::old_rows_below(root, &of), None, ALL).await?;
            for (key, row) in versions.rows.iter().take_while(|(key, _)| Some(key) <= after.as_ref()) {
                told.extend(chunk_in(key, &of, row)?.map(|row| (of.clone(), row.chunk)));
            }
        }
        let mut rows = Vec::new();
        for (key, row) in &page.rows {
            if let Some(inode) = keys::of_kept_inode(key) {
                rows.push(KeptRow::Inode(inode));
            }
            let Some((_, of)) = of(key).filter(is_chunk) else { continue };
            let Some(ChunkRow { chunk, container, stable, .. }) = chunk_in(key, &of, row)? else { continue };
            let is_live = unit.get::<ChunkRow>(&of).await?.is_some_and(|row| row.chunk == chunk);
            if is_live || !told.insert((of.clone(), chunk)) {
                continue;
            }
            let (inode, index) = (InodeId(of.partition()), keys::chunk_index(&of));
            let index = index.ok_or_else(|| super::content::damaged(&of))?;
            rows.push(KeptRow::Chunk(admin::ChunkRow { inode, index, chunk, container, stable }));
        }
        let next = page.rows.last().filter(|_| page.more).map(|(key, _)| key.bytes().to_vec());
        Ok(KeptPage { rows, next })
    }
}

/// The row of a chunk as it was, if there was one.
fn chunk_in(key: &Key, of: &Key, row: &[u8]) -> Result<Option<ChunkRow>, OpError> {
    OldRow::decode(key, row)?.row.map(|row| ChunkRow::decode(of, &row)).transpose()
}
