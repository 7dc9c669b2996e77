//! Evens out how full data servers are, by `braid_placement::rebalance`, with the moves of `growing.rs`.
//!
//! What is asked for and which places change hands now is in a row; it is written before the leader of chains hears it, so a
//! metadata server that starts goes on with them. The plan itself is not kept: it follows from who holds what.
//!
//! One kind of moves at a time. While a server is drained, a drain is paused, or a chain lacks live members, nothing begins here; what has
//! begun comes to its end.

use crate::server::MetaServer;
use braid_api::admin::{CopyMove, Load, Moves, Rebalance, RebalanceChange, RebalanceState, ServerFill, ShiftLeft};
use braid_api::meta::{Duty, Shifted};
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::rebalance::{ChangeRebalance, ReadRebalance, StepRebalance};
use braid_meta_namespace::ops::{reclaim, spares};
use braid_meta_namespace::rows::{MoveRow, RebalanceRow};
use braid_placement::{Candidate, Goal, Holding, Loose, Move, Plan, Shift, apart, rebalance};
use braid_types::{ChunkId, ContainerId, ServerId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Of the fair share: below it a cluster that is written to would be moved about without end.
const WITHIN_PERMILLE: u32 = 50;
/// A move whose chain has not begun to change by then is given up, and planned anew.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);
/// Before it is planned again, if of a plan nothing could begin.
const PLAN_AGAIN: Duration = Duration::from_secs(10);
/// What was planned longer ago than this is planned anew: files come and go.
const PLAN_LIMIT: Duration = Duration::from_secs(300);
/// Moves named in one answer.
const NAMED: usize = 64;
/// Chunks that are freed and still there: in memory while a plan is made, 16 bytes each.
const FREED_MAX: usize = 1 << 18;
/// Containers read at once.
const PAGE: usize = 1024;

#[derive(Default)]
pub(crate) struct Rebalancing {
    state: Mutex<State>,
    /// Held from a change of the row to its being known here: two of them are learnt in their order.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    row: RebalanceRow,
    planned: Option<Planned>,
    /// When a move was written into the row, here or at this server's start.
    begun: BTreeMap<ContainerId, Monotonic>,
    waits_for: String,
}

struct Planned {
    left: VecDeque<Move>,
    /// What is left of them; begun when all of `left` is through.
    shifts: Vec<Shift>,
    /// Somebody carries them out.
    is_given: bool,
    /// A shift has come to its end.
    shifted: Option<Shifting>,
    plan: Plan,
    /// The servers it was made for.
    of: BTreeSet<ServerId>,
    at: Monotonic,
    /// Of it something has begun.
    has_begun: bool,
}

/// What came of shifts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shifting {
    Moved,
    /// Not one chunk could go.
    Fruitless,
}

/// How a move stands that is in the row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    Goes,
    /// The copy is where it was to go.
    Arrived,
    /// It does not fit the chain any more.
    Over,
}

impl Rebalancing {
    fn row(&self) -> RebalanceRow {
        self.state.lock().row.clone()
    }

    fn learn(&self, row: RebalanceRow, now: Monotonic) {
        let mut state = self.state.lock();
        state.begun.retain(|id, _| row.moves.iter().any(|it| it.container == *id));
        for it in &row.moves {
            state.begun.entry(it.container).or_insert(now);
        }
        if row.state != RebalanceState::Runs || row.within_permille != state.row.within_permille {
            state.planned = None;
        }
        state.row = row;
    }

    /// For the leader of chains: which places change hands, and whether they do not for now.
    pub fn moves(&self) -> (BTreeMap<ContainerId, (ServerId, ServerId)>, bool) {
        let state = self.state.lock();
        let moves = state.row.moves.iter().map(|it| (it.container, (it.from, it.to))).collect();
        (moves, state.row.state == RebalanceState::Paused)
    }

    pub fn is_paused(&self) -> bool {
        self.state.lock().row.state == RebalanceState::Paused
    }

    /// Chunks with one copy that are to go, when no copy of a container moves any more. `is_at_work`: to who moves them, and not only looks.
    pub fn shifts(&self, is_at_work: bool) -> Vec<Shift> {
        let mut state = self.state.lock();
        let is_on = state.row.state == RebalanceState::Runs && state.row.moves.is_empty();
        // Who carried them out has gone, and may have moved what it has not said.
        if !is_at_work && state.planned.as_ref().is_some_and(|planned| planned.is_given && !planned.shifts.is_empty()) {
            state.planned = None;
        }
        let Some(planned) = state.planned.as_mut().filter(|planned| is_on && planned.left.is_empty()) else {
            return Vec::new();
        };
        planned.is_given |= is_at_work;
        planned.shifts.clone()
    }

