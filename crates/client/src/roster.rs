//! Who serves: heard with a term of one that serves alone, else asked for (docs/design/0027-several-that-serve.md).
//!
//! Promises: with one server nothing is asked. A newer roster is known to the routes first and to the cache after them; from then on nothing
//! is shown that it moves. However many wait for it, it is asked for once, and not again at once while it stays the same.

use crate::cache::Task;
use crate::core::Core;
use crate::wait::Deadline;
use braid_api::meta::{GetRoster, KnownRoster};
use braid_api::{Carries, Code, Context, Error, Result, When};
use braid_types::{MemberId, MembershipEpoch};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two questions while it stays the same.
const AGAIN: Duration = Duration::from_millis(20);
/// Whoever leads has answered by then, or it is asked again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two questions for a roster of which it is known that it is there.
const SEEK_AGAIN: Duration = Duration::from_millis(100);

impl Core {
    /// This one holds everything under the epoch, as it says with the answer to a renewal.
    pub fn serves_alone(&self, member: MemberId, epoch: MembershipEpoch) {
        if epoch > self.route.epoch() {
            let roster = braid_lease::Roster::alone(epoch, member);
            self.adopt(roster, member, &BTreeMap::new(), Some(member));
        }
    }

    fn adopt_row(&self, row: KnownRoster) {
        // Whoever holds everything says so with a term.
        let Some(row) = row else { return self.leases.say_soon() };
        if row.epoch <= self.route.epoch() || row.members.is_empty() {
            return;
        }
        if row.members.len() > 1 && !self.route.has_ways() {
            tracing::warn!("several metadata servers serve, and this client was given the way to one");
            return;
        }
        let addresses = row.members.iter().map(|seat| (seat.id, seat.addresses.clone())).collect();
        self.adopt(row.holders(), row.leader, &addresses, None);
    }

    /// `renewed`: this one is just being renewed at.
    fn adopt(
        &self,
        roster: braid_lease::Roster,
        leader: MemberId,
        addresses: &BTreeMap<MemberId, Vec<String>>,
        renewed: Option<MemberId>,
    ) {
        let _one = self.route.adopting.lock();
        if roster.epoch() <= self.route.epoch() {
            return;
        }
        tracing::debug!(epoch = roster.epoch().0, members = roster.members().len(), "a newer roster");
        let new = self.route.adopt(roster.clone(), leader, addresses);
        self.behind.forget();
        self.locks.holders_are(roster.members());
        let mut tasks = self.cache.roster_is(self.now(), roster);
        tasks.retain(|task| !matches!(task, Task::Renew(member) if Some(*member) == renewed));
        self.attend(new);
        self.carry_out(tasks);
        self.files.timer.notify_one();
        self.files.tell();
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
        match self.ask_roster(deadline).await {
            Ok(row) => self.adopt_row(row),
            Err(error) => tracing::debug!(%error, "it is not known who serves"),
        }
    }

    async fn ask_roster(&self, deadline: Deadline) -> Result<KnownRoster> {
        let request = GetRoster {}.wrap();
        self.counters.message(request.name());
        let left = deadline.left(&self.env).min(PATIENCE);
        let cx = Context { token: self.session.token(), deadline: left, when: When::Marked, ..Context::default() };
        let answer = self.env.timeout(left, self.route.control().execute(cx, request)).await;
        let late = |_| Error::new(Code::DeadlineExceeded, "who serves", "whoever leads did not answer");
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
