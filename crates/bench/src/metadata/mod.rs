//! Metadata without FUSE: native clients against the bare engine, and what an inode costs.

mod bare;
pub mod mix;
mod native;
mod size;

pub(crate) use native::name;
pub use size::{SizeReport, measure_size};

use crate::report::Report;
use crate::turns::{anyhow_free::Result, take_turns};
use std::path::Path;
use std::time::Duration;

/// How the comparison is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections of native clients, and threads on the bare engine.
    pub connections: usize,
    /// Requests of one connection under way at once.
    pub in_flight: usize,
    /// Files that `stat` chooses from.
    pub files: u64,
    pub turns: usize,
    pub span: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { connections: 8, in_flight: 4, files: 100_000, turns: 5, span: Duration::from_secs(2) }
    }
}

/// Native clients over Unix sockets to a metadata server, in turn with the same rows read and written directly.
/// Both stores lie below `dir`.
pub async fn compare(dir: &Path, settings: Settings) -> Result<Report> {
    let bare = bare::Bare::open(&dir.join("bare"), settings).await?;
    let native = native::Native::start(&dir.join("native"), settings).await?;
    let mut report = Report {
        title: format!(
            "Native metadata clients: {} connections, {} requests in flight each, against the bare engine",
            settings.connections, settings.in_flight
        ),
        machine: Report::machine(),
        ..Report::default()
    };
    for kind in [Kind::Stat, Kind::Stats, Kind::Create] {
        let (mut far, mut near) = (native.workload(kind), bare.workload(kind));
        report.cells.extend(take_turns(kind.name(), &mut far, &mut near, settings.turns, settings.span).await?);
        if let Some(share) = report.ratio(kind.name(), "native", "bare engine") {
            report.notes.push(format!("{}: native clients reach {share:.2} of the bare engine.", kind.name()));
        }
    }
    Ok(report)
}

/// What is done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Attributes of a random file by name.
    Stat,
    /// The same of [`STATS_A_MESSAGE`] files at once.
    Stats,
    /// A new file in one of as many directories as there are connections.
    Create,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Stat => "stat",
            Kind::Stats => "stat, 64 a message",
            Kind::Create => "create",
        }
    }
}

/// Names a program asks for in one message; an operation is still one name.
const STATS_A_MESSAGE: usize = 64;

/// One latency in this many is kept.
const SAMPLE_EVERY: u64 = 64;

/// A cheap sequence of choices; no need for good randomness.
pub(crate) fn choose(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below.max(1)
}
