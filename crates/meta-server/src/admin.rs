//! Answers for administrators and fsck.

use crate::server::MetaServer;
use braid_api::admin::{AdminAnswer, AdminQuery, ContainerStatus, MemberStatus, Repair, SessionStatus, Status};
use braid_api::quota::Payer;
use braid_api::{Code, Error, Result};
use braid_meta_engine::{Engine, Table};
use braid_meta_namespace::ReadOnly;
use braid_meta_namespace::ops::{admin, check, repair, side, snapshot, spares};
use braid_types::{InodeId, SLOT_COUNT, SessionId, Slot};

impl MetaServer {
    pub(crate) async fn admin(&self, query: AdminQuery) -> Result<AdminAnswer> {
        Ok(match query {
            AdminQuery::Status => AdminAnswer::Status(self.status().await?),
            AdminQuery::Sessions => {
                let now = self.env.clock.now();
                let all = self.sessions.snapshot().into_iter().map(|(session, s)| SessionStatus {
                    session,
                    epoch: s.epoch,
                    description: s.description,
                    host: s.host,
                    silent_ms: now.since(s.seen).as_millis() as u64,
                });
                AdminAnswer::Sessions(all.collect())
            }
            AdminQuery::Containers { after, limit } => {
                let page = spares::ListContainers { after: Some(after), limit: limit.clamp(1, 4096) as usize };
                let rows = self.engine.read(0, page).await.map_err(Error::from)?;
                let all = rows.into_iter().map(|(id, row)| ContainerStatus {
                    id,
                    epoch: row.epoch,
                    chain: row.chain,
                    layout: row.layout,
                    chunk_bytes: row.chunk_bytes,
                    chunks_given: row.given,
                    chunks_freed: row.freed,
                });
                AdminAnswer::Containers(all.collect())
            }
            AdminQuery::InodeRows { after, limit } => {
                AdminAnswer::InodeRows(self.rows(admin::InodeRows { after, limit }).await?)
            }
            AdminQuery::IdRows { after, limit } => {
                AdminAnswer::IdRows(self.rows(admin::IdRows { after, limit }).await?)
            }
            AdminQuery::ChunkRows { after, limit } => {
                AdminAnswer::ChunkRows(self.rows(admin::ChunkRows { after, limit }).await?)
            }
            AdminQuery::Pending { after, limit } => {
                AdminAnswer::Pending(self.rows(admin::PendingRows { after, limit }).await?)
            }
            AdminQuery::Why => AdminAnswer::Why(self.why()),
            AdminQuery::Member => AdminAnswer::Member(self.member()?),
            AdminQuery::Repair(what) => {
                let freed = match &what {
                    Repair::MakeOrphan { inode } => Some(*inode),
                    _ => None,
                };
                let keys = crate::changes::repaired(&what);
                let op = repair::RepairRow { repair: what, now: self.env.clock.wall() };
                let repair = async { self.engine.transact(0, op).await.map_err(Error::from) };
                let done = self.announced_keys(SessionId(0), keys, repair).await?;
                if let (Some(inode), true) = (freed, done.is_some()) {
                    self.orphans.add(inode);
                }
                AdminAnswer::Repaired { done: done.is_some(), what: done.unwrap_or_default() }
            }
            AdminQuery::Inode { id } => AdminAnswer::Inode(Box::new(self.rows(check::CheckInode(id)).await?)),
            AdminQuery::Entry { parent, name } => {
                AdminAnswer::Entry(Box::new(self.rows(check::CheckEntry { parent, name }).await?))
            }
            AdminQuery::PathOf { id } => AdminAnswer::PathOf(self.rows(check::CheckPath(id)).await?),
            AdminQuery::SideRows { after, limit } => {
                AdminAnswer::SideRows(self.rows(side::SideRows { after, limit }).await?)
            }
            AdminQuery::Side(row) => AdminAnswer::Side(self.rows(side::CheckSide(row)).await?),
            AdminQuery::Drain { server } => AdminAnswer::Drain(Box::new(self.drain(server).await?)),
            AdminQuery::SetDuty { server, duty, move_rate } => {
                AdminAnswer::SetDuty(Box::new(self.set_duty(server, duty, move_rate).await?))
            }
            AdminQuery::Rebalance { within_permille } => {
                AdminAnswer::Rebalance(Box::new(self.look_at_rebalance(within_permille).await?))
            }
            AdminQuery::SetRebalance { change, within_permille, move_rate } => {
                let set = self.set_rebalance(change, within_permille, move_rate);
                AdminAnswer::SetRebalance(Box::new(set.await?))
            }
            AdminQuery::SqlBegin { query, timeout_ms } => self.sql_begin(query, timeout_ms).await?,
            AdminQuery::SqlNext { cursor, page } => self.sql_next(cursor, page).await?,
            AdminQuery::SqlEnd { cursor } => self.sql_end(cursor)?,
            AdminQuery::RowsBegin { timeout_ms } => self.rows_begin(timeout_ms).await?,
            AdminQuery::Hold { hold, ms } => self.hold(hold, ms).await?,
            AdminQuery::MoveAway { hold, to } => self.move_away(hold, to).await?,
            AdminQuery::SetQuota { payer, limits } => self.set_quota(payer, limits).await?,
            AdminQuery::Account { payer } => AdminAnswer::Account(self.account(payer).await?),
            AdminQuery::Accounts { after, limit } => AdminAnswer::Accounts(self.accounts(after, limit).await?),
            AdminQuery::Miscounts => AdminAnswer::Miscounts(self.miscounts().await?),
            AdminQuery::Summary { waiting } => self.sum_up(waiting).await?,
            AdminQuery::TreeOp { op, after } => AdminAnswer::TreeOp(self.tree_op(op, after).await?),
            AdminQuery::CreateSnapshot { dir, name, wait_ms } => {
                AdminAnswer::CreateSnapshot(self.create_snapshot(dir, name, wait_ms).await?)
            }
            AdminQuery::DropSnapshot { dir, name } => self.drop_snapshot(dir, name).await?,
            AdminQuery::KeptRows { after, limit } => {
                let limit = limit.clamp(1, 4096) as usize;
                AdminAnswer::KeptRows(self.rows(snapshot::KeptRows { after, limit }).await?)
            }
            AdminQuery::Snapshots { dir } => AdminAnswer::Snapshots(self.list_snapshots(dir)),
            AdminQuery::ConfirmRestored => self.confirm_restored().await?,
            AdminQuery::Chunk { inode, index, session } => {
                AdminAnswer::Chunk(self.rows(check::CheckChunk { inode, index, session }).await?)
            }
        })
    }

