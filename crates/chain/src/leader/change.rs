//! One change of a chain: when it is needed, who is in the new one, and what must be so before it takes effect.

use super::{Held, Leader, LeaderCommand, Phase, Spares};
use crate::limits::Moment;
use crate::message::{FromLeader, Install};
use crate::replica::sources;
use crate::takeover::{Answer, Decision, Question, answers_needed, decide};
use braid_types::{ChunkId, ContainerId, ServerId};
use std::collections::BTreeSet;

impl Leader {
    pub(super) fn look_after(
        &mut self,
        now: Moment,
        id: ContainerId,
        spares: &mut dyn Spares,
        out: &mut Vec<LeaderCommand>,
    ) {
        let Some(held) = self.containers.get_mut(&id) else { return };
        held.shunned.retain(|_, until| *until > now);
        let is_late = now >= held.sent_at + self.limits.resend;
        match held.phase {
            Phase::Collecting => {
                if is_late {
                    self.send_prepares(now, id, out);
                }
                self.collect(now, id, out);
            }
            Phase::Acting => {
                if is_late {
                    self.send_installs(now, id, out);
                }
                self.write_down_open(id, out);
                self.change_if_needed(now, id, spares, out);
            }
            Phase::Raising(_) | Phase::Settling(_) | Phase::Opening(_) => {}
        }
    }

    fn change_if_needed(
        &mut self,
        now: Moment,
        id: ContainerId,
        spares: &mut dyn Spares,
        out: &mut Vec<LeaderCommand>,
    ) {
        let Some(held) = self.containers.get(&id).filter(|held| held.phase == Phase::Acting) else { return };
        let old = held.row.members().to_vec();
        let is_dead = |server: &ServerId| self.book.is_dead(*server, now, &self.limits);
        let is_bad = |server: &ServerId| is_dead(server) || held.shunned.contains_key(server);
        let mut members: Vec<ServerId> = old.iter().filter(|server| !is_bad(server)).copied().collect();
        let mut live: Vec<ServerId> = self.servers.keys().copied().collect();
        live.retain(|server| self.book.is_live(*server, now) && !held.shunned.contains_key(server));
        while members.len() < usize::from(held.row.copies) {
            live.retain(|server| !members.contains(server));
            let Some(spare) = spares.successor(id, &members, &live).filter(|spare| live.contains(spare)) else { break };
            members.push(spare);
        }
        // Never fewer than a promise needs: the dead keep their places, the last ones, until there is a successor.
        let mut bad: Vec<ServerId> = old.iter().filter(|server| is_bad(server)).copied().collect();
        bad.sort_by_key(is_dead);
        bad.truncate(usize::from(held.row.min_copies).saturating_sub(members.len()));
        members.extend(bad);
        let set = |servers: &[ServerId]| servers.iter().copied().collect::<BTreeSet<_>>();
        let may_own = |server: &ServerId| {
            old.first() == Some(server)
                || held.decisions.as_ref().is_none_or(|decisions| decisions.iter().any(|d| d.owner == *server))
        };
        let has_lost_owner = old.iter().any(|server| is_dead(server) && may_own(server));
        let has_lost_source = held.decisions.iter().flatten().any(|decision| {
            held.row.last_open.contains_key(&decision.chunk) && sources(decision).any(|source| is_dead(&source))
        });
        let is_needed = held.dirty || has_lost_owner || has_lost_source || set(&members) != set(&old);
        // Without enough answers nothing could be decided, and what can be read now could not be any more.
        if !is_needed || !self.could_decide(held, now) {
            return;
        }
        let row = held.row.raised(members);
        if let Some(held) = self.containers.get_mut(&id) {
            held.dirty = false;
        }
        self.commit(id, row, Phase::Raising, out);
    }

    fn could_decide(&self, held: &Held, now: Moment) -> bool {
        let row = &held.row;
        let enough = |counted: &[ServerId]| {
            let live = counted.iter().filter(|server| self.book.is_live(**server, now)).count();
            live >= answers_needed(counted.len(), row.min_copies.into())
        };
        enough(row.counted(None)) && row.last_open.keys().all(|chunk| enough(row.counted(Some(*chunk))))
    }

    /// Has stopped acting in older epochs: it says so, or its lease is over.
    fn has_stopped(&self, held: &Held, server: ServerId, now: Moment) -> bool {
        self.has_reported(held, server) || self.book.is_over(server, now)
    }

    fn has_reported(&self, held: &Held, server: ServerId) -> bool {
        let incarnation = self.servers.get(&server).map(|known| known.incarnation);
        held.reports.get(&server).is_some_and(|(reported, _)| Some(*reported) == incarnation)
    }

