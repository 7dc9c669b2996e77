//! Containers in memory: chains for answers, and those with room for new chunks. Rebuilt from rows at start.

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

#[derive(Default)]
pub struct Containers {
    state: RwLock<State>,
}

fn purpose(layout: Layout, chunk_bytes: u64, chain: &[ServerId]) -> (String, u64, Vec<ServerId>) {
    (layout.to_string(), chunk_bytes, chain.to_vec())
}

impl Containers {
    /// Learns a container's row.
    pub fn learn(&self, id: ContainerId, row: &ContainerRow) {
        let mut state = self.state.write();
        state.chains.insert(id, row.info(id));
        if row.given < CONTAINER_CHUNKS_MAX {
            let room = CONTAINER_CHUNKS_MAX - row.given;
            state.open.insert(purpose(row.layout, row.chunk_bytes, &row.chain), (id, room));
        }
    }

    pub fn learn_chain(&self, info: ContainerInfo) {
        self.state.write().chains.insert(info.id, info);
    }

    /// Takes up to `count` places in a container with this chain, if one is open: (container, places).
    pub fn take_room(
        &self,
        layout: Layout,
        chunk_bytes: u64,
        chain: &[ServerId],
        count: u32,
    ) -> Option<(ContainerId, u32)> {
        let mut state = self.state.write();
        let key = purpose(layout, chunk_bytes, chain);
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
    pub fn opened(&self, layout: Layout, chunk_bytes: u64, info: &ContainerInfo, room: u32) {
        let mut state = self.state.write();
        state.chains.insert(info.id, info.clone());
        if room > 0 {
            state.open.insert(purpose(layout, chunk_bytes, &info.chain), (info.id, room));
        }
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

    const PLAIN: Layout = Layout::Replica { copies: 1 };

    #[test]
    fn a_container_is_filled_and_then_closed() {
        let containers = Containers::default();
        let chain = vec![ServerId(1)];
        assert_eq!(containers.take_room(PLAIN, 64 << 20, &chain, 4), None);
        let info = ContainerInfo { id: ContainerId(7), epoch: ChainEpoch(1), chain: chain.clone() };
        containers.opened(PLAIN, 64 << 20, &info, 5);
        assert_eq!(containers.take_room(PLAIN, 64 << 20, &chain, 4), Some((ContainerId(7), 4)));
        assert_eq!(containers.take_room(PLAIN, 32 << 20, &chain, 4), None, "another chunk size");
        assert_eq!(containers.take_room(PLAIN, 64 << 20, &chain, 4), Some((ContainerId(7), 1)));
        assert_eq!(containers.take_room(PLAIN, 64 << 20, &chain, 4), None);
        assert_eq!(containers.get(ContainerId(7)), Some(info));
    }
}