    async fn rows<Q: braid_meta_namespace::Query>(&self, query: Q) -> Result<Q::Answer> {
        self.engine.read(0, ReadOnly(query)).await.map_err(Error::from)
    }

    /// Every inode has a row that says where it is, but for the root directory, which is where it is. A database does not know how many rows
    /// it has; who pays for all of them does.
    pub(crate) async fn inodes(&self) -> Result<u64> {
        match self.engine.rows(Table::InodeIds) {
            Some(rows) => Ok(rows + 1),
            None => Ok(self.account(Payer::Dir(InodeId::ROOT)).await?.usage.inodes.max(1) as u64),
        }
    }

    fn member(&self) -> Result<MemberStatus> {
        let Some(beside) = &self.beside else {
            return Err(Error::new(Code::NotSupported, "Member", "one metadata server serves alone here"));
        };
        let stats = self.engine.stats().snapshot();
        let slots = (0..SLOT_COUNT).filter(|slot| beside.others.may_answer(Slot(*slot))).count();
        Ok(MemberStatus {
            member: beside.others.me(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leads: beside.leads,
            epoch: self.leases.epoch(),
            slots: slots as u32,
            sessions: self.sessions.len() as u32,
            uptime_ms: self.uptime_ms(),
            transactions: stats.transactions,
            reads: stats.reads,
        })
    }

    fn uptime_ms(&self) -> u64 {
        self.env.clock.now().since(self.started).as_millis() as u64
    }

    async fn status(&self) -> Result<Status> {
        let servers = self.servers.candidates();
        let up = servers.iter().filter(|s| s.up).count() as u32;
        let stats = self.engine.stats().snapshot();
        let (wanted, copies) = self.copies.as_ref().map(|copies| copies.health()).unwrap_or_default();
        Ok(Status {
            cluster: self.cluster,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            engine: self.engine.name().to_owned(),
            uptime_ms: self.uptime_ms(),
            sessions: self.sessions.len() as u32,
            leases_run_out: self.leases.run_out(),
            servers_up: up,
            servers_down: servers.len() as u32 - up,
            inodes: self.inodes().await?,
            metadata_bytes: self.engine.bytes().unwrap_or(0),
            // The one here, and those of the set.
            metadata_copies: 1 + copies.iter().filter(|copy| copy.is_member).count() as u32,
            round_trips: stats.round_trips,
            transactions: stats.transactions,
            reads: stats.reads,
            syncs: stats.syncs,
            chains: self.chains.look(self.env.clock.now().0, &servers),
            copies_wanted: wanted as u32,
            copies,
            restored: *self.restored.lock(),
            reports: Box::new(self.reports.status()),
        })
    }
}
