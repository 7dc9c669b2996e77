//! `braid bench`: workloads of `braid-bench` in a new directory of this machine, without a cluster.

use anyhow::{Context, Result};
use braid_bench::{Report, data, metadata};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Example:\n  braid bench metadata --dir /var/tmp --seconds 2 --turns 5")]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
    /// A directory on the disk to measure; a new one is made in it and removed at the end.
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    /// Seconds of a turn. Targets take turns, after a warm-up turn of a quarter each.
    #[arg(long, default_value_t = 2.0, global = true)]
    seconds: f64,
    /// Turns of each target; the figure is their median.
    #[arg(long, default_value_t = 5, global = true)]
    turns: usize,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Stat and create: native clients over Unix sockets, in turn with the bare engine.
    #[command(after_help = "Example:\n  braid bench metadata --connections 8")]
    Metadata {
        #[arg(long, default_value_t = 8)]
        connections: usize,
        /// Requests of one connection under way at once.
        #[arg(long, default_value_t = 4)]
        in_flight: usize,
        /// Files that stat chooses from.
        #[arg(long, default_value_t = 100_000)]
        files: u64,
    },
    /// Reads and writes: a native client and a data server over Unix sockets, in turn with a plain file.
    #[command(after_help = "Example:\n  braid bench data --mib 256 --json")]
    Data {
        /// Size of the file.
        #[arg(long, default_value_t = 256)]
        mib: u64,
    },
}

impl BenchArgs {
    pub fn run(self) -> Result<ExitCode> {
        let (turns, json) = (self.turns.clamp(1, 1000), self.json);
        let span = Duration::try_from_secs_f64(self.seconds.clamp(0.01, 3600.0)).context("--seconds")?;
        let place = Place::make(self.dir.clone().unwrap_or_else(std::env::temp_dir))?;
        let dir = place.0.clone();
        let runtime = crate::connect::runtime()?;
        let report = runtime.block_on(async move {
            match self.what {
                What::Metadata { connections, in_flight, files } => {
                    let (connections, in_flight) = (connections.clamp(1, 1024), in_flight.clamp(1, 1024));
                    let settings = metadata::Settings { connections, in_flight, files: files.max(1), turns, span };
                    metadata::compare(&dir, settings).await
                }
                What::Data { mib } => {
                    let settings = data::Settings { file_bytes: mib.clamp(1, 1 << 20) << 20, turns, span };
                    data::compare(&dir, settings).await
                }
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(5));
        say(&report.map_err(anyhow::Error::msg)?, json)
    }
}

fn say(report: &Report, json: bool) -> Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{}", report.markdown());
    }
    Ok(ExitCode::SUCCESS)
}

/// A directory of this run, removed at its end.
struct Place(PathBuf);

impl Place {
    fn make(parent: PathBuf) -> Result<Place> {
        let path = parent.join(format!("braid-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Place(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        eprintln!("braid: {} is left behind: {error}", path.display());
    }
}
