//! The engine: operations as transactions of the database, begun again until they are through.

use crate::capabilities::Capabilities;
use crate::commit::{Commit, Ended};
use crate::failure::{Cause, Verdict};
use crate::fence::{self, Fence};
use crate::options::{Fencing, SqlOptions};
use crate::planted::{Plant, Planted};
use crate::pool::{Lease, Pool};
use crate::probe::{self, Probed};
use crate::read::ReadTx;
use crate::retry::Attempts;
use crate::session::{Message, Session};
use crate::settle::{Settled, settle};
use crate::tx::SqlTx;
use crate::under_way::UnderWay;
use crate::write::writes;
use braid_meta_engine::{Engine, EngineError, EngineStats, Lock, Operation, Snapshot, Table};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Metadata rows in a database.
pub struct SqlEngine {
    options: SqlOptions,
    capabilities: Capabilities,
    pool: Pool,
    fence: Fence,
    stats: Arc<EngineStats>,
    under_way: UnderWay,
    planted: Planted,
}

/// One attempt: the operation's own answer, or why it is to be made again.
type Attempt<O> = Result<Result<<O as Operation>::Output, <O as Operation>::Error>, Verdict>;

impl SqlEngine {
    /// Asks the database what it is and can do, and makes the tables where they are not.
    pub async fn open(options: SqlOptions) -> Result<SqlEngine, EngineError> {
        options.check()?;
        let Probed { mut capabilities, address, set_up, epoch } = probe::probe(&options).await?;
        capabilities.snapshots &= Planted::has_snapshots(&options);
        tracing::info!(server = %options.addresses[address], "the metadata are in {capabilities}");
        let planted = Planted::of(&options);
        let needed = options.fencing == Fencing::Always || !capabilities.cluster_wide_locks;
        let fenced = needed && !planted.is(Plant::NoFences);
        Ok(SqlEngine {
            pool: Pool::new(options.clone(), set_up, address),
            fence: Fence::new(fenced, epoch),
            capabilities,
            stats: Arc::default(),
            under_way: UnderWay::default(),
            planted,
            options,
        })
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Begins the next epoch, and is in it. What other engines change from now on is [`EngineError::Fenced`], as is this call
    /// where another engine was first.
    pub async fn raise_epoch(&self) -> Result<u64, EngineError> {
        let _raising = self.fence.raising();
        let from = self.fence.epoch();
        let message = Message::of([
            "START TRANSACTION".to_owned(),
            fence::raise(from),
            "COMMIT".to_owned(),
            fence::READ.to_owned(),
        ]);
        let mut attempts = Attempts::new(&self.options);
        loop {
            let mut lease = self.pool.lease().await.map_err(Cause::into_error)?;
            match lease.run_whole(&message).await {
                // Whether it really holds is read after the COMMIT (`commit.rs`).
                Ok(done) if fence::epoch_of(done.last()).is_some_and(|epoch| epoch > from) => break,
                Ok(_) => attempts.again(Verdict::Conflict).await?,
                Err(failed) if failed.cause == Cause::SaidNo => {
                    return Err(EngineError::Fenced(format!("its epoch {from} is over")));
                }
                Err(failed) if failed.cause.is_lost() => {
                    return Err(EngineError::MaybeCommitted("the answer to a new epoch was lost".into()));
                }
                Err(failed) => attempts.again(failed.cause.verdict()).await?,
            }
        }
        self.fence.raised(from);
        Ok(from + 1)
    }

    /// Joins the epoch that holds now.
    pub async fn adopt_epoch(&self) -> Result<u64, EngineError> {
        let address = self.pool.address();
        let mut session = Session::connect(&self.options, address, true).await.map_err(Cause::into_error)?;
        let epoch = probe::read_epoch(&mut session).await?;
        self.fence.set_epoch(epoch);
        Ok(epoch)
    }

    /// Joins this epoch, if it holds now.
    async fn join_epoch(&self, epoch: u64) -> Result<(), EngineError> {
        if !self.fence.is_used {
            return Ok(());
        }
        let over = |found| EngineError::Fenced(format!("the epoch is {found} and not {epoch}"));
        let address = self.pool.address();
        let mut session = Session::connect(&self.options, address, true).await.map_err(Cause::into_error)?;
        let found = probe::read_epoch(&mut session).await?;
        match found == epoch && self.epoch() <= epoch {
            true => self.fence.set_epoch(epoch),
            false => return Err(over(found.max(self.epoch()))),
        }
        Ok(())
    }

    /// `epoch`: in which it was begun.
    async fn attempt<O: Operation>(&self, op: &O, epoch: u64) -> Attempt<O> {
        let mut lease = self.pool.lease().await.map_err(Cause::verdict)?;
        let most = if self.planted.is(Plant::NoLocks) { Lock::None } else { Lock::Exclusive };
        let mut tx = SqlTx::new(&mut lease, &self.stats, Lock::None, most);
        let ran = op.run(&mut tx).await;
        let SqlTx { overlay, absent, locked, begun, failed, .. } = tx;
        if let Some(verdict) = failed {
            return Err(verdict);
        }
        let output = match ran {
            Ok(output) if overlay.is_empty() => return Ok(Ok(output)),
            Ok(output) => output,
            Err(error) => return Ok(Err(error)),
        };
        let known = if self.planted.is(Plant::AbsenceForgotten) { Default::default() } else { absent };
        let checked = overlay.check_inserts(|_| Ok(false)).and_then(|()| writes(&overlay, &known));
        let written = match checked {
            Ok(written) => written,
            Err(error) => return Ok(Err(error.into())),
        };
        let partitions = overlay.writes().map(|(key, _)| key.partition()).chain(locked).collect();
        let commit = Commit {
            writes: written,
            begins: !begun,
            absent: &known,
            partitions,
            fence: &self.fence,
            epoch,
            outlives_its_epoch: op.outlives_its_epoch(),
            message_bytes_max: self.capabilities.message_bytes_max,
            check: self.capabilities.check(),
        };
        // Dropped from here on, it may commit all the same.
        let committing = self.under_way.begin(lease.mark().next());
        let ended = commit.run(&mut lease, &self.stats).await;
        let (answer, is_known) = self.end(lease, ended, output).await;
        if is_known {
            committing.end();
        }
        answer
    }

    /// The answer, and whether it is known what became of the transaction.
    async fn end<T, E: From<EngineError>>(
        &self,
        lease: Lease,
        ended: Ended,
        output: T,
    ) -> (Result<Result<T, E>, Verdict>, bool) {
        let settled = match ended {
            Ended::Committed => Settled::Committed,
            Ended::Not(Verdict::Final(error)) => return (Ok(Err(error.into())), true),
            Ended::Not(verdict) => return (Err(verdict), true),
            Ended::Unknown(_) if self.planted.is(Plant::LostMeansUndone) => Settled::NotCommitted,
            Ended::Unknown(mark) => {
                // The database ends the transaction when it sees the connection closed, if it has not ended it before.
                drop(lease);
                tracing::warn!("the answer to a commit was lost: asking what became of it");
                settle(&self.pool, &self.options, mark).await
            }
        };
        match settled {
            Settled::Committed => {
                self.stats.syncs.fetch_add(1, Relaxed);
                (Ok(Ok(output)), true)
            }
            Settled::NotCommitted => (Err(Verdict::Conflict), true),
            Settled::Unknown(why) => (Ok(Err(EngineError::MaybeCommitted(why).into())), false),
        }
    }

    async fn look<O: Operation>(&self, op: &O) -> Attempt<O> {
        let mut lease = self.pool.lease().await.map_err(Cause::verdict)?;
        if !self.capabilities.snapshots {
            return self.look_locked(op, &mut lease).await;
        }
        let mut tx = ReadTx::new(&mut lease, &self.stats);
        let ran = loop {
            let ran = op.run(&mut tx).await;
            if !tx.moved {
                break ran;
            }
            tx.begin_again();
        };
        match (tx.failed, tx.wrote) {
            (Some(verdict), _) => Err(verdict),
            (_, Some(key)) => Ok(Err(EngineError::ReadOnly(key).into())),
            _ => Ok(ran),
        }
    }

    /// Where several statements cannot see one moment, what was read is kept as it is until all is read.
    async fn look_locked<O: Operation>(&self, op: &O, lease: &mut Lease) -> Attempt<O> {
        let mut tx = SqlTx::new(lease, &self.stats, Lock::Shared, Lock::Shared);
        tx.looks_again = true;
        let ran = op.run(&mut tx).await;
        match (tx.failed, tx.overlay.first()) {
            (Some(verdict), _) => Err(verdict),
            (_, Some(key)) => Ok(Err(EngineError::ReadOnly(key.clone()).into())),
            _ => Ok(ran),
        }
    }
}

impl Engine for SqlEngine {
    async fn transact<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.stats.transactions.fetch_add(1, Relaxed);
        let mut attempts = Attempts::new(&self.options);
        let mut epoch = self.fence.epoch();
        loop {
            match self.attempt(&op, epoch).await {
                Ok(answer) => return answer,
                Err(verdict) => attempts.again(verdict).await?,
            }
            if op.outlives_its_epoch() {
                epoch = self.fence.epoch();
            }
            self.stats.retries.fetch_add(1, Relaxed);
        }
    }

