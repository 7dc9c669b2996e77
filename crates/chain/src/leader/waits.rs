//! What containers wait for, for `braid admin why`.

use super::{Held, Leader, Phase};
use crate::limits::Moment;
use braid_types::{ChainEpoch, ContainerId, ServerId};
use std::fmt;

/// A container of which writes may not be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderWaits {
    pub container: ContainerId,
    /// The newest, in which they will go on.
    pub epoch: ChainEpoch,
    pub since: Moment,
    pub step: Step,
    /// Who is to do it; empty if that is the leader's own row.
    pub servers: Vec<ServerId>,
}

/// What the servers are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Write,
    Stop,
    Report,
    Install,
    Open,
    Return,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Write => "the row of its new chain to be written",
            Step::Stop => "to stop acting in the epoch before, or their lease to be over",
            Step::Report => "to say what they have",
            Step::Install => "to act in its new chain",
            Step::Open => "to copy what is needed",
            Step::Return => "to come back: the others are too few",
        })
    }
}

impl Leader {
    /// Remembers since when each of them waits.
    pub(super) fn note_waits(&mut self, now: Moment) {
        let waiting: Vec<(ContainerId, bool)> =
            self.containers.iter().map(|(id, held)| (*id, self.step(held, now).is_some())).collect();
        for (id, waits) in waiting {
            if let Some(held) = self.containers.get_mut(&id) {
                held.waits_since = waits.then(|| held.waits_since.unwrap_or(now));
            }
        }
    }

    /// Containers of which writes may wait: their chain is being changed, or has too few servers.
    pub fn waits(&self, now: Moment) -> Vec<LeaderWaits> {
        let one = |(id, held): (&ContainerId, &Held)| {
            let (step, servers) = self.step(held, now)?;
            let since = held.waits_since.unwrap_or(now);
            Some(LeaderWaits { container: *id, epoch: held.row.epoch(), since, step, servers })
        };
        self.containers.iter().filter_map(one).collect()
    }

    fn step(&self, held: &Held, now: Moment) -> Option<(Step, Vec<ServerId>)> {
        let row = &held.row;
        let those = |servers: &[ServerId], lack: &dyn Fn(ServerId) -> bool| {
            servers.iter().copied().filter(|server| lack(*server)).collect::<Vec<_>>()
        };
        match held.phase {
            Phase::Raising(_) | Phase::Settling(_) => Some((Step::Write, Vec::new())),
            Phase::Collecting => {
                let known: Vec<ServerId> = row.known().into_iter().collect();
                let acting = those(&known, &|server| !self.has_stopped(held, server, now));
                Some(match acting.is_empty() {
                    false => (Step::Stop, acting),
                    true => (Step::Report, those(&known, &|server| !self.has_reported(held, server))),
                })
            }
            Phase::Acting | Phase::Opening(_) => {
                let gone = those(row.members(), &|server| !self.is_live(server, now));
                if row.members().len() - gone.len() < usize::from(row.min_copies) {
                    return Some((Step::Return, gone));
                }
                let is_settled = row.settled && row.last_open.is_empty() && !held.dirty;
                let lacks = those(row.members(), &|server| !held.installed.contains(&server));
                match () {
                    () if is_settled => None,
                    () if !lacks.is_empty() => Some((Step::Install, lacks)),
                    () => Some((Step::Open, row.members().to_vec())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{NoSpares, says};
    use super::*;
    use crate::limits::Limits;
    use crate::message::ToLeader;
    use crate::{ChainRow, ContainerRow, LeaderCommand, LeaderEvent};
    use braid_types::LeaderEpoch;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const C: ContainerId = ContainerId(6);

    /// Two copies on servers 2 and 3, both needed.
    fn leader() -> Leader {
        let members = vec![ServerId(2), ServerId(3)];
        let row = ContainerRow {
            id: C,
            copies: 2,
            min_copies: 2,
            chains: vec![ChainRow { epoch: ChainEpoch(4), members }],
            settled: true,
            last_open: BTreeMap::new(),
            default_open: ChainEpoch(4),
        };
        let mut leader = Leader::new(Duration::ZERO, LeaderEpoch(1), Limits::default(), [(C, row)]);
        for server in [2, 3] {
            says(
                &mut leader,
                100,
                server,
                ToLeader::Renew { asked: Duration::ZERO, chains: Some(vec![(C, ChainEpoch(4))]) },
            );
        }
        leader
    }

    /// Only these renew, until then.
    fn pass(leader: &mut Leader, from: u64, until: u64, servers: &[u64]) -> Vec<LeaderCommand> {
        let mut said = Vec::new();
        for ms in (from..until).step_by(100) {
            for server in servers {
                let renew = ToLeader::Renew { asked: Duration::from_millis(ms), chains: None };
                said.extend(says(leader, ms, *server, renew));
            }
            said.extend(leader.on(Duration::from_millis(ms), LeaderEvent::Tick, &mut NoSpares));
        }
        said
    }

    #[test]
    fn a_container_waits_for_the_server_that_is_gone_since_it_is_and_for_the_steps_of_its_new_chain() {
        let mut leader = leader();
        pass(&mut leader, 200, 2_000, &[2, 3]);
        assert_eq!(leader.waits(Duration::from_secs(2)), []);
        // Its lease is over, and it is not taken for dead yet.
        pass(&mut leader, 2_000, 7_000, &[2]);
        let at = |leader: &Leader, ms| leader.waits(Duration::from_millis(ms)).pop();
        let gone = at(&leader, 7_000).unwrap();
        assert_eq!((gone.container, gone.step, &gone.servers[..]), (C, Step::Return, &[ServerId(3)][..]));
        assert!(gone.since > Duration::from_secs(5) && gone.since < Duration::from_secs(7), "{:?}", gone.since);
        // Who owned what it had is to be found out, in another epoch.
        let said = pass(&mut leader, 7_000, 9_000, &[2]);
        let raised = said.iter().find_map(|command| match command {
            LeaderCommand::Commit { number, row, .. } => Some((*number, row.epoch())),
            _ => None,
        });
        let (number, epoch) = raised.unwrap();
        let waits = at(&leader, 9_000).unwrap();
        assert_eq!((waits.step, &waits.servers[..]), (Step::Write, &[][..]));
        leader.on(Duration::from_millis(9_050), LeaderEvent::Committed { container: C, number }, &mut NoSpares);
        let waits = at(&leader, 9_100).unwrap();
        assert!(epoch > ChainEpoch(4) && waits.epoch == epoch, "{waits:?}");
        assert!(matches!(waits.step, Step::Stop | Step::Report) && waits.servers.contains(&ServerId(2)), "{waits:?}");
        assert_eq!(waits.since, gone.since, "it is one wait to who writes");
    }
}
