//! What this client has with each member: it listens there, and where several serve it prolongs its term at each that it has something of.
//!
//! Promises: one that does not answer holds up nothing at another.

use crate::core::Core;
use crate::route::Seat;
use crate::wait::Deadline;
use braid_api::meta::{MetaAnswer, MetaRequest, RenewTerm, TermReply};
use braid_api::{Carries, Code, Context, Error, Manner, Result, When};
use braid_types::MemberId;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Core {
    /// Says something to a member beside operations.
    pub async fn say<M>(&self, seat: &Seat, message: M, deadline: Duration, manner: Manner) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let request = message.wrap();
        let name = request.name();
        self.counters.message(name);
        let cx = Context { token: self.session.token(), deadline, when: When::Marked, manner, ..Context::default() };
        let answer = self.env.timeout(deadline, self.route.say(seat, cx, request)).await;
        let (answer, mark) = answer.map_err(|_| Error::new(Code::DeadlineExceeded, name, "no answer in time"))??;
        self.requests.observe(&mark);
        M::unwrap(answer).ok_or(Error::bare(Code::BadMessage))
    }

    /// Members that are new: each is listened to. One that holds everything is renewed at with the session.
    pub fn attend(&self, new: Vec<Arc<Seat>>) {
        let Some(core) = self.this.upgrade() else { return };
        new.into_iter().for_each(|seat| core.keep_listening(seat));
        if !self.route.is_several() {
            return;
        }
        for seat in self.route.seats() {
            if !seat.is_renewed.swap(true, SeqCst) {
                core.keep_renewing_at(seat);
            }
        }
    }

    /// It waits for a word of this client, or something is needed of it.
    pub fn renew_at(&self, member: MemberId) {
        match self.route.seat(member) {
            Some(seat) if self.route.is_several() && !self.route.is_leader(member) => seat.due.notify_one(),
            _ => self.leases.say_soon(),
        }
    }

    /// It waits for a word of this client, which may have nothing there.
    pub fn asked_to_renew(&self, member: MemberId) {
        if let Some(seat) = self.route.seat(member) {
            seat.is_used();
        }
        self.renew_at(member);
    }

    /// Another session has begun, which has no term anywhere.
    pub fn renew_everywhere(&self) {
        for seat in self.route.seats() {
            seat.is_used();
            seat.due.notify_one();
        }
    }

    fn keep_renewing_at(self: &Arc<Self>, seat: Arc<Seat>) {
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let (stop, gone) = (self.stop.listen(), seat.gone.listen());
        self.env.spawn("the term at a member", async move {
            loop {
                let Some(core) = Weak::upgrade(&weak) else { return };
                let pause = tokio::select! {
                    biased;
                    pause = core.renew_term(&seat) => pause,
                    () = gone.wait() => return,
                    () = stop.wait() => return,
                };
                drop(core);
                tokio::select! {
                    biased;
                    () = env.sleep(pause) => {}
                    () = seat.due.notified() => {}
                    () = gone.wait() => return,
                    () = stop.wait() => return,
                }
            }
        });
    }

    /// Gives the time until the next renewal.
    async fn renew_term(&self, seat: &Seat) -> Duration {
        let renew = self.session.renew();
        // At the one that leads the session's renewal does so.
        if !self.route.is_several() || self.route.is_leader(seat.id) {
            return renew;
        }
        let is_needed = seat.take_used() || self.cache.renews_at(seat.id);
        if !is_needed && seat.sleep() {
            return renew;
        }
        match self.ask_term(seat, renew).await {
            Ok(()) => renew,
            Err(error) => {
                tracing::debug!(%error, member = seat.id.0, "the term at a member was not renewed");
                self.pass_time();
                self.learn_roster(Deadline::after(&self.env, renew / 3)).await;
                renew / 3
            }
        }
    }

    async fn ask_term(&self, seat: &Seat, renew: Duration) -> Result<()> {
        let (session, sent) = (self.session.id(), self.now());
        let TermReply { lease_ms, term } = self.say(seat, RenewTerm {}, renew, Manner::Once).await?;
        if self.session.id() == session {
            self.heard_term(sent, Duration::from_millis(lease_ms.into()), term);
        }
        Ok(())
    }
}
