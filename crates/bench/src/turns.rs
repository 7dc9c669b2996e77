//! Two or more targets, one workload, taking turns.

use crate::report::{Cell, Counters};
use std::future::Future;
use std::time::Duration;

/// What one turn did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub operations: u64,
    pub took: Duration,
    /// Of a sample of operations, in any order.
    pub latencies: Vec<Duration>,
    /// Totals over the turn.
    pub counters: Counters,
}

/// A target that can run a turn of a workload.
pub trait Workload {
    fn target(&self) -> String;
    fn conditions(&self) -> String;
    /// Works for about `span`.
    fn turn(&mut self, span: Duration) -> impl Future<Output = anyhow_free::Result<Outcome>>;
}

/// Errors as text: a benchmark that fails has nothing to decide.
pub mod anyhow_free {
    pub type Result<T> = std::result::Result<T, String>;
}

struct Sum {
    rates: Vec<f64>,
    latencies: Vec<Duration>,
    operations: u64,
    counters: Counters,
}

/// One warm-up turn each, then `turns` each, in alternating order.
pub async fn take_turns<A: Workload, B: Workload>(
    workload: &str,
    a: &mut A,
    b: &mut B,
    turns: usize,
    span: Duration,
) -> anyhow_free::Result<Vec<Cell>> {
    a.turn(span / 4).await?;
    b.turn(span / 4).await?;
    let mut sums = [Sum::new(), Sum::new()];
    for turn in 0..turns {
        if turn % 2 == 0 {
            sums[0].add(a.turn(span).await?);
            sums[1].add(b.turn(span).await?);
        } else {
            sums[1].add(b.turn(span).await?);
            sums[0].add(a.turn(span).await?);
        }
    }
    let [first, second] = sums;
    Ok(vec![first.cell(workload, a.target(), a.conditions()), second.cell(workload, b.target(), b.conditions())])
}

impl Sum {
    fn new() -> Sum {
        Sum { rates: Vec::new(), latencies: Vec::new(), operations: 0, counters: Counters::default() }
    }

    fn add(&mut self, outcome: Outcome) {
        self.rates.push(outcome.operations as f64 / outcome.took.as_secs_f64().max(1e-9));
        self.latencies.extend(outcome.latencies);
        self.operations += outcome.operations;
        let (sum, new) = (&mut self.counters, outcome.counters);
        sum.engine_round_trips += new.engine_round_trips;
        sum.messages += new.messages;
        sum.payload_bytes += new.payload_bytes;
        sum.syncs += new.syncs;
    }

    fn cell(mut self, workload: &str, target: String, conditions: String) -> Cell {
        self.rates.sort_by(f64::total_cmp);
        self.latencies.sort();
        let each = |total: f64| total / (self.operations.max(1) as f64);
        let at = |share: f64| {
            let last = self.latencies.len().saturating_sub(1);
            self.latencies.get((last as f64 * share) as usize).map_or(0.0, |d| d.as_secs_f64() * 1e6)
        };
        let k = self.counters;
        Cell {
            workload: workload.to_owned(),
            target,
            per_second: self.rates.get(self.rates.len() / 2).copied().unwrap_or(0.0),
            low: self.rates.first().copied().unwrap_or(0.0),
            high: self.rates.last().copied().unwrap_or(0.0),
            p50_us: at(0.5),
            p99_us: at(0.99),
            counters: Counters {
                engine_round_trips: each(k.engine_round_trips),
                messages: each(k.messages),
                payload_bytes: each(k.payload_bytes),
                syncs: each(k.syncs),
            },
            conditions,
            latencies: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        name: &'static str,
        rate: u64,
        turns: Vec<Duration>,
    }

    impl Workload for Fake {
        fn target(&self) -> String {
            self.name.to_owned()
        }
        fn conditions(&self) -> String {
            "none".to_owned()
        }
        async fn turn(&mut self, span: Duration) -> anyhow_free::Result<Outcome> {
            self.turns.push(span);
            let operations = (self.rate as f64 * span.as_secs_f64()) as u64;
            let counters = Counters { messages: 2.0 * operations as f64, ..Counters::default() };
            Ok(Outcome { operations, took: span, latencies: vec![Duration::from_micros(10)], counters })
        }
    }

    #[tokio::test]
    async fn targets_take_turns_and_counters_are_an_operation() {
        let mut a = Fake { name: "a", rate: 1000, turns: Vec::new() };
        let mut b = Fake { name: "b", rate: 500, turns: Vec::new() };
        let cells = take_turns("w", &mut a, &mut b, 3, Duration::from_secs(4)).await.unwrap();
        assert_eq!((a.turns.len(), b.turns.len()), (4, 4), "a warm-up and three turns");
        let report = crate::Report { cells, ..crate::Report::default() };
        assert_eq!(report.ratio("w", "a", "b"), Some(2.0));
        assert_eq!(report.cells[0].counters.messages, 2.0);
        let text = report.markdown();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert!(
            lines.iter().all(|line| line.chars().count() == lines[0].chars().count()),
            "columns are aligned: {text}"
        );
        let words: Vec<&str> = lines[2].split('|').map(str::trim).collect();
        assert_eq!(words[1..4], ["w", "a", "1000"]);
    }
}
