//! The same operations as `braid bench metadata --mix`, against an HDFS NameNode; prints the same report as JSON.
//!
//!     hdfs-mix NAMENODE [--mix] [--op OPERATION]... [--ops] [--clients N] [--files N] [--files-a-dir N] [--operations N]
//!              [--turns N] [--seed N] [--zipf EXPONENT] [--replication N]
//!
//! What it shares with BraidFS is included, not copied: the sequence, the turns and the report.

mod hdfs;
mod mix;
// Prints JSON alone.
#[allow(dead_code)]
#[path = "../../../crates/bench/src/report.rs"]
mod report;
mod rpc;

use mix::plan::{Op, Plan, Tree, Zipf};
use mix::run::{Course, Target, Workload, take_turns};
use report::Report;
use std::sync::Arc;

struct Wanted {
    namenode: String,
    mix: bool,
    alone: Vec<Op>,
    clients: usize,
    files: u64,
    files_a_dir: u64,
    operations: u64,
    turns: usize,
    seed: u64,
    zipf: f64,
    replication: u32,
}

fn wanted(mut words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        namenode: words.next().ok_or("usage: hdfs-mix NAMENODE [--mix] [--op OPERATION]...")?,
        mix: false,
        alone: Vec::new(),
        clients: 8,
        files: 10_000,
        files_a_dir: Tree::FILES_A_DIR,
        operations: 100_000,
        turns: 5,
        seed: 1,
        zipf: Zipf::EXPONENT,
        replication: 1,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--mix" => wanted.mix = true,
            "--ops" => wanted.alone = Op::ALL.to_vec(),
            _ => {
                let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                let number = || value.parse::<u64>().map_err(|e| format!("{word} {value}: {e}"));
                match word.as_str() {
                    "--op" => wanted.alone.push(Op::named(&value).ok_or_else(|| format!("no operation {value}"))?),
                    "--clients" => wanted.clients = number()?.clamp(1, 1024) as usize,
                    "--files" => wanted.files = number()?,
                    "--files-a-dir" => wanted.files_a_dir = number()?,
                    "--operations" => wanted.operations = number()?,
                    "--turns" => wanted.turns = number()?.max(1) as usize,
                    "--seed" => wanted.seed = number()?,
                    "--zipf" => wanted.zipf = value.parse().map_err(|e| format!("{word} {value}: {e}"))?,
                    "--replication" => wanted.replication = number()?.clamp(1, 512) as u32,
                    _ => return Err(format!("{word} is not known")),
                }
            }
        }
    }
    Ok(wanted)
}

async fn run(wanted: Wanted) -> Result<Report, String> {
    let plan = Plan::new(Tree::new("mix", wanted.files, wanted.files_a_dir), wanted.zipf, wanted.seed);
    let hdfs = Arc::new(hdfs::Hdfs::open(&wanted.namenode, wanted.clients, wanted.replication).await?);
    hdfs.fill(&plan.tree).await?;
    let mut workloads = Vec::new();
    if wanted.mix {
        workloads.push(Workload::mix(wanted.operations));
    }
    workloads.extend(wanted.alone.iter().map(|op| Workload::alone(*op, wanted.operations)));
    let course = Course { clients: wanted.clients, turns: wanted.turns };
    let targets: Vec<Arc<dyn Target>> = vec![hdfs];
    let cells = take_turns(&targets, &plan, &workloads, course).await?;
    let title = format!("HDFS: {} clients, {} files", wanted.clients, wanted.files);
    Ok(Report { title, machine: Report::machine(), cells, notes: Vec::new() })
}

fn main() -> Result<(), String> {
    let wanted = wanted(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    let report = runtime.block_on(run(wanted))?;
    println!("{}", serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?);
    Ok(())
}
