//! Data without FUSE: a native client and one data server over Unix sockets, against plain files of the same disk.

mod files;
mod native;

pub(crate) use native::data_server;

use crate::report::Report;
use crate::turns::{anyhow_free::Result, take_turns};
use std::path::Path;
use std::time::Duration;

/// How the comparison is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of the one file; below what the page cache holds, so that reads are warm.
    pub file_bytes: u64,
    pub turns: usize,
    pub span: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { file_bytes: 256 << 20, turns: 5, span: Duration::from_secs(2) }
    }
}

/// What is done again and again by one caller, on one file that exists and is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Write1M,
    RandomWrite4K,
    Read1M,
    RandomRead4K,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Write1M, Kind::RandomWrite4K, Kind::Read1M, Kind::RandomRead4K];

    fn name(self) -> &'static str {
        match self {
            Kind::Write1M => "write 1 MiB",
            Kind::RandomWrite4K => "random write 4 KiB",
            Kind::Read1M => "read 1 MiB",
            Kind::RandomRead4K => "random read 4 KiB",
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Kind::Write1M | Kind::Read1M => 1 << 20,
            Kind::RandomWrite4K | Kind::RandomRead4K => 4 << 10,
        }
    }

    fn is_write(self) -> bool {
        matches!(self, Kind::Write1M | Kind::RandomWrite4K)
    }

    /// What the figures of both targets have in common.
    fn conditions(self) -> &'static str {
        if self.is_write() {
            "overwrites; a turn's time holds one fsync at its end"
        } else {
            "after a warm-up turn: the file is in the servers' page cache, in no cache of the client"
        }
    }

    /// Where the operation with this number goes.
    fn offset(self, n: u64, state: &mut u64, file_bytes: u64) -> u64 {
        let places = (file_bytes / self.bytes()).max(1);
        let place = match self {
            Kind::Write1M | Kind::Read1M => n % places,
            Kind::RandomWrite4K | Kind::RandomRead4K => crate::metadata::choose(state, places),
        };
        place * self.bytes()
    }
}

/// Both files lie below `dir`.
pub async fn compare(dir: &Path, settings: Settings) -> Result<Report> {
    let files = files::Files::make(&dir.join("plain"), settings)?;
    let native = native::Native::start(dir, settings).await?;
    let mut report = Report {
        title: format!(
            "A native client and one data server against plain files: one caller, a file of {} MiB",
            settings.file_bytes >> 20
        ),
        machine: Report::machine(),
        ..Report::default()
    };
    for kind in Kind::ALL {
        let (mut far, mut near) = (native.workload(kind), files.workload(kind));
        let cells = take_turns(kind.name(), &mut far, &mut near, settings.turns, settings.span).await?;
        report.cells.extend(cells);
        if let Some(share) = report.ratio(kind.name(), "native", "plain file") {
            report.notes.push(format!("{}: a native client reaches {share:.2} of plain files.", kind.name()));
        }
    }
    native.stop().await?;
    Ok(report)
}