    /// Takes out what was done. Gives what that is.
    fn shifted(&self, done: &[Shifted]) -> Moves {
        let (mut state, mut moved) = (self.state.lock(), Moves::default());
        for Shifted { from, to, chunks, bytes, is_over } in done {
            moved = Moves { copies: moved.copies + chunks, bytes: moved.bytes + bytes };
            // It may be of a plan of before.
            let Some(planned) = state.planned.as_mut() else { continue };
            for shift in planned.shifts.iter_mut().filter(|shift| (shift.from, shift.to) == (*from, *to)) {
                shift.bytes = if *is_over { 0 } else { shift.bytes.saturating_sub(*bytes) };
            }
            let before = planned.shifts.len();
            planned.shifts.retain(|shift| shift.bytes > 0);
            if *chunks > 0 {
                planned.shifted = Some(Shifting::Moved);
            } else if planned.shifts.len() < before {
                planned.shifted.get_or_insert(Shifting::Fruitless);
            }
        }
        moved
    }

    pub fn is_moving(&self) -> bool {
        let state = self.state.lock();
        state.row.state == RebalanceState::Runs
            && (!state.row.moves.is_empty() || state.planned.as_ref().is_some_and(|it| !it.shifts.is_empty()))
    }

    fn waits_for(&self, what: String) {
        self.state.lock().waits_for = what;
    }
}

impl MetaServer {
    /// At start: what the row says.
    pub(crate) async fn read_rebalance(&self) -> Result<()> {
        let row = self.engine.read(0, ReadRebalance).await.map_err(Error::from)?;
        self.rebalancing.learn(row, self.env.clock.now());
        Ok(())
    }

    /// One look: what has ended is taken out, what may begin begins.
    pub(crate) async fn rebalance_on(&self) -> Result<()> {
        let row = self.rebalancing.row();
        if !matches!(row.state, RebalanceState::Runs | RebalanceState::Paused) {
            return Ok(());
        }
        let (mut ended, mut moved, mut active) = (Vec::new(), Moves::default(), BTreeSet::new());
        for it in &row.moves {
            let stands = self.stands(it);
            if stands == Stands::Goes {
                active.insert(it.container);
                continue;
            }
            ended.push(it.container);
            if stands == Stands::Arrived {
                moved = Moves { copies: moved.copies + 1, bytes: moved.bytes + it.bytes };
            }
        }
        let (begun, is_done) = match row.state {
            RebalanceState::Runs => self.next_moves(&row, &active).await?,
            _ => (Vec::new(), false),
        };
        if ended.is_empty() && begun.is_empty() && !is_done {
            return Ok(());
        }
        let step = StepRebalance { begun, ended, moved, is_done };
        let turn = self.rebalancing.turn.lock().await;
        let row = self.engine.transact(0, step).await.map_err(Error::from)?;
        if row.state == RebalanceState::Done {
            let Moves { copies, bytes } = row.moved;
            tracing::info!(copies, bytes, "data servers are evened out");
        }
        self.rebalancing.learn(row, self.env.clock.now());
        drop(turn);
        self.tell_who_leaves();
        Ok(())
    }

    /// Who moves chunks with one copy says what it has moved to even servers out.
    pub(crate) async fn chunks_shifted(&self, done: &[Shifted]) -> Result<()> {
        let moved = self.rebalancing.shifted(done);
        if moved == Moves::default() {
            return Ok(());
        }
        let step = StepRebalance { begun: Vec::new(), ended: Vec::new(), moved, is_done: false };
        let turn = self.rebalancing.turn.lock().await;
        let row = self.engine.transact(0, step).await.map_err(Error::from)?;
        self.rebalancing.learn(row, self.env.clock.now());
        drop(turn);
        Ok(())
    }

    fn stands(&self, it: &MoveRow) -> Stands {
        let Some(row) = self.chains.row(it.container) else { return Stands::Over };
        let is_grown = row.members().len() > usize::from(row.copies);
        match (row.members().contains(&it.from), row.members().contains(&it.to)) {
            (false, true) => Stands::Arrived,
            (true, true) if is_grown => Stands::Goes,
            (true, false) if !self.is_late(it.container) && self.may_take(it.to) => Stands::Goes,
            _ => Stands::Over,
        }
    }

    /// Written into the row long ago, and its chain has not begun to change.
    fn is_late(&self, container: ContainerId) -> bool {
        let now = self.env.clock.now();
        let mut state = self.rebalancing.state.lock();
        let is_paused = state.row.state == RebalanceState::Paused;
        let Some(begun) = state.begun.get_mut(&container) else { return false };
        if is_paused {
            *begun = now;
        }
        now.since(*begun) > BEGIN_LIMIT
    }

