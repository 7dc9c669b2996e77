//! What holds in every state, and what has to be reachable for that to say anything.

use crate::Spec;
use crate::rules::Setup;
use crate::states::{Facts, Server, State};
use stateright::Property;

type Holds = fn(&Setup, &State) -> bool;

/// In every state.
pub const ALWAYS: &[(&str, Holds)] = &[
    ("one owner", one_owner),
    ("one line", one_line),
    ("nothing visible is missed", nothing_visible_is_missed),
    ("nothing synced is lost", nothing_synced_is_lost),
    ("the owner has what was answered", owner_has_what_was_answered),
    ("nothing overtakes", nothing_overtakes),
    ("nothing of a fenced session is late", |_, state| !state.facts.late),
];

/// In some state.
pub const SOMETIMES: &[(&str, Holds)] = &[
    ("ownership moves", |_, state| any_owner(state, |server| server.term == 2)),
    ("ownership moves back", |_, state| any_owner(state, |server| server.term == 3 && server.owner == 0)),
    ("the next owner answers", |_, state| {
        any_owner(state, |server| server.term > 1 && server.line.last().term() > 1 && state.facts.answered != 0)
    }),
    ("a move is given up", |_, state| state.facts.kept),
    ("nobody owns it", |_, state| state.servers.iter().all(|server| server.acting && !server.is_owner())),
    ("a lost Hand is said again, and heard", |_, state| {
        state.facts.again && any_owner(state, |server| server.term == 2)
    }),
    ("an epoch goes on from a later term", |_, state| {
        any_owner(state, |server| {
            let before = server.line.entries().iter().rev().find(|entry| entry.version < server.opening);
            server.opening.epoch() > 1 && before.is_some_and(|entry| entry.version.term() > 1)
        })
    }),
    ("a move is ended by an epoch", |_, state| {
        let is_handed = |server: &Server| server.moving.is_some_and(|moving| moving.handed);
        state.servers.iter().any(is_handed) && any_owner(state, |server| server.opening.epoch() > 1)
    }),
    ("ownership moves in a later epoch", |_, state| {
        any_owner(state, |server| server.opening.epoch() > 1 && server.term > 1)
    }),
    ("what a past owner holds is fetched", |_, state| state.facts.fetched),
    ("an fsync is answered", |_, state| state.facts.durable != 0),
    ("a session ends", |_, state| state.facts.ended),
    ("the second client writes", |_, state| state.clients.each[1].done > 0),
];

fn any_owner(state: &State, is: impl Fn(&Server) -> bool) -> bool {
    state.servers.iter().any(|server| server.acting && server.is_owner() && is(server))
}

/// 1. Of two servers at most one may acknowledge writes.
fn one_owner(_: &Setup, state: &State) -> bool {
    state.servers.iter().filter(|server| server.may_acknowledge()).count() <= 1
}

/// 2. Versions rise along a copy, and of two copies in one epoch one is where the other was.
fn one_line(_: &Setup, state: &State) -> bool {
    let rises = |server: &Server| server.line.entries().windows(2).all(|two| two[0].version < two[1].version);
    let are_one = |a: &Server, b: &Server| {
        let in_one = a.acting && b.acting && a.promised == b.promised;
        // One that has not heard of the opening yet may have less than its successor goes on from.
        !in_one || a.line.is_along(&b.line)
    };
    let all = &state.servers;
    all.iter().all(|a| rises(a) && all.iter().all(|b| are_one(a, b)))
}

/// 3. Nobody serves what is older than what all were promised to see.
fn nothing_visible_is_missed(_: &Setup, state: &State) -> bool {
    let Facts { visible, .. } = state.facts;
    state.servers.iter().filter(|server| server.serves()).all(|server| server.line.writes() & visible == visible)
}

/// 4. What an fsync was answered for is on `min_copies` disks, and no owner of an open epoch, and nobody who serves, is without it.
fn nothing_synced_is_lost(_: &Setup, state: &State) -> bool {
    let Facts { durable, short, .. } = state.facts;
    let has_all = |server: &Server| server.line.writes() & durable == durable;
    let counts = |server: &&Server| server.may_acknowledge() || (server.serves() && server.is_owner());
    !short && state.servers.iter().filter(counts).all(has_all)
}

/// 5. Whoever owns the chunk in an epoch has every write that was answered in it.
fn owner_has_what_was_answered(_: &Setup, state: &State) -> bool {
    let Facts { answered, answered_in, .. } = state.facts;
    let is_of_epoch = |server: &&Server| server.acting && server.is_owner() && server.promised == answered_in;
    state.servers.iter().filter(is_of_epoch).all(|server| server.line.writes() & answered == answered)
}

/// 6. No attempt at a write is carried out after what was written when it had been given up: one after the other, and beside others
///    each once.
fn nothing_overtakes(setup: &Setup, state: &State) -> bool {
    let in_order = |server: &Server| {
        let writes: Vec<u8> =
            server.line.entries().iter().map(|entry| entry.write).filter(|write| *write > 0).collect();
        match setup.beside {
            false => writes.is_sorted(),
            true => writes.iter().enumerate().all(|(at, write)| !writes[..at].contains(write)),
        }
    };
    state.servers.iter().filter(|server| server.acting).all(in_order)
}

/// As the checker takes them.
pub fn properties() -> Vec<Property<Spec>> {
    let mut all = Vec::new();
    macro_rules! of {
        ($list:ident, $kind:ident, $($at:literal)*) => {
            $(if let Some((name, _)) = $list.get($at) {
                all.push(Property::$kind(name, |spec: &Spec, state: &State| ($list[$at].1)(&spec.0, state)));
            })*
        };
    }
    of!(ALWAYS, always, 0 1 2 3 4 5 6);
    of!(SOMETIMES, sometimes, 0 1 2 3 4 5 6 7 8 9 10 11 12);
    all
}
