//! Changes of this server: announced at the holders of what they make old, transacted, released (`braid-lease`, `Announcer`). Where this
//! server holds every slot no announcement is a message; else what is for others is left to `beside/telling.rs`.

use crate::alone;
use crate::leases::{Leases, State};
use braid_api::meta::Announced;
use braid_api::{Code, Error, Result, trace};
use braid_lease::{
    AnnouncementId, Announcer, Command, Event, Happened, Holder, Key, Limits, Moment, Roster, Step, Waits, Why,
};
use braid_types::{MemberId, MembershipEpoch, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Before a change that another holder has refused is announced anew: both may be about to hear who holds what.
const REFUSED: Duration = Duration::from_millis(5);

/// Becomes of a change before it is transacted.
enum Verdict {
    /// Under this epoch.
    Transact(MembershipEpoch),
    GivenUp(Why),
}

pub(crate) struct Announcing {
    here: MemberId,
    pub announcer: Announcer,
    /// Changes of which it is not known yet.
    waiting: BTreeMap<u64, oneshot::Sender<Verdict>>,
    /// Of the change that is being begun, if it is known at once.
    at_once: Option<(u64, Verdict)>,
    /// What the change that is being released leaves with its session.
    kept: Vec<Key>,
    /// What is to be told to other holders, in this order.
    pub out: Vec<Step>,
    /// Announcements of others that wait here.
    pub of_others: BTreeMap<AnnouncementId, Vec<oneshot::Sender<Announced>>>,
}

/// Until it is released nobody is granted what it covers.
pub struct UnderWay {
    leases: Arc<Leases>,
    id: u64,
    /// Under which it is to be transacted.
    epoch: MembershipEpoch,
    released: bool,
}

impl Announcing {
    pub fn new(limits: &Limits, here: MemberId, epoch: MembershipEpoch) -> Self {
        let announcer = Announcer::new(limits, here, Roster::alone(epoch, here));
        Announcing {
            here,
            announcer,
            waiting: BTreeMap::new(),
            at_once: None,
            kept: Vec::new(),
            out: Vec::new(),
            of_others: BTreeMap::new(),
        }
    }

    /// Who waits is answered with an error that may be repeated, at the next start.
    pub fn stop(&mut self) {
        self.waiting.clear();
        self.of_others.clear();
    }

    /// What a holder said of an announcement.
    pub fn heard(&mut self, now: Moment, holder: &Holder, command: Command, steps: &mut Vec<Step>) {
        let epoch = holder.epoch();
        let (of, said) = match &command {
            Command::Ready { announcement, epoch, .. } => (*announcement, Announced::Ready { epoch: *epoch }),
            Command::Void { announcement } => (*announcement, Announced::Refused { epoch }),
            _ => return,
        };
        if of.server != self.here {
            // Who has gone meanwhile asks again.
            self.of_others.remove(&of).into_iter().flatten().for_each(|waiter| _ = waiter.send(said));
            return;
        }
        let happened = match command {
            Command::Ready { announcement, epoch, open, unsure } => {
                Happened::Ready { from: self.here, change: announcement.number, epoch, open, unsure }
            }
            Command::Void { announcement } => Happened::Refused { from: self.here, change: announcement.number, epoch },
            _ => return,
        };
        self.announcer.on(now, happened, steps);
    }

    /// Does a step; given is what the holder wants done for it.
    pub fn take(&mut self, now: Moment, holder: &mut Holder, step: Step) -> Vec<Command> {
        match step {
            Step::Announce { to, .. } | Step::Release { to, .. } if to != self.here => self.out.push(step),
            Step::Announce { announcement, session, keys, unlinks, .. } => {
                return holder.on(now, Event::Announce { announcement, session, keys, unlinks });
            }
            Step::Release { to, announcement, keep } => {
                let mut commands = holder.on(now, Event::Release { announcement, keep });
                let mut granted = Vec::new();
                commands.retain_mut(|command| match command {
                    Command::Kept { announcement: of, granted: keys, .. } if *of == announcement => {
                        granted.append(keys);
                        false
                    }
                    _ => true,
                });
                let mut more = Vec::new();
                let released = Happened::Released { from: to, change: announcement.number, granted };
                self.announcer.on(now, released, &mut more);
                more.into_iter().for_each(|step| commands.extend(self.take(now, holder, step)));
                return commands;
            }
            Step::Transact { change, epoch, .. } => self.tell(change, Verdict::Transact(epoch)),
            Step::GiveUp { change, why } => self.tell(change, Verdict::GivenUp(why)),
            Step::Kept { granted, .. } => self.kept = granted,
        }
        Vec::new()
    }

    fn tell(&mut self, change: u64, verdict: Verdict) {
        match self.waiting.remove(&change) {
            Some(waiter) => drop(waiter.send(verdict)),
            None => self.at_once = Some((change, verdict)),
        }
    }
}

impl Leases {
    /// Returns when nobody but the session shows what the keys cover. Without `all_named` the change makes more old than that,
    /// which nobody else may cache then. `None`: somebody does, or who holds the keys has changed; to be announced anew.
    pub async fn announce(
        self: &Arc<Self>,
        session: SessionId,
        keys: Vec<Key>,
        all_named: bool,
    ) -> Result<Option<UnderWay>> {
        let (mut announced, verdict) = loop {
            {
                let (mut state, now) = (self.state.lock(), self.now());
                if state.stopped && self.others.is_some() {
                    // Nothing would be told to others any more, and nothing heard.
                    return Err(Error::new(Code::NotServing, "a change of names", "this server is about to stop"));
                }
                if keys.iter().all(|key| state.holder.alone_in(session, key.slot(), now).is_none()) {
                    if !all_named && state.others_cache(session) {
                        return Ok(None);
                    }
                    state.last += 1;
                    let change = state.last;
                    if !all_named {
                        state.unnamed.insert(change, session);
                    }
                    let epoch = state.holder.epoch();
                    let announced = UnderWay { leases: self.clone(), id: change, epoch, released: false };
                    let begin = Happened::Begin { change, session, keys, unlinks: None };
                    self.watch(&mut state, |state, now| state.announce(now, begin));
                    let verdict = match state.announcing.at_once.take().filter(|(of, _)| *of == change) {
                        Some((_, verdict)) => Ok(verdict),
                        None => {
                            let (tell, told) = oneshot::channel();
                            state.announcing.waiting.insert(change, tell);
                            state.traces.insert(change, trace::current());
                            Err(told)
                        }
                    };
                    break (announced, verdict);
                }
            }
            self.until_left(session, &alone::touched(&keys)).await?;
        };
        let verdict = match verdict {
            Ok(verdict) => Some(verdict),
            // The announcer gives a change up after this; the rest is for a server that is busy.
            Err(told) => {
                let patience =
                    self.limits.longest_wait_for_a_session() + self.limits.session_lease + self.limits.resend;
                self.env.timeout(patience, told).await.ok().and_then(|told| told.ok())
            }
        };
        match verdict {
            Some(Verdict::Transact(epoch)) => {
                announced.epoch = epoch;
                Ok(Some(announced))
            }
            Some(Verdict::GivenUp(Why::EpochChanged)) => Ok(None),
            // Who holds it is another than was known, or announcements have overtaken each other on their way.
            Some(Verdict::GivenUp(Why::Refused(_))) if self.others.is_some() => {
                self.others.iter().for_each(|others| others.is_outdated());
                self.env.sleep(REFUSED).await;
                Ok(None)
            }
            Some(Verdict::GivenUp(Why::Refused(_) | Why::Silent(_))) | None => {
                let cause = self.waits_of(announced.id);
                announced.end(None);
                Err(Error::new(Code::Busy, "a change of names", cause))
            }
        }
    }

    fn waits_of(&self, number: u64) -> String {
        let state = self.state.lock();
        let sessions = state.holder.waits().into_iter().filter_map(|wait| match wait {
            Waits::Change { announcement, session: Some(session), .. } if announcement.number == number => {
                Some(session)
            }
            _ => None,
        });
        let names: Vec<String> = sessions.map(|session| session.to_string()).collect();
        match names.is_empty() {
            true => "this server is about to stop".to_owned(),
            false => format!("waits until sessions {} drop what they cache", names.join(", ")),
        }
    }
}

impl UnderWay {
    /// The change is committed, or ordered with an early answer. `keep` covers what its answer says; given is what the session may keep
    /// of it.
    pub fn release(&mut self, keep: Vec<Key>) -> Vec<Key> {
        self.end(Some(keep))
    }

    /// Nothing has changed since every holder was ready: it may be transacted. To be asked where the engine cannot join another epoch
    /// until the change is over.
    pub fn is_current(&self) -> bool {
        self.leases.state.lock().holder.epoch() == self.epoch
    }

    /// Without `keep` the change has failed for certain.
    fn end(&mut self, keep: Option<Vec<Key>>) -> Vec<Key> {
        if std::mem::replace(&mut self.released, true) {
            return Vec::new();
        }
        let change = self.id;
        let mut state = self.leases.state.lock();
        let State { announcing, traces, unnamed, caching, .. } = &mut *state;
        announcing.waiting.remove(&change);
        announcing.kept.clear();
        traces.remove(&change);
        unnamed.remove(&change);
        caching.values_mut().for_each(|mailbox| _ = mailbox.not_before.remove(&change));
        let happened = match keep {
            Some(mut keep) => {
                // What others hold is not waited for: the session asks them.
                keep.retain(|key| state.holder.holds(key.slot()));
                Happened::Answered { change, keep }
            }
            None => Happened::Failed { change },
        };
        self.leases.watch(&mut state, |state, now| state.announce(now, happened));
        std::mem::take(&mut state.announcing.kept)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.end(None);
    }
}
