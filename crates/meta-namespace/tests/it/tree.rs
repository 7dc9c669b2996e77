//! A namespace on an engine, changed by operations one at a time.

use braid_api::meta::*;
use braid_api::quota::{Account, Limits, Miscount, Payer};
use braid_api::{Code, Error};
use braid_meta_engine::{Awaited, Counts, Engine, Key, Lock, Operation, Page, Row, Table, Tx};
use braid_meta_namespace::ops::change_tree::{ChangeEntries, NextEntries};
use braid_meta_namespace::ops::quota::{ListAccounts, SetQuota, Tally};
use braid_meta_namespace::ops::restamp::{Restamp, Restamped};
use braid_meta_namespace::ops::subtree_ops::{ENTRIES_A_PAGE, ListSubtreeOps, Listed};
use braid_meta_namespace::rows::{Entry, IdRow, Inode, RowFormat, keys};
use braid_meta_namespace::{FormatCluster, Mutation, OpContext, OpError, ReadOnly, Recorded};
use braid_types::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

pub const ROOT: InodeId = InodeId::ROOT;

pub struct Tree<E> {
    pub engine: E,
    /// Accounts are shared out over so many rows.
    pub spread: u8,
    /// What goes beyond a quota is refused.
    pub limits: bool,
    /// Somebody else may have open what loses its name.
    pub others: bool,
    /// Entries of a directory that are looked through at once.
    pub page: usize,
    /// What transactions asked of the engine, in one message each.
    pub reads: Reads,
    next: AtomicU64,
}

type Reads = Arc<Mutex<Vec<(Vec<Key>, Lock)>>>;

/// As on an engine where everybody's numbers are better spread.
struct Spread<O>(O, u8, Reads);

struct SpreadTx<'t>(&'t mut dyn Tx, u8, Reads);

impl<O: Operation> Operation for Spread<O> {
    type Output = O::Output;
    type Error = O::Error;

    async fn run(&self, tx: &mut dyn Tx) -> Result<O::Output, O::Error> {
        self.0.run(&mut SpreadTx(tx, self.1, self.2.clone())).await
    }
}

impl Tx for SpreadTx<'_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        self.2.lock().unwrap().push((keys.to_vec(), lock));
        self.0.get(keys, lock)
    }

    fn get_sharing<'a>(
        &'a mut self,
        keys: &'a [Key],
        lock: Lock,
        shares: fn(&Key) -> bool,
    ) -> Awaited<'a, Vec<Option<Row>>> {
        let (shared, own): (Vec<Key>, Vec<Key>) = keys.iter().cloned().partition(shares);
        let mut reads = self.2.lock().unwrap();
        reads.extend([(own, lock), (shared, lock.min(Lock::Shared))].into_iter().filter(|(keys, _)| !keys.is_empty()));
        drop(reads);
        self.0.get(keys, lock)
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, lock: Lock) -> Awaited<'a, Page> {
        self.2.lock().unwrap().push((vec![prefix.clone()], lock));
        self.0.scan(prefix, after, limit, lock)
    }

    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        self.0.scan_table(table, after, limit)
    }

    fn put(&mut self, key: Key, row: Row) {
        self.0.put(key, row);
    }

    fn insert(&mut self, key: Key, row: Row) {
        self.0.insert(key, row);
    }

    fn delete(&mut self, key: Key) {
        self.0.delete(key);
    }

    fn add(&mut self, key: Key, by: Counts) {
        self.0.add(key, by);
    }

    fn is_watched(&self) -> bool {
        self.0.is_watched()
    }

    fn spread(&self) -> u8 {
        self.1
    }
}

