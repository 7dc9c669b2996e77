//! Sessions: registration, pruning of remembered answers, the end.

use super::ids::{Counter, next, take};
use crate::rows::{ReclaimRow, RequestRow, RowFormat, SessionRow, SpareRow, keys};
use crate::{OpError, Unit};
use braid_api::meta::{LiveSessions, MetaAnswer};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{ChunkId, ContainerId, RequestId, SessionEpoch, SessionId, Timestamp};

/// Registers a client; the same client gets the same session again.
///
/// What the client repeats under a new session was perhaps carried out under an old one: its answers come along. An old one
/// that has not ended yet (`former`) gets another epoch, so that nothing that is still on its way runs under it.
pub struct BeginSession {
    pub client: u64,
    pub former: Option<u64>,
    /// Its first session since its start, 0 if this is it.
    pub since: SessionId,
    pub description: String,
    pub host: String,
    pub now: Timestamp,
    pub caches: bool,
}

/// Sessions in one page of a scan.
const SESSIONS_A_PAGE: usize = 1024;

impl Operation for BeginSession {
    type Output = (SessionId, SessionEpoch);
    type Error = OpError;

    /// Whoever wants to remove something begins with a session. Some 200 bytes each, so 64 MiB are enough for 300,000.
    fn may_use_reserve(&self) -> bool {
        true
    }

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let (mut after, mut olds) = (None, Vec::new());
        loop {
            let page = unit.scan_table(Table::Sessions, after.as_ref(), SESSIONS_A_PAGE).await?;
            for (key, row) in &page.rows {
                let (id, row) = (SessionId(key.partition()), SessionRow::decode(key, row)?);
                if row.client == self.client && !row.has_ended() {
                    return Ok((id, row.epoch));
                }
                if row.client == self.client || Some(row.client) == self.former {
                    olds.push(id);
                }
            }
            match page.rows.into_iter().next_back() {
                Some((key, _)) if page.more => after = Some(key),
                _ => break,
            }
        }
        let id = SessionId(take(&mut unit, Counter::Sessions, 1).await?);
        let row = SessionRow {
            epoch: SessionEpoch(1),
            client: self.client,
            description: self.description.clone(),
            host: self.host.clone(),
            since: self.now,
            keeps: false,
            caches: self.caches,
            first: if self.since.0 == 0 { id } else { self.since },
        };
        unit.insert(keys::session(id), &row);
        for old in olds {
            // Its changes, which share it, have committed then, or find that their session is over: no answer comes behind those that are
            // taken over.
            let Some(row) = unit.get::<SessionRow>(&keys::session(old)).await? else { continue };
            for (key, answer) in unit.scan(&keys::requests(old), None, usize::MAX >> 1).await?.rows {
                // One that has ended has forgotten these already.
                let kept = row.has_ended() || !is_of_session(&RequestRow::decode(&key, &answer)?);
                if let (Some(request), true) = (keys::trailing_number(&key), kept) {
                    unit.put_raw(keys::request(id, RequestId(request)), answer);
                }
                unit.delete(key);
            }
            match row.has_ended() {
                true => unit.delete(keys::session(old)),
                false => unit.put(keys::session(old), &SessionRow { epoch: SessionEpoch(row.epoch.0 + 1), ..row }),
            }
        }
        Ok((id, row.epoch))
    }
}

/// Nothing of these sessions is answered early and not durable when this commits: a restart need not wait for them. What
/// is answered early to one of them later first says so again.
pub struct KeepNothing {
    pub sessions: Vec<SessionId>,
}

impl Operation for KeepNothing {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let rows: Vec<Key> = self.sessions.iter().map(|id| keys::session(*id)).collect();
        unit.load(&rows).await?;
        for key in rows {
            match unit.get::<SessionRow>(&key).await? {
                Some(row) if row.keeps => unit.put(key, &SessionRow { keeps: false, ..row }),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Which of these requests of a session are not known to have run.
pub struct MissingRequests {
    pub session: SessionId,
    pub requests: Vec<RequestId>,
}

impl Operation for MissingRequests {
    type Output = Vec<RequestId>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let rows: Vec<Key> = self.requests.iter().map(|id| keys::request(self.session, *id)).collect();
        unit.load(&rows).await?;
        let mut missing = Vec::new();
        for (request, key) in self.requests.iter().zip(rows) {
            if unit.get_raw(&key).await?.is_none() {
                missing.push(*request);
            }
        }
        Ok(missing)
    }
}

/// All sessions: what a metadata server reads at its start.
pub struct ListSessions;

impl Operation for ListSessions {
    type Output = Vec<(SessionId, SessionRow)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan_table(Table::Sessions, None, usize::MAX >> 1).await?;
        page.rows.iter().map(|(key, row)| Ok((SessionId(key.partition()), SessionRow::decode(key, row)?))).collect()
    }
}

/// A session's row, also of one that has ended and is remembered.
pub struct FindSession {
    pub session: SessionId,
}

impl Operation for FindSession {
    type Output = Option<SessionRow>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        unit.get(&keys::session(self.session)).await
    }
}

