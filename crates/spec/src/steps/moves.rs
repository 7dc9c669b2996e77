//! A move of ownership (0014): word, `Want`, `Hand`, `Owns`.

use crate::messages::{Body, Late, Message};
use crate::rules::{Rule, Setup};
use crate::states::{Moving, Owning, State, Waiting};

impl State {
    /// A client tells the server beside it, after a write, that it writes there. It asks the owner.
    pub(super) fn word(&mut self, setup: &Setup, at: u8) -> bool {
        let client = self.clients.lease - 1;
        let known = self.clients.each[usize::from(client)];
        let Some(words) = self.may.words.checked_sub(1).filter(|_| known.done > 0 && !known.asked) else {
            return false;
        };
        let server = self.server_mut(at);
        let may_begin = server.acting && server.lease && !server.is_owner() && server.moving.is_none();
        if !may_begin || (server.fenced && client == 0) {
            return false;
        }
        if setup.keeps(Rule::WordSaysLease) {
            server.late.lease = server.late.lease.max(client + 1);
        }
        if setup.keeps(Rule::WordSaysPlace) {
            let place = &mut server.late.places[usize::from(client)];
            *place = known.place.max(*place);
        }
        let (to, epoch, term) = (server.owner, server.promised, server.term);
        self.may.words = words;
        self.send(Message { from: at, to, epoch, term, body: Body::Want });
        true
    }

    /// At the owner: nothing is begun from here on.
    pub(super) fn wanted(&mut self, setup: &Setup, message: Message) -> bool {
        let Message { from, to, epoch, term, .. } = message;
        let server = self.server_mut(to);
        let Some(owning) = &server.owning else { return false };
        let is_of_now = server.up && server.acting && (server.promised, server.term) == (epoch, term);
        let is_open = owning.opened || !setup.keeps(Rule::OpenEpoch);
        let has_lease = server.lease || !setup.keeps(Rule::OwnerHasLease);
        let is_alone = server.once == 0 || !setup.keeps(Rule::BesideStays);
        let others = (0..3).filter(|other| *other != to && server.members & 1 << other != 0);
        let all_answer = others.into_iter().all(|other| owning.peer(other).greeted);
        let lacks_little = owning.peer(from).complete >= server.opening;
        let may_move = is_open && has_lease && is_alone && all_answer && lacks_little && owning.fetch == 0;
        if !is_of_now || server.moving.is_some() || !may_move {
            return false;
        }
        server.moving = Some(Moving { to: from, handed: false });
        true
    }

    /// It took too long, or the lease is over: the owner goes on.
    pub(super) fn keep(&mut self, setup: &Setup, at: u8) -> bool {
        let server = self.server_mut(at);
        let may = server.acting && server.moving.is_some_and(|moving| !moving.handed);
        if may {
            server.moving = None;
            self.facts.kept = setup.stories;
        }
        may
    }

    /// The taker has everything, all serve nothing older, nothing is under way: from here on the owner owns no more.
    pub(super) fn hand(&mut self, setup: &Setup, at: u8) -> bool {
        let (shared, _) = self.horizons(setup, at);
        let server = self.server_mut(at);
        let (Some(moving), Some(owning)) = (server.moving, server.owning) else { return false };
        let may_act = server.up && server.acting && (server.lease || !setup.keeps(Rule::OwnerHasLease));
        let is_told = server.line.last() == server.told;
        let is_still = owning.queue.is_empty() || !setup.keeps(Rule::NothingApplied);
        let has_all = owning.peer(moving.to).complete >= server.told || !setup.keeps(Rule::TakerHasAll);
        let all_know = shared >= server.told || !setup.keeps(Rule::AllAcknowledged);
        let nobody_waits = owning.nobody_waits() || !setup.keeps(Rule::NobodyWaits);
        if moving.handed || !may_act || !is_told || !is_still || !has_all || !all_know || !nobody_waits {
            return false;
        }
        if setup.keeps(Rule::StopsAtHand) {
            // What is under way is not taken back: the store does it whoever owns the chunk.
            server.line.extend(owning.queue.entries());
            server.owning = None;
            server.owner = moving.to;
        }
        server.moving = Some(Moving { handed: true, ..moving });
        let answers: Vec<Waiting> = owning.waiting.iter().flatten().copied().collect();
        self.say_hand(setup, at, moving.to);
        // Planted: as if what they wait for were so. With the rule nobody waits here.
        answers.into_iter().for_each(|waiting| self.answered(setup, at, waiting, true));
        true
    }

