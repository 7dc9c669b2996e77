//! Request ids, the low-water mark, and changes that were answered before they were durable. Pure but for the waiting.
//!
//! Such a change is kept until a mark of the server says that it is durable, and is sent again if the server starts
//! anew before (docs/design/0007-early-reply.md). What was ordered before a change is kept as well: an answer that came
//! early is given to whoever asked only when no request is left that was under way when it came, for one of them may
//! have been ordered before it, and of that one nobody would know.

use crate::wait::{Deadline, wait_until};
use braid_api::meta::{EarlyMark, Kept, Mark, MetaRequest};
use braid_env::Env;
use braid_types::{RequestId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;

struct Entry {
    session: SessionId,
    incarnation: u64,
    mark: EarlyMark,
    told: bool,
    message: MetaRequest,
}

impl Entry {
    fn kept(&self, id: u64) -> Kept {
        Kept { request: RequestId(id), mark: self.mark, told: self.told, message: self.message.clone() }
    }
}

#[derive(Default)]
struct State {
    last: u64,
    /// Unanswered.
    open: BTreeSet<u64>,
    /// Of those, what may be answered early.
    under_way: BTreeSet<u64>,
    /// A request up to this one was given up by whoever asked, and may have been ordered all the same.
    adrift: Option<u64>,
    kept: BTreeMap<u64, Entry>,
    bytes: usize,
    /// Of the server, as far as is known: its present start, what is durable of that, and some of those before.
    incarnation: u64,
    durable: u64,
    past: Vec<u64>,
    /// The start that was sent what is kept of earlier ones.
    replayed: u64,
    /// Changes that somebody has been told of and that are not answered.
    behind: BTreeMap<u64, (SessionId, MetaRequest)>,
    /// Changes that are lost with server and session, and that no fsync has told yet.
    lost: u64,
}

/// Gives out ids from 1 upwards, knows which are unanswered, and keeps what is not durable.
#[derive(Default)]
pub struct Requests {
    state: Mutex<State>,
    changed: Notify,
}

/// An id in use; answered, or given up for good, when dropped.
pub struct Numbered<'a> {
    requests: &'a Requests,
    pub id: RequestId,
}

/// The request that an answer belongs to, if it is a change.
pub struct Asked<'a> {
    pub id: RequestId,
    pub session: SessionId,
    pub message: &'a MetaRequest,
}

/// What is to be done with an answer.
enum Step {
    Take,
    /// It is of a server that has gone, and may be of no value.
    Again,
    Wait {
        id: RequestId,
        number: u64,
        incarnation: u64,
        before: BTreeSet<u64>,
    },
}

/// What is under way is answered soon, as a rule. If not, the server is asked again, and by then what it says is durable.
const SOON: Duration = Duration::from_millis(50);

fn soon(env: &Env, deadline: Deadline) -> Deadline {
    Deadline::after(env, deadline.left(env).min(SOON))
}

/// Kept changes are bounded by bytes; beyond this many past starts of the server nothing comes late any more.
const PAST_MAX: usize = 8;

impl State {
    fn tell(&mut self, id: RequestId) {
        if let Some(entry) = self.kept.get_mut(&id.0) {
            entry.told = true;
        }
    }

    fn keep(&mut self, asked: &Asked<'_>, incarnation: u64, mark: EarlyMark) {
        let entry = Entry { session: asked.session, incarnation, mark, told: false, message: asked.message.clone() };
        self.bytes += entry.message.kept_bytes();
        if let Some(old) = self.kept.insert(asked.id.0, entry) {
            self.bytes -= old.message.kept_bytes();
        }
    }

    fn remove(&mut self, request: RequestId) -> Option<Entry> {
        let entry = self.kept.remove(&request.0)?;
        self.bytes -= entry.message.kept_bytes();
        Some(entry)
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) -> u64 {
        let before = self.kept.len();
        let bytes = &mut self.bytes;
        self.kept.retain(|_, entry| {
            let stays = keep(entry);
            if !stays {
                *bytes -= entry.message.kept_bytes();
            }
            stays
        });
        (before - self.kept.len()) as u64
    }

    fn observe(&mut self, mark: &Mark) {
        if mark.incarnation != self.incarnation {
            self.past.push(self.incarnation);
            let excess = self.past.len().saturating_sub(PAST_MAX);
            self.past.drain(..excess);
            (self.incarnation, self.durable) = (mark.incarnation, 0);
        }
        self.durable = self.durable.max(mark.durable);
        let (incarnation, durable) = (self.incarnation, self.durable);
        // A server that is open and was sent what is kept has it, durably.
        let has_all = mark.open && self.replayed == incarnation;
        self.retain(|entry| match entry.incarnation == incarnation {
            true => entry.mark.number > durable,
            false => !has_all,
        });
    }

