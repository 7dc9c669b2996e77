//! What would have to move so that data servers are about equally full, and copies as far apart as the servers allow.
//!
//! A pure function: containers and servers in, moves of one copy each out. What it promises, and why:
//!
//! - **It never makes anything nearer.** Lexicographically first comes how far each chain is apart (`apart.rs`): a move that evens out never
//!   lowers it, a move that spreads raises it.
//! - **It ends, and there is no ping-pong.** Each chain's spread is bounded and only rises. Between two rises, with u the bytes and c the
//!   capacity of a server, each move of b bytes from i to j keeps `(u_i - b)/c_i >= (u_j + b)/c_j`: the giver stays at least as full as
//!   the taker. So Φ = Σ u²/c changes by `b·(b·(1/c_i + 1/c_j) - 2·(u_i/c_i - u_j/c_j)) <= -b·(u_i/c_i - u_j/c_j) < 0`. Φ falls with
//!   every move and depends on nothing but who holds what, so no state comes twice. It stops where no move is allowed, which depends on
//!   nothing else either: asked again about its own result it answers nothing.
//! - **The fullest gets no fuller.** The taker ends no fuller than the giver, which is less full than it was.
//! - **Little is moved.** A giver is above its fair share by d_i, a taker below by d_j. If there is a container of at most the smaller of
//!   the two it is the one, and W = Σ max(0, u - fair), the least that makes all equal, falls by all of b. If there is none, b is more
//!   than one of them, and by the rule above at most the other (with equal capacities: b <= (d_i + d_j)/2): one of the two comes nearer to
//!   its share by all of b, and W still falls, by the smaller. To forbid these would leave a new server empty if each of many others had
//!   less than one container too many. Containers are small beside W in a cluster that is worth it, and then the sum is W.
//!
//! Chunks with one copy come last. Each of them may go anywhere by itself, so that the plan says how many bytes of them go from where to where, and not
//! which ([`Shift`]): no more than the giver has too much and the taker too little, so that both come nearer to their share by all of it, W falls by it, and
//! nothing goes back. None is planned that is smaller than the smallest chunk that could be it, so this ends too.
//!
//! Chains on servers that are down or leave are not touched, and such servers neither give nor take: that is repair's and drain's.

use crate::{Apart, Candidate};
use braid_types::{ContainerId, ServerId};
use std::collections::BTreeMap;

/// A container as it lies now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub container: ContainerId,
    pub chain: Vec<ServerId>,
    /// That one copy of it occupies.
    pub bytes: u64,
    /// False where no member can be exchanged now.
    pub may_move: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// How far from its fair share a server may be, in thousandths of that share.
    pub within_permille: u32,
    /// Below it a difference is not worth a change of a chain, which stops a container for some round trips.
    pub bytes_least: u64,
    /// What a server keeps free beside what it takes.
    pub bytes_reserved: u64,
}

/// One copy goes from a server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub container: ContainerId,
    pub from: ServerId,
    pub to: ServerId,
    pub bytes: u64,
    /// Its chain is farther apart then.
    pub spreads: bool,
}

/// Chunks with one copy at a server. Their bytes are counted by their containers' [`Holding`]s, which do not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loose {
    pub server: ServerId,
    pub bytes: u64,
    /// What the smallest of them occupies.
    pub least: u64,
}

/// So many bytes of chunks with one copy go from a server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    pub from: ServerId,
    pub to: ServerId,
    pub bytes: u64,
}

/// How full a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub server: ServerId,
    /// What it has of chunks and could have more: servers that share a file system have equal parts of it.
    pub capacity: u64,
    pub bytes_now: u64,
    /// After the plan.
    pub bytes_then: u64,
    /// Its part of all bytes, by its part of all capacity.
    pub bytes_fair: u64,
    /// It is as near to its fair share as was asked for, after the plan.
    pub is_even: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order: a later move of a container is one of the chain that the earlier one leaves.
    pub moves: Vec<Move>,
    /// Behind all of these.
    pub shifts: Vec<Shift>,
    /// Servers that take part.
    pub fills: Vec<Fill>,
}

struct Server {
    id: ServerId,
    rack: usize,
    host: usize,
    disk: usize,
    filesystem: usize,
    capacity: u64,
    free: u64,
    before: u64,
    used: u64,
    fair: u64,
    /// Containers that may move, the largest first, equal ones by id.
    holds: Vec<usize>,
}

impl Server {
    /// Above its fair share.
    fn over(&self) -> u64 {
        self.used.saturating_sub(self.fair)
    }

