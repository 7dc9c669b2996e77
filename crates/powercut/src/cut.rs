//! The cut itself.

use crate::machine::Machine;
use crate::names::{NodeId, ROOT};
use crate::settle::{Fate, Order, Tally};
use crate::stats::CutReport;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

/// Keeps the draw of the order apart from the draws that follow it.
const ORDER_SALT: u64 = 0x6f72_6465_7221;

impl Machine {
    /// The power goes and comes back. Handles are dead, what was not synced is up to `seed`, and every node gets a new number:
    /// whatever the kernel still has in its caches belongs to numbers that nobody will be given again.
    pub fn cut(&mut self, seed: u64) -> CutReport {
        let drawn = || {
            let first = Xoshiro256PlusPlus::seed_from_u64(seed ^ ORDER_SALT).random_bool(0.5);
            if first { Order::Journal } else { Order::Posix }
        };
        let order = self.order.unwrap_or_else(drawn);
        let mut fate = Fate::new(order, seed, self.names.committed, self.seq);
        self.handles.clear();
        self.faults.stop_after = None;
        let (names_kept, names_dropped) = self.names.cut(&mut fate);
        self.collect();
        let mut writes = Tally::default();
        for node in self.nodes.values_mut() {
            node.content.cut(&mut fate, &mut writes);
        }
        self.names.committed = self.seq;
        self.renumber();
        self.stats.cuts += 1;
        CutReport { order, writes, names_kept, names_dropped }
    }

    fn renumber(&mut self) {
        let mut numbers: BTreeMap<NodeId, NodeId> = BTreeMap::from([(ROOT, ROOT)]);
        for id in self.nodes.keys().filter(|id| **id != ROOT) {
            self.last_node += 1;
            numbers.insert(*id, self.last_node);
        }
        let nodes = std::mem::take(&mut self.nodes);
        self.nodes = nodes.into_iter().map(|(id, node)| (numbers.get(&id).copied().unwrap_or(id), node)).collect();
        self.names.renumber(&numbers);
        let links = self.names.link_counts();
        for (id, node) in &mut self.nodes {
            node.links = if *id == ROOT { 1 } else { links.get(id).copied().unwrap_or(0) };
        }
    }
}
