//! Quotas: set and shown; and a tree is charged to others, a directory at a time (`meta_namespace::ops::restamp`).
//!
//! Promises: whether there is a quota at all is known without looking, so that where there is none nothing is looked for; memory is
//! bounded by the number of quotas whose trees are being counted. Where several serve, those that set none read it in a row, and believe
//! it for [`MetaConfig::limits_known`](crate::MetaConfig::limits_known) from when they asked; who sets the first waits for that.

use crate::call::Call;
use crate::server::MetaServer;
use braid_api::admin::AdminAnswer;
use braid_api::meta::{FileWant, MetaAnswer, MetaRequest, OpenFile};
use braid_api::quota::{Account, Limits, Miscount, Payer, ToSum};
use braid_api::{Code, Error, Result};
use braid_env::{Clock, Monotonic};
use braid_meta_engine::{Engine, Key, Row, Snapshot, Table};
use braid_meta_namespace::ops::quota::{
    AnyLimit, FoldAccounts, ForgetAccount, GetAccount, ListAccounts, NoLimitSaid, SayAnyLimit, SetQuota, Tally,
    WithoutLimit,
};
use braid_meta_namespace::ops::restamp::Restamp;
use braid_meta_namespace::ops::room::OpenLimited;
use braid_meta_namespace::ops::snapshot::BelowOneOf;
use braid_meta_namespace::ops::subtree_ops::{ENTRIES_A_PAGE, Listed};
use braid_meta_namespace::ops::summary::SumUp;
use braid_meta_namespace::{OpContext, OpError, Outcome, ReadOnly};
use braid_types::InodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Rows of one look at all of a table.
const ROWS_A_PAGE: usize = 4096;
/// For which an answer is waited for.
const COUNT_MAX: Duration = Duration::from_secs(40);

pub(crate) struct Quotas {
    /// Somebody has a quota: of a server that sets them.
    limits: AtomicBool,
    /// Of one that does not.
    heard: Mutex<Heard>,
    /// That goes on while this process stands still: others go on meanwhile, and who sets a quota does not wait for it.
    clock: Arc<dyn Clock>,
    /// Of directories with quotas, or that had one: how many inodes of the trees that are being counted are charged right by now.
    counting: Mutex<BTreeMap<InodeId, u64>>,
    ended: Mutex<Ended>,
    /// Held by who sets one, until `limits` says what is so then.
    setting: tokio::sync::Mutex<()>,
}

/// What a server that sets no quotas has read of them.
#[derive(Default)]
struct Heard {
    /// Until then nobody has one.
    none_until: Monotonic,
    /// When it was asked last; `None`: never.
    asked: Option<Monotonic>,
}

/// Accounts of directories without a quota.
struct Ended {
    /// There may be some.
    sought: bool,
    /// When they were looked for last, and how long it is until they are again.
    looked: Monotonic,
    pause: Duration,
}

/// To look for them is to read all accounts.
const LOOK_MIN: Duration = Duration::from_secs(1);
/// What has another name elsewhere may be charged to a directory that has gone for years.
const LOOK_MAX: Duration = Duration::from_secs(64);

impl Quotas {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Quotas {
            limits: AtomicBool::new(true),
            heard: Mutex::default(),
            clock,
            counting: Mutex::default(),
            ended: Mutex::new(Ended { sought: true, looked: Monotonic::default(), pause: Duration::ZERO }),
            setting: tokio::sync::Mutex::default(),
        }
    }
}

impl Quotas {
    /// A quota was taken from a directory, or a tree has gone, in which there may have been some.
    pub(crate) fn may_have_ended(&self) {
        let mut ended = self.ended.lock();
        (ended.sought, ended.pause) = (true, ended.pause.min(LOOK_MIN));
    }

    /// Somebody looks for accounts without a quota now.
    fn seeks_ended(&self, now: Monotonic) -> bool {
        let mut ended = self.ended.lock();
        let is_due = ended.sought && now.0 >= ended.looked.0 + ended.pause;
        if is_due {
            (ended.sought, ended.looked, ended.pause) = (false, now, ended.pause.max(LOOK_MIN));
        }
        is_due
    }

    /// Something is charged to some of them still.
    fn seeks_again(&self) {
        let mut ended = self.ended.lock();
        (ended.sought, ended.pause) = (true, LOOK_MAX.min(2 * ended.pause));
    }

    fn counts(&self, roots: &[InodeId], by: u64) {
        let mut counting = self.counting.lock();
        roots.iter().for_each(|root| *counting.entry(*root).or_default() += by);
    }
}

impl MetaServer {
    /// Somebody may have no more than so much.
    pub(crate) fn are_limits(&self) -> bool {
        if self.leads() {
            return self.quotas.limits.load(Relaxed);
        }
        let (now, known) = (self.quotas.clock.now(), self.config.limits_known);
        let mut heard = self.quotas.heard.lock();
        // In time before that is over, so that a server at work always knows.
        if heard.asked.is_none_or(|asked| now >= asked + known / 2) {
            heard.asked = Some(now);
            self.hear_of_limits(now);
        }
        now >= heard.none_until
    }

