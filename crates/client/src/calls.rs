//! Messages to the metadata server.

use crate::core::{Core, Op};
use crate::wait::Attempts;
use braid_api::meta::{MetaAnswer, MetaRequest};
use braid_api::{Carries, Code, Context, Error, Result, Retry};

impl Core {
    /// Sends one message and gives its answer. A mutation gets a request id, which stays the same however often
    /// it is sent. Errors that allow it are retried until the operation's deadline.
    pub async fn call<M>(&self, message: M, op: Op) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer>,
    {
        let request = message.wrap();
        let name = request.name();
        let numbered = request.is_mutation().then(|| self.requests.begin());
        let id = numbered.as_ref().map(|numbered| numbered.id).unwrap_or_default();
        let mut attempts = Attempts::until(op.deadline);
        let mut waiting = None;
        loop {
            let token = self.session.token();
            // A server that lost its power after it took the request answers nothing, and nothing says so.
            let left = op.deadline.left(&self.env).min(self.config.attempt);
            let cx = Context { token, request: id, trace: op.trace, deadline: left };
            self.counters.message(name);
            let error = match self.env.timeout(left, self.meta.execute(cx, request.clone())).await {
                Ok(Ok(answer)) => return M::unwrap(answer).ok_or(Error::bare(Code::BadMessage)),
                Ok(Err(error)) => error,
                Err(_) => Error::new(Code::DeadlineExceeded, name, "the metadata server did not answer in time"),
            };
            match error.code {
                code @ (Code::SessionUnknown | Code::SessionFenced) => self.register_again(token, code, op).await?,
                // Whoever asked knows what else is stale.
                code if code.retry() == Retry::AfterRefresh => return Err(error),
                _ => {}
            }
            waiting.get_or_insert_with(|| self.waits.enter(&self.env, name, &error));
            attempts.again(&self.env, error).await?;
        }
    }
}
