//! Content that waits beside its copy's queue until there is room for it on its way.
//!
//! In the queue it would hold up what is written for as long as a link is slow; dropped, it would be asked for again, be too late for the
//! room there was meanwhile, and be asked for less and less often: over 30 Mbit/s one chunk of many could starve for a minute.
//!
//! Promises: what is changed while it waits is left out, so that what is sent was read before any later change of it; it has its turn in
//! the order in which it was asked for ([`super::room`]); the same is not in wait twice for the same server.

use super::Chains;
use super::copy::Copy;
use super::job::Job;
use super::room::{Room, Waiting};
use braid_chain::{BlockSet, Body, Envelope};
use braid_types::{ChunkId, ContainerId, ServerId};
use std::sync::Arc;
use std::time::Duration;

/// The queue before it moves each ten seconds at the latest, when what is on its way counts as lost. After as long as a call of a client may
/// take it is asked for anew by whoever still wants it.
const WAIT: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Parked {
    last: u64,
    list: Vec<(u64, Job)>,
}

/// What a message brings, and to whom.
fn content(job: &mut Job) -> Option<(ServerId, &mut BlockSet, Option<u64>)> {
    let Job::Send { to, envelope: Envelope { body, .. }, number, .. } = job else { return None };
    let (Body::Blocks { blocks, .. } | Body::Fetched { blocks }) = body else { return None };
    Some((*to, blocks, *number))
}

impl Copy {
    /// Is all of it in wait for that server already? Of what is pushed `OnWay` knows that.
    pub fn is_parked(&mut self, job: &mut Job) -> bool {
        let Some((to, blocks, None)) = content(job) else { return false };
        let is_same = |(_, parked): &mut (u64, Job)| {
            content(parked)
                .is_some_and(|(whom, all, number)| (whom, number) == (to, None) && blocks.without(all).is_empty())
        };
        self.parked.list.iter_mut().any(is_same)
    }

    fn park(&mut self, mut job: Job) -> u64 {
        if let Some((_, blocks, number)) = content(&mut job) {
            // What is behind it in the queue is not held up by it any more.
            self.jobs.iter().filter_map(Job::changes).for_each(|changed| blocks.subtract(changed));
            if let Some(number) = number {
                self.on_way.waits(number);
            }
        }
        self.parked.last += 1;
        self.parked.list.push((self.parked.last, job));
        self.parked.last
    }

    fn unpark(&mut self, id: u64) -> Option<Job> {
        let at = self.parked.list.iter().position(|(parked, _)| *parked == id)?;
        Some(self.parked.list.remove(at).1)
    }

    /// These blocks will be others before what waits has its turn.
    pub fn changes_parked(&mut self, changed: &BlockSet) {
        self.parked
            .list
            .iter_mut()
            .filter_map(|(_, job)| content(job))
            .for_each(|(_, blocks, _)| blocks.subtract(changed));
    }

    /// It is not to be sent to anybody any more. What waits for room finds nothing.
    pub fn forget_parked(&mut self) {
        for (_, mut job) in self.parked.list.drain(..) {
            if let Some((_, _, Some(number))) = content(&mut job) {
                self.on_way.forget(number);
            }
        }
    }
}

impl Chains {
    /// Beside the queue from now on, and back in it when there is room.
    pub(super) fn park(self: &Arc<Self>, container: ContainerId, chunk: ChunkId, job: Job, waiting: Waiting) {
        let Some(id) = self.state.lock().copies.get_mut(&chunk).map(|copy| copy.park(job)) else { return };
        let this = self.clone();
        self.env.spawn("content waits for room", async move {
            let room = tokio::select! {
                room = waiting => room.ok(),
                () = this.env.sleep(WAIT) => None,
            };
            let now = this.now();
            let mut state = this.state.lock();
            let Some(copy) = state.copies.get_mut(&chunk) else { return };
            let Some(mut job) = copy.unpark(id) else { return };
            let Some((_, blocks, number)) = content(&mut job) else { return };
            let goes = room.filter(|_| !blocks.is_empty());
            if let Some(number) = number {
                match goes.is_some() {
                    true => copy.on_way.goes(number, now),
                    false => copy.on_way.ends(number, now),
                }
            }
            if let (Some(has), Job::Send { room, .. }) = (goes, &mut job) {
                *room = Some(has);
                this.enqueue(&mut state, container, chunk, job);
            }
        });
    }

    /// Room for what is to be sent, taken as long as the copy's queue may wait for it; what is written to this chunk waits behind it, so
    /// that nobody writes faster than others can follow.
    pub(super) async fn room_soon(&self, to: ServerId, bytes: usize) -> Result<Room, Waiting> {
        let mut waiting = match self.links.read().as_ref() {
            Some(links) => links.room(to, bytes),
            None => Room::for_all(),
        };
        tokio::select! {
            biased;
            room = &mut waiting => Ok(room.unwrap_or_default()),
            () = self.env.sleep(self.limits.resend) => Err(waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::Incoming;
    use super::*;
    use braid_api::data::BlockContent;
    use braid_types::{ChainEpoch, OwnerTerm};
    use bytes::Bytes;

    fn send(body: Body, number: Option<u64>) -> Job {
        let (container, chunk, epoch, term) = (ContainerId(9), ChunkId(1), ChainEpoch(7), OwnerTerm(1));
        let envelope = Envelope { container, chunk, epoch, term, body };
        Job::Send { to: ServerId(2), envelope, number, same: None, room: None }
    }

    fn store(blocks: BlockSet) -> Job {
        let content = Arc::new(Incoming::new(&BlockContent::default(), Bytes::new()).unwrap());
        Job::Store { number: 1, blocks, content }
    }

    #[test]
    fn what_is_changed_before_its_turn_is_not_sent() {
        let mut copy = Copy::default();
        // It stands before this in the queue, and would have been read before.
        copy.jobs.push_back(store(BlockSet::of(2..4)));
        let id = copy.park(send(Body::Fetched { blocks: BlockSet::of(0..10) }, None));
        copy.changes_parked(&BlockSet::of(8..12));
        let mut job = copy.unpark(id).unwrap();
        let mut left = BlockSet::of(0..2);
        left.union(&BlockSet::of(4..8));
        assert_eq!(content(&mut job).unwrap().1, &left);
        assert!(copy.unpark(id).is_none());
    }

    #[test]
    fn what_is_asked_for_again_while_it_waits_waits_once() {
        let mut copy = Copy::default();
        copy.park(send(Body::Fetched { blocks: BlockSet::of(0..10) }, None));
        assert!(copy.is_parked(&mut send(Body::Fetched { blocks: BlockSet::of(2..5) }, None)));
        assert!(!copy.is_parked(&mut send(Body::Fetched { blocks: BlockSet::of(2..11) }, None)));
        copy.forget_parked();
        // Also of what is pushed nothing is left that would count as on its way.
        let whom = (ServerId(2), ChainEpoch(7), OwnerTerm(1));
        let (number, _) = copy.on_way.send(whom, BlockSet::of(0..4), Duration::ZERO, Duration::from_secs(2)).unwrap();
        copy.park(send(
            Body::Blocks { at: Default::default(), upto: Default::default(), blocks: BlockSet::of(0..4) },
            Some(number),
        ));
        assert_eq!(copy.on_way.whom(Duration::from_secs(50)).count(), 1);
        copy.forget_parked();
        assert_eq!(copy.on_way.whom(Duration::from_secs(50)).count(), 0);
        assert!(!copy.is_parked(&mut send(Body::Fetched { blocks: BlockSet::of(2..5) }, None)));
    }
}
