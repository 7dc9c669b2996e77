use crate::OpError;
use crate::charges::Charges;
use crate::rows::{Charge, Entry, IdRow, Inode, RowFormat, keys};
use braid_api::meta::InodeRef;
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Row, Table, Tx};
use braid_types::{InodeId, Name};
use std::collections::{BTreeMap, HashMap};

/// Where an inode's attributes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In `inodes` under this parent; `None` is the root.
    Entry(InodeId, Option<Name>),
    /// In `inode_ids`.
    Id,
}

/// An inode and where to write it back.
#[derive(Clone, Debug)]
pub struct Located {
    pub inode: Inode,
    pub place: Place,
}

/// How often a moving row is chased before the operation gives up and is repeated by its caller.
const CHASES_MAX: usize = 8;

/// One transaction with a cache of what it has read and written. A row is read once; a read of what is cached
/// costs no round trip.
pub struct Unit<'t> {
    pub(crate) tx: &'t mut dyn Tx,
    pub(crate) cache: HashMap<Key, Option<Row>>,
    lock: Lock,
    /// Rows of inodes that it changes: what they cost before, and after.
    pub(crate) changed: BTreeMap<Key, [Option<Charge>; 2]>,
    pub(crate) charges: Charges,
    /// A directory in which something is made, and the one whose policy holds there.
    pub(crate) policy_of: Option<(InodeId, InodeId)>,
}

impl<'t> Unit<'t> {
    /// A unit whose reads take `lock`: `None` in queries, `Exclusive` in mutations.
    pub fn new(tx: &'t mut dyn Tx, lock: Lock) -> Self {
        Unit { tx, cache: HashMap::new(), lock, changed: BTreeMap::new(), charges: Charges::default(), policy_of: None }
    }

    /// Somebody looks at what is changed, since there are snapshots.
    pub(crate) fn is_watched(&self) -> bool {
        self.tx.is_watched()
    }

    /// Reads, in one round trip, those of `keys` that are not cached.
    pub async fn load(&mut self, keys: &[Key]) -> Result<(), OpError> {
        self.load_sharing(keys, |_| false).await
    }

    /// The same, of which those that `shares` picks are only to stay as they are.
    pub async fn load_sharing(&mut self, keys: &[Key], shares: fn(&Key) -> bool) -> Result<(), OpError> {
        let mut missing: Vec<Key> = keys.iter().filter(|k| !self.cache.contains_key(*k)).cloned().collect();
        missing.sort();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let rows = self.tx.get_sharing(&missing, self.lock, shares).await?;
        self.cache.extend(missing.into_iter().zip(rows));
        Ok(())
    }

    pub async fn get_raw(&mut self, key: &Key) -> Result<Option<Row>, OpError> {
        self.load(std::slice::from_ref(key)).await?;
        Ok(self.cache.get(key).cloned().flatten())
    }

    pub async fn get<R: RowFormat>(&mut self, key: &Key) -> Result<Option<R>, OpError> {
        self.load(std::slice::from_ref(key)).await?;
        match self.cache.get(key) {
            Some(Some(row)) => R::decode(key, row).map(Some),
            _ => Ok(None),
        }
    }

    /// As [`Unit::get`], where the row is only to stay as it is.
    pub async fn get_shared<R: RowFormat>(&mut self, key: &Key) -> Result<Option<R>, OpError> {
        self.load_sharing(std::slice::from_ref(key), |_| true).await?;
        self.get(key).await
    }

    pub fn put<R: RowFormat>(&mut self, key: Key, row: &R) {
        self.note(&key, row.charge());
        self.put_raw(key, row.encode());
    }

    /// A row of an inode is about to be another. One that was not read had no inode in it: nobody overwrites attributes that it
    /// does not know.
    fn note(&mut self, key: &Key, after: Option<Charge>) {
        if let Some([_, last]) = self.changed.get_mut(key) {
            *last = after;
            return;
        }
        let before = match (key.table(), self.cache.get(key)) {
            (Table::Inodes, Some(Some(row))) => Entry::decode(key, row).ok().and_then(|row| row.charge()),
            (Table::InodeIds, Some(Some(row))) => IdRow::decode(key, row).ok().and_then(|row| row.charge()),
            _ => None,
        };
        if before.is_some() || after.is_some() {
            self.changed.insert(key.clone(), [before, after]);
        }
    }

    pub fn put_raw(&mut self, key: Key, row: Row) {
        self.cache.insert(key.clone(), Some(row.clone()));
        self.tx.put(key, row);
    }

    /// Writes a row that must not exist; the engine refuses the commit if it does.
    pub fn insert<R: RowFormat>(&mut self, key: Key, row: &R) {
        self.note(&key, row.charge());
        let bytes = row.encode();
        self.cache.insert(key.clone(), Some(bytes.clone()));
        self.tx.insert(key, bytes);
    }