    fn under(&self) -> u64 {
        self.fair.saturating_sub(self.used)
    }

    fn is_even(&self, goal: &Goal) -> bool {
        let share = u128::from(self.fair) * u128::from(goal.within_permille) / 1000;
        u128::from(self.over().max(self.under())) <= share.max(goal.bytes_least.into())
    }
}

/// `a` is as full as `b` or fuller, if they had so much.
fn is_as_full(a: &Server, a_used: u64, b: &Server, b_used: u64) -> bool {
    u128::from(a_used) * u128::from(b.capacity) >= u128::from(b_used) * u128::from(a.capacity)
}

struct Cluster<'a> {
    servers: Vec<Server>,
    /// Members as places in `servers`, of those that may move.
    chains: Vec<Vec<usize>>,
    holdings: Vec<&'a Holding>,
    goal: Goal,
    moves: Vec<Move>,
}

/// The moves that even out `holdings`, and how full servers are before and after.
pub fn rebalance(candidates: &[Candidate], holdings: &[Holding], loose: &[Loose], goal: Goal) -> Plan {
    let mut cluster = Cluster::new(candidates, holdings, goal);
    // Room that one phase makes may let the other go on; both only improve what they are for, so this ends.
    while cluster.spread() | cluster.even_out() {}
    let shifts = cluster.shift(loose);
    let fill = |server: &Server| Fill {
        server: server.id,
        capacity: server.capacity,
        bytes_now: server.before,
        bytes_then: server.used,
        bytes_fair: server.fair,
        is_even: server.is_even(&goal),
    };
    Plan { fills: cluster.servers.iter().map(fill).collect(), moves: direct(&cluster.moves), shifts }
}

/// A copy that comes to its place by way of another server goes there at once: in between nothing else of its chain changed, so that
/// the chain is as far apart then as it would be.
fn direct(moves: &[Move]) -> Vec<Move> {
    let mut last: BTreeMap<ContainerId, usize> = BTreeMap::new();
    let mut all: Vec<Option<Move>> = Vec::with_capacity(moves.len());
    for next in moves {
        let mut next = *next;
        if let Some(old) = last.get(&next.container).and_then(|at| all[*at].take_if(|old| old.to == next.from)) {
            (next.from, next.spreads) = (old.from, old.spreads || next.spreads);
        }
        last.insert(next.container, all.len());
        all.push(Some(next));
    }
    all.into_iter().flatten().filter(|it| it.from != it.to).collect()
}

fn number<K: Ord>(known: &mut BTreeMap<K, usize>, key: K) -> usize {
    let next = known.len();
    *known.entry(key).or_insert(next)
}