    fn arrive(&mut self, asked: Option<Asked<'_>>, mark: &Mark) -> Step {
        if mark.incarnation != 0 {
            if self.past.contains(&mark.incarnation) {
                return if mark.early.is_some() { Step::Again } else { Step::Take };
            }
            self.observe(mark);
        }
        let id = asked.as_ref().map(|asked| asked.id).unwrap_or_default();
        self.under_way.remove(&id.0);
        let Some(early) = mark.early else {
            if self.adrift.is_some_and(|adrift| adrift < id.0) {
                // Everything that was ordered before this is durable.
                self.adrift = None;
            }
            return Step::Take;
        };
        if let Some(asked) = &asked
            && early.number > self.durable
        {
            self.keep(asked, mark.incarnation, early);
        }
        let before = self.under_way.clone();
        let wait = Step::Wait { id, number: early.number, incarnation: mark.incarnation, before };
        match self.may_tell(&wait) {
            Some(_) => Step::Take,
            None => wait,
        }
    }

    /// Whether an answer that waits may be given now; false if it never will.
    fn may_tell(&mut self, wait: &Step) -> Option<bool> {
        let Step::Wait { id, number, incarnation, before } = wait else { return Some(true) };
        if self.incarnation != *incarnation {
            return Some(false);
        }
        let alone = self.adrift.is_none() && before.is_disjoint(&self.under_way);
        (alone || self.durable >= *number).then(|| {
            self.tell(*id);
            true
        })
    }
}

