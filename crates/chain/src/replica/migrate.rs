//! Ownership moves to the member beside the writer, inside an epoch, under the next owner term (AwareFS figure 8;
//! docs/design/0014-migration.md).
//!
//! ```text
//! taker                       owner
//!   | ── Want ──────────────► |  if all is well: nothing is begun from here on
//!   | ◄─ Tell, Blocks ─────── |  what changed since the last announcement
//!   | ── Ack ───────────────► |  the taker has everything, all serve nothing older, and nobody waits for anything
//!   | ◄─ Hand ─────────────── |  from here on it owns no more, whatever happens
//!   | ── Owns, to all ──────► |  whoever waits: look for the taker
//! ```
//! Promises: of two servers at most one acts as the owner at any instant: the one before has stopped when it says `Hand`, the
//! next begins when it hears that. The next has everything that was ever answered for, so nothing is decided, fetched or
//! left behind. Calls wait for `move_wait` at most until `Hand`; a `Hand` that is not answered ends with the taker's removal, by
//! a new epoch. A contended chunk settles: see [`Limits::move_hold`].

use super::member::Following;
use super::owner::{Owning, Peer};
use super::{Cx, Replica};
use crate::answer::{Refusal, Until};
use crate::limits::{Limits, Moment};
use crate::message::Body;
use crate::server::Command;
use braid_types::{OwnerTerm, ServerId, Version};
use std::time::Duration;

/// Beyond this many moves the pause is not doubled any more: 64 times 250 ms are 16 s.
const DOUBLED_MAX: u32 = 6;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Migration {
    wanting: Option<Wanting>,
    moving: Option<Moving>,
    moves: Moves,
}

/// At who would own it.
#[derive(Clone, Debug, Hash)]
struct Wanting {
    until: Moment,
    asked: Option<Moment>,
}

/// At the owner, or who was it until `handed`.
#[derive(Clone, Debug, Hash)]
struct Moving {
    to: ServerId,
    since: Moment,
    held: Vec<Held>,
    handed: Option<Handed>,
}

#[derive(Clone, Debug, Hash)]
struct Handed {
    since: Moment,
    sent_at: Moment,
    removal_asked: Moment,
}

/// A call that waits, and came while ownership moves.
#[derive(Clone, Debug, Hash)]
struct Held {
    op: u64,
    until: Until,
}

/// How often the chunk has moved shortly, and when this server came to own it; none if it did not by a move.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Moves {
    count: u32,
    last: Option<Moment>,
}

/// How long an owner keeps what has moved `count` times without a calm in between: 250 ms, 500 ms, … 16 s. Two writers that
/// never stop cost each other at most one move of 2 ms or so in 16 s; one that comes after another has stopped waits for
/// 250 ms, as the count is forgotten after a calm of 32 s.
fn hold(count: u32, limits: &Limits) -> Duration {
    limits.move_hold * (1 << count.saturating_sub(1).min(DOUBLED_MAX))
}

impl Moves {
    fn may_move(&self, now: Moment, limits: &Limits) -> bool {
        self.last.is_none_or(|last| now >= last + hold(self.count, limits))
    }

    /// The count that the next owner gets.
    fn next(&self, now: Moment, limits: &Limits) -> u32 {
        let is_calm = self.last.is_none_or(|last| now >= last + limits.move_calm);
        if is_calm { 1 } else { self.count.saturating_add(1) }
    }
}

impl Replica {
    /// Ownership is on its way from here: nothing new is begun.
    pub(crate) fn is_moving(&self) -> bool {
        self.migration.moving.is_some()
    }

    /// A wait that comes now is answered when it is clear by whom. True if it is kept for then.
    pub(super) fn hold(&mut self, op: u64, until: Until) -> bool {
        if let Some(moving) = &mut self.migration.moving {
            moving.held.push(Held { op, until });
        }
        self.is_moving()
    }

