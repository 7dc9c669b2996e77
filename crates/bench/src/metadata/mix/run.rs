//! Scripts of clients against targets, in turns. Knows nothing of BraidFS but the report, as `scripts/hdfs-mix` includes it.

use super::plan::{Mix, Op, Plan, SPOTIFY, Script, Step};
use crate::report::{Cell, Counters, Latency};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub type Result<T> = std::result::Result<T, String>;
pub type Work<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A file system with clients, each of which does one thing at a time.
pub trait Target: Send + Sync {
    fn name(&self) -> String;
    /// What is cached, and what has been reached when an operation returns.
    fn conditions(&self) -> String;
    fn step<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a>;
    /// See [`Script::before`] and [`Script::left`].
    fn prepare<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a>;
    fn clear<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a>;
    /// Totals until now.
    fn counters(&self) -> Counters;
}

/// One line of the report.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: String,
    pub mix: Vec<(Op, u64)>,
    /// Of a turn, all clients together.
    pub operations: u64,
}

impl Workload {
    pub fn mix(operations: u64) -> Workload {
        let mix: Mix = SPOTIFY;
        Workload { name: "mix".to_owned(), mix: mix.to_vec(), operations }
    }

    /// An operation alone: a quarter as many as of the mix, of changes a tenth, of what walks or moves bytes a twentieth.
    pub fn alone(op: Op, operations: u64) -> Workload {
        let part = match op {
            Op::Summary | Op::PutSmall | Op::GetSmall => 20,
            op if op.is_change() => 10,
            _ => 4,
        };
        Workload { name: op.name().to_owned(), mix: vec![(op, 1)], operations: (operations / part).max(1) }
    }
}

/// How often, and by how many.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    pub clients: usize,
    pub turns: usize,
}

struct Turn {
    took: Duration,
    latencies: Vec<(Op, Duration)>,
    counters: Counters,
}

/// Every workload on every target: a warm-up turn of a quarter each, then turns in alternating order. All targets do the same
/// scripts.
pub async fn take_turns(
    targets: &[Arc<dyn Target>],
    plan: &Plan,
    workloads: &[Workload],
    course: Course,
) -> Result<Vec<Cell>> {
    let (mut cells, mut number) = (Vec::new(), 0);
    for workload in workloads {
        let mut done: Vec<Vec<Turn>> = targets.iter().map(|_| Vec::new()).collect();
        for turn in 0..=course.turns {
            let warms_up = turn == 0;
            let operations = if warms_up { workload.operations.div_ceil(4) } else { workload.operations };
            let scripts: Vec<Script> = (0..course.clients as u64)
                .map(|client| plan.script(&workload.mix, number, client, course.clients as u64, operations))
                .collect();
            let scripts = Arc::new(scripts);
            number += 1;
            let mut order: Vec<usize> = (0..targets.len()).collect();
            if turn % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let turn = one_turn(&targets[at], &scripts).await;
                let turn = turn.map_err(|e| format!("{} on {}: {e}", workload.name, targets[at].name()))?;
                if !warms_up {
                    done[at].push(turn);
                }
            }
        }
        cells.extend(targets.iter().zip(done).map(|(target, turns)| cell(workload, &**target, turns)));
    }
    Ok(cells)
}

async fn one_turn(target: &Arc<dyn Target>, scripts: &Arc<Vec<Script>>) -> Result<Turn> {
    at_once(target, scripts, |target, client, script, _| {
        Box::pin(async move {
            for step in &script.before {
                target.prepare(client, step).await.map_err(|e| format!("preparing {}: {e}", step.path))?;
            }
            Ok(())
        })
    })
    .await?;
    let before = target.counters();
    let begun = Instant::now();
    let latencies = at_once(target, scripts, |target, client, script, latencies| {
        Box::pin(async move {
            for step in &script.steps {
                let at = Instant::now();
                target.step(client, step).await.map_err(|e| format!("{} {}: {e}", step.op.name(), step.path))?;
                latencies.push((step.op, at.elapsed()));
            }
            Ok(())
        })
    })
    .await?;
    let took = begun.elapsed();
    let after = target.counters();
    let counters = Counters {
        engine_round_trips: after.engine_round_trips - before.engine_round_trips,
        messages: after.messages - before.messages,
        payload_bytes: after.payload_bytes - before.payload_bytes,
        syncs: after.syncs - before.syncs,
    };
    at_once(target, scripts, |target, client, script, _| {
        Box::pin(async move {
            for step in &script.left {
                target.clear(client, step).await.map_err(|e| format!("removing {}: {e}", step.path))?;
            }
            Ok(())
        })
    })
    .await?;
    Ok(Turn { took, latencies, counters })
}

type Latencies = Vec<(Op, Duration)>;

/// All clients at the same time, each on a task of its own.
async fn at_once<F>(target: &Arc<dyn Target>, scripts: &Arc<Vec<Script>>, work: F) -> Result<Latencies>
where
    F: for<'a> Fn(&'a dyn Target, usize, &'a Script, &'a mut Latencies) -> Work<'a> + Copy + Send + 'static,
{
    let mut tasks = Vec::new();
    for client in 0..scripts.len() {
        let (target, scripts) = (target.clone(), scripts.clone());
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::with_capacity(scripts[client].steps.len());
            work(&*target, client, &scripts[client], &mut latencies).await?;
            Ok::<_, String>(latencies)
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.map_err(|e| e.to_string())??);
    }
    Ok(all)
}

fn cell(workload: &Workload, target: &dyn Target, turns: Vec<Turn>) -> Cell {
    let mut rates: Vec<f64> =
        turns.iter().map(|turn| turn.latencies.len() as f64 / turn.took.as_secs_f64().max(1e-9)).collect();
    rates.sort_by(f64::total_cmp);
    let mut by_op: BTreeMap<Op, Vec<Duration>> = BTreeMap::new();
    let mut all: Vec<Duration> = Vec::new();
    let mut sum = Counters::default();
    for turn in turns {
        for (op, latency) in turn.latencies {
            by_op.entry(op).or_default().push(latency);
            all.push(latency);
        }
        sum.engine_round_trips += turn.counters.engine_round_trips;
        sum.messages += turn.counters.messages;
        sum.payload_bytes += turn.counters.payload_bytes;
        sum.syncs += turn.counters.syncs;
    }
    let each = |total: f64| total / all.len().max(1) as f64;
    let counters = Counters {
        engine_round_trips: each(sum.engine_round_trips),
        messages: each(sum.messages),
        payload_bytes: each(sum.payload_bytes),
        syncs: each(sum.syncs),
    };
    let whole = latency("all", all);
    let latencies = match by_op.len() {
        0 | 1 => Vec::new(),
        _ => by_op.into_iter().map(|(op, of)| latency(op.name(), of)).collect(),
    };
    Cell {
        workload: workload.name.clone(),
        target: target.name(),
        per_second: rates.get(rates.len() / 2).copied().unwrap_or(0.0),
        low: rates.first().copied().unwrap_or(0.0),
        high: rates.last().copied().unwrap_or(0.0),
        p50_us: whole.p50_us,
        p99_us: whole.p99_us,
        counters,
        conditions: target.conditions(),
        latencies,
    }
}

fn latency(operation: &str, mut of: Vec<Duration>) -> Latency {
    of.sort();
    let at = |share: f64| {
        let last = of.len().saturating_sub(1);
        of.get((last as f64 * share) as usize).map_or(0.0, |d| d.as_secs_f64() * 1e6)
    };
    Latency {
        operation: operation.to_owned(),
        count: of.len() as u64,
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
    }
}
