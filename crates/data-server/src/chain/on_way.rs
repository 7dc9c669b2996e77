//! Content on its way to other copies: nothing is sent twice while it is.
//!
//! A member asks again for what has not come after 300 ms. Where a link is slower than what is written, that is not lost but
//! waits in a queue, and sending it again makes the queue longer: six hosts on links of 1 Gbit/s sent each byte four times.
//!
//! Promises: what is held back is content of the same epoch and term that was read no earlier than the last change of its blocks, for the same
//! server, and that something of the chunk has arrived there since less than `given_up_after` ago. So it is at worst late. That is as long as
//! a member that does not answer is waited for (`Limits::silent`), and longer where content takes long ([`super::window`]). What waits for
//! room is not on its way yet and does not get lost ([`super::parked`]).

use braid_chain::{BlockSet, Moment};
use braid_types::{ChainEpoch, OwnerTerm, ServerId};
use std::time::Duration;

/// Whom it is for, and under whose orders. Content of another epoch or term would not be taken.
pub(super) type For = (ServerId, ChainEpoch, OwnerTerm);

struct Message {
    number: u64,
    to: For,
    blocks: BlockSet,
    /// It waits for room as long as there is none.
    since: Option<Moment>,
    given_up_after: Duration,
}

impl Message {
    fn is_given_up(&self, now: Moment) -> bool {
        self.since.is_some_and(|since| now >= since + self.given_up_after)
    }
}

#[derive(Default)]
pub(super) struct OnWay {
    last: u64,
    messages: Vec<Message>,
    /// Taken, or lost.
    ended: u64,
}

impl OnWay {
    /// Of these blocks those that have to be sent, and the number under which they are; `None`: all are on their way.
    pub fn send(
        &mut self,
        to: For,
        mut blocks: BlockSet,
        now: Moment,
        given_up_after: Duration,
    ) -> Option<(u64, BlockSet)> {
        self.messages.retain(|message| !message.is_given_up(now) && !message.blocks.is_empty());
        self.messages.iter().filter(|message| message.to == to).for_each(|message| blocks.subtract(&message.blocks));
        if blocks.is_empty() {
            return None;
        }
        self.last += 1;
        let (number, since) = (self.last, Some(now));
        self.messages.push(Message { number, to, blocks: blocks.clone(), since, given_up_after });
        Some((self.last, blocks))
    }

    /// Only these blocks have been read for it.
    pub fn holds(&mut self, number: u64, blocks: &BlockSet) {
        if let Some(message) = self.messages.iter_mut().find(|message| message.number == number) {
            message.blocks = message.blocks.intersection(blocks);
        }
    }

    /// It is not lost before it has gone.
    pub fn waits(&mut self, number: u64) {
        self.begins(number, None);
    }

    pub fn goes(&mut self, number: u64, now: Moment) {
        self.begins(number, Some(now));
    }

    fn begins(&mut self, number: u64, at: Option<Moment>) {
        self.messages.iter_mut().filter(|message| message.number == number).for_each(|message| message.since = at);
    }

    /// It was taken, or dropped. What is behind it in the queue has moved on.
    pub fn ends(&mut self, number: u64, now: Moment) {
        let Some(at) = self.messages.iter().position(|message| message.number == number) else { return };
        let to = self.messages.remove(at).to;
        self.ended += 1;
        let went = self.messages.iter_mut().filter(|message| message.to == to && message.since.is_some());
        went.for_each(|message| message.since = Some(now));
    }

    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// To whom something is, or will be when there is room.
    pub fn whom(&self, now: Moment) -> impl Iterator<Item = ServerId> {
        let open = move |message: &&Message| !message.is_given_up(now) && !message.blocks.is_empty();
        self.messages.iter().filter(open).map(|message| message.to.0)
    }

    /// It does not go at all.
    pub fn forget(&mut self, number: u64) {
        self.messages.retain(|message| message.number != number);
    }

    /// What is on its way there will not be taken.
    pub fn is_lost(&mut self, to: ServerId) {
        self.messages.retain(|message| message.to.0 != to);
    }

