use crate::{Awaited, Counts, Early, EngineError, EngineStats, Key, Order, Snapshot, TxError};
use std::future::Future;

/// How a read locks the rows it names, until the transaction ends. Ordered by strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lock {
    None,
    Shared,
    Exclusive,
}

/// A row's value. The first byte is the version of its format, for its reader to check.
pub type Row = Vec<u8>;

/// One page of a scan, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<(Key, Row)>,
    /// There may be more rows after the last one.
    pub more: bool,
}

/// A running transaction. Reads see its own writes. Writes are buffered and go out with the commit.
///
/// Each call of [`Tx::get`] or [`Tx::scan`] is one round trip of the engine, whatever the number of keys; the
/// commit with its writes is one more. A transaction that wrote nothing commits without a round trip.
pub trait Tx: Send {
    /// The rows of `keys`, in their order, `None` where there is no row. Locks are taken in the order of
    /// [`Key`], whatever the order of `keys`.
    fn get<'a>(&'a mut self, keys: &'a [Key], lock: Lock) -> Awaited<'a, Vec<Option<Row>>>;

    /// As [`Tx::get`]; of those that `shares` picks no more than [`Lock::Shared`] is wanted: many read them, and few change them. An engine
    /// may lock them more.
    fn get_sharing<'a>(
        &'a mut self,
        keys: &'a [Key],
        lock: Lock,
        shares: fn(&Key) -> bool,
    ) -> Awaited<'a, Vec<Option<Row>>> {
        let _ = shares;
        self.get(keys, lock)
    }

    /// Up to `limit` rows whose key begins with `prefix` (a whole partition and the beginning of the rest) and
    /// is greater than `after`, if given. Touches one partition.
    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, lock: Lock) -> Awaited<'a, Page>;

    /// Up to `limit` rows of a whole table after `after`, in key order: for housekeeping, fsck and SQL; touches
    /// all partitions and takes no locks.
    fn scan_table<'a>(&'a mut self, table: crate::Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page>;

    /// Writes a row, whether or not there is one.
    fn put(&mut self, key: Key, row: Row);

    /// Writes a row that must not exist: [`EngineError::Exists`] at the latest when the transaction commits.
    /// This is how absence is proved on engines that cannot lock a row that is not there.
    fn insert(&mut self, key: Key, row: Row);

    /// Removes a row; nothing happens if there is none.
    fn delete(&mut self, key: Key);

    /// Adds to a row of numbers when the transaction commits, without reading it and without a round trip; where there is none, to zeros.
    /// The reads of this transaction do not show it, and it writes no such row otherwise.
    ///
    /// What was answered early and only added to a row keeps nobody from it: who adds, or asks how much there is, does not wait
    /// until that is durable.
    fn add(&mut self, key: Key, by: Counts);

    /// Somebody looks at what this transaction changes ([`crate::Between`]).
    fn is_watched(&self) -> bool {
        false
    }

    /// Over how many rows numbers are best spread to which everybody adds, so that they do not wait for one another.
    fn spread(&self) -> u8 {
        1
    }
}

/// What is done in one transaction. May be run several times, so `run` takes `&self` and keeps no state but in
/// `tx`; it must not do I/O, read clocks or wait for anything but `tx`.
pub trait Operation: Send + Sync + 'static {
    type Output: Send + 'static;
    type Error: TxError;

    /// An error aborts the transaction.
    fn run(&self, tx: &mut dyn Tx) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// Whether whoever asked may be told this before it is durable, if the engine has no objection.
    fn may_be_early(&self, output: &Self::Output) -> bool {
        let _ = output;
        true
    }

    /// Whether it is let through, though it grows, when all room that is left is kept for removals: because without it
    /// nothing can be removed. What says so must be small and rare.
    fn may_use_reserve(&self) -> bool {
        false
    }

    /// Whether it may commit although this engine has ended the epoch in which it was begun ([`Engine::fence_others`]). What is so had no
    /// need to know who else changes these rows: signs of life. All else is [`EngineError::Fenced`] then, as if another had ended it.
    fn outlives_its_epoch(&self) -> bool {
        false
    }
}

