//! One change of a chain: when it is needed, who is in the new one, and what must be so before it takes effect.

use super::without::Decided;
use super::{Held, Leader, LeaderCommand, Phase, Spares};
use crate::limits::Moment;
use crate::message::{FromLeader, Install};
use crate::replica::sources;
use crate::takeover::{Answer, Decision, Question, answers_needed, decide};
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
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
        held.full.retain(|_, (until, _)| *until > now);
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
        live.retain(|server| !self.leaving.servers.contains(server));
        let mut spare = |members: &[ServerId], bytes: u64| {
            live.retain(|server| !members.contains(server));
            spares.successor(id, members, &live, bytes).filter(|spare| live.contains(spare))
        };
        while members.len() < usize::from(held.row.copies) {
            // One without room for all is better than none: holes are counted, and others may be deleted.
            let bytes = held.bytes_at_most();
            let Some(spare) = spare(&members, bytes).or_else(|| spare(&members, 0)) else { break };
            members.push(spare);
        }
        // A member without room has what it had, and goes only for one that has room for all; one at a time, so that most of
        // the chain stays whole.
        let full = members.iter().find_map(|server| held.full.get(server).map(|(_, bytes)| (*server, *bytes)));
        let replaced = full.and_then(|(full, bytes)| Some((full, spare(&members, bytes)?)));
        if let Some((full, spare)) = replaced {
            members.retain(|server| *server != full);
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
        if !self.could_decide(held, now) {
            return;
        }
        if !is_needed {
            // Nothing is wrong: who leaves may give up a place.
            let Some(next) = self.next_place(now, id, &live, spares) else { return };
            members = next;
        }
        let Some(held) = self.containers.get(&id) else { return };
        let row = held.row.raised(members);
        if let Some(held) = self.containers.get_mut(&id) {
            held.dirty = false;
            held.full.clear();
            held.shunned.extend(replaced.map(|(full, _)| (full, now + self.limits.shun)));
        }
        self.commit(id, row, Phase::Raising, out);
    }

    pub(super) fn could_decide(&self, held: &Held, now: Moment) -> bool {
        let row = &held.row;
        let enough = |counted: &[ServerId]| {
            let live = counted.iter().filter(|server| self.book.is_live(**server, now)).count();
            live >= answers_needed(counted.len(), row.min_copies.into())
        };
        enough(row.counted(None)) && row.last_open.keys().all(|chunk| enough(row.counted(Some(*chunk))))
    }

    /// Has stopped acting in older epochs: it says so, or its lease is over.
    pub(super) fn has_stopped(&self, held: &Held, server: ServerId, now: Moment) -> bool {
        self.has_reported(held, server) || self.book.is_over(server, now)
    }

    pub(super) fn has_reported(&self, held: &Held, server: ServerId) -> bool {
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
            held.anew.clear();
            held.decided = Some(Decided { at: now, on: held.reports.keys().copied().collect() });
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
        // Also for chunks that nobody named: they begin with nothing, which must be known. Those that were never open since
        // are with members of an older chain, and it is they who must have answered.
        if !counts(row.counted(None)) || !row.last_open.keys().all(|chunk| counts(row.counted(Some(*chunk)))) {
            return None;
        }
        // What was promised of a chunk is on min_copies of its servers, those among them that have lost it: as many of the others must
        // answer as if none had. In an epoch that was opened since, they have promised only what they have.
        let has_lost = |server: &ServerId, chunk: ChunkId| {
            let lost = held.without.get(server).into_iter().flatten();
            lost.filter(|(of, _)| *of == chunk).any(|(_, since)| row.open_in(chunk) <= *since)
        };
        let shows = |(chunk, _): &(ChunkId, ChainEpoch)| {
            let counted = row.counted(Some(*chunk));
            let kept: Vec<&ServerId> = counted.iter().filter(|server| !has_lost(server, *chunk)).collect();
            let here = kept.iter().filter(|server| answered.contains(server)).count();
            kept.len() == counted.len()
                || here >= answers_needed(counted.len(), row.min_copies.into()).min(kept.len()).max(1)
        };
        if !held.without.values().flatten().all(shows) {
            return None;
        }
        let reports = || answered.iter().filter_map(|server| held.reports.get(server).map(|(_, r)| (*server, r)));
        let mut chunks: BTreeSet<ChunkId> = reports().flat_map(|(_, r)| r.iter().map(|report| report.chunk)).collect();
        // Enough of the counted chain have answered, and none has the chunk from that epoch: nothing of it was ever
        // acknowledged, or it was deleted while those that name it were away. It must not come back with them, also if one of
        // them was invited since and never came so far as to act.
        let has = |server: &ServerId, chunk: ChunkId, since: ChainEpoch| {
            held.reports.get(server).is_some_and(|(_, reports)| {
                let of_chunk = reports.iter().filter(|report| report.chunk == chunk);
                of_chunk.flat_map(|report| report.claims.lineage.starts()).any(|start| start.epoch >= since)
            })
        };
        chunks.retain(|chunk| {
            let (counted, since) = (row.counted(Some(*chunk)), row.open_in(*chunk));
            let mut here = counted.iter().filter(|server| answered.contains(server));
            !counts(counted) || here.any(|server| has(server, *chunk, since))
        });
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

#[cfg(test)]
mod tests {
    use super::super::testing::{NoSpares, says};
    use super::*;
    use crate::Lineage;
    use crate::limits::Limits;
    use crate::message::{Report, ToLeader};
    use crate::{ChainRow, Claims, ContainerRow, LeaderEvent};
    use braid_types::LeaderEpoch;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const C: ContainerId = ContainerId(6);
    const CHUNK: ChunkId = ChunkId(10);

    fn committed_rows(commands: &[LeaderCommand]) -> Vec<ContainerRow> {
        let row = |command: &LeaderCommand| match command {
            LeaderCommand::Commit { row, .. } => Some(row.clone()),
            _ => None,
        };
        commands.iter().filter_map(row).collect()
    }

    /// Chunk 10 was last open under servers 1 and 4; the chain is 2 and 3 now, and neither had anything of it when it
    /// restarted.
    fn raised() -> Leader {
        let ids = |servers: [u64; 2]| servers.map(ServerId).to_vec();
        let older = ChainRow { epoch: ChainEpoch(2), members: ids([1, 4]) };
        let newest = ChainRow { epoch: ChainEpoch(4), members: ids([3, 2]) };
        let row = ContainerRow {
            id: C,
            copies: 2,
            min_copies: 2,
            chains: vec![older, newest],
            settled: true,
            last_open: BTreeMap::from([(CHUNK, ChainEpoch(2))]),
            default_open: ChainEpoch(4),
        };
        let mut leader = Leader::new(Duration::ZERO, LeaderEpoch(1), Limits::default(), [(C, row)]);
        for server in 1..=4 {
            says(&mut leader, 100, server, ToLeader::Renew { asked: Duration::ZERO, chains: Some(Vec::new()) });
        }
        let raise = leader.on(Duration::from_millis(150), LeaderEvent::Tick, &mut NoSpares);
        assert_eq!(committed_rows(&raise).len(), 1);
        leader.on(Duration::from_millis(160), LeaderEvent::Committed { container: C, number: 1 }, &mut NoSpares);
        leader
    }

    /// A copy of a chunk that was last written in this epoch.
    fn copy(chunk: ChunkId, epoch: u32) -> Report {
        let claims = Claims { lineage: Lineage::new(ChainEpoch(epoch)), ..Claims::default() };
        Report { chunk, claims, owns: false }
    }

    fn prepared(reports: Vec<Report>) -> ToLeader {
        ToLeader::Prepared { container: C, epoch: ChainEpoch(5), reports }
    }

    #[test]
    fn a_chunk_that_only_silent_members_of_an_older_chain_know_is_waited_for() {
        let mut leader = raised();
        says(&mut leader, 200, 2, prepared(Vec::new()));
        says(&mut leader, 210, 3, prepared(Vec::new()));
        // The leases of the silent two are over.
        let mut said = Vec::new();
        for ms in (300..9_000).step_by(100) {
            for server in [2, 3] {
                let renew = ToLeader::Renew { asked: Duration::from_millis(ms), chains: None };
                said.extend(says(&mut leader, ms, server, renew));
            }
            said.extend(leader.on(Duration::from_millis(ms), LeaderEvent::Tick, &mut NoSpares));
        }
        assert_eq!(committed_rows(&said), [], "decided without anybody who could know chunk 10");
        // One of them says what it has.
        let renew = ToLeader::Renew { asked: Duration::from_secs(9), chains: None };
        says(&mut leader, 9_000, 4, renew);
        let rows = committed_rows(&says(&mut leader, 9_100, 4, prepared(vec![copy(CHUNK, 2)])));
        assert_eq!(rows[0].last_open, BTreeMap::from([(CHUNK, ChainEpoch(2))]));
    }

    /// Of a pair one answer is enough, but not that of the one that has lost what it had.
    #[test]
    fn who_has_lost_a_copy_does_not_decide_that_there_was_none() {
        let row = ContainerRow::new(C, [1, 2].map(ServerId).to_vec(), 2, 2);
        let mut leader = Leader::new(Duration::ZERO, LeaderEpoch(1), Limits::default(), [(C, row)]);
        for server in 1..=2 {
            let chains = Some(vec![(C, ChainEpoch(1))]);
            says(&mut leader, 100, server, ToLeader::Renew { asked: Duration::ZERO, chains });
        }
        let tick = |leader: &mut Leader, ms| leader.on(Duration::from_millis(ms), LeaderEvent::Tick, &mut NoSpares);
        assert_eq!(committed_rows(&tick(&mut leader, 150)), []);
        leader.on(Duration::from_millis(160), LeaderEvent::Lost { container: C }, &mut NoSpares);
        assert_eq!(committed_rows(&tick(&mut leader, 200))[0].epoch(), ChainEpoch(2));
        leader.on(Duration::from_millis(210), LeaderEvent::Committed { container: C, number: 1 }, &mut NoSpares);
        let (container, epoch, lost) = (C, ChainEpoch(2), vec![(CHUNK, ChainEpoch(1))]);
        let without = ToLeader::PreparedWithout { container, epoch, reports: Vec::new(), lost };
        let mut said = says(&mut leader, 220, 1, without);
        for ms in (300..9_000).step_by(100) {
            let renew = ToLeader::Renew { asked: Duration::from_millis(ms), chains: None };
            said.extend(says(&mut leader, ms, 1, renew));
            said.extend(tick(&mut leader, ms));
        }
        assert_eq!(committed_rows(&said), [], "decided while the only one that has it is silent");
        says(&mut leader, 9_000, 2, ToLeader::Renew { asked: Duration::from_secs(9), chains: None });
        let has_it = ToLeader::Prepared { container, epoch, reports: vec![copy(CHUNK, 1)] };
        let rows = committed_rows(&says(&mut leader, 9_100, 2, has_it));
        assert!(rows[0].settled && rows[0].last_open.contains_key(&CHUNK), "{rows:?}");
    }

    #[test]
    fn a_chunk_that_was_deleted_does_not_come_back_with_those_that_were_away() {
        let mut leader = raised();
        let stray = copy(ChunkId(99), 1);
        says(&mut leader, 200, 2, prepared(Vec::new()));
        // It was invited into epoch 4, and had not heard of that when epoch 5 came.
        says(&mut leader, 210, 3, prepared(vec![stray.clone()]));
        says(&mut leader, 220, 1, prepared(vec![stray.clone()]));
        let rows = committed_rows(&says(&mut leader, 230, 4, prepared(vec![copy(CHUNK, 2), stray])));
        assert_eq!(rows[0].last_open.keys().collect::<Vec<_>>(), [&CHUNK], "99 was deleted under 2 and 3");
    }

    /// Server 4, if it has so much room.
    struct Four(u64);
    impl Spares for Four {
        fn successor(&mut self, _: ContainerId, _: &[ServerId], live: &[ServerId], bytes: u64) -> Option<ServerId> {
            live.contains(&ServerId(4)).then_some(ServerId(4)).filter(|_| self.0 >= bytes)
        }
    }

    #[test]
    fn a_member_without_room_goes_for_a_server_that_has_room_for_all_and_for_no_other() {
        let row = ContainerRow::new(C, [1, 2, 3].map(ServerId).to_vec(), 3, 2);
        let mut leader = Leader::new(Duration::ZERO, LeaderEpoch(1), Limits::default(), [(C, row)]);
        for server in 1..=4 {
            let acts = if server < 4 { vec![(C, ChainEpoch(1))] } else { Vec::new() };
            says(&mut leader, 100, server, ToLeader::Renew { asked: Duration::ZERO, chains: Some(acts) });
        }
        let tick = |leader: &mut Leader, ms, room| {
            committed_rows(&leader.on(Duration::from_millis(ms), LeaderEvent::Tick, &mut Four(room)))
        };
        assert_eq!(tick(&mut leader, 200, u64::MAX), [], "nobody is full");
        let full = ToLeader::Full { container: C, epoch: ChainEpoch(1), bytes: 1000 };
        says(&mut leader, 300, 2, full.clone());
        assert_eq!(tick(&mut leader, 400, 999), [], "what 2 has is better than nothing");
        assert_eq!(tick(&mut leader, 3_350, 1000), [], "it has not said so again: there is room");
        says(&mut leader, 3_400, 2, full);
        let rows = tick(&mut leader, 3_500, 1000);
        assert_eq!(rows[0].members(), [1, 3, 4].map(ServerId));
        leader.on(Duration::from_millis(3_600), LeaderEvent::Committed { container: C, number: 1 }, &mut NoSpares);
        assert!(leader.row(C).unwrap().knows(ServerId(2)), "what it has is not forgotten");
    }
}