    pub fn delete(&mut self, key: Key) {
        self.note(&key, None);
        self.cache.insert(key.clone(), None);
        self.tx.delete(key);
    }

    /// Rows below `prefix`; see [`Tx::scan`].
    pub async fn scan(
        &mut self,
        prefix: &Key,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<braid_meta_engine::Page, OpError> {
        let page = self.tx.scan(prefix, after, limit, self.lock).await?;
        if self.lock != Lock::None && prefix.table() == Table::Inodes {
            // So that it is known what they cost if they are changed.
            for (key, row) in &page.rows {
                self.cache.entry(key.clone()).or_insert_with(|| Some(row.clone()));
            }
        }
        Ok(page)
    }

    pub async fn scan_table(
        &mut self,
        table: braid_meta_engine::Table,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<braid_meta_engine::Page, OpError> {
        Ok(self.tx.scan_table(table, after, limit).await?)
    }

    /// The inode, at its hint or wherever `inode_ids` says it is. [`Code::Stale`] if it does not exist.
    pub async fn find(&mut self, wanted: &InodeRef) -> Result<Located, OpError> {
        self.load(&crate::ops::keys_of(wanted)).await?;
        let gone = || OpError(Error::bare(Code::Stale));
        if wanted.id == InodeId::ROOT {
            return match self.get::<Entry>(&keys::root_entry()).await? {
                Some(Entry::Here(inode)) => Ok(Located { inode, place: Place::Entry(keys::NO_PARENT, None) }),
                _ => Err(Error::new(Code::Internal, "the root directory", "its row is missing").into()),
            };
        }
        if let Some((parent, name)) = &wanted.hint
            && let Some(Entry::Here(inode)) = self.get::<Entry>(&keys::entry(*parent, name)).await?
            && inode.id == wanted.id
        {
            return Ok(Located { inode, place: Place::Entry(*parent, Some(name.clone())) });
        }
        // Rows that were cached may be older than the row of `inode_ids` if this engine does not lock; chasing a
        // few times ends it, as in design.md: "else repeated".
        for _ in 0..CHASES_MAX {
            match self.get::<IdRow>(&keys::inode_id(wanted.id)).await? {
                None => return Err(gone()),
                Some(IdRow::Attributes(inode)) => return Ok(Located { inode, place: Place::Id }),
                Some(IdRow::At { parent, name }) => {
                    let name = Name::new(&name)
                        .map_err(|e| Error::new(Code::Internal, format_args!("inode {}", wanted.id), e))?;
                    let key = keys::entry(parent, &name);
                    if let Some(Entry::Here(inode)) = self.get::<Entry>(&key).await?
                        && inode.id == wanted.id
                    {
                        return Ok(Located { inode, place: Place::Entry(parent, Some(name)) });
                    }
                    self.cache.remove(&key);
                    self.cache.remove(&keys::inode_id(wanted.id));
                }
            }
        }
        Err(Error::new(Code::Busy, format_args!("inode {}", wanted.id), "its row kept moving").into())
    }

    /// The directory; [`Code::NotDirectory`] if it is none, [`Code::NotFound`] if it is being removed.
    pub async fn find_dir(&mut self, wanted: &InodeRef) -> Result<Located, OpError> {
        let located = match self.find(wanted).await {
            Err(OpError(e)) if e.code == Code::Stale => return Err(Code::NotFound.into()),
            other => other?,
        };
        if !located.inode.is_dir() {
            return Err(Code::NotDirectory.into());
        }
        if located.inode.has(crate::rows::flags::DEAD) {
            return Err(Code::NotFound.into());
        }
        Ok(located)
    }

    /// The inode an entry leads to, with its attributes wherever they are.
    pub async fn find_entry(&mut self, parent: InodeId, name: &Name) -> Result<Option<Located>, OpError> {
        match self.get::<Entry>(&keys::entry(parent, name)).await? {
            None => Ok(None),
            Some(Entry::Here(inode)) => Ok(Some(Located { inode, place: Place::Entry(parent, Some(name.clone())) })),
            Some(Entry::Elsewhere { id, .. }) => match self.get::<IdRow>(&keys::inode_id(id)).await? {
                Some(IdRow::Attributes(inode)) => Ok(Some(Located { inode, place: Place::Id })),
                _ => Err(Error::new(
                    Code::Internal,
                    format_args!("{name} in directory {parent}"),
                    format_args!("it leads to inode {id}, which has no attributes; run braid admin fsck"),
                )
                .into()),
            },
        }
    }

    /// Writes an inode back where it lies.
    pub fn store(&mut self, located: &Located) {
        match &located.place {
            Place::Entry(parent, Some(name)) => {
                self.put(keys::entry(*parent, name), &Entry::Here(located.inode.clone()));
            }
            Place::Entry(_, None) => self.put(keys::root_entry(), &Entry::Here(located.inode.clone())),
            Place::Id => self.put(keys::inode_id(located.inode.id), &IdRow::Attributes(located.inode.clone())),
        }
    }
}