    fn may_take(&self, server: ServerId) -> bool {
        self.servers.candidates().iter().any(|candidate| candidate.id == server && candidate.up && candidate.takes_new)
    }

    /// Why nothing may begin now.
    fn what_comes_first(&self) -> Option<String> {
        for (server, duty) in self.servers.leaving() {
            match duty {
                Duty::Drains => return Some(format!("the drain of data server {server}")),
                Duty::Paused => return Some(format!("the drain of data server {server}, which is paused")),
                _ => {}
            }
        }
        // Also after a start, until servers have been heard of.
        let short = self.chains.look(self.env.clock.now().0, &self.servers.candidates()).short;
        (short > 0).then(|| format!("{short} chains that have fewer live servers than copies: repair comes first"))
    }

    /// What begins now, and whether nothing is left to be done.
    async fn next_moves(&self, row: &RebalanceRow, active: &BTreeSet<ContainerId>) -> Result<(Vec<MoveRow>, bool)> {
        if let Some(first) = self.what_comes_first() {
            self.rebalancing.waits_for(first);
            self.rebalancing.state.lock().planned = None;
            return Ok((Vec::new(), false));
        }
        let mut room = self.config.moves_at_once.saturating_sub(active.len());
        if room == 0 {
            return Ok((Vec::new(), false));
        }
        if !self.has_plan(active.is_empty()) {
            let is_planned = self.rebalancing.state.lock().planned.is_some();
            // A plan asks every server what it has: not while what comes of the one before is not known.
            if active.is_empty()
                && is_planned
                && let Some(what) = self.what_is_left()
            {
                self.rebalancing.waits_for(what);
                return Ok((Vec::new(), false));
            }
            let mut planned = self.plan(row.within_permille).await.inspect_err(|error| {
                self.rebalancing.waits_for(error.to_string());
            })?;
            let last = self.rebalancing.state.lock().planned.as_ref().and_then(|planned| planned.shifted);
            // What the last plan could not move no other one can, unless that is for a while.
            let why_stuck = self.growing.movers.why_any_is_stuck().filter(|_| !planned.shifts.is_empty());
            if last == Some(Shifting::Fruitless) && why_stuck.is_none() {
                planned.shifts.clear();
            }
            let is_done = planned.left.is_empty() && planned.shifts.is_empty() && active.is_empty();
            planned.has_begun = !active.is_empty();
            let left = if is_done { self.what_is_left() } else { None };
            // Of an empty plan: it is over at once, and made again when nothing is left.
            planned.has_begun |= left.is_some();
            let left = left.or(why_stuck);
            let mut state = self.rebalancing.state.lock();
            let is_done = is_done && left.is_none();
            (state.planned, state.waits_for) = (Some(planned), left.unwrap_or_default());
            if is_done {
                return Ok((Vec::new(), true));
            }
        }
        let candidates = self.servers.places();
        let mut begun = Vec::new();
        let mut state = self.rebalancing.state.lock();
        let Some(planned) = state.planned.as_mut() else { return Ok((begun, false)) };
        let mut later = VecDeque::new();
        let mut touched = active.clone();
        while let Some(next) = planned.left.pop_front() {
            // Of one container one after the other, in their order.
            if room == 0 || !touched.insert(next.container) {
                later.push_back(next);
            } else if self.may_begin(&next, &candidates) {
                let Move { container, from, to, bytes, spreads } = next;
                begun.push(MoveRow { container, from, to, bytes, spreads });
                room -= 1;
            }
        }
        planned.left = later;
        planned.has_begun |= !begun.is_empty();
        Ok((begun, false))
    }

    /// Of moves that are through: what they have moved is still at its old place as well. A server that is down deletes it when it is back.
    fn what_is_left(&self) -> Option<String> {
        let candidates = self.servers.candidates();
        let unsettled = self.chains.look(self.env.clock.now().0, &candidates).unsettled;
        if unsettled > 0 {
            return Some(format!("{unsettled} chains that change"));
        }
        let up = candidates.iter().filter(|candidate| candidate.up);
        let deleting = up.filter(|candidate| self.chains.may_have_strays_at(candidate.id)).count();
        (deleting > 0).then(|| format!("{deleting} data servers that delete what has moved away from them"))
    }