    /// First to those that are removed: the others go on until these have stopped.
    pub(super) fn send_prepares(&mut self, now: Moment, id: ContainerId, out: &mut Vec<LeaderCommand>) {
        let Some(held) = self.containers.get(&id) else { return };
        let (known, epoch) = (held.row.known(), held.row.epoch());
        let is_removed = |server: &&ServerId| !held.row.members().contains(server);
        let all = known.iter().filter(is_removed).all(|server| self.has_stopped(held, *server, now));
        let mut asked: Vec<ServerId> = known.iter().filter(|server| all || is_removed(server)).copied().collect();
        asked.retain(|server| !self.has_reported(held, *server));
        if let Some(held) = self.containers.get_mut(&id) {
            (held.sent_at, held.asked_all) = (now, all);
        }
        for server in asked {
            self.send(server, FromLeader::Prepare { container: id, epoch }, out);
        }
    }

    /// Decides when everybody has stopped and enough have answered.
    pub(super) fn collect(&mut self, now: Moment, id: ContainerId, out: &mut Vec<LeaderCommand>) {
        let Some(held) = self.containers.get(&id).filter(|held| held.phase == Phase::Collecting) else { return };
        let known = held.row.known();
        let has_stopped = |server: &ServerId| self.has_stopped(held, *server, now);
        if !known.iter().all(has_stopped) {
            let removed_have = known.iter().filter(|server| !held.row.members().contains(server)).all(has_stopped);
            if removed_have && !held.asked_all {
                self.send_prepares(now, id, out);
            }
            return;
        }
        let Some(decisions) = self.decisions(held) else { return };
        let row = held.row.decided(decisions.iter().map(|decision| decision.chunk));
        for decision in &decisions {
            out.push(LeaderCommand::Decided { container: id, decision: decision.clone() });
        }
        if let Some(held) = self.containers.get_mut(&id) {
            held.decisions = Some(decisions);
            held.invited = held.reports.iter().map(|(server, (incarnation, _))| (*server, *incarnation)).collect();
        }
        self.commit(id, row, Phase::Settling, out);
    }

    /// How each chunk that anybody knows goes on; `None` if too few have answered.
    fn decisions(&self, held: &Held) -> Option<Vec<Decision>> {
        let row = &held.row;
        let answered: Vec<ServerId> =
            held.reports.keys().copied().filter(|server| self.has_reported(held, *server)).collect();
        let counts = |counted: &[ServerId]| {
            let here = counted.iter().filter(|server| answered.contains(server)).count();
            here >= answers_needed(counted.len(), row.min_copies.into())
        };
        // Also for chunks that nobody named: they begin with nothing, which must be known.
        if !counts(row.counted(None)) {
            return None;
        }
        let reports = || answered.iter().filter_map(|server| held.reports.get(server).map(|(_, r)| (*server, r)));
        let chunks: BTreeSet<ChunkId> = reports().flat_map(|(_, r)| r.iter().map(|report| report.chunk)).collect();
        let decision = |chunk: ChunkId| {
            let answer = |(server, reports): (ServerId, &Vec<crate::message::Report>)| {
                (server, reports.iter().position(|r| r.chunk == chunk))
            };
            let places: Vec<(ServerId, Option<usize>)> = reports().map(answer).collect();
            let answers: Vec<Answer> = places
                .iter()
                .map(|(server, place)| {
                    let report = place.and_then(|place| held.reports.get(server).and_then(|(_, r)| r.get(place)));
                    Answer {
                        server: *server,
                        claims: report.map(|report| &report.claims),
                        owns: report.is_some_and(|report| report.owns),
                    }
                })
                .collect();
            let question = Question {
                chunk,
                epoch: row.epoch(),
                counted: row.counted(Some(chunk)),
                members: row.members(),
                min_copies: row.min_copies.into(),
                lineage_max: self.limits.lineage_max,
            };
            decide(&question, &answers).ok()
        };
        chunks.into_iter().map(decision).collect()
    }

    /// To all members that do not act in the newest epoch yet.
    pub(super) fn send_installs(&mut self, now: Moment, id: ContainerId, out: &mut Vec<LeaderCommand>) {
        let Some(held) = self.containers.get_mut(&id) else { return };
        let Some(decisions) = held.decisions.clone().filter(|_| held.row.settled) else { return };
        held.sent_at = now;
        let row = held.row.clone();
        let mut missing = row.members().to_vec();
        missing.retain(|server| {
            let known = self.servers.get(server).filter(|known| known.incarnation != 0);
            let Some(known) = known.filter(|_| !held.installed.contains(server)) else { return false };
            *held.invited.entry(*server).or_insert(known.incarnation) == known.incarnation
        });
        for server in missing {
            let install = Install {
                epoch: row.epoch(),
                members: row.members().to_vec(),
                copies: row.copies,
                min_copies: row.min_copies,
                decisions: decisions.clone(),
            };
            self.send(server, FromLeader::Install { container: id, install }, out);
        }
    }
}
