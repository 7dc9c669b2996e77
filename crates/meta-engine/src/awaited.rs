use crate::EngineError;
use crate::any::BoxFuture;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a transaction answers with: there already, as in the engines of this process, or to be waited for. Only the latter costs an
/// allocation.
///
/// A type of its own, so that a [`Tx`](crate::Tx) is one type for all engines: what is done in transactions is compiled once then, and not
/// for each engine in each program.
pub enum Awaited<'a, T> {
    Ready(Ready<Result<T, EngineError>>),
    Waits(BoxFuture<'a, Result<T, EngineError>>),
}

impl<'a, T> Awaited<'a, T> {
    pub fn ready(answer: Result<T, EngineError>) -> Self {
        Awaited::Ready(ready(answer))
    }

    pub fn waits(answer: impl Future<Output = Result<T, EngineError>> + Send + 'a) -> Self {
        Awaited::Waits(Box::pin(answer))
    }
}

impl<T> Future for Awaited<'_, T> {
    type Output = Result<T, EngineError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Awaited::Ready(answer) => Pin::new(answer).poll(cx),
            Awaited::Waits(answer) => answer.as_mut().poll(cx),
        }
    }
}
