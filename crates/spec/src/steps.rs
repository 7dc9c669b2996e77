//! Steps: what may happen next. Time is left out: whatever a timer would bring may happen at any moment.

mod clients;
mod copies;
mod epochs;
mod moves;

use crate::messages::{Body, Message, Request};
use crate::rules::{Rule, Setup};
use crate::states::{Servers, Stage, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    // clients
    Send {
        client: u8,
        to: u8,
    },
    Arrive(Request),
    Fsync {
        at: u8,
    },
    Flush {
        at: u8,
    },
    /// The client hears it, or the answer is lost.
    Answer {
        at: u8,
        call: u8,
        heard: bool,
    },
    Fence,
    FenceAt {
        at: u8,
    },
    FenceEnds,
    // an owner and its members
    Applied {
        at: u8,
    },
    Announce {
        at: u8,
    },
    Told(Message),
    LetGo {
        at: u8,
    },
    Stored(Message),
    Sync {
        at: u8,
    },
    // a move
    Word {
        at: u8,
    },
    Wanted(Message),
    Keep {
        at: u8,
    },
    Hand {
        at: u8,
    },
    HandLost(Message),
    HandAgain {
        at: u8,
    },
    Handed(Message),
    Owns(Message),
    // epochs
    Raise {
        members: Servers,
    },
    Prepare {
        at: u8,
    },
    Decide,
    Install {
        at: u8,
    },
    Fetched {
        owner: u8,
        from: u8,
    },
    Open {
        at: u8,
    },
    Crash {
        at: u8,
    },
    Return {
        at: u8,
    },
}

/// All that may happen, and some that may not: [`step`] says which.
pub fn actions(setup: &Setup, state: &State, out: &mut Vec<Action>) {
    out.extend(state.requests.iter().map(|request| Action::Arrive(*request)));
    for message in &state.net {
        match message.body {
            Body::Want => out.push(Action::Wanted(*message)),
            Body::Said { .. } => out.extend([Action::Told(*message), Action::Stored(*message)]),
            Body::Hand { .. } => {
                out.push(Action::Handed(*message));
                out.extend((state.may.lost_hands > 0).then_some(Action::HandLost(*message)));
            }
            Body::Owns => out.push(Action::Owns(*message)),
        }
    }
    for at in state.ids() {
        let server = state.server(at);
        out.extend((0..2).map(|client| Action::Send { client, to: at }));
        if !server.up {
            out.push(Action::Return { at });
            continue;
        }
        if let Some(owning) = &server.owning
            && server.acting
        {
            out.extend([Action::Applied { at }, Action::Announce { at }, Action::Open { at }, Action::Flush { at }]);
            out.extend((state.may.fsyncs > 0).then_some(Action::Fsync { at }));
            for other in state.ids().filter(|other| *other != at) {
                out.extend((owning.fetch != 0).then_some(Action::Fetched { owner: at, from: other }));
            }
            let calls = owning.waiting.iter().filter(|place| place.is_some()).count() as u8;
            out.extend((0..calls).flat_map(|call| [true, false].map(|heard| Action::Answer { at, call, heard })));
        }
        if server.moving.is_some() {
            out.extend([Action::Keep { at }, Action::Hand { at }, Action::HandAgain { at }]);
        }
        out.extend((state.may.words > 0).then_some(Action::Word { at }));
        out.extend((state.may.crashes > 0).then_some(Action::Crash { at }));
        out.extend((state.may.crashes > 0).then_some(Action::Sync { at }));
        out.extend([Action::LetGo { at }, Action::FenceAt { at }]);
        out.extend([Action::Prepare { at }, Action::Install { at }]);
    }
    out.extend([Action::Fence, Action::FenceEnds, Action::Decide]);
    if state.may.epochs > 0 {
        out.extend((1..1 << setup.servers).map(|members| Action::Raise { members }));
    }
}

/// Does it. False if it may not happen, or changes nothing.
pub fn step(setup: &Setup, state: &mut State, action: &Action) -> bool {
    let done = match *action {
        Action::Send { client, to } => state.send_write(setup, client, to),
        Action::Arrive(request) => state.arrive(setup, request),
        Action::Fsync { at } => state.fsync(at),
        Action::Flush { at } => state.flush(setup, at),
        Action::Answer { at, call, heard } => state.answer(setup, at, call, heard),
        Action::Fence => state.fence(setup),
        Action::FenceAt { at } => state.fence_at(setup, at),
        Action::FenceEnds => state.fence_ends(),
        Action::Applied { at } => state.applied(at),
        Action::Announce { at } => state.announce(at),
        Action::Told(message) => state.told(setup, message),
        Action::LetGo { at } => state.let_go(at),
        Action::Stored(message) => state.stored(message),
        Action::Sync { at } => state.sync(at),
        Action::Word { at } => state.word(setup, at),
        Action::Wanted(message) => state.wanted(setup, message),
        Action::Keep { at } => state.keep(setup, at),
        Action::Hand { at } => state.hand(setup, at),
        Action::HandLost(message) => state.hand_lost(message),
        Action::HandAgain { at } => state.hand_again(setup, at),
        Action::Handed(message) => state.handed(setup, message),
        Action::Owns(message) => state.owns(message),
        Action::Raise { members } => state.raise(setup, members),
        Action::Prepare { at } => state.leader.stage == Stage::Collecting && state.prepare(at),
        Action::Decide => state.decide(setup),
        Action::Install { at } => state.install(at),
        Action::Fetched { owner, from } => state.fetched(setup, owner, from),
        Action::Open { at } => state.open(setup, at),
        Action::Crash { at } => state.crash(at),
        Action::Return { at } => state.come_back(at),
    };
    if done {
        state.follow(setup);
        state.forget(setup);
    }
    done
}

impl State {
    /// Messages that nothing hears any more, whatever comes: of an epoch or a term that is over where they go, or of nothing new.
    /// They would make more states of what is one.
    fn forget(&mut self, setup: &Setup) {
        let servers = &self.servers;
        self.net.retain(|message| {
            let to = &servers[usize::from(message.to)];
            let in_epoch = to.acting && to.promised == message.epoch;
            let is_old_term = in_epoch && message.term < to.term;
            let is_new = match message.body {
                Body::Said { line } => {
                    let is_told = in_epoch && to.term == message.term && to.told >= line.last();
                    let has_it = is_told && to.line.last() >= line.last();
                    !is_old_term && !has_it
                }
                Body::Owns => !(in_epoch && message.term <= to.term),
                Body::Hand { .. } => !is_old_term || !setup.keeps(Rule::HandInItsTerm),
                Body::Want => !is_old_term,
            };
            is_new && message.epoch >= to.promised
        });
        self.requests.retain(|request| {
            let to = &servers[usize::from(request.to)];
            let is_overtaken = request.place < to.late.places[usize::from(request.client)];
            to.up && request.epoch >= to.promised && !is_overtaken
        });
    }
}
