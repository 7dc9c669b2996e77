//! `braid bench`: workloads of `braid-bench` in a new directory of this machine, without a cluster.

use anyhow::{Context, Result};
use braid_bench::metadata::mix::{self, plan::Op};
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
    /// Stat and create: native clients over Unix sockets, in turn with the bare engine. Or, by path, the operations of a
    /// production cluster in their shares (--mix) and each alone (--op, --ops).
    #[command(after_help = "Examples:\n  braid bench metadata --connections 8\n  \
                            braid bench metadata --mix spotify --files 10000 --turns 3\n  \
                            braid bench metadata --op stat --op create --operations 50000\n  \
                            braid bench metadata --mix spotify --database mysql://root@%2Frun%2Fdb.sock/bench --operations 20000")]
    Metadata {
        #[arg(long, default_value_t = 8)]
        connections: usize,
        /// Requests of one connection under way at once; with --mix, --op and --ops always one.
        #[arg(long, default_value_t = 4)]
        in_flight: usize,
        /// Files to choose from: 100,000, or 10,000 with --mix, --op and --ops.
        #[arg(long)]
        files: Option<u64>,
        #[command(flatten)]
        mix: MixArgs,
    },
    /// Reads and writes: a native client and a data server over Unix sockets, in turn with a plain file.
    #[command(after_help = "Example:\n  braid bench data --mib 256 --json")]
    Data {
        /// Size of the file.
        #[arg(long, default_value_t = 256)]
        mib: u64,
    },
}

#[derive(Args)]
struct MixArgs {
    /// The shares of this cluster's operations (HopsFS, FAST 2017, table 1). A turn is a number of operations, not --seconds.
    #[arg(long, value_name = "CLUSTER", value_parser = ["spotify"])]
    mix: Option<String>,
    /// One operation alone; several, one after the other: read, stat, list, content-summary, add-block, move, create, delete,
    /// set-owner, set-replication, set-permission, mkdirs, put-4k, get-4k.
    #[arg(long = "op", value_name = "OPERATION", value_parser = operation)]
    op: Vec<Op>,
    /// Each operation alone.
    #[arg(long)]
    ops: bool,
    /// Operations of the mix in a turn, of all connections together; alone an operation is done a 4th, 10th or 20th of it.
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// The same seed is the same sequence of operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Exponent of the files' popularity.
    #[arg(long, default_value_t = mix::plan::Zipf::EXPONENT, value_name = "EXPONENT")]
    zipf: f64,
    /// Files in a directory.
    #[arg(long, default_value_t = mix::plan::Tree::FILES_A_DIR)]
    files_a_dir: u64,
    /// In turn with the client that mounts use, with its caches.
    #[arg(long)]
    cached: bool,
    /// Clients reach the metadata server by TCP over the loopback device, not by Unix sockets.
    #[arg(long)]
    tcp: bool,
    /// Keep the rows in this database, which is empty or does not exist, and not in the embedded engine.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

fn operation(name: &str) -> Result<Op, String> {
    Op::named(name).ok_or_else(|| format!("operations are {}", Op::ALL.map(Op::name).join(", ")))
}

impl MixArgs {
    /// None where nothing of the mix is asked for.
    fn settings(self, clients: usize, files: Option<u64>, turns: usize) -> Result<Option<mix::Settings>, String> {
        let alone = if self.ops { Op::ALL.to_vec() } else { self.op };
        if self.mix.is_none() && alone.is_empty() {
            return match self.database.is_some() || self.cached || self.tcp {
                true => Err("--database, --cached and --tcp go with --mix, --op or --ops".to_owned()),
                false => Ok(None),
            };
        }
        if !(0.0..=10.0).contains(&self.zipf) {
            return Err(format!("--zipf {}: an exponent is 0 to 10", self.zipf));
        }
        Ok(Some(mix::Settings {
            clients,
            files: files.unwrap_or(10_000).clamp(1, 10_000_000),
            files_a_dir: self.files_a_dir,
            operations: self.operations.clamp(1, 100_000_000),
            turns,
            seed: self.seed,
            zipf_exponent: self.zipf,
            mix: self.mix.is_some(),
            alone,
            cached: self.cached,
            tcp: self.tcp,
            database: self.database,
        }))
    }
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
                What::Metadata { connections, in_flight, files, mix: args } => {
                    let (connections, in_flight) = (connections.clamp(1, 1024), in_flight.clamp(1, 1024));
                    if let Some(settings) = args.settings(connections, files, turns)? {
                        return mix::compare(&dir, settings).await;
                    }
                    let files = files.unwrap_or(100_000).max(1);
                    let settings = metadata::Settings { connections, in_flight, files, turns, span };
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