impl Requests {
    /// `early`: it is asked for an early answer.
    pub fn begin(&self, early: bool) -> Numbered<'_> {
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        state.open.insert(id);
        if early {
            state.under_way.insert(id);
        }
        Numbered { requests: self, id: RequestId(id) }
    }

    /// Every smaller id is answered and will not be repeated.
    pub fn low_water(&self) -> RequestId {
        let state = self.state.lock();
        let open = state.open.first().into_iter().chain(state.kept.keys().next());
        RequestId(open.min().copied().unwrap_or(state.last + 1))
    }

    /// Whether so much more may be kept. It is not while something is adrift: then the next change is answered when it
    /// is durable, and that is over.
    pub fn takes(&self, bytes: usize, bytes_max: usize) -> bool {
        let state = self.state.lock();
        state.adrift.is_none() && state.bytes + bytes <= bytes_max
    }

    /// An answer has come. True if whoever asked may have it, false if it must be asked for again.
    pub async fn accept(&self, env: &Env, deadline: Deadline, asked: Option<Asked<'_>>, mark: &Mark) -> bool {
        let step = self.state.lock().arrive(asked, mark);
        self.changed.notify_waiters();
        match step {
            Step::Take => true,
            Step::Again => false,
            wait => {
                let told = || self.state.lock().may_tell(&wait);
                wait_until(env, &self.changed, soon(env, deadline), told).await.unwrap_or(false)
            }
        }
    }

    /// A failure has come, which may tell of changes as an answer does, and says of none which. As [`Requests::accept`].
    pub async fn accept_failure(&self, env: &Env, deadline: Deadline, of: Option<RequestId>) -> bool {
        let id = of.unwrap_or_default().0;
        let (early, before) = {
            let mut state = self.state.lock();
            (state.under_way.remove(&id), state.under_way.clone())
        };
        self.changed.notify_waiters();
        let alone = || before.is_disjoint(&self.state.lock().under_way).then_some(());
        let accepted = wait_until(env, &self.changed, soon(env, deadline), alone).await.is_some();
        if early && !accepted {
            // It is asked again.
            self.state.lock().under_way.insert(id);
        }
        accepted
    }

    /// What a mark that came with no change of ours says.
    pub fn observe(&self, mark: &Mark) {
        let mut state = self.state.lock();
        if mark.incarnation != 0 && !state.past.contains(&mark.incarnation) {
            state.observe(mark);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The present server was not sent what is kept of its predecessors' answers.
    pub fn is_to_replay(&self) -> bool {
        let state = self.state.lock();
        state.replayed != state.incarnation && state.kept.values().any(|entry| entry.incarnation != state.incarnation)
    }

    pub fn has_replayed_to(&self, incarnation: u64) -> bool {
        self.state.lock().replayed == incarnation
    }

    /// What this session keeps of answers of earlier servers than the present one, in their order.
    pub fn to_replay(&self, session: SessionId) -> Vec<Kept> {
        let state = self.state.lock();
        let old = state.kept.iter().filter(|(_, e)| e.session == session && e.incarnation != state.incarnation);
        let mut kept: Vec<Kept> = old.map(|(id, entry)| entry.kept(*id)).collect();
        kept.sort_by_key(|kept| kept.mark.number);
        // Whether an earlier server has carried them out is not known; what it has answered behind them does not depend on them.
        let unanswered = state.behind.iter().filter(|(_, (of, ..))| *of == session);
        kept.extend(unanswered.map(|(id, (_, message))| Kept {
            request: RequestId(*id),
            mark: EarlyMark { number: EarlyMark::UNANSWERED, ..EarlyMark::default() },
            told: true,
            message: message.clone(),
        }));
        kept
    }

    /// Somebody is told of the change although it is not answered, until it is.
    pub fn begin_behind(&self, request: RequestId, session: SessionId, message: MetaRequest) {
        self.state.lock().behind.insert(request.0, (session, message));
    }

    /// A change that somebody was told of has not happened.
    pub fn lost_one(&self) {
        self.state.lock().lost += 1;
    }

    pub fn replayed(&self, incarnation: u64) {
        self.state.lock().replayed = incarnation;
    }

    /// These are lost; how many of them somebody had been told of.
    pub fn lose(&self, requests: &[RequestId]) -> u64 {
        let mut state = self.state.lock();
        let mut told = 0;
        for request in requests {
            told += u64::from(state.remove(*request).is_some_and(|entry| entry.told));
        }
        state.lost += told;
        told
    }

    /// Everything that was kept under other sessions than this one of answers of earlier servers: it cannot be sent.
    pub fn other_sessions(&self, session: SessionId) -> Vec<RequestId> {
        let state = self.state.lock();
        let old = state.kept.iter().filter(|(_, e)| e.session != session && e.incarnation != state.incarnation);
        old.map(|(id, _)| RequestId(*id)).collect()
    }

    /// Everything that is kept under other sessions than this one.
    pub fn of_other_sessions(&self, session: SessionId) -> Vec<Kept> {
        let state = self.state.lock();
        let old = state.kept.iter().filter(|(_, entry)| entry.session != session);
        old.map(|(id, entry)| entry.kept(*id)).collect()
    }

    /// These are durable.
    pub fn settled(&self, requests: &[RequestId]) {
        let mut state = self.state.lock();
        requests.iter().for_each(|request| drop(state.remove(*request)));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Changes lost since the last call.
    pub fn take_lost(&self) -> u64 {
        std::mem::take(&mut self.state.lock().lost)
    }

    /// The last of what is kept, for [`Requests::is_kept_up_to`].
    pub fn last_kept(&self) -> Option<RequestId> {
        self.state.lock().kept.keys().next_back().map(|id| RequestId(*id))
    }

    /// Something with this or an earlier id is still kept.
    pub fn is_kept_up_to(&self, last: RequestId) -> bool {
        self.state.lock().kept.keys().next().is_some_and(|id| *id <= last.0)
    }

    /// Changes kept and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.kept.len(), state.bytes)
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        let mut state = self.requests.state.lock();
        state.open.remove(&self.id.0);
        state.behind.remove(&self.id.0);
        if state.under_way.remove(&self.id.0) {
            state.adrift = Some(state.last);
        }
        drop(state);
        self.requests.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_api::meta::RemoveDir;

    const SESSION: SessionId = SessionId(9);

    fn message() -> MetaRequest {
        let name = "x".parse().expect("a name");
        MetaRequest::RemoveDir(RemoveDir { parent: braid_types::InodeId::ROOT.into(), name, tree: false })
    }

    fn mark(incarnation: u64, durable: u64, number: Option<u64>) -> Mark {
        let early = number.map(|number| EarlyMark { number, ..EarlyMark::default() });
        Mark { incarnation, durable, open: true, early }
    }

    /// What becomes of an answer within a moment; `None` if it is still waiting.
    async fn answer(requests: &Requests, of: Option<RequestId>, mark: Mark) -> Option<bool> {
        let message = message();
        let asked = of.map(|id| Asked { id, session: SESSION, message: &message });
        let env = Env::os();
        let deadline = Deadline::after(&env, Duration::from_secs(30));
        let accepted = requests.accept(&env, deadline, asked, &mark);
        tokio::time::timeout(Duration::from_millis(20), accepted).await.ok()
    }

    #[tokio::test]
    async fn the_mark_is_the_smallest_that_is_unanswered_or_kept() {
        let requests = Requests::default();
        assert_eq!(requests.low_water(), RequestId(1));
        let (first, second) = (requests.begin(false), requests.begin(true));
        assert_eq!(answer(&requests, Some(second.id), mark(1, 0, Some(5))).await, Some(true));
        drop(second);
        assert_eq!((first.id, requests.low_water()), (RequestId(1), RequestId(1)));
        drop(first);
        assert_eq!(requests.low_water(), RequestId(2), "it is kept");
        requests.observe(&mark(1, 5, None));
        assert_eq!((requests.low_water(), requests.kept()), (RequestId(3), (0, 0)));
    }

    #[tokio::test]
    async fn an_answer_waits_for_what_may_have_been_ordered_before_it() {
        let requests = Requests::default();
        let (first, second) = (requests.begin(true), requests.begin(true));
        assert_eq!(answer(&requests, Some(second.id), mark(1, 0, Some(2))).await, None, "the first may be before");
        let third = requests.begin(true);
        assert_eq!(answer(&requests, Some(first.id), mark(1, 0, Some(1))).await, None, "the third may be before");
        assert_eq!(answer(&requests, Some(third.id), mark(1, 0, Some(3))).await, Some(true));
        assert_eq!(answer(&requests, None, mark(1, 0, Some(3))).await, Some(true), "a question");
        let told: Vec<bool> = requests.kept_of_all().iter().map(|kept| kept.told).collect();
        assert_eq!(told, [false, false, true], "whoever gave up waiting was told nothing");
        let _fourth = requests.begin(true);
        assert_eq!(answer(&requests, None, mark(1, 3, Some(3))).await, Some(true), "durable needs no waiting");
    }

    #[tokio::test]
    async fn a_failure_waits_as_an_answer_does() {
        let requests = Requests::default();
        let env = Env::os();
        let deadline = Deadline::after(&env, Duration::from_secs(30));
        assert!(requests.accept_failure(&env, deadline, None).await, "nothing is under way");
        let (first, second) = (requests.begin(true), requests.begin(true));
        assert!(!requests.accept_failure(&env, deadline, Some(second.id)).await, "it may come from the first");
        let both = tokio::join!(
            requests.accept_failure(&env, deadline, Some(first.id)),
            requests.accept_failure(&env, deadline, Some(second.id)),
        );
        assert_eq!(both, (true, true), "they do not wait for each other");
    }

    #[tokio::test]
    async fn after_one_that_was_given_up_the_next_is_durable() {
        let requests = Requests::default();
        drop(requests.begin(true));
        assert!(!requests.takes(1, 1 << 20));
        assert_eq!(answer(&requests, None, mark(1, 0, Some(1))).await, None);
        let next = requests.begin(false);
        assert_eq!(answer(&requests, Some(next.id), mark(1, 2, None)).await, Some(true));
        assert!(requests.takes(1, 1 << 20) && !requests.takes(2 << 20, 1 << 20));
    }

    #[tokio::test]
    async fn what_is_kept_is_sent_in_order_to_the_next_server_and_kept_until_that_has_it() {
        let requests = Requests::default();
        let (a, b) = (requests.begin(true), requests.begin(true));
        let (first, second) = tokio::join!(
            answer(&requests, Some(a.id), mark(1, 0, Some(7))),
            answer(&requests, Some(b.id), mark(1, 0, Some(6)))
        );
        assert_eq!((first, second), (Some(true), Some(true)));
        assert!(!requests.is_to_replay() && requests.to_replay(SESSION).is_empty());
        let gathering = Mark { open: false, ..mark(2, 0, None) };
        requests.observe(&gathering);
        assert!(requests.is_to_replay());
        let numbers: Vec<u64> = requests.to_replay(SESSION).iter().map(|kept| kept.mark.number).collect();
        assert_eq!(numbers, [6, 7]);
        let late = requests.begin(true);
        assert_eq!(answer(&requests, Some(late.id), mark(1, 0, Some(8))).await, Some(false), "of the server before");
        requests.replayed(2);
        requests.observe(&gathering);
        assert_eq!(requests.kept().0, 2, "it is not open yet");
        requests.observe(&mark(2, 0, None));
        assert_eq!(requests.kept(), (0, 0));
        assert_eq!(requests.take_lost(), 0);
    }

    #[tokio::test]
    async fn what_cannot_be_sent_is_lost_and_told_once() {
        let requests = Requests::default();
        let a = requests.begin(true);
        assert_eq!(answer(&requests, Some(a.id), mark(1, 0, Some(7))).await, Some(true));
        assert!(requests.other_sessions(SessionId(10)).is_empty(), "the same server makes it durable");
        requests.observe(&mark(2, 0, None));
        let lost = requests.other_sessions(SessionId(10));
        assert_eq!((requests.lose(&lost), requests.take_lost(), requests.take_lost()), (1, 1, 0));
    }

    impl Requests {
        fn kept_of_all(&self) -> Vec<Kept> {
            self.observe(&mark(99, 0, None));
            let kept = self.to_replay(SESSION);
            let mut state = self.state.lock();
            (state.incarnation, state.past) = (1, Vec::new());
            drop(state);
            kept
        }
    }
}
