use super::PauseGate;
use crate::failures::{Failures, Invariant};
use braid_env::{BoxFuture, Spawn, TaskHandle};
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Tasks of one machine, on its thread of the simulation. A panic in one of them is a failure of the run: tokio would
/// swallow it.
pub struct SimSpawn {
    machine: &'static str,
    gate: Arc<PauseGate>,
    failures: Arc<Failures>,
}

impl SimSpawn {
    pub fn new(machine: &'static str, gate: Arc<PauseGate>, failures: Arc<Failures>) -> Self {
        SimSpawn { machine, gate, failures }
    }

    /// `task`, which stops while the machine does and whose panic is reported.
    pub fn guard<T>(&self, name: &'static str, task: T) -> impl Future<Output = ()> + use<T>
    where
        T: Future<Output = ()> + 'static,
    {
        let mut task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(task);
        let (machine, failures) = (self.machine, self.failures.clone());
        self.gate.stoppable(Box::pin(poll_fn(move |cx| {
            match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
                Ok(poll) => poll,
                Err(panic) => {
                    failures.add(Invariant::NothingPanics, format_args!("{name} on {machine}: {}", text(&*panic)));
                    Poll::Ready(())
                }
            }
        })))
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

impl Spawn for SimSpawn {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle(tokio::task::spawn_local(self.guard(name, task)))
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}