/// All rows of some tables.
struct Dump(&'static [Table]);

impl Operation for Dump {
    type Output = Vec<(Key, Row)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut all = Vec::new();
        for table in self.0 {
            all.extend(tx.scan_table(*table, None, usize::MAX >> 1).await?.rows);
        }
        Ok(all)
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl<E: Engine> Tree<E> {
    pub async fn new(engine: E, spread: u8) -> Tree<E> {
        let tree = Tree {
            engine,
            spread,
            limits: true,
            others: true,
            page: ENTRIES_A_PAGE,
            reads: Reads::default(),
            next: AtomicU64::new(1 << 20),
        };
        let format = FormatCluster { cluster: ClusterId([7; 16]), policy: Policy::PLAIN, now: Timestamp(1) };
        tree.run(format).await.unwrap();
        tree
    }

    pub async fn run<O: Operation<Error = OpError>>(&self, op: O) -> Result<O::Output, Error> {
        self.reads.lock().unwrap().clear();
        self.engine.transact(1, Spread(op, self.spread, self.reads.clone())).await.map_err(Error::from)
    }

    pub async fn change<M: Mutation>(
        &self,
        mutation: M,
        answer: fn(M::Answer) -> MetaAnswer,
    ) -> Result<MetaAnswer, Error> {
        let now = self.next.fetch_add(1, Relaxed);
        let cx = OpContext {
            now: Timestamp(now as i64),
            fresh: InodeId::new(now, Slot(now % 4096)),
            others: self.others,
            limits: self.limits,
            ..OpContext::default()
        };
        self.run(Recorded { cx, mutation, message: 0, answer }).await.map(|outcome| outcome.answer)
    }

    /// How the rows of a table were locked by the last operation.
    pub fn locks_on(&self, table: Table) -> Vec<Lock> {
        let reads = self.reads.lock().unwrap();
        reads.iter().filter(|(keys, _)| keys.iter().any(|key| key.table() == table)).map(|(_, lock)| *lock).collect()
    }

    pub fn spec(kind: FileKind, owner: u32) -> NodeSpec {
        NodeSpec {
            kind,
            mode: Mode(0o755),
            umask: 0,
            uid: owner,
            gid: owner,
            rdev: DeviceId(0),
            target: bytes::Bytes::from_static(if matches!(kind, FileKind::Symlink) { b"target" } else { b"" }),
        }
    }

    pub async fn make(&self, parent: InodeId, text: &str, kind: FileKind) -> Result<InodeId, Error> {
        let node = MakeNode { parent: parent.into(), name: name(text), spec: Self::spec(kind, 0) };
        match self.change(node, MetaAnswer::MakeNode).await? {
            MetaAnswer::MakeNode(made) => Ok(made.attr.id),
            other => panic!("{other:?}"),
        }
    }

    pub async fn mkdir(&self, parent: InodeId, text: &str) -> InodeId {
        self.make(parent, text, FileKind::Directory).await.unwrap()
    }

    pub async fn put(&self, parent: InodeId, text: &str, bytes: usize) -> Result<InodeId, Error> {
        let data = bytes::Bytes::from(vec![7; bytes]);
        let spec = Self::spec(FileKind::File, 0);
        let put = PutFile { parent: parent.into(), name: name(text), spec, data, replace: true, open_here: false };
        match self.change(put, MetaAnswer::PutFile).await? {
            MetaAnswer::PutFile(made) => Ok(made.attr.id),
            other => panic!("{other:?}"),
        }
    }

    pub async fn rename(&self, from: (InodeId, &str), to: (InodeId, &str), mode: RenameKind) -> Result<(), Error> {
        let rename = Rename {
            from: from.0.into(),
            from_name: name(from.1),
            to: to.0.into(),
            to_name: name(to.1),
            mode,
            open_here: false,
        };
        let along =
            braid_meta_namespace::ops::rename::RenameAlong { rename, above_from: Vec::new(), above_to: Vec::new() };
        self.change(along, MetaAnswer::Rename).await.map(drop)
    }

    /// Of the last transaction: the tables whose rows it locked exclusively, as it came to them.
    pub fn tables_locked(&self) -> Vec<Table> {
        let reads = self.reads.lock().unwrap();
        let exclusive = reads.iter().filter(|(_, lock)| *lock == Lock::Exclusive);
        let mut tables: Vec<Table> = exclusive.flat_map(|(keys, _)| keys.iter().map(|key| key.table())).collect();
        tables.dedup();
        tables
    }

    /// Of the last transaction: how often it read rows of accounts, and those that it locked.
    pub fn accounts_read(&self) -> (usize, Vec<Payer>) {
        let reads = self.reads.lock().unwrap();
        let of = |key: &Key| match keys::account(key) {
            Some(keys::Account::Limit(payer) | keys::Account::Usage(payer)) => Some(payer),
            None => None,
        };
        let times = reads.iter().filter(|(keys, _)| keys.iter().any(|key| of(key).is_some())).count();
        let locking = reads.iter().filter(|(_, lock)| *lock != Lock::None);
        let mut locked: Vec<Payer> = locking.flat_map(|(keys, _)| keys.iter().filter_map(of)).collect();
        locked.sort();
        locked.dedup();
        (times, locked)
    }

    pub async fn resize(&self, file: InodeId, size: u64) -> Result<(), Error> {
        let change = ChangeAttr {
            inode: file.into(),
            mode: None,
            uid: None,
            gid: None,
            size: Some(size),
            atime: None,
            mtime: None,
            kill_privileges: false,
            cuts_applied: TruncGen(u32::MAX),
        };
        self.change(change, MetaAnswer::ChangeAttr).await.map(drop)
    }

    pub async fn create(&self, parent: InodeId, text: &str) -> Result<InodeId, Error> {
        let (parent, name, spec) = (parent.into(), name(text), Self::spec(FileKind::File, 0));
        let create = CreateFile { parent, name, spec, exclusive: true, truncate: false, write: true };
        match self.change(create, MetaAnswer::CreateFile).await? {
            MetaAnswer::CreateFile(made) => Ok(made.attr.id),
            other => panic!("{other:?}"),
        }
    }

    pub async fn set_quota(&self, payer: Payer, limits: Option<Limits>) -> Result<(), Error> {
        self.run(SetQuota { payer, limits }).await.map(drop)
    }

    /// Quotas of a directory, of these many inodes and bytes.
    pub async fn quota(&self, dir: InodeId, inodes: u64, bytes: u64) {
        let limits = Limits { inodes: Some(inodes), bytes: Some(bytes) };
        self.set_quota(Payer::Dir(dir), Some(limits)).await.unwrap();
    }

    pub async fn listed(&self) -> Vec<InodeId> {
        let listed = self.run(ListSubtreeOps { after: None, limit: usize::MAX >> 1 }).await.unwrap();
        let restamp = |(_, listed)| if let Listed::Restamp(dir, _) = listed { Some(dir) } else { None };
        listed.into_iter().filter_map(restamp).collect()
    }

    pub async fn restamp(&self, dir: InodeId) -> Restamped {
        self.run(Restamp { dir, limit: self.page }).await.unwrap()
    }

    /// A page of a directory that is listed for chown -R; false: there is none.
    pub async fn change_entries(&self) -> bool {
        let listed = self.run(ListSubtreeOps { after: None, limit: usize::MAX >> 1 }).await.unwrap();
        let change = |(_, listed)| if let Listed::Change(dir, op) = listed { Some((dir, op)) } else { None };
        let Some((dir, op)) = listed.into_iter().find_map(change) else { return false };
        let next = ReadOnly(NextEntries { dir, op, limit: self.page });
        let announced = self.engine.read(1, next).await.map_err(Error::from).unwrap().unwrap_or_default();
        let page = ChangeEntries { dir, op, limit: self.page, announced, now: Timestamp(5) };
        self.run(page).await.unwrap();
        true
    }

    /// Until nothing is listed any more.
    pub async fn restamp_all(&self) {
        while let Some(dir) = self.listed().await.first() {
            self.restamp(*dir).await;
        }
    }

    pub async fn accounts(&self) -> Vec<Account> {
        let list = ReadOnly(ListAccounts { after: None, limit: u32::MAX });
        self.engine.read(1, list).await.map_err(Error::from).unwrap()
    }

    /// (inodes, bytes) of one.
    pub async fn usage(&self, payer: Payer) -> (i64, i64) {
        let all = self.accounts().await;
        all.iter().find(|account| account.payer == payer).map_or((0, 0), |a| (a.usage.inodes, a.usage.bytes))
    }

    pub async fn rows(&self, tables: &'static [Table]) -> Vec<(Key, Row)> {
        self.engine.read(1, Dump(tables)).await.map_err(Error::from).unwrap()
    }

    /// What accounts say and what the rows of inodes sum up to.
    pub async fn miscounts(&self) -> Vec<Miscount> {
        let mut tally = Tally::default();
        for (key, row) in self.rows(&[Table::Inodes, Table::InodeIds, Table::Quotas]).await {
            tally.row(&key, &row).unwrap();
        }
        tally.miscounts()
    }

    /// Every name, with what it leads to.
    pub async fn names(&self) -> Vec<(InodeId, String, Entry)> {
        let rows = self.rows(&[Table::Inodes]).await;
        let entries = rows.iter().filter(|(key, _)| key.partition() != 0);
        entries
            .map(|(key, row)| {
                let text = String::from_utf8(key.rest().to_vec()).unwrap();
                (InodeId(key.partition()), text, Entry::decode(key, row).unwrap())
            })
            .collect()
    }

    /// What lies in `inode_ids`.
    pub async fn elsewhere(&self) -> Vec<Inode> {
        let rows = self.rows(&[Table::InodeIds]).await;
        let decoded = rows.iter().map(|(key, row)| IdRow::decode(key, row).unwrap());
        decoded.filter_map(|row| if let IdRow::Attributes(inode) = row { Some(inode) } else { None }).collect()
    }
}

pub fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    result.unwrap_err().code
}
