//! Messages to the metadata server.

use crate::core::{Core, Op};
use crate::requests::Asked;
use crate::route::{Destination, Way};
use crate::wait::Attempts;
use braid_api::meta::{MetaAnswer, MetaRequest};
use braid_api::{Carries, Code, Context, Error, Result, Retry, When};
use braid_types::{InodeId, SessionId};

impl Core {
    /// Sends one message and gives its answer. A mutation gets a request id, which stays the same however often
    /// it is sent. Errors that allow it are retried until the operation's deadline. The answer may come before it is
    /// durable: then it is kept here what was asked.
    pub async fn call<M>(&self, message: M, op: Op) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        self.call_while(message, When::Early, op, || Ok(())).await
    }

    /// As [`Core::call`] with [`When::Early`]; with [`When::Marked`] a change is durable, with all before it, when the answer comes.
    /// Sent for as long as `still` says nothing against it: it is asked before each attempt, when it is clear under which session
    /// that goes.
    pub async fn call_while<M>(
        &self,
        message: M,
        when: When,
        op: Op,
        still: impl Fn() -> Result<()> + Send + Sync,
    ) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let request = message.wrap();
        self.behind.until_done(&self.env, &request, when, op.deadline).await?;
        // What has been removed here takes no room, whether that is known there yet or not.
        let again = (self.behind.unanswered() > 0 && request.is_mutation()).then(|| request.clone());
        let to = Destination::of(&request);
        let done = Box::pin(self.send_while::<M>(request, to, (when, None), op, &still)).await;
        match (done, again) {
            (Err(error), Some(request)) if error.code == Code::QuotaExceeded => {
                self.behind.until_all_done(&self.env, op.deadline).await?;
                Box::pin(self.send_while::<M>(request, to, (when, None), op, &still)).await
            }
            (done, _) => done,
        }
    }

    /// As [`Core::call`] for a change that its program has been told of: it waits for no other such, and is not made under another session,
    /// when somebody else may have the name.
    pub async fn call_behind<M>(&self, message: M, session: SessionId, op: Op) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let still = || match self.session.id() == session && !self.stop.is_over() {
            true => Ok(()),
            false => {
                let cause = "its session ended before it was answered";
                Err(Error::new(Code::SessionUnknown, "a change of names", cause))
            }
        };
        let request = message.wrap();
        let to = Destination::of(&request);
        self.send_while::<M>(request, to, (When::Early, Some(session)), op, still).await
    }

    /// As [`Core::call`] for what names no inode and is for the holder of one.
    pub async fn call_at<M>(&self, inode: InodeId, message: M, op: Op) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        self.send_while::<M>(message.wrap(), Destination::at(inode), (When::Early, None), op, || Ok(())).await
    }

    async fn send_while<M>(
        &self,
        request: MetaRequest,
        to: Destination,
        (when, told): (When, Option<SessionId>),
        op: Op,
        still: impl Fn() -> Result<()> + Send,
    ) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let (name, about) = (request.name(), request.about());
        let is_change = request.is_mutation();
        let when = if is_change && !self.may_keep(&request) { When::Marked } else { when };
        let numbered = is_change.then(|| self.requests.begin(when == When::Early));
        let id = numbered.as_ref().map(|numbered| numbered.id).unwrap_or_default();
        if let Some(session) = told {
            self.requests.begin_behind(id, session, request.clone());
        }
        let mut attempts = Attempts::until(op.deadline);
        let mut waiting = None;
        let mut guess = self.route.guess(&request, to);
        // Where a change may be under way.
        let mut begun: Option<Way> = None;
        loop {
            let token = self.session.token();
            still()?;
            // Before it is looked where to: a newer one that comes in between is not what that was found by.
            let roster = self.route.epoch();
            // A server that lost its power after it took the request answers nothing, and nothing says so.
            let left = op.deadline.left(&self.env).min(self.config.attempt);
            let trace = op.trace;
            let is_guess = guess.is_some();
            let begun_there = begun.take().filter(|way| self.route.is_there(way));
            let way = begun_there.clone().or(guess.take()).unwrap_or_else(|| self.route.way(to));
            let manner = way.manner();
            let cx = Context { token, request: id, trace, when, deadline: left, about, manner, ..Context::default() };
            let cx = if is_change { cx.under(roster) } else { cx };
            self.counters.message(name);
            let sent = self.route.execute(&way, to, cx, request.clone());
            let error = match self.env.timeout(left, sent).await {
                Ok(Ok((answer, mark))) => {
                    let asked = Asked { id, session: token.session, message: &request };
                    if self.requests.accept(&self.env, op.deadline, is_change.then_some(asked), &mark).await {
                        if self.requests.is_to_replay() {
                            // It did not wait for this client, so that nothing kept should be missing there.
                            if let Err(error) = self.replay(op).await {
                                tracing::debug!(%error, "what is kept was not compared");
                            }
                        }
                        return M::unwrap(answer).ok_or(Error::bare(Code::BadMessage));
                    }
                    Error::new(Code::Disconnected, name, "the metadata server went before its answer was sure")
                }
                Ok(Err(error)) => error,
                Err(_) => Error::new(Code::DeadlineExceeded, name, "the metadata server did not answer in time"),
            };
            let is_elsewhere = error.code == Code::HeldElsewhere;
            if is_change {
                begun = match error.code {
                    Code::Disconnected | Code::DeadlineExceeded | Code::MaybeCommitted | Code::Overtaken => Some(way),
                    // This attempt has not got there, but one before it may have.
                    Code::Unreachable => begun_there,
                    _ => None,
                };
            }
            if is_guess && (is_elsewhere || error.retry() != Retry::No) {
                // Then its holder.
                continue;
            }
            let says = matches!(error.retry(), Retry::No | Retry::AfterRefresh) && error.code != Code::Recovering;
            let says = says && !is_elsewhere;
            if says && !self.requests.accept_failure(&self.env, op.deadline, is_change.then_some(id)).await {
                if op.deadline.left(&self.env).is_zero() {
                    return Err(error);
                }
                continue;
            }
            match error.code {
                code @ (Code::SessionUnknown | Code::SessionFenced) => self.register_again(token, code, op).await?,
                Code::Recovering => {
                    self.leases.say_soon();
                    if let Err(error) = self.replay(op).await {
                        tracing::debug!(%error, "what is kept was not sent yet");
                    }
                }
                // Another is to be asked: then it is known which.
                Code::HeldElsewhere => {}
                // Whoever asked knows what else is stale.
                code if code.retry() == Retry::AfterRefresh => return Err(error),
                _ => {}
            }
            waiting.get_or_insert_with(|| self.waits.enter(&self.env, name, &error).of(about.inode));
            self.learn_from(&error, op.deadline).await;
            attempts.again(&self.env, error).await?;
        }
    }
}
