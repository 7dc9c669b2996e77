//! Somebody who drains data servers and evens them out while everything else goes on.
//!
//! What is to be done next is the cluster's, so that it goes on with the next life of the metadata server; a step that failed, or of
//! which nobody knows whether it was carried out, is made again.

use crate::cluster::{Cluster, Process};
use crate::seed::{Stream, stream};
use braid_api::admin::{AdminAnswer, AdminQuery, RebalanceChange, RebalanceState};
use braid_api::meta::Duty;
use braid_api::{Code, Context, Namespace, Result};
use braid_meta_server::MetaServer;
use braid_types::{ChunkId, ServerId};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Wait(Duration),
    Duty(ServerId, Duty),
    UntilDrained(ServerId),
    Rebalance(RebalanceChange),
    UntilEven,
    /// Faults are over, and what came of them.
    UntilQuiet,
}

/// What is left to be done, and who is drained in the end.
#[derive(Default)]
pub struct Operator {
    steps: Mutex<VecDeque<Step>>,
    out: Mutex<Option<ServerId>>,
    /// By the metadata server's clock: the one that is drained has copies.
    left_since: Mutex<Option<Duration>>,
}

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Members whose chunks it had read these back first, and it is heard of its copies once a second.
const CLEARED: Duration = Duration::from_secs(10);

impl Operator {
    /// The first server is emptied and taken back, all are evened out, another is emptied. Now and then each of these is paused, or
    /// the next begins before the one before has ended. When all faults are over the same again.
    pub fn of_seed(seed: u64) -> Operator {
        let mut random = stream(seed, "operator", 0);
        let first = random.random_range(1..=4);
        let second = (first + random.random_range(0..3)) % 4 + 1;
        let (first, second) = (ServerId(first), ServerId(second));
        let wait = |random: &mut Stream| Step::Wait(Duration::from_millis(random.random_range(200..2500)));
        let mut steps = vec![wait(&mut random), Step::Duty(first, Duty::Drains)];
        if random.random_bool(0.3) {
            steps.extend([wait(&mut random), Step::Duty(first, Duty::Paused)]);
            steps.extend([wait(&mut random), Step::Duty(first, Duty::Drains)]);
        }
        steps.push(if random.random_bool(0.3) { wait(&mut random) } else { Step::UntilDrained(first) });
        steps.push(Step::Duty(first, Duty::Serves));
        steps.push(Step::Rebalance(RebalanceChange::Run));
        if random.random_bool(0.3) {
            steps.extend([wait(&mut random), Step::Rebalance(RebalanceChange::Pause)]);
            steps.extend([wait(&mut random), Step::Rebalance(RebalanceChange::Resume)]);
        }
        if random.random_bool(0.2) {
            steps.extend([wait(&mut random), Step::Rebalance(RebalanceChange::Cancel)]);
        }
        steps.push(if random.random_bool(0.3) { wait(&mut random) } else { Step::UntilEven });
        steps.extend([Step::Duty(second, Duty::Drains), Step::UntilDrained(second)]);
        steps.extend([Step::UntilQuiet, Step::Duty(second, Duty::Serves)]);
        steps.extend([Step::Rebalance(RebalanceChange::Run), Step::UntilEven]);
        steps.extend([Step::Duty(first, Duty::Drains), Step::UntilDrained(first)]);
        Operator { steps: Mutex::new(steps.into()), out: Mutex::new(Some(first)), left_since: Mutex::default() }
    }

    pub fn is_done(&self) -> bool {
        self.steps.lock().is_empty()
    }

    pub fn waits_for(&self) -> String {
        format!("{:?}", self.steps.lock().front())
    }

    /// Nothing of it may be anywhere in the end.
    pub fn drained(&self) -> Option<ServerId> {
        *self.out.lock()
    }
}

/// One life of the metadata server.
pub async fn run(process: Process, server: Arc<MetaServer>) {
    let cluster = &process.cluster;
    loop {
        process.env.clock.sleep(LOOK).await;
        let Some(step) = cluster.operator.steps.lock().front().copied() else { return };
        if let Step::Wait(time) = step {
            process.env.clock.sleep(time).await;
        }
        match take(cluster, &server, step, process.env.clock.now().0).await {
            Ok(true) => {
                cluster.note("operator", format_args!("{step:?} is done"));
                cluster.operator.steps.lock().pop_front();
            }
            Ok(false) => {}
            Err(error) => cluster.note("operator", format_args!("{step:?}: {error}")),
        }
    }
}

/// True if the next step may come.
async fn take(cluster: &Cluster, meta: &MetaServer, step: Step, now: Duration) -> Result<bool> {
    let ask = |query: AdminQuery| meta.call(Context::default(), query);
    let answer = match step {
        Step::Wait(_) => return Ok(true),
        Step::UntilQuiet => return Ok(cluster.moves.is_quiet()),
        Step::Duty(server, duty) => ask(AdminQuery::SetDuty { server, duty, move_rate: None }).await,
        Step::UntilDrained(server) => ask(AdminQuery::Drain { server }).await,
        Step::Rebalance(change) => {
            ask(AdminQuery::SetRebalance { change, within_permille: None, move_rate: None }).await
        }
        Step::UntilEven => ask(AdminQuery::Rebalance { within_permille: None }).await,
    };
    let answer = match (answer, step) {
        // There is none any more: it came to its end before.
        (Err(error), Step::Rebalance(_) | Step::Duty(..)) if error.code == Code::Invalid => return Ok(true),
        (answer, _) => answer?,
    };
    Ok(match (step, answer) {
        (Step::UntilDrained(server), AdminAnswer::Drain(drain)) => {
            let is_drained = drain.duty == Duty::Drained;
            if is_drained {
                cluster.coverage.count("data server drained");
            }
            is_drained && (!cluster.moves.is_quiet() || nothing_is_left(cluster, server, now))
        }
        (Step::UntilEven, AdminAnswer::Rebalance(seen)) => {
            if seen.state == RebalanceState::Done && seen.moved.copies > 0 {
                cluster.coverage.count("data servers evened out");
            }
            // One that was cancelled before has nothing to wait for.
            !matches!(seen.state, RebalanceState::Runs)
        }
        _ => true,
    })
}

/// A server that is said to be drained, and that can be reached, has no copy any more: at once where the drain began when all was quiet; in
/// [`CLEARED`] where it may have been drained while it could not be reached, and has come back since. False until then.
fn nothing_is_left(cluster: &Cluster, drained: ServerId, now: Duration) -> bool {
    let runs = cluster.servers().into_iter().find(|(_, server)| server.id() == drained);
    let left = runs.map_or(String::new(), |(_, server)| match cluster.settings.has_copies() {
        false => shown(&server.store().list(ChunkId(0), usize::MAX)),
        true if server.store().usage().is_err() => String::new(),
        true => shown(&server.copies(ChunkId(0), usize::MAX)),
    });
    let may_have_come_back = cluster.operator.steps.lock().contains(&Step::UntilQuiet);
    let mut since = cluster.operator.left_since.lock();
    if left.is_empty() {
        if since.take().is_some() {
            cluster.coverage.count("drained data server came back and was emptied");
        }
        return true;
    }
    if !may_have_come_back || now > since.get_or_insert(now).saturating_add(CLEARED) {
        let text = format!("data server {drained} is drained, and has {left}");
        cluster.around.failures.add(crate::Invariant::UnlinkedAfterReplaced, text);
    }
    false
}

fn shown<T: std::fmt::Debug>(left: &[T]) -> String {
    if left.is_empty() { String::new() } else { format!("{left:?}") }
}
