use crate::BoxFuture;

/// Starts tasks and blocking work.
pub trait Spawn: Send + Sync {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle;

    /// Runs `work` on a thread that may block. In the simulator it runs at once, in place.
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>);
}

/// A running task. Dropping the handle lets the task go on.
#[derive(Debug)]
pub struct TaskHandle(pub tokio::task::JoinHandle<()>);

impl TaskHandle {
    /// Stops the task at its next await.
    pub fn abort(&self) {
        self.0.abort();
    }

    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until the task has ended, in whatever way.
    pub async fn join(self) {
        let _ = self.0.await;
    }
}