    fn hear_of_limits(&self, asked: Monotonic) {
        let Some(server) = self.this.upgrade() else { return };
        self.env.spawn("whether there are quotas", async move {
            let Ok(none) = server.engine.read(0, ReadOnly(NoLimitSaid)).await else { return };
            let until = if none { asked + server.config.limits_known } else { Monotonic::default() };
            server.quotas.heard.lock().none_until = until;
        });
    }

    /// What may stand against a change. `new`: it was not answered before, else refused it would be lost.
    pub(crate) fn may_refuse(&self, new: bool) -> OpContext {
        let limits = new && self.are_limits();
        OpContext { row_copies: new.then(|| self.row_copies()), limits, ..OpContext::default() }
    }

    /// A file that is written says who pays for it.
    pub(crate) fn opening(&self, open: OpenFile) -> BelowOneOf<OpenLimited> {
        let writes = matches!(open.want, FileWant::WriteDirect | FileWant::Alone);
        let query = OpenLimited { open, limits: writes && self.are_limits() };
        BelowOneOf { roots: self.snapshots.few_roots(), query }
    }

    pub(crate) async fn room(
        &self,
        call: &mut Call,
        op: OpContext,
        number: u8,
        request: MetaRequest,
    ) -> Result<MetaAnswer> {
        match request {
            MetaRequest::TakeRoom(mut m) => {
                self.hint(&mut m.inode);
                self.record(call, m.inode.id, op, number, m, MetaAnswer::TakeRoom).await
            }
            MetaRequest::ReturnRoom(mut m) => {
                m.inodes.iter_mut().for_each(|inode| self.hint(inode));
                let first = m.inodes.first().map_or(InodeId(0), |inode| inode.id);
                self.record(call, first, op, number, m, MetaAnswer::ReturnRoom).await
            }
            other => Err(Error::new(Code::BadMessage, other.name(), "is not about room")),
        }
    }

    /// Whether a request was answered before; of a new one sees to what it leaves to do.
    pub(crate) fn noted(&self, done: &Outcome) -> bool {
        if done.restamps {
            self.subtree_ops.look();
        }
        if done.outlived {
            self.quotas.may_have_ended();
        }
        done.repeated
    }

    /// At a start, before anything is served.
    pub(crate) async fn begin_quotas(&self) -> Result<()> {
        let mut after = None;
        loop {
            after = self.engine.transact(0, FoldAccounts { after }).await.map_err(Error::from)?;
            if after.is_none() {
                return self.look_for_quotas().await;
            }
        }
    }

    async fn look_for_quotas(&self) -> Result<()> {
        let any = match self.beside.is_some() {
            // The others set none, and so do not know it.
            true => {
                let say = SayAnyLimit { is_to_come: false };
                self.engine.transact(0, say).await.map_err(Error::from)?.any
            }
            false => self.engine.read(0, ReadOnly(AnyLimit)).await.map_err(Error::from)?,
        };
        self.quotas.limits.store(any, Relaxed);
        Ok(())
    }

    /// Returns when no other server believes any more that nobody has a quota.
    async fn others_look_for_limits(&self) -> Result<()> {
        if self.beside.is_none() {
            return Ok(());
        }
        let said = self.engine.transact(0, SayAnyLimit { is_to_come: true }).await.map_err(Error::from)?;
        if said.was_none {
            let known = self.config.limits_known;
            // Their clocks may run slower than this one.
            self.env.sleep(known + known / 4).await;
        }
        Ok(())
    }

    pub(crate) async fn set_quota(&self, payer: Payer, limits: Option<Limits>) -> Result<AdminAnswer> {
        self.recovery_is_over()?;
        let _alone = self.quotas.setting.lock().await;
        // From before it is there: nobody passes by it unseen when it is set.
        self.quotas.limits.store(true, Relaxed);
        if limits.is_some() {
            self.others_look_for_limits().await?;
        }
        let partition = if let Payer::Dir(id) = payer { id.0 } else { 0 };
        if limits.is_none() {
            self.quotas.may_have_ended();
        }
        let done = self.engine.transact(partition, SetQuota { payer, limits }).await.map_err(Error::from);
        if let (Ok(true), Payer::Dir(id)) = (&done, payer) {
            self.quotas.counts(&[id], 0);
            self.subtree_ops.look();
        }
        // Also of one that was refused: it was said to be coming.
        self.look_for_quotas().await?;
        done.map(|_| AdminAnswer::SetQuota(()))
    }

    /// Is something below this root still to be looked through?
    pub(crate) async fn is_being_charged(&self, root: InodeId) -> Result<bool> {
        self.any_listed(|listed| matches!(listed, Listed::Restamp(_, roots) if roots.contains(&root))).await
    }

