//! A server that is drained, or whose place another gets: what the metadata server does beside the leader, which asks who is whole and has copies deleted.

use super::*;

impl World {
    /// With each tick of the leader.
    pub fn drain(&mut self) {
        let Some((leaves, _)) = self.leaves.filter(|(_, since)| self.now >= *since) else { return };
        let mut leaving = Leaving { at_once: 1, ..Leaving::default() };
        match self.place_goes_to {
            Some(to) => leaving.moves = [(C, (leaves, to))].into(),
            None => leaving.servers = [leaves].into(),
        }
        self.leader_event(LeaderEvent::Leaving(leaving));
        let Some(leader) = self.leader.machine.as_ref() else { return };
        let Some(row) = leader.row(C).cloned() else { return };
        let (acts_in, epoch) = (leader.acts_in(C).filter(|_| row.last_open.is_empty()), row.epoch());
        let is_grown = row.members().len() > usize::from(self.setup.copies);
        let is_whole = self.chunks().all(|chunk| self.is_stable_at_all(row.members(), chunk, epoch));
        if is_grown && acts_in.is_some() {
            self.saw("drain: one member more");
        }
        if self.setup.bug == Some(Bug::UnlinkedBeforeReplaced) {
            if is_grown {
                self.leader_event(LeaderEvent::Whole { container: C, epoch });
            } else if !row.members().contains(&leaves) {
                self.delete_at(leaves);
            }
            return;
        }
        match (is_grown, acts_in.is_some() && is_whole) {
            (true, true) => {
                self.saw("drain: all are whole");
                self.leader_event(LeaderEvent::Whole { container: C, epoch });
            }
            (false, true) if !row.knows(leaves) => self.delete_at(leaves),
            _ => {}
        }
    }

    /// Everything up to the start of the epoch is on the stable storage of every member; or nobody knows the chunk.
    fn is_stable_at_all(&self, members: &[ServerId], chunk: ChunkId, epoch: braid_types::ChainEpoch) -> bool {
        let copy = |server: &ServerId| self.nodes[self.node_of(*server)].machine.as_ref()?.copy(C, chunk);
        let copies: Vec<_> = members.iter().map(copy).collect();
        let has_all = |copy: &Option<CopyStatus>| {
            copy.as_ref().is_some_and(|copy| copy.epoch == Some(epoch) && copy.stable.chain_epoch == epoch)
        };
        copies.iter().all(has_all) || copies.iter().all(Option::is_none)
    }

    /// Its disk forgets the chunks, for good.
    fn delete_at(&mut self, server: ServerId) {
        let node = self.node_of(server);
        let now = self.clock(node);
        for chunk in self.chunks().collect::<Vec<_>>() {
            let Some(machine) = self.nodes[node].machine.as_mut().filter(|it| it.copy(C, chunk).is_some()) else {
                continue;
            };
            let commands = machine.forget(now, C, chunk);
            commands.into_iter().for_each(|command| self.carry_out(node, command, &[]));
            self.carry_out(node, Command::Discard { container: C, chunk }, &[]);
            self.saw("drain: an old copy is deleted");
        }
    }
}
