//! The listeners of a role: what connects to any of them is served until the role ends.

use braid_env::Listener;
use braid_wire::{Endpoint, Service, WireStats, serve};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Serving {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Serving {
    pub fn begin<S: Service>(
        endpoint: &Endpoint,
        listeners: Vec<Box<dyn Listener>>,
        service: S,
        stats: &Arc<WireStats>,
    ) -> Serving {
        let (service, (stop, stopped)) = (Arc::new(service), watch::channel(false));
        let task = |listener| {
            let mut stopped = stopped.clone();
            let until = async move {
                let _ = stopped.wait_for(|s| *s).await;
            };
            tokio::spawn(serve(endpoint.clone(), listener, service.clone(), stats.clone(), until))
        };
        let tasks = listeners.into_iter().map(task).collect();
        Serving { stop, tasks }
    }

    /// Takes nothing new, and returns when what runs is answered.
    pub async fn end(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}