    /// There is one that may still be followed. `is_quiet`: nothing of it is under way.
    fn has_plan(&self, is_quiet: bool) -> bool {
        let (now, of) = (self.env.clock.now(), self.takers());
        let state = self.rebalancing.state.lock();
        let Some(planned) = &state.planned else { return false };
        let age = now.since(planned.at);
        let is_through = planned.left.is_empty() && planned.shifts.is_empty();
        let has_moved = planned.has_begun || planned.shifted == Some(Shifting::Moved);
        let is_over = is_through && is_quiet && (has_moved || age > PLAN_AGAIN);
        // What is on its way by a shift is counted at both servers: not before that is through.
        planned.of == of && (age < PLAN_LIMIT || !planned.shifts.is_empty()) && !is_over
    }

    fn takers(&self) -> BTreeSet<ServerId> {
        let places = self.servers.places();
        places.iter().filter(|candidate| candidate.up && candidate.takes_new).map(|candidate| candidate.id).collect()
    }

    /// Room, and how far apart its chain is, are as they are now, not as they were when it was planned.
    fn may_begin(&self, next: &Move, candidates: &[Candidate]) -> bool {
        let Some(row) = self.chains.row(next.container) else { return false };
        let members = row.members();
        let then: Vec<ServerId> = members.iter().map(|id| if *id == next.from { next.to } else { *id }).collect();
        let needed = next.bytes.saturating_add(self.config.chunk_reserve_bytes);
        let is_usable = |id: ServerId, bytes: u64| {
            candidates.iter().any(|c| c.id == id && c.up && c.takes_new && c.bytes_free >= bytes)
        };
        members.contains(&next.from)
            && !members.contains(&next.to)
            && self.may_move(next.container)
            && is_usable(next.to, needed)
            && apart(&then, candidates) >= apart(members, candidates)
    }

    /// Its chain is as it should be, in an epoch in which all act and everything is open.
    fn may_move(&self, container: ContainerId) -> bool {
        let Some(row) = self.chains.row(container) else { return false };
        self.acting_chain(container).is_some()
            && row.last_open.is_empty()
            && row.members().len() == usize::from(row.copies)
            && row.members().iter().all(|member| self.may_take(*member))
    }

    /// Chunks that no row names any more.
    async fn being_freed(&self) -> Result<BTreeSet<ChunkId>> {
        let (mut freed, mut after) = (BTreeSet::new(), None);
        loop {
            let page = reclaim::ListReclaim { after, limit: PAGE };
            let waiting = self.engine.read(0, page).await.map_err(Error::from)?;
            freed.extend(waiting.chunks.into_iter().map(|(chunk, _)| chunk));
            if freed.len() > FREED_MAX {
                let cause =
                    format!("more than {FREED_MAX} chunks are being freed: who holds what is known when they are");
                return Err(Error::new(Code::Busy, "rebalance", cause));
            }
            after = waiting.next;
            if after.is_none() {
                return Ok(freed);
            }
        }
    }

    async fn plan(&self, within_permille: u32) -> Result<Planned> {
        let (at, of) = (self.env.clock.now(), self.takers());
        let mut held: BTreeMap<ContainerId, Load> = BTreeMap::new();
        // What has moved is still at its old place until it is deleted there.
        let freed = self.being_freed().await?;
        let mut least: BTreeMap<(ServerId, ContainerId), u64> = BTreeMap::new();
        for server in &of {
            for (container, at) in self.held_at(*server, &freed).await? {
                // A copy that is on its way, or has holes that others have not, is smaller.
                let most = held.entry(container).or_default();
                most.bytes = most.bytes.max(at.load.bytes);
                least.insert((*server, container), at.least);
            }
        }
        let mut loose: BTreeMap<ServerId, Loose> = BTreeMap::new();
        let under_way: BTreeMap<ContainerId, MoveRow> =
            self.rebalancing.row().moves.into_iter().map(|it| (it.container, it)).collect();
        let (mut holdings, mut after) = (Vec::new(), None);
        loop {
            let page = spares::ListContainers { after, limit: PAGE };
            let rows = self.engine.read(0, page).await.map_err(Error::from)?;
            let Some((last, _)) = rows.last() else { break };
            after = Some(*last);
            for (container, row) in rows {
                let bytes = held.get(&container).map_or(0, |load| load.bytes);
                if let (None, [server]) = (&row.copies, row.chain.as_slice())
                    && let Some(least) = least.get(&(*server, container)).copied().filter(|least| *least > 0)
                {
                    let known = loose.entry(*server).or_insert(Loose { server: *server, bytes: 0, least });
                    (known.bytes, known.least) = (known.bytes + bytes, known.least.min(least));
                }
                let mut chain = row.chain;
                let may_move = match under_way.get(&container) {
                    // As it will be.
                    Some(it) => {
                        chain.retain(|id| *id != it.from && *id != it.to);
                        chain.push(it.to);
                        false
                    }
                    None => self.may_move(container),
                };
                holdings.push(Holding { container, chain, bytes, may_move });
            }
        }
        let (bytes_least, bytes_reserved) = (self.config.rebalance_least_bytes, self.config.chunk_reserve_bytes);
        let goal = Goal { within_permille, bytes_least, bytes_reserved };
        let loose: Vec<Loose> = loose.into_values().collect();
        let plan = rebalance(&self.servers.places(), &holdings, &loose, goal);
        let (left, shifts) = (plan.moves.iter().copied().collect(), plan.shifts.clone());
        Ok(Planned { left, shifts, is_given: false, shifted: None, plan, of, at, has_begun: false })
    }

