//! Several workers, each with a directory and a record of its own, until the stop file appears.

use super::worker::{End, Worker};
use super::worker_name;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A load on a directory of the file system under test.
pub struct Load {
    /// Made if it does not exist; the workers' directories in it must not.
    pub dir: PathBuf,
    /// The same directory at other mounts: each call goes to one of them all, so that what one wrote another changes.
    pub also: Vec<PathBuf>,
    /// Where the records go: a directory on a disk that is not under test.
    pub record: PathBuf,
    /// Ends the load once it exists.
    pub stop: PathBuf,
    pub seed: u64,
    pub workers: u64,
}

/// What all workers did together.
#[derive(Debug, Default)]
pub struct LoadReport {
    pub acknowledged: u64,
    pub syncs: u64,
    /// The call that took longest.
    pub longest: (Duration, String),
    /// Calls that failed: each ended its worker.
    pub failed: Vec<String>,
    /// Files that read otherwise than they were written, while nothing but the servers had crashed.
    pub wrong: Vec<String>,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (longest, call) = &self.longest;
        let (ms, failed, wrong) = (longest.as_millis(), self.failed.len(), self.wrong.len());
        let (acknowledged, syncs) = (self.acknowledged, self.syncs);
        write!(f, "acknowledged={acknowledged} syncs={syncs} longest_ms={ms} failed={failed} wrong={wrong} call={call}")
    }
}

/// Runs the load to its end. An error is the record's; what the file system under test does wrong is in the report.
pub fn load(load: &Load) -> io::Result<LoadReport> {
    std::fs::create_dir_all(&load.dir)?;
    std::fs::create_dir_all(&load.record)?;
    let mut workers = (0..load.workers).map(|n| Worker::new(load, n)).collect::<io::Result<Vec<_>>>()?;
    let ends: Vec<End> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| worker.run())).collect();
        let joined = threads.into_iter().map(|t| t.join());
        joined.map(|end| end.unwrap_or_else(|_| End::Record(io::Error::other("a worker panicked")))).collect()
    });
    let mut report = LoadReport::default();
    for (worker, end) in workers.iter().zip(ends) {
        let name = worker_name(worker.number);
        report.acknowledged += worker.acknowledged;
        report.syncs += worker.syncs;
        if worker.longest.0 > report.longest.0 {
            report.longest = (worker.longest.0, format!("{name}: {}", worker.longest.1));
        }
        match end {
            End::Stopped => {}
            End::Failed(what) => report.failed.push(format!("{name}: {what}")),
            End::Wrong(what) => report.wrong.push(format!("{name}: {what}")),
            End::Record(error) => return Err(error),
        }
    }
    Ok(report)
}
