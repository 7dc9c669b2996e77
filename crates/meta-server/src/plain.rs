//! Chunks with one copy on data servers that are drained: what is to be moved, and how that goes
//! (docs/design/0016-growing-and-shrinking.md, *Chunks with one copy*). Moved they are by a client, under the leases of their files.

use crate::server::MetaServer;
use braid_api::meta::{Duty, FileLease, MOVER, MovesOn, ShiftChunks, StuckChunk, ToMove};
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_lease::Want;
use braid_placement::Shift;
use braid_types::{ContainerId, InodeId, ServerId, SessionId};
use parking_lot::Mutex;
use std::time::Duration;

/// Who moves chunks asks each second; after so long without a word nobody does.
const SILENT: Duration = Duration::from_secs(5);
/// Between two looks at who does not give a file up.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What was heard last of who moves them.
#[derive(Default)]
pub(crate) struct Movers(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    at: Option<Monotonic>,
    stuck: Vec<StuckChunk>,
}

impl Movers {
    pub fn are_at_work(&self, now: Monotonic) -> bool {
        self.0.lock().at.is_some_and(|at| now.since(at) < SILENT)
    }

    /// Why something stays where it is.
    pub fn why_any_is_stuck(&self) -> Option<String> {
        let heard = self.0.lock();
        heard.stuck.first().map(|stuck| format!("chunk {} of inode {}: {}", stuck.chunk, stuck.inode, stuck.cause))
    }

    /// Why something of the container stays where it is.
    pub fn why_stuck(&self, container: ContainerId) -> Option<String> {
        let heard = self.0.lock();
        let stuck = heard.stuck.iter().find(|stuck| stuck.container == container)?;
        Some(format!("chunk {} of inode {}: {}", stuck.chunk, stuck.inode, stuck.cause))
    }
}

impl MetaServer {
    pub(crate) fn is_mover(&self, session: SessionId) -> bool {
        self.sessions.with(session, |s| s.description == MOVER).unwrap_or_default()
    }

    /// The file's lease for who moves its chunks, who has time: a mount that is silent has the file for as long as its session lasts. Whoever
    /// else asks for it does not wait so long.
    pub(crate) async fn take_if_given(&self, session: SessionId, inode: InodeId, want: Want) -> Result<FileLease> {
        self.expect_answering(session, inode)?;
        let taking = self.leases.take_file(session, inode, want);
        let mut taking = std::pin::pin!(taking);
        loop {
            if let Ok(taken) = self.env.timeout(LOOK_AGAIN, taking.as_mut()).await {
                return taken;
            }
            // Given up long before the other's term is over: who waits then ends it.
            self.expect_answering(session, inode)?;
        }
    }

    /// Whoever else has the file has been heard of lately.
    fn expect_answering(&self, besides: SessionId, inode: InodeId) -> Result<()> {
        let now = self.env.clock.now();
        for id in self.leases.holders(inode).into_iter().filter(|id| *id != besides) {
            let silent = self.sessions.with(id, |s| (now.since(s.seen), format!("{}, host {}", s.description, s.host)));
            let Some((silent, who)) = silent.filter(|(silent, _)| *silent > self.config.session_lease / 2) else {
                continue;
            };
            let cause = format!(
                "session {id} ({who}) has it and has been silent for {} s; it is asked again",
                silent.as_secs()
            );
            return Err(Error::new(Code::TextBusy, format_args!("inode {inode}"), cause));
        }
        Ok(())
    }

    pub(crate) async fn moves_on(&self, m: MovesOn) -> Result<ToMove> {
        let is_at_work = m.stuck.is_some();
        if let Some(stuck) = m.stuck {
            if stuck.len() > MovesOn::MAX {
                return Err(Error::new(Code::Invalid, "MovesOn", format_args!("{} chunks", stuck.len())));
            }
            *self.growing.movers.0.lock() = Heard { at: Some(self.env.clock.now()), stuck };
        }
        if !m.shifted.is_empty() {
            self.chunks_shifted(&m.shifted).await?;
        }
        let (containers, shifts) = (self.to_move().await?, self.shifts(is_at_work).await?);
        Ok(ToMove { containers, shifts, bytes_per_s: self.move_share().max(1) })
    }

    /// What evens servers out beside the moves of copies, and after them.
    async fn shifts(&self, is_at_work: bool) -> Result<Vec<ShiftChunks>> {
        let mut shifts = Vec::new();
        for Shift { from, to, bytes } in self.rebalancing.shifts(is_at_work) {
            let rows = self.rows_of(from).await?;
            let containers = rows.into_iter().filter(|(_, row)| row.is_plain).map(|(id, _)| id).collect();
            shifts.push(ShiftChunks { from, to, bytes, containers });
        }
        Ok(shifts)
    }

    async fn to_move(&self) -> Result<Vec<(ContainerId, ServerId)>> {
        let mut containers = Vec::new();
        for (server, duty) in self.servers.leaving() {
            if duty == Duty::Drains {
                let rows = self.rows_of(server).await?;
                containers.extend(rows.into_iter().filter(|(_, row)| row.is_plain).map(|(id, _)| (id, server)));
            }
        }
        Ok(containers)
    }
}
