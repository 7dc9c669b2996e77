//! Who serves: heard with a term of one that serves alone, else asked for (docs/design/0027-several-that-serve.md).
//!
//! Promises: with one server nothing is asked. A newer roster is known to the routes first and to the cache after them; from then on nothing
//! is shown that it moves. However many wait for it, it is asked for once, and not again at once while it stays the same.

use crate::cache::Task;
use crate::core::Core;
use crate::route::{Members, Seat};
use crate::wait::{Deadline, join_all};
use braid_api::meta::{GetRoster, KnownRoster};
use braid_api::{Carries, Code, Context, Error, Manner, Result, When};
use braid_types::{MemberId, MembershipEpoch};
use std::sync::Arc;
use std::time::Duration;

/// Between two questions while it stays the same.
const AGAIN: Duration = Duration::from_millis(20);
/// Whoever is there has answered by then, or it is asked again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two questions for a roster of which it is known that it is there.
const SEEK_AGAIN: Duration = Duration::from_millis(100);

impl Core {
    /// This one holds everything under the epoch, as it says with the answer to a renewal.
    pub fn serves_alone(&self, member: MemberId, epoch: MembershipEpoch) {
        if epoch > self.route.epoch() {
            self.adopt(Members::alone(epoch, member), Some(member));
        }
    }

    fn adopt_row(&self, row: KnownRoster) {
        match Members::of(row) {
            // Whoever holds everything says so with a term.
            None => {
                self.route.doubt();
                self.leases.say_soon();
            }
            Some(members) if members.is_several() && !self.route.has_ways() => {
                tracing::warn!("several metadata servers serve, and this client was given no way to each");
            }
            Some(members) => self.adopt(members, None),
        }
    }

    /// `renewed`: this one is just being renewed at.
    fn adopt(&self, members: Members, renewed: Option<MemberId>) {
        let _one = self.route.adopting.lock();
        let roster = members.roster.clone();
        if roster.epoch() <= self.route.epoch() {
            return;
        }
        tracing::debug!(epoch = roster.epoch().0, members = roster.members().len(), "a newer roster");
        let new = self.route.adopt(members);
        self.members_are(roster, new, renewed);
    }

    /// The same, where the routes know it already.
    pub fn members_are(&self, roster: braid_lease::Roster, new: Vec<Arc<Seat>>, renewed: Option<MemberId>) {
        self.behind.forget();
        self.locks.holders_are(roster.members());
        let mut tasks = self.cache.roster_is(self.now(), roster);
        tasks.retain(|task| !matches!(task, Task::Renew(member) if Some(*member) == renewed));
        self.attend(new);
        self.carry_out(tasks);
        self.files.timer.notify_one();
        self.files.tell();
    }

    /// After a failure that may mean that another is to be asked. A change goes to that one under the same id: if it was made, it finds that.
    pub async fn learn_from(&self, error: &Error, deadline: Deadline) {
        let is_away = || {
            let codes = [Code::Unreachable, Code::Disconnected, Code::DeadlineExceeded, Code::NotServing];
            self.route.is_several() && codes.contains(&error.code)
        };
        if error.code == Code::HeldElsewhere || is_away() {
            self.learn_roster(deadline).await;
        }
    }

    /// Asks who serves, or waits for the answer to whoever asks just now. What comes of it is for the caller to look at.
    pub async fn learn_roster(&self, deadline: Deadline) {
        let begun = self.now();
        let Ok(mut asked) = self.env.timeout(deadline.left(&self.env), self.route.learning.lock()).await else {
            return;
        };
        // Somebody's question was sent after this one was needed.
        if asked.is_some_and(|at| at >= begun) {
            return;
        }
        let pause = asked.map_or(Duration::ZERO, |at| (at + AGAIN).since(self.now()));
        if !pause.is_zero() {
            self.env.sleep(pause.min(deadline.left(&self.env))).await;
        }
        *asked = Some(self.now());
        // One of them may have gone, or know no better.
        let (known, seats) = (self.route.epoch(), self.route.seats());
        let targets = seats.iter().map(|seat| Some(&**seat)).chain([None]);
        let asks = targets.map(|target| async move {
            match self.ask_roster(target, deadline).await {
                Ok(row) => self.adopt_row(row),
                Err(error) => tracing::debug!(%error, "who serves is not known to all that were asked"),
            }
        });
        tokio::select! {
            biased;
            _ = join_all(asks.collect()) => {}
            () = self.route.until_newer(known) => {}
        }
    }

    async fn ask_roster(&self, at: Option<&Seat>, deadline: Deadline) -> Result<KnownRoster> {
        let request = GetRoster {}.wrap();
        self.counters.message(request.name());
        let left = deadline.left(&self.env).min(PATIENCE);
        let manner = if at.is_some() { Manner::Once } else { Manner::Persistent };
        let token = self.session.token();
        let cx = Context { token, deadline: left, when: When::Marked, manner, ..Context::default() };
        let answer = self.env.timeout(left, self.route.say(at, cx, request)).await;
        let late = |_| Error::new(Code::DeadlineExceeded, "who serves", "no answer in time");
        let (answer, _) = answer.map_err(late)??;
        GetRoster::unwrap(answer).ok_or(Error::bare(Code::BadMessage))
    }

    /// There is a roster of this epoch: it is asked for until it is known here, in the background.
    pub fn seek_roster(&self, epoch: MembershipEpoch) {
        let Some(core) = self.this.upgrade() else { return };
        {
            let mut seeking = self.route.seeking.lock();
            let is_sought = seeking.is_some();
            *seeking = seeking.map_or(Some(epoch), |sought| Some(sought.max(epoch)));
            if is_sought {
                return;
            }
        }
        let stop = self.stop.listen();
        self.env.spawn("who serves", async move {
            tokio::select! {
                biased;
                () = core.seek_until_known() => {}
                () = stop.wait() => {}
            }
            *core.route.seeking.lock() = None;
        });
    }

    async fn seek_until_known(&self) {
        // Then the next term tells that it is still missing.
        let deadline = self.own_op().deadline;
        loop {
            self.learn_roster(deadline).await;
            let sought = *self.route.seeking.lock();
            if sought.is_none_or(|epoch| self.route.epoch() >= epoch) || deadline.left(&self.env).is_zero() {
                return;
            }
            self.env.sleep(SEEK_AGAIN).await;
        }
    }
}