    /// How it stands. What is asked for with another `within_permille`, or while none runs, is planned now.
    pub(crate) async fn look_at_rebalance(&self, within_permille: Option<u32>) -> Result<Rebalance> {
        let row = self.rebalancing.row();
        let is_on = matches!(row.state, RebalanceState::Runs | RebalanceState::Paused);
        let within =
            within_permille.unwrap_or(if row.within_permille > 0 { row.within_permille } else { WITHIN_PERMILLE });
        let seen = |planned: &Planned| {
            (planned.left.iter().copied().collect::<Vec<_>>(), planned.shifts.clone(), planned.plan.fills.clone())
        };
        let known = {
            let state = self.rebalancing.state.lock();
            state.planned.as_ref().filter(|_| row.state == RebalanceState::Runs && within_permille.is_none()).map(seen)
        };
        let (left, shifts, fills) = match known {
            Some(known) => known,
            None => seen(&self.plan(within).await?),
        };
        let mut moving = Vec::new();
        if is_on {
            let takers: BTreeSet<ServerId> = row.moves.iter().map(|it| it.to).collect();
            let mut there: BTreeMap<ServerId, BTreeMap<ContainerId, Load>> = BTreeMap::new();
            for taker in takers {
                // One that does not answer says nothing of how far it is.
                there.insert(taker, self.chunks_at(taker).await.unwrap_or_default());
            }
            for MoveRow { container, from, to, bytes, spreads } in row.moves.iter().copied() {
                let load = there.get(&to).and_then(|held| held.get(&container));
                let bytes_there = load.map_or(0, |load| load.bytes).min(bytes);
                moving.push(CopyMove { container, from, to, bytes, bytes_there, spreads });
            }
        }
        let waits_for = match row.state {
            RebalanceState::Runs => self.rebalancing.state.lock().waits_for.clone(),
            _ => self.what_comes_first().unwrap_or_default(),
        };
        let fill = |fill: &braid_placement::Fill| {
            let braid_placement::Fill { server, capacity, bytes_now, bytes_then, bytes_fair, is_even } = *fill;
            ServerFill { server, capacity, bytes_now, bytes_then, bytes_fair, is_even }
        };
        let planned = |it: &Move| {
            let Move { container, from, to, bytes, spreads } = *it;
            CopyMove { container, from, to, bytes, bytes_there: 0, spreads }
        };
        Ok(Rebalance {
            state: row.state,
            waits_for,
            within_permille: within,
            fills: fills.iter().map(fill).collect(),
            planned: left.iter().take(NAMED).map(planned).collect(),
            left: Moves { copies: left.len() as u64, bytes: left.iter().map(|it| it.bytes).sum() },
            shifts: shifts.iter().map(|it| ShiftLeft { from: it.from, to: it.to, bytes: it.bytes }).collect(),
            moving,
            moved: row.moved,
            move_rate: self.move_rate(),
        })
    }

    pub(crate) async fn set_rebalance(
        &self,
        change: RebalanceChange,
        within_permille: Option<u32>,
        move_rate: Option<u64>,
    ) -> Result<Rebalance> {
        if within_permille.is_some_and(|within| !(1..=1000).contains(&within)) {
            return Err(Error::new(Code::Invalid, "rebalance", "within 0.1 to 100 % of the fair share"));
        }
        let change = ChangeRebalance { change, within_permille, within_default: WITHIN_PERMILLE, move_rate };
        let turn = self.rebalancing.turn.lock().await;
        let row = self.engine.transact(0, change).await.map_err(Error::from)?;
        self.rebalancing.learn(row, self.env.clock.now());
        drop(turn);
        if let Some(rate) = move_rate {
            self.growing.set_rate(rate);
        }
        self.tell_who_leaves();
        self.look_at_rebalance(None).await
    }
}