    /// These blocks have changed: what is on its way of them is old.
    pub fn changed(&mut self, blocks: &BlockSet) {
        self.messages.iter_mut().for_each(|message| message.blocks.subtract(blocks));
    }
}

/// Says, when it goes, that the message with which it came is not on its way any more.
#[derive(Default)]
pub struct Arrival(Option<Box<dyn FnOnce() + Send>>);

impl Arrival {
    pub(super) fn new(then: impl FnOnce() + Send + 'static) -> Arrival {
        Arrival(Some(Box::new(then)))
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::GIVEN_UP;
    use super::*;

    const TO: For = (ServerId(2), ChainEpoch(7), OwnerTerm(1));

    fn ms(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_is_on_its_way_is_not_sent_again() {
        let mut way = OnWay::default();
        let (first, blocks) = way.send(TO, BlockSet::of(0..10), ms(0), GIVEN_UP).unwrap();
        assert_eq!(blocks, BlockSet::of(0..10));
        assert_eq!(way.send(TO, BlockSet::of(2..4), ms(300), GIVEN_UP), None);
        assert_eq!(way.send(TO, BlockSet::of(8..12), ms(300), GIVEN_UP).unwrap().1, BlockSet::of(10..12));
        way.ends(first, ms(400));
        assert_eq!(way.send(TO, BlockSet::of(2..12), ms(400), GIVEN_UP).unwrap().1, BlockSet::of(2..10));
    }

    #[test]
    fn what_has_changed_is_old_or_unread_or_another_servers_is_sent() {
        let mut way = OnWay::default();
        let (number, _) = way.send(TO, BlockSet::of(0..10), ms(0), GIVEN_UP).unwrap();
        for other in [(ServerId(3), TO.1, TO.2), (TO.0, ChainEpoch(8), TO.2), (TO.0, TO.1, OwnerTerm(2))] {
            assert_eq!(way.send(other, BlockSet::of(0..10), ms(0), GIVEN_UP).unwrap().1, BlockSet::of(0..10));
        }
        way.changed(&BlockSet::of(3..5));
        assert_eq!(way.send(TO, BlockSet::of(0..10), ms(1), GIVEN_UP).unwrap().1, BlockSet::of(3..5));
        way.holds(number, &BlockSet::of(0..9));
        assert_eq!(way.send(TO, BlockSet::of(0..10), ms(2), GIVEN_UP).unwrap().1, BlockSet::of(9..10));
        assert_eq!(way.send(TO, BlockSet::of(0..3), ms(1_999), GIVEN_UP), None);
        assert_eq!(way.send(TO, BlockSet::of(0..3), ms(2_000), GIVEN_UP).unwrap().1, BlockSet::of(0..3));
    }

    #[test]
    fn what_has_not_gone_yet_is_not_lost() {
        let mut way = OnWay::default();
        let (number, _) = way.send(TO, BlockSet::of(0..10), ms(0), GIVEN_UP).unwrap();
        way.waits(number);
        assert_eq!(way.send(TO, BlockSet::of(0..10), ms(50_000), GIVEN_UP), None);
        way.goes(number, ms(50_000));
        assert_eq!(way.send(TO, BlockSet::of(0..10), ms(51_999), GIVEN_UP), None);
        assert!(way.send(TO, BlockSet::of(0..10), ms(52_000), GIVEN_UP).is_some());
    }

    #[test]
    fn what_waits_in_a_queue_that_moves_is_not_lost() {
        let mut way = OnWay::default();
        let numbers = [0u64, 10, 20].map(|n| way.send(TO, BlockSet::of(n..n + 10), ms(0), GIVEN_UP).unwrap().0);
        way.ends(numbers[0], ms(1_500));
        assert_eq!(way.send(TO, BlockSet::of(10..30), ms(3_000), GIVEN_UP), None);
        way.ends(numbers[1], ms(3_000));
        assert_eq!(way.send(TO, BlockSet::of(10..30), ms(4_900), GIVEN_UP).unwrap().1, BlockSet::of(10..20));
        assert_eq!(way.send(TO, BlockSet::of(20..30), ms(5_000), GIVEN_UP).unwrap().1, BlockSet::of(20..30));
    }
}