impl<'a> Cluster<'a> {
    fn new(candidates: &[Candidate], holdings: &'a [Holding], goal: Goal) -> Cluster<'a> {
        let (mut racks, mut hosts) = (BTreeMap::new(), BTreeMap::new());
        let (mut disks, mut filesystems) = (BTreeMap::new(), BTreeMap::new());
        let mut usable: Vec<&Candidate> = candidates.iter().filter(|c| c.up && c.takes_new).collect();
        usable.sort_by_key(|candidate| candidate.id);
        let mut servers: Vec<Server> = Vec::with_capacity(usable.len());
        for Candidate { id, domain, filesystem, bytes_free, .. } in usable {
            // What is not known is nobody else's.
            let own = |number: u64| if number == 0 { *id } else { ServerId(0) };
            servers.push(Server {
                id: *id,
                rack: number(&mut racks, &domain.rack),
                host: number(&mut hosts, &domain.host),
                disk: number(&mut disks, (&domain.host, domain.disk, own(domain.disk))),
                filesystem: number(&mut filesystems, (&domain.host, *filesystem, own(*filesystem))),
                capacity: 0,
                free: *bytes_free,
                before: 0,
                used: 0,
                fair: 0,
                holds: Vec::new(),
            });
        }
        let places: BTreeMap<ServerId, usize> =
            servers.iter().enumerate().map(|(at, server)| (server.id, at)).collect();
        let (mut chains, mut kept) = (Vec::new(), Vec::new());
        for holding in holdings {
            let chain: Vec<usize> = holding.chain.iter().filter_map(|id| places.get(id).copied()).collect();
            chain.iter().for_each(|at| servers[*at].used += holding.bytes);
            if holding.may_move && holding.bytes > 0 && chain.len() == holding.chain.len() {
                chain.iter().for_each(|at| servers[*at].holds.push(kept.len()));
                chains.push(chain);
                kept.push(holding);
            }
        }
        // What a file system could hold: what its servers have, and what is free, which each of them sees.
        let mut shared: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
        for server in &servers {
            let (used, free, count) = shared.entry(server.filesystem).or_insert((0, u64::MAX, 0));
            (*used, *free, *count) = (*used + server.used, server.free.min(*free), *count + 1);
        }
        for server in &mut servers {
            let (used, free, count) = shared[&server.filesystem];
            (server.capacity, server.before) = ((used + free) / count, server.used);
            server.holds.sort_by_key(|held| (std::cmp::Reverse(kept[*held].bytes), kept[*held].container));
        }
        let used: u128 = servers.iter().map(|server| u128::from(server.used)).sum();
        let capacity: u128 = servers.iter().map(|server| u128::from(server.capacity)).sum();
        for server in &mut servers {
            server.fair = (used * u128::from(server.capacity)).checked_div(capacity).unwrap_or(0) as u64;
        }
        Cluster { servers, chains, holdings: kept, goal, moves: Vec::new() }
    }

    fn apart(&self, chain: &[usize]) -> Apart {
        let distinct = |domain: fn(&Server) -> usize| {
            let new =
                |at: usize| chain[..at].iter().all(|s| domain(&self.servers[*s]) != domain(&self.servers[chain[at]]));
            (0..chain.len()).filter(|at| new(*at)).count()
        };
        Apart { racks: distinct(|s| s.rack), hosts: distinct(|s| s.host), disks: distinct(|s| s.disk) }
    }

    /// How far apart the chain would be with `to` in the place of `from`; `None` if it cannot be.
    fn apart_with(&self, held: usize, from: usize, to: usize) -> Option<Apart> {
        let chain = &self.chains[held];
        let needed = self.holdings[held].bytes.saturating_add(self.goal.bytes_reserved);
        // On the same file system nothing more is needed in the end, but for the time of the move it is.
        if chain.contains(&to) || self.servers[to].free < needed {
            return None;
        }
        let then: Vec<usize> = chain.iter().map(|at| if *at == from { to } else { *at }).collect();
        Some(self.apart(&then))
    }

    fn carry(&mut self, held: usize, from: usize, to: usize, spreads: bool) {
        let Holding { container, bytes, .. } = *self.holdings[held];
        self.chains[held].iter_mut().filter(|at| **at == from).for_each(|at| *at = to);
        self.servers[from].holds.retain(|kept| *kept != held);
        let rank = |held: &usize| (std::cmp::Reverse(self.holdings[*held].bytes), self.holdings[*held].container);
        let place = self.servers[to].holds.partition_point(|kept| rank(kept) < rank(&held));
        self.servers[to].holds.insert(place, held);
        self.transfer(from, to, bytes);
        let (from, to) = (self.servers[from].id, self.servers[to].id);
        self.moves.push(Move { container, from, to, bytes, spreads });
    }

    fn transfer(&mut self, from: usize, to: usize, bytes: u64) {
        self.servers[from].used -= bytes;
        self.servers[to].used += bytes;
        // Each server of a file system sees what is free there.
        let (gives, takes) = (self.servers[from].filesystem, self.servers[to].filesystem);
        for server in &mut self.servers {
            match (server.filesystem == gives, server.filesystem == takes) {
                (true, false) => server.free += bytes,
                (false, true) => server.free -= bytes,
                _ => {}
            }
        }
    }

    /// Each chain as far apart as one exchange after the other makes it: from its fullest to the least full server that do.
    fn spread(&mut self) -> bool {
        let begun = self.moves.len();
        let count = |domain: fn(&Server) -> usize| {
            self.servers.iter().map(domain).collect::<std::collections::BTreeSet<_>>().len()
        };
        let all = Apart { racks: count(|s| s.rack), hosts: count(|s| s.host), disks: count(|s| s.disk) };
        for held in 0..self.chains.len() {
            loop {
                let (chain, now) = (&self.chains[held], self.apart(&self.chains[held]));
                let len = chain.len();
                if now == (Apart { racks: all.racks.min(len), hosts: all.hosts.min(len), disks: all.disks.min(len) }) {
                    break;
                }
                let mut best: Option<(Apart, usize, usize)> = None;
                for (from, to) in chain.iter().flat_map(|from| (0..self.servers.len()).map(|to| (*from, to))) {
                    let Some(apart) = self.apart_with(held, from, to).filter(|apart| *apart > now) else { continue };
                    let fuller = |a: usize, b: usize| {
                        let (a, b) = (&self.servers[a], &self.servers[b]);
                        !is_as_full(b, b.used, a, a.used)
                    };
                    let is_better = best.is_none_or(|(most, gives, takes)| {
                        apart > most || apart == most && (fuller(from, gives) || from == gives && fuller(takes, to))
                    });
                    if is_better {
                        best = Some((apart, from, to));
                    }
                }
                let Some((_, from, to)) = best else { break };
                self.carry(held, from, to, true);
            }
        }
        self.moves.len() > begun
    }

    /// What chunks with one copy still even out: from the fullest that has some to the least full that has room.
    fn shift(&mut self, loose: &[Loose]) -> Vec<Shift> {
        let mut left: Vec<(u64, u64)> = vec![(0, 0); self.servers.len()];
        for (server, left) in self.servers.iter().zip(&mut left) {
            *left = loose.iter().find(|it| it.server == server.id).map_or((0, 0), |it| (it.bytes, it.least));
        }
        let mut shifts = Vec::new();
        loop {
            let mut order: Vec<usize> = (0..self.servers.len()).collect();
            let fuller = |a: &usize, b: &usize| {
                let (a, b) = (&self.servers[*a], &self.servers[*b]);
                let order =
                    (u128::from(b.used) * u128::from(a.capacity)).cmp(&(u128::from(a.used) * u128::from(b.capacity)));
                order.then(a.id.cmp(&b.id))
            };
            order.sort_by(fuller);
            let pairs = order.iter().flat_map(|from| order.iter().rev().map(|to| (*from, *to)));
            let found = pairs.into_iter().find_map(|(from, to)| {
                let (gives, takes, (bytes, least)) = (&self.servers[from], &self.servers[to], left[from]);
                let room = takes.free.saturating_sub(self.goal.bytes_reserved);
                let bytes = bytes.min(gives.over()).min(takes.under()).min(room);
                let is_worth_it = !gives.is_even(&self.goal) || !takes.is_even(&self.goal);
                (is_worth_it && bytes >= least.max(1)).then_some((from, to, bytes))
            });
            // Each takes all of what one of the two has too much or too little of, has at all, or has room for.
            let Some((from, to, bytes)) = found else { return shifts };
            left[from].0 -= bytes;
            self.transfer(from, to, bytes);
            shifts.push(Shift { from: self.servers[from].id, to: self.servers[to].id, bytes });
        }
    }

    /// From the fullest to the least full, for as long as one of the two is not even.
    fn even_out(&mut self) -> bool {
        let begun = self.moves.len();
        // Givers from which nothing can go: looked at again when all are such and something has moved since.
        let (mut stuck, mut moved_since) = (vec![false; self.servers.len()], false);
        loop {
            let fuller = |a: &usize, b: &usize| {
                let (a, b) = (&self.servers[*a], &self.servers[*b]);
                let order =
                    (u128::from(b.used) * u128::from(a.capacity)).cmp(&(u128::from(a.used) * u128::from(b.capacity)));
                order.then(a.id.cmp(&b.id))
            };
            let mut order: Vec<usize> = (0..self.servers.len()).collect();
            order.sort_by(fuller);
            let giver = order.iter().copied().find(|at| !stuck[*at] && self.servers[*at].over() > 0);
            let Some(from) = giver else {
                if !moved_since {
                    return self.moves.len() > begun;
                }
                (stuck, moved_since) = (vec![false; self.servers.len()], false);
                continue;
            };
            let takers = order.iter().rev().copied().filter(|to| self.servers[*to].under() > 0);
            let found = takers.into_iter().find_map(|to| Some((self.fitting(from, to)?, to)));
            match found {
                Some((held, to)) => {
                    self.carry(held, from, to, false);
                    moved_since = true;
                }
                None => stuck[from] = true,
            }
        }
    }

    /// The container to move: the largest that makes neither cross its fair share, else the smallest that may be.
    fn fitting(&self, from: usize, to: usize) -> Option<usize> {
        let (gives, takes) = (&self.servers[from], &self.servers[to]);
        if gives.is_even(&self.goal) && takes.is_even(&self.goal) {
            return None;
        }
        let most = gives.over().min(takes.under());
        let bytes = |held: &usize| self.holdings[*held].bytes;
        let may = |held: &&usize| {
            let b = bytes(held);
            is_as_full(gives, gives.used - b, takes, takes.used + b)
                && self.apart_with(**held, from, to).is_some_and(|then| then >= self.apart(&self.chains[**held]))
        };
        let larger = gives.holds.partition_point(|held| bytes(held) > most);
        let fits = gives.holds[larger..].iter().find(may);
        fits.or_else(|| gives.holds[..larger].iter().rev().find(may)).copied()
    }
}

#[cfg(test)]
mod tests;