/// Which sessions have not ended.
pub struct Live;

impl Operation for Live {
    type Output = LiveSessions;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<LiveSessions, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let before = SessionId(next(&mut unit, Counter::Sessions).await?);
        let page = unit.scan_table(Table::Sessions, None, usize::MAX >> 1).await?;
        let mut live = Vec::new();
        for (key, row) in &page.rows {
            if !SessionRow::decode(key, row)?.has_ended() {
                live.push(SessionId(key.partition()));
            }
        }
        Ok(LiveSessions { before, live })
    }
}

/// Forgets answers below the session's low-water mark, a page at a time; answers whether there are more.
pub struct PruneRequests {
    pub session: SessionId,
    pub below: RequestId,
}

/// Rows forgotten in one transaction: short enough that nobody waits for it.
const PRUNED_A_PAGE: usize = 4096;

impl Operation for PruneRequests {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let page = unit.scan(&keys::requests(self.session), None, PRUNED_A_PAGE).await?;
        for (key, _) in page.rows {
            if keys::trailing_number(&key).is_none_or(|id| id >= self.below.0) {
                return Ok(false);
            }
            unit.delete(key);
        }
        Ok(page.more)
    }
}

/// The spares a session still has: before it ends, those that were written are put into their files.
pub struct ListSpares {
    pub session: SessionId,
}

impl Operation for ListSpares {
    type Output = Vec<(ChunkId, ContainerId)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let page = unit.scan(&keys::spares(self.session), None, usize::MAX >> 1).await?;
        page.rows
            .iter()
            .map(|(key, row)| {
                let chunk = keys::trailing_number(key).ok_or_else(|| super::content::damaged(key))?;
                Ok((ChunkId(chunk), SpareRow::decode(key, row)?.container))
            })
            .collect()
    }
}

/// Ends a session: its spares go to reclaim, its remembered answers and its row go. Repeatable.
///
/// With `remember` the answers stay for its client, which may live and repeat requests under its next session, until that
/// begins or [`ForgetSession`]; but not those of what went with the session.
pub struct EndSession {
    pub session: SessionId,
    pub remember: bool,
}

impl Operation for EndSession {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        // First: its changes, which share it, have committed then or will find that it has ended, so that nothing comes behind what is
        // read here.
        let key = keys::session(self.session);
        let row = unit.get::<SessionRow>(&key).await?;
        let spares = unit.scan(&keys::spares(self.session), None, usize::MAX >> 1).await?;
        for (key, row) in spares.rows {
            let spare = SpareRow::decode(&key, &row)?;
            if let Some(chunk) = keys::trailing_number(&key) {
                unit.put(keys::reclaim_chunk(ChunkId(chunk)), &ReclaimRow { container: spare.container });
            }
            unit.delete(key);
        }
        let requests = unit.scan(&keys::requests(self.session), None, usize::MAX >> 1).await?;
        let remember = self.remember && row.is_some();
        for (key, row) in requests.rows {
            if !remember || is_of_session(&RequestRow::decode(&key, &row)?) {
                unit.delete(key);
            }
        }
        match row.filter(|_| remember) {
            Some(row) => unit.put(key, &row.ended()),
            None => unit.delete(key),
        }
        super::room::give_back_all(&mut unit, self.session).await?;
        unit.charge_without_limits().await
    }
}

/// What was answered is of no use without the session: it runs again.
fn is_of_session(row: &RequestRow) -> bool {
    let answer = postcard::from_bytes::<MetaAnswer>(&row.answer);
    matches!(
        answer,
        Ok(MetaAnswer::TakeSpares(_) | MetaAnswer::TakeBeside(_) | MetaAnswer::CreateTemporary(_)) | Err(_)
    )
}

/// Forgets the answers of a session that has ended and whose client has not come back.
pub struct ForgetSession {
    pub session: SessionId,
}

impl Operation for ForgetSession {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let key = keys::session(self.session);
        if unit.get::<SessionRow>(&key).await?.is_none_or(|row| !row.has_ended()) {
            return Ok(());
        }
        for (key, _) in unit.scan(&keys::requests(self.session), None, usize::MAX >> 1).await?.rows {
            unit.delete(key);
        }
        unit.delete(key);
        Ok(())
    }
}