    fn say_hand(&mut self, setup: &Setup, at: u8, to: u8) {
        let server = self.server(at);
        let late = if setup.keeps(Rule::HandSaysLate) { server.late } else { Late::default() };
        let (epoch, term, told) = (server.promised, server.term, server.told);
        self.send(Message { from: at, to, epoch, term, body: Body::Hand { told, late } });
    }

    pub(super) fn hand_lost(&mut self, message: Message) -> bool {
        let Some(lost) = self.may.lost_hands.checked_sub(1) else { return false };
        self.may.lost_hands = lost;
        self.net.retain(|other| *other != message);
        true
    }

    /// Every 300 ms until somebody owns the chunk.
    pub(super) fn hand_again(&mut self, setup: &Setup, at: u8) -> bool {
        let server = self.server(at);
        let handed = server.moving.filter(|moving| moving.handed && server.acting);
        let (Some(moving), true) = (handed, setup.keeps(Rule::HandAgain)) else { return false };
        let before = self.net.len();
        self.say_hand(setup, at, moving.to);
        let is_new = self.net.len() > before;
        self.facts.again |= is_new && setup.stories;
        is_new
    }

    /// At the taker: it owns the next term.
    pub(super) fn handed(&mut self, setup: &Setup, message: Message) -> bool {
        let Body::Hand { told, late } = message.body else { return false };
        let me = message.to;
        let server = self.server_mut(me);
        let acts_in = server.up && server.acting && server.promised == message.epoch && server.owner == message.from;
        let in_term = server.term == message.term || !setup.keeps(Rule::HandInItsTerm);
        let has_all = server.told == told && server.line.last() == told && server.invalidated >= told;
        let lacks = !has_all && setup.keeps(Rule::TakerHasAll);
        if !acts_in || server.is_owner() || !in_term || lacks {
            return false;
        }
        server.term += 1;
        server.owner = me;
        server.told = server.line.last();
        server.invalidated = server.told;
        (server.greeting, server.moving) = (false, None);
        server.owning = Some(Owning { opened: true, ..Owning::default() });
        server.late.join(&late);
        let (epoch, term, members) = (server.promised, server.term, server.members);
        for to in self.ids().filter(|to| *to != me && members & 1 << to != 0) {
            self.send(Message { from: me, to, epoch, term, body: Body::Owns });
        }
        true
    }

    /// Another member owns the chunk, in a later term: it is greeted.
    pub(super) fn owns(&mut self, message: Message) -> bool {
        let server = self.server_mut(message.to);
        let acts_in = server.up && server.acting && server.promised == message.epoch;
        let is_past = server.owning.is_some() && server.moving.is_some_and(|moving| moving.handed);
        if !acts_in || message.term <= server.term || (server.is_owner() && !is_past) {
            return false;
        }
        server.owning = None;
        (server.term, server.owner) = (message.term, message.from);
        (server.greeting, server.moving) = (true, None);
        true
    }

    /// Nothing of the copy's part in an epoch is left but what it holds.
    pub(super) fn stop(&mut self, at: u8) {
        let server = self.server_mut(at);
        if let Some(owning) = server.owning.take() {
            // What is being applied is waited for before the report.
            server.line.extend(owning.queue.entries());
        }
        (server.acting, server.moving, server.greeting) = (false, None, false);
    }
}