    async fn read<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.stats.reads.fetch_add(1, Relaxed);
        let mut attempts = Attempts::new(&self.options);
        loop {
            match self.look(&op).await {
                Ok(answer) => return answer,
                Err(verdict) => attempts.again(verdict).await?,
            }
            self.stats.retries.fetch_add(1, Relaxed);
        }
    }

    /// Each is answered when it is durable. What this waits for are commits whose callers have gone, or could not be told what became
    /// of them: from then on these have committed, or never will.
    async fn settle(&self) -> Result<(), EngineError> {
        let last = self.under_way.of_now();
        for (number, mark) in self.under_way.ended(last).await {
            match settle(&self.pool, &self.options, mark).await {
                Settled::Unknown(why) => return Err(EngineError::Storage(format!("a commit is not settled: {why}"))),
                Settled::Committed | Settled::NotCommitted => self.under_way.settled(number),
            }
        }
        Ok(())
    }

    async fn snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        self.take_snapshot(tables).await
    }

    async fn join(&self) -> Result<(), EngineError> {
        self.adopt_epoch().await.map(drop)
    }

    async fn fence_others(&self) -> Result<(), EngineError> {
        self.raise_epoch().await.map(drop)
    }

    fn epoch(&self) -> u64 {
        if self.fence.is_used { self.fence.epoch() } else { 0 }
    }

    async fn join_at(&self, epoch: u64) -> Result<(), EngineError> {
        self.join_epoch(epoch).await
    }

    fn stats(&self) -> &EngineStats {
        &self.stats
    }

    fn name(&self) -> &'static str {
        "sql"
    }
}
