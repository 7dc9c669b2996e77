//! One client does what a stream of random operations says, and every answer must be the model's, whatever goes wrong
//! meanwhile with servers and network. In every other seed a second client has a session, so that nothing may be
//! cached.

use super::durable::fail;
use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::mount;
use crate::machine::Machine;
use braid_model::stream::Weights;
use braid_model::{Model, compare_stream};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

pub struct Modelled {
    seed: u64,
    steps: usize,
    compared: Mutex<bool>,
}

/// What faults can touch; that every call means what the model says is the client's own test.
const WEIGHTS: Weights = Weights {
    names: 20,
    attributes: 10,
    handles: 20,
    data: 45,
    listings: 0,
    xattrs: 0,
    seals: 0,
    trees: 0,
    policies: false,
    locks: 0,
    syncs: 0,
};
const POLL: Duration = Duration::from_millis(20);

impl Modelled {
    pub fn new(seed: u64, steps: usize) -> Arc<Self> {
        Arc::new(Modelled { seed, steps, compared: Mutex::new(false) })
    }

    async fn compare(&self, process: &Process) {
        let fs = mount(process).await;
        match compare_stream(&Model::default(), &*fs, self.seed, WEIGHTS, self.steps).await {
            Ok(summary) => process.note(format_args!("{summary:?}")),
            Err(report) => process.cluster.around.failures.add(Invariant::SameAsModel, report),
        }
        if let Err(error) = fs.shutdown().await {
            fail(process, &error);
        }
        *self.compared.lock() = true;
    }

    async fn stand_by(&self, process: &Process) {
        if self.seed % 2 == 1 {
            return;
        }
        let fs = mount(process).await;
        while !*self.compared.lock() {
            process.env.sleep(POLL).await;
        }
        if let Err(error) = fs.shutdown().await {
            fail(process, &error);
        }
    }
}

impl Work for Modelled {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            match process.machine {
                Machine::Client1 => self.compare(&process).await,
                _ => self.stand_by(&process).await,
            }
        })
    }

    fn waits_for(&self) -> String {
        format!("compared: {}", self.compared.lock())
    }
}