    pub(crate) fn recovery_is_over(&self) -> Result<()> {
        if self.recovery.is_open() {
            return Ok(());
        }
        Err(Error::new(Code::Busy, "the metadata server", "it waits for clients of before its start: ask again later"))
    }

    pub(crate) async fn account(&self, payer: Payer) -> Result<Account> {
        let account = self.engine.read(0, ReadOnly(GetAccount(payer))).await.map_err(Error::from)?;
        Ok(self.with_progress(account))
    }

    pub(crate) async fn accounts(&self, after: Option<Payer>, limit: u32) -> Result<Vec<Account>> {
        let page = self.engine.read(0, ReadOnly(ListAccounts { after, limit })).await.map_err(Error::from)?;
        Ok(page.into_iter().map(|account| self.with_progress(account)).collect())
    }

    fn with_progress(&self, account: Account) -> Account {
        let counting = match account.payer {
            Payer::Dir(id) => self.quotas.counting.lock().get(&id).copied(),
            _ => None,
        };
        Account { counting, ..account }
    }

    pub(crate) async fn sum_up(&self, waiting: Vec<ToSum>) -> Result<AdminAnswer> {
        let sum = self.engine.read(0, ReadOnly(SumUp(waiting))).await.map_err(Error::from)?;
        Ok(AdminAnswer::Summary(sum))
    }

    /// Accounts that are not what the rows of inodes sum up to, all of one moment.
    pub(crate) async fn miscounts(&self) -> Result<Vec<Miscount>> {
        let tables = [Table::Inodes, Table::InodeIds, Table::Quotas];
        let snapshot = self.engine.snapshot(&tables).await.map_err(OpError::from)?;
        let (env, until) = (self.env.clone(), self.env.clock.now().0.saturating_add(COUNT_MAX));
        let is_late = move || env.clock.now().0 > until;
        self.env.blocking(move || count(snapshot, &tables, &is_late)).await
    }

    /// Every tree has been looked through: directories that had a quota, and to which nothing is charged any more, lose their account.
    pub(crate) async fn all_are_charged(&self) -> Result<()> {
        let done: Vec<InodeId> = self.quotas.counting.lock().keys().copied().collect();
        for root in done {
            if self.is_charged_still(root).await? {
                self.quotas.may_have_ended();
            }
            self.quotas.counting.lock().remove(&root);
        }
        Ok(())
    }

    /// If not, its account goes, unless it has a quota.
    async fn is_charged_still(&self, root: InodeId) -> Result<bool> {
        self.engine.transact(root.0, ForgetAccount { root }).await.map_err(Error::from)
    }

    /// Accounts go that were left because something was charged to them still, when nothing is any more.
    pub(crate) async fn forget_ended(&self) -> Result<()> {
        if !self.quotas.seeks_ended(self.env.clock.now()) {
            return Ok(());
        }
        let some_are_charged = async {
            let (mut after, mut any) = (None, false);
            loop {
                let (ended, next) = self.engine.read(0, ReadOnly(WithoutLimit { after })).await.map_err(Error::from)?;
                for root in ended {
                    any |= self.is_charged_still(root).await?;
                }
                after = next;
                if after.is_none() {
                    return Ok(any);
                }
            }
        };
        match some_are_charged.await {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.quotas.seeks_again();
                Ok(())
            }
            Err(error) => {
                self.quotas.may_have_ended();
                Err(error)
            }
        }
    }

    pub(crate) async fn charge_entries(&self, dir: InodeId, roots: &[InodeId]) -> Result<()> {
        loop {
            let restamp = Restamp { dir, limit: ENTRIES_A_PAGE };
            let page = self.engine.transact(dir.0, restamp).await.map_err(Error::from)?;
            self.quotas.counts(roots, page.changed);
            if !page.more || self.stopping.load(Relaxed) {
                return Ok(());
            }
            self.env.sleep(crate::subtree_ops::BREATH).await;
        }
    }
}

fn count(mut snapshot: Box<dyn Snapshot>, tables: &[Table], is_late: &dyn Fn() -> bool) -> Result<Vec<Miscount>> {
    let mut tally = Tally::default();
    for table in tables {
        let mut after: Option<Key> = None;
        loop {
            let page = snapshot.scan_table(*table, after.as_ref(), ROWS_A_PAGE).map_err(OpError::from)?;
            page.rows.iter().try_for_each(|(key, row): &(Key, Row)| tally.row(key, row))?;
            match page.rows.into_iter().next_back() {
                Some((key, _)) if page.more => after = Some(key),
                _ => break,
            }
            if is_late() {
                let cause = format_args!("not done within {} s", COUNT_MAX.as_secs());
                return Err(Error::new(Code::TooBig, "the sum of all inodes", cause));
            }
        }
    }
    Ok(tally.miscounts())
}
