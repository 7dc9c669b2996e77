use serde::Serialize;
use std::fmt::Write as _;

/// Exact counts an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    pub engine_round_trips: f64,
    pub messages: f64,
    pub payload_bytes: f64,
    pub syncs: f64,
}

/// One workload on one target.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub workload: String,
    pub target: String,
    /// Median over the turns.
    pub per_second: f64,
    /// Slowest and fastest turn.
    pub low: f64,
    pub high: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub counters: Counters,
    /// What an operation had reached when it returned, and what was cached.
    pub conditions: String,
    /// Of each operation, where the workload has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
}

/// How long one kind of operation took.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub operation: String,
    /// Operations, over all turns.
    pub count: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// What a run found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub title: String,
    pub machine: String,
    pub cells: Vec<Cell>,
    pub notes: Vec<String>,
}

impl Report {
    /// This machine in a line: cores, memory, kernel.
    pub fn machine() -> String {
        let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory_kib: u64 = read("/proc/meminfo")
            .lines()
            .find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
            .unwrap_or(0);
        format!("{cores} cores, {} GiB, Linux {}", memory_kib >> 20, read("/proc/sys/kernel/osrelease").trim())
    }

    /// The rate of `target` in `workload` as a share of `other`'s.
    pub fn ratio(&self, workload: &str, target: &str, other: &str) -> Option<f64> {
        let rate =
            |name: &str| self.cells.iter().find(|c| c.workload == workload && c.target == name).map(|c| c.per_second);
        Some(rate(target)? / rate(other)?)
    }

    /// Markdown, ready for `docs/benchmarks.md`, with columns that stand below each other.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n{}\n\n", self.title, self.machine);
        let mut rows = vec![cells([
            "workload",
            "target",
            "ops/s",
            "low to high",
            "p50 µs",
            "p99 µs",
            "round trips",
            "messages",
            "payload bytes",
            "syncs",
            "conditions",
        ])];
        for c in &self.cells {
            let k = &c.counters;
            rows.push(vec![
                c.workload.clone(),
                c.target.clone(),
                format!("{:.0}", c.per_second),
                format!("{:.0} to {:.0}", c.low, c.high),
                format!("{:.0}", c.p50_us),
                format!("{:.0}", c.p99_us),
                format!("{:.2}", k.engine_round_trips),
                format!("{:.2}", k.messages),
                format!("{:.0}", k.payload_bytes),
                format!("{:.4}", k.syncs),
                c.conditions.clone(),
            ]);
        }
        text.push_str(&table(&rows, |column| (2..10).contains(&column)));
        for c in self.cells.iter().filter(|c| !c.latencies.is_empty()) {
            // Writing into a String cannot fail.
            let _ = writeln!(text, "\n{} on {}, µs:\n", c.workload, c.target);
            let mut rows = vec![cells(["operation", "count", "p50", "p99", "max"])];
            for l in &c.latencies {
                let times = [l.p50_us, l.p99_us, l.max_us].map(|us| format!("{us:.0}"));
                rows.push([l.operation.clone(), l.count.to_string()].into_iter().chain(times).collect());
            }
            text.push_str(&table(&rows, |column| column > 0));
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}");
        }
        text
    }
}

fn cells<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

/// The first row is the head.
fn table(rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(4);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match is_number(column) {
                true => write!(text, "| {cell:>width$} "),
                false => write!(text, "| {cell:<width$} "),
            };
        }
        text.push_str("|\n");
        if i == 0 {
            for (column, width) in widths.iter().enumerate() {
                let end = if is_number(column) { ":" } else { "-" };
                let _ = write!(text, "| {}{end} ", "-".repeat(width - 1));
            }
            text.push_str("|\n");
        }
    }
    text
}
