//! Announcements on their way to other holders, and what those say to them.

use super::WORD;
use crate::leases::Leases;
use crate::mailbox::told;
use braid_api::Context;
use braid_api::lease::LeaseKey;
use braid_api::meta::{AnnounceAt, Announced, MetaAnswer, MetaRequest, ReleaseAt};
use braid_lease::{Happened, Key, Step};
use braid_types::MemberId;
use std::sync::Arc;

pub(crate) fn key_of(key: LeaseKey) -> Key {
    match key {
        LeaseKey::Dir(id) => Key::Dir(id),
        LeaseKey::Name(id, name) => Key::Name(id, name),
        LeaseKey::Attr(id) => Key::Attr(id),
    }
}

fn message_of(from: MemberId, step: Step) -> Option<(MemberId, u64, MetaRequest)> {
    match step {
        Step::Announce { to, announcement, session, keys, epoch, .. } => {
            let keys = keys.iter().map(told).collect();
            let number = announcement.number;
            Some((to, number, MetaRequest::AnnounceAt(AnnounceAt { to, from, number, epoch, session, keys })))
        }
        Step::Release { to, announcement, keep } => {
            let (keep, number) = (keep.iter().map(told).collect(), announcement.number);
            Some((to, number, MetaRequest::ReleaseAt(ReleaseAt { to, from, number, keep })))
        }
        Step::Transact { .. } | Step::GiveUp { .. } | Step::Kept { .. } => None,
    }
}

impl Leases {
    /// Sends what changes of this server are announced with. What is lost is sent again by the announcer.
    pub fn tell_others(self: Arc<Self>) {
        let Some(others) = self.others.clone() else { return };
        let env = self.env.clone();
        env.spawn("words to other holders", async move {
            loop {
                let steps = {
                    let mut state = self.state.lock();
                    if state.stopped {
                        return;
                    }
                    std::mem::take(&mut state.announcing.out)
                };
                if steps.is_empty() {
                    self.outgoing.notified().await;
                    continue;
                }
                for (to, change, request) in steps.into_iter().filter_map(|step| message_of(self.member, step)) {
                    if let (true, MetaRequest::AnnounceAt(m)) = (self.asks_nobody, &request) {
                        let ready = Announced::Ready { epoch: m.epoch };
                        self.heard_of(to, change, MetaAnswer::AnnounceAt(ready));
                        continue;
                    }
                    let Some(way) = others.way(to) else { continue };
                    let leases = self.clone();
                    self.env.spawn("a word to another holder", async move {
                        let cx = Context { deadline: WORD, ..Context::default() };
                        if let Ok(Ok((answer, _))) = leases.env.timeout(WORD, way.execute(cx, request)).await {
                            leases.heard_of(to, change, answer);
                        }
                    });
                }
            }
        });
    }

    fn heard_of(&self, from: MemberId, change: u64, answer: MetaAnswer) {
        let happened = match answer {
            MetaAnswer::AnnounceAt(Announced::Ready { epoch }) => {
                Happened::Ready { from, change, epoch, open: Vec::new(), unsure: false }
            }
            MetaAnswer::AnnounceAt(Announced::Refused { epoch }) => Happened::Refused { from, change, epoch },
            MetaAnswer::ReleaseAt(granted) => {
                Happened::Released { from, change, granted: granted.into_iter().map(key_of).collect() }
            }
            _ => return,
        };
        let mut state = self.state.lock();
        self.watch(&mut state, |state, now| state.announce(now, happened));
    }
}