/// A store of rows.
pub trait Engine: Send + Sync + 'static {
    /// Runs `op` until it commits. The answer comes when the transaction is durable. `partition` says where
    /// most of its rows are, so that a distributed engine can begin there.
    fn transact<O: Operation>(&self, partition: u64, op: O)
    -> impl Future<Output = Result<O::Output, O::Error>> + Send;

    /// Runs `op` on a committed, durable snapshot without locks, at least as new as everything that was answered
    /// before, early or not: if it touches what was answered early it waits until that is durable. A write in it is [`EngineError::ReadOnly`].
    fn read<O: Operation>(&self, partition: u64, op: O) -> impl Future<Output = Result<O::Output, O::Error>> + Send;

    /// As [`Engine::transact`], but the answer may come as soon as the transaction is ordered, if it touched nothing
    /// that another owner changed and is not durable: then whoever gets the answer keeps what it asked for, to ask it
    /// again after a crash, in the order of the numbers. Engines that cannot wait for durability.
    fn transact_early<O: Operation>(
        &self,
        partition: u64,
        early: Early,
        op: O,
    ) -> impl Future<Output = Result<(O::Output, Order), O::Error>> + Send {
        let _ = early;
        async move { Ok((self.transact(partition, op).await?, Order::Durable)) }
    }

    /// As [`Engine::read`], but it also sees what was answered early to this owner.
    fn read_early<O: Operation>(
        &self,
        partition: u64,
        early: Early,
        op: O,
    ) -> impl Future<Output = Result<(O::Output, Order), O::Error>> + Send {
        let _ = early;
        async move { Ok((self.read(partition, op).await?, Order::Durable)) }
    }

    /// Everything that was answered early under a number up to this one is durable. Numbers begin anew with each
    /// opening of a store.
    fn durable(&self) -> u64 {
        u64::MAX
    }

    /// Returns when everything that was ordered before is durable, and does not wait for more to come.
    fn settle(&self) -> impl Future<Output = Result<(), EngineError>> + Send {
        std::future::ready(Ok(()))
    }

    /// One moment of these tables, committed and durable, at least as new as everything that was answered before, early or not:
    /// for who reads much and takes long. [`EngineError::Unsupported`] where several reads cannot be of one moment.
    fn snapshot(&self, tables: &[crate::Table]) -> impl Future<Output = Result<Box<dyn Snapshot>, EngineError>> + Send;

    /// For a store that several processes reach: from now on what is changed through this one counts as of the present, until another one
    /// fences it. To be called by who is about to ask for the lead.
    fn join(&self) -> impl Future<Output = Result<(), EngineError>> + Send {
        std::future::ready(Ok(()))
    }

    /// From now on whatever another process changes is [`EngineError::Fenced`], until it joins; and what was begun here before, but for
    /// [`Operation::outlives_its_epoch`].
    fn fence_others(&self) -> impl Future<Output = Result<(), EngineError>> + Send {
        std::future::ready(Ok(()))
    }

    /// The epoch in which what is begun here from now on may commit. 0 where nobody is fenced.
    fn epoch(&self) -> u64 {
        0
    }

    /// As [`Engine::join`], if the present epoch is this one; else [`EngineError::Fenced`], and all stays as it was. What was begun here in an
    /// older one does not commit in this one either.
    fn join_at(&self, epoch: u64) -> impl Future<Output = Result<(), EngineError>> + Send {
        let _ = epoch;
        std::future::ready(Ok(()))
    }

    /// Exact counters since the engine was opened.
    fn stats(&self) -> &EngineStats;

    /// Rows in a table, if the engine knows without counting.
    fn rows(&self, table: crate::Table) -> Option<u64> {
        let _ = table;
        None
    }

    /// Bytes of a disk that what it holds takes, if it knows; without what it keeps free for later.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// `embedded`, `memory`, `sql`: for messages.
    fn name(&self) -> &'static str;
}