    pub(super) fn answer_held(&mut self, cx: &mut Cx, refusal: Refusal) {
        let Some(moving) = self.migration.moving.take() else { return };
        for Held { op, .. } in moving.held {
            cx.out.push(Command::Answer { op, result: Err(refusal) });
        }
    }

    /// A writer is beside this member.
    pub(crate) fn want(&mut self, cx: &mut Cx) {
        if self.is_owner() || self.is_moving() {
            return;
        }
        let asked = self.migration.wanting.as_ref().and_then(|wanting| wanting.asked);
        self.migration.wanting = Some(Wanting { until: cx.now + cx.limits.move_wait, asked });
        self.ask_to_own(cx);
    }

    fn ask_to_own(&mut self, cx: &mut Cx) {
        let Some(wanting) = self.migration.wanting.as_mut() else { return };
        if cx.now >= wanting.until {
            self.migration.wanting = None;
            return;
        }
        if wanting.asked.is_none_or(|asked| cx.now >= asked + cx.limits.resend) {
            wanting.asked = Some(cx.now);
            self.send(cx, self.owner, Body::Want);
        }
    }

    /// At the owner: a member has a writer beside it.
    pub(crate) fn on_want(&mut self, cx: &mut Cx, from: ServerId) {
        if self.may_move_to(cx, from) {
            self.migration.moving = Some(Moving { to: from, since: cx.now, held: Vec::new(), handed: None });
            self.go_on_moving(cx);
        }
    }

    /// Everybody answers, and who wants it lacks little: what is on its way to it while a stream is written, which is two groups at most.
    fn may_move_to(&self, cx: &Cx, to: ServerId) -> bool {
        let Some(owning) = self.owning.as_ref().filter(|owning| owning.opened && owning.fetch.is_empty()) else {
            return false;
        };
        let answers = |peer: &Peer| peer.greeted && peer.asked.is_none_or(|at| cx.now < at + cx.limits.move_wait);
        let lacks_little = |peer: &Peer| {
            let lacks = self.claims.changes.since(peer.complete);
            let blocks = lacks.map(|groups| groups.iter().map(|(_, _, blocks)| blocks.len()).sum::<u64>());
            peer.complete >= self.opening && blocks.is_some_and(|blocks| blocks <= 2 * cx.limits.announce_blocks)
        };
        !self.is_moving()
            && cx.lease
            && self.flaws().is_empty()
            && self.migration.moves.may_move(cx.now, cx.limits)
            && owning.peers.values().all(answers)
            && owning.peers.get(&to).is_some_and(lacks_little)
    }

    /// The next step of a move, if it is time for it.
    pub(super) fn go_on_moving(&mut self, cx: &mut Cx) {
        let Some(moving) = self.migration.moving.as_ref().filter(|moving| moving.handed.is_none()) else { return };
        let (to, since) = (moving.to, moving.since);
        if cx.now >= since + cx.limits.move_wait || !cx.lease || !self.flaws().is_empty() {
            return self.keep_it(cx);
        }
        if self.is_applying() {
            return;
        }
        self.announce_to(cx, &[to]);
        let told = self.told();
        let Some(owning) = &self.owning else { return };
        let has_all = owning.peers.get(&to).is_some_and(|peer| peer.complete >= told);
        // All serve nothing older, or a session might be fenced here, after, and there, before, and nobody would have told them.
        let is_shared = self.horizons(cx).0 >= told;
        if has_all && is_shared && owning.waiting.is_empty() {
            self.hand_over(cx, to);
        }
    }

    /// The move has come to nothing: what was held is done here.
    fn keep_it(&mut self, cx: &mut Cx) {
        let Some(moving) = self.migration.moving.take() else { return };
        for Held { op, until } in moving.held {
            self.wait(cx, op, until);
        }
    }

    /// From here on nothing is ordered or answered by this server, whatever becomes of the message.
    fn hand_over(&mut self, cx: &mut Cx, to: ServerId) {
        self.owning = None;
        self.owner = to;
        self.member = Following::default();
        let (since, sent_at) = (cx.now, cx.now);
        if let Some(moving) = &mut self.migration.moving {
            moving.handed = Some(Handed { since, sent_at, removal_asked: Moment::ZERO });
        }
        self.say_hand(cx, to);
    }

