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

    /// Markdown, ready for `docs/benchmarks.md`.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n{}\n\n", self.title, self.machine);
        text.push_str("| workload | target | ops/s | low to high | p50 µs | p99 µs | round trips | messages ");
        text.push_str("| payload bytes | syncs | conditions |\n");
        text.push_str("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
        for c in &self.cells {
            let k = &c.counters;
            // Writing into a String cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} to {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.0} | {:.4} | {} |",
                c.workload,
                c.target,
                c.per_second,
                c.low,
                c.high,
                c.p50_us,
                c.p99_us,
                k.engine_round_trips,
                k.messages,
                k.payload_bytes,
                k.syncs,
                c.conditions
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}");
        }
        text
    }
}
