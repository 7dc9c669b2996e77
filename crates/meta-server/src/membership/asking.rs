//! As a member: the leader is asked each round, wherever it is.
//!
//! A question does not wait for the answer to the one before: a leader that has died without a word would hold up the first question to its
//! successor for longer than the lease has to spare.

use super::{LOOK, Membership};
use braid_api::meta::{AskToServe, MetaAnswer, MetaRequest, ServeReply};
use braid_api::{Code, Context, Error, Manner, Result};
use braid_env::BoxFuture;
use braid_members::{Moment, Next, Question, Reply};
use braid_meta_engine::Engine;
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::roster::ReadRoster;
use braid_meta_namespace::rows::RosterRow;
use std::future::poll_fn;
use std::task::Poll;

/// An answer that takes more rounds than this is worth nothing.
const ROUNDS: u32 = 3;
/// Questions on their way.
const QUESTIONS_MAX: usize = 8;

impl Membership {
    pub(super) async fn keep_asking(&self) {
        let mut asked: Vec<BoxFuture<'_, ()>> = Vec::new();
        loop {
            let now = self.now();
            let next = match asked.len() < QUESTIONS_MAX {
                true => self.next(now),
                false => Next::Wait(now + LOOK),
            };
            match next {
                Next::Over => return,
                Next::Ask(question) => asked.push(Box::pin(self.ask(question, now))),
                Next::Wait(until) => {
                    tokio::select! {
                        biased;
                        () = self.env.sleep(until.saturating_sub(now).min(LOOK)) => {}
                        () = self.to_ask.notified() => {}
                        () = any_of(&mut asked) => {}
                    }
                }
            }
        }
    }

    fn next(&self, now: Moment) -> Next {
        let mut state = self.state();
        match state.member.next(now) {
            Next::Ask(question) => {
                state.asked = now;
                // What is known here is followed when nothing is under way any more of what came before.
                Next::Ask(Question { knows: state.followed, ..question })
            }
            next => next,
        }
    }

    async fn ask(&self, question: Question, asked: Moment) {
        let patience = self.limits.round() * ROUNDS;
        let is_leading = self.state.lock().leading.is_some();
        let reply = match is_leading {
            true => Ok(self.asks(question)),
            false => match self.env.timeout(patience, self.ask_leader(question)).await {
                Ok(reply) => reply,
                Err(_) => Err(Error::bare(Code::DeadlineExceeded)),
            },
        };
        match reply {
            Ok(reply) => self.hears(reply, asked),
            Err(error) => {
                tracing::debug!("who leads the metadata servers does not say who serves: {error}");
                self.state.lock().must_look = true;
            }
        }
    }

    /// Asks whoever leads by what was heard last; by the row itself, if that one did not answer.
    async fn ask_leader(&self, question: Question) -> Result<ServeReply> {
        let must_look = std::mem::take(&mut self.state.lock().must_look);
        if must_look && let Some(row) = self.engine.read(0, ReadRoster).await.map_err(|OpError(error)| error)? {
            self.learns(row);
        }
        let nobody = || Error::new(Code::NotServing, "the metadata servers", "nobody leads them yet");
        let leader_at = self.state.lock().leader_at.clone();
        let (_, addresses) = leader_at.ok_or_else(nobody)?;
        let deadline = self.limits.round() * ROUNDS;
        let cx = Context { deadline, manner: Manner::Once, ..Context::default() };
        let asked = MetaRequest::AskToServe(AskToServe { question });
        match self.way.meta(&addresses).execute(cx, asked).await?.0 {
            MetaAnswer::AskToServe(reply) => Ok(reply),
            _ => Err(Error::new(Code::BadMessage, "the metadata server that leads", "an answer to another question")),
        }
    }

    /// The row, read by this process.
    fn learns(&self, row: RosterRow) {
        let mut state = self.state();
        state.sees(&row.roster);
        let (epoch, now) = (row.roster.epoch, self.now());
        let change = state.member.learns(row.roster, now);
        state.belongs(row.fence, epoch);
        state.changes(&change);
        self.to_tell.notify_one();
    }

    fn hears(&self, ServeReply { reply, fence }: ServeReply, asked: Moment) {
        let mut state = self.state();
        let now = self.now();
        state.must_look |= reply == Reply::NotLeading;
        let epoch = match &reply {
            Reply::Member(answer) => {
                state.sees(&answer.roster);
                Some(answer.roster.epoch)
            }
            _ => None,
        };
        let change = state.member.hears(reply, asked, now);
        if let Some(epoch) = epoch {
            state.belongs(fence, epoch);
        }
        state.changes(&change);
        self.to_tell.notify_one();
    }

    /// To the leader, and to the next one if that leads no more.
    pub(super) async fn say_last_word(&self) {
        let word = self.state.lock().member.last_word();
        for _ in 0..2 {
            match self.ask_leader(word.clone()).await {
                Ok(ServeReply { reply, .. }) if reply != Reply::NotLeading => return,
                _ => self.state.lock().must_look = true,
            }
        }
    }
}

/// Returns when one of them has ended, which is taken out; never, if there is none.
async fn any_of(running: &mut Vec<BoxFuture<'_, ()>>) {
    poll_fn(|cx| {
        let Some(at) = running.iter_mut().position(|future| future.as_mut().poll(cx).is_ready()) else {
            return Poll::Pending;
        };
        let _ended = running.swap_remove(at);
        Poll::Ready(())
    })
    .await
}