    fn say_hand(&self, cx: &mut Cx, to: ServerId) {
        let moves = self.migration.moves.next(cx.now, cx.limits);
        self.send(cx, to, Body::Hand { told: self.told(), moves });
    }

    /// At the taker: it owns the next term.
    pub(crate) fn on_hand(&mut self, cx: &mut Cx, told: Version, moves: u32) {
        let has_all = self.told() == told && self.claims.complete() == told && self.invalidated >= told;
        // It said so, and can only have lost it since by a write that its disk refused: then it is removed.
        if !has_all || !self.storing.is_empty() {
            return;
        }
        self.term = OwnerTerm(self.term.0.saturating_add(1));
        self.owner = cx.me;
        self.member = Following::default();
        self.migration = Migration { moves: Moves { count: moves, last: Some(cx.now) }, ..Migration::default() };
        self.owning = Some(Owning::taken(cx, told));
        // The record is to name the owner.
        self.unrecorded = true;
        self.say_term(cx);
    }

    /// To all that do not know of this term.
    fn say_term(&mut self, cx: &mut Cx) {
        let Some(owning) = self.owning.as_mut().filter(|owning| owning.took) else { return };
        let is_due = |peer: &Peer| !peer.greeted && cx.now >= peer.sent_at + cx.limits.resend;
        let mut due: Vec<ServerId> = Vec::new();
        for (member, peer) in owning.peers.iter_mut().filter(|(_, peer)| is_due(peer)) {
            peer.sent_at = cx.now;
            due.push(*member);
        }
        due.into_iter().for_each(|member| self.send(cx, member, Body::Owns));
    }

    /// Another member owns the chunk, in a later term.
    pub(crate) fn on_owns(&mut self, cx: &mut Cx, from: ServerId, term: OwnerTerm) {
        if term <= self.term || self.is_owner() || !cx.members.contains(&from) {
            return;
        }
        (self.term, self.owner) = (term, from);
        self.unrecorded = true;
        self.answer_held(cx, Refusal::NotOwner { owner: from });
        self.greet(cx);
    }

    pub(super) fn migration_tick(&mut self, cx: &mut Cx) {
        self.go_on_moving(cx);
        self.say_term(cx);
        self.ask_to_own(cx);
        let Some(Moving { to, handed: Some(handed), .. }) = &mut self.migration.moving else { return };
        let (to, now) = (*to, cx.now);
        if now >= handed.since + cx.limits.silent && now >= handed.removal_asked + cx.limits.renew {
            handed.removal_asked = now;
            cx.out.push(Command::Remove { container: cx.container, epoch: cx.epoch, server: to });
        }
        if now >= handed.sent_at + cx.limits.resend {
            handed.sent_at = now;
            self.say_hand(cx, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two writers that want it all the time, each asking once a second as clients do.
    #[test]
    fn a_contended_chunk_settles_and_a_calm_one_moves_soon() {
        let limits = Limits::default();
        let ms = Duration::from_millis;
        let (mut moves, mut at, mut when) = (Moves::default(), ms(0), Vec::new());
        while at < ms(600_000) {
            if moves.may_move(at, &limits) {
                moves = Moves { count: moves.next(at, &limits), last: Some(at) };
                when.push(at);
            }
            at += ms(50);
        }
        let pauses: Vec<u128> = when.windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
        assert_eq!(pauses[..8], [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000]);
        assert!(when.len() < 8 + 600 / 16, "{} moves in ten minutes", when.len());
        let last = moves.last.unwrap_or_default();
        assert!(!moves.may_move(last + ms(15_900), &limits) && moves.may_move(last + ms(16_000), &limits));
        assert_eq!(moves.next(last + limits.move_calm, &limits), 1, "a calm is a new beginning");
    }
}
