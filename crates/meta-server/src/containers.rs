//! Containers in memory: chains for answers, and those with room for new chunks. Rebuilt from rows at start.
//!
//! Promises: what is known of a chain never goes back to an older epoch, in whatever order rows that were read, and answers that are repeated,
//! come to be known: whoever is sent to the servers of an epoch that has passed is refused by all of them, and would ask here again for ever.

use braid_api::meta::{ChunkPage, ContainerInfo};
use braid_meta_namespace::rows::ContainerRow;
use braid_types::{CONTAINER_CHUNKS_MAX, ContainerId, Layout, ServerId};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};

/// Containers with room, by what they are good for.
type Open = BTreeMap<(String, u64, Vec<ServerId>), (ContainerId, u32)>;

#[derive(Default)]
struct State {
    chains: HashMap<ContainerId, ContainerInfo>,
    open: Open,
}

impl State {
    fn learn(&mut self, info: ContainerInfo) {
        if self.chains.get(&info.id).is_none_or(|known| known.epoch <= info.epoch) {
            self.chains.insert(info.id, info);
        }
    }
}

#[derive(Default)]
pub struct Containers {
    state: RwLock<State>,
}

fn purpose(kind: Kind, chain: &[ServerId]) -> (String, u64, Vec<ServerId>) {
    (format!("{},min_copies={}", kind.layout, kind.min_copies), kind.chunk_bytes, chain.to_vec())
}

/// What all chunks of a container have in common beside its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub layout: Layout,
    pub chunk_bytes: u64,
    pub min_copies: u8,
}

impl Containers {
    /// Learns a container's row.
    pub fn learn(&self, id: ContainerId, row: &ContainerRow) {
        let mut state = self.state.write();
        state.learn(row.info(id));
        if row.given < CONTAINER_CHUNKS_MAX {
            let room = CONTAINER_CHUNKS_MAX - row.given;
            let min_copies = row.copies.as_ref().map_or(1, |copies| copies.min_copies);
            let kind = Kind { layout: row.layout, chunk_bytes: row.chunk_bytes, min_copies };
            state.open.insert(purpose(kind, &row.chain), (id, room));
        }
    }

    pub fn learn_chain(&self, info: ContainerInfo) {
        self.state.write().learn(info);
    }

    /// Takes up to `count` places in a container with this chain, if one is open: (container, places).
    pub fn take_room(&self, kind: Kind, chain: &[ServerId], count: u32) -> Option<(ContainerId, u32)> {
        let mut state = self.state.write();
        let key = purpose(kind, chain);
        let (id, room) = state.open.get_mut(&key)?;
        let taken = count.min(*room);
        let answer = (*id, taken);
        *room -= taken;
        if *room == 0 {
            state.open.remove(&key);
        }
        (taken > 0).then_some(answer)
    }

    /// A container made just now has room left.
    pub fn opened(&self, kind: Kind, info: &ContainerInfo, room: u32) {
        let mut state = self.state.write();
        state.learn(info.clone());
        if room > 0 {
            state.open.insert(purpose(kind, &info.chain), (info.id, room));
        }
    }

    /// The chain is another from now on. Its room is found under the new one; that of another container with the same
    /// chain is then not known until the next start.
    pub fn chain_changed(&self, info: ContainerInfo) {
        let mut state = self.state.write();
        let open = state.open.iter().find(|(_, (id, _))| *id == info.id).map(|(key, _)| key.clone());
        if let Some(key) = open
            && let Some(room) = state.open.remove(&key)
        {
            state.open.insert((key.0, key.1, info.chain.clone()), room);
        }
        state.learn(info);
    }

    /// Its row is gone.
    pub fn forget(&self, id: ContainerId) {
        let mut state = self.state.write();
        state.chains.remove(&id);
        state.open.retain(|_, (open, _)| *open != id);
    }

    pub fn get(&self, id: ContainerId) -> Option<ContainerInfo> {
        self.state.read().chains.get(&id).cloned()
    }

    /// Adds the containers that a page of chunks speaks of; answers those not known here.
    pub fn fill(&self, page: &mut ChunkPage) -> Vec<ContainerId> {
        let mut wanted: Vec<ContainerId> = page.chunks.iter().map(|c| c.container).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let state = self.state.read();
        let mut unknown = Vec::new();
        page.containers.clear();
        for id in wanted {
            match state.chains.get(&id) {
                Some(info) => page.containers.push(info.clone()),
                None => unknown.push(id),
            }
        }
        unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::ChainEpoch;

    const PLAIN: Kind = Kind { layout: Layout::Replica { copies: 1 }, chunk_bytes: 64 << 20, min_copies: 1 };

    #[test]
    fn a_container_is_filled_and_then_closed() {
        let containers = Containers::default();
        let chain = vec![ServerId(1)];
        assert_eq!(containers.take_room(PLAIN, &chain, 4), None);
        let info = ContainerInfo { id: ContainerId(7), epoch: ChainEpoch(1), chain: chain.clone() };
        containers.opened(PLAIN, &info, 5);
        assert_eq!(containers.take_room(PLAIN, &chain, 4), Some((ContainerId(7), 4)));
        assert_eq!(
            containers.take_room(Kind { chunk_bytes: 32 << 20, ..PLAIN }, &chain, 4),
            None,
            "another chunk size"
        );
        assert_eq!(containers.take_room(PLAIN, &chain, 4), Some((ContainerId(7), 1)));
        assert_eq!(containers.take_room(PLAIN, &chain, 4), None);
        assert_eq!(containers.get(ContainerId(7)), Some(info));
    }

    /// A row that was read before the chain changed, and an answer of before that is given again, are heard of after that.
    #[test]
    fn a_chain_is_never_again_what_it_was() {
        let containers = Containers::default();
        let at = |epoch: u32, chain: &[u64]| ContainerInfo {
            id: ContainerId(7),
            epoch: ChainEpoch(epoch),
            chain: chain.iter().copied().map(ServerId).collect(),
        };
        containers.learn_chain(at(1, &[1, 2]));
        containers.chain_changed(at(2, &[2, 3]));
        containers.learn_chain(at(1, &[1, 2]));
        containers.opened(PLAIN, &at(1, &[1, 2]), 5);
        containers.chain_changed(at(1, &[1, 2]));
        assert_eq!(containers.get(ContainerId(7)), Some(at(2, &[2, 3])));
        containers.learn_chain(at(3, &[3, 1]));
        assert_eq!(containers.get(ContainerId(7)), Some(at(3, &[3, 1])));
    }

    #[test]
    fn room_moves_with_the_chain() {
        let containers = Containers::default();
        let kind = Kind { layout: Layout::Replica { copies: 2 }, min_copies: 2, ..PLAIN };
        let (old, new) = (vec![ServerId(1), ServerId(2)], vec![ServerId(2), ServerId(3)]);
        let info = ContainerInfo { id: ContainerId(7), epoch: ChainEpoch(1), chain: old.clone() };
        containers.opened(kind, &info, 5);
        containers.chain_changed(ContainerInfo { epoch: ChainEpoch(2), chain: new.clone(), ..info });
        assert_eq!(containers.take_room(kind, &old, 4), None);
        assert_eq!(containers.take_room(Kind { min_copies: 1, ..kind }, &new, 4), None, "another promise");
        assert_eq!(containers.take_room(kind, &new, 4), Some((ContainerId(7), 4)));
        assert_eq!(containers.get(ContainerId(7)).unwrap().epoch, ChainEpoch(2));
    }
}
