//! The same operations as `braid bench metadata --mix`, against an HDFS NameNode; prints the same report as JSON.
//!
//!     hdfs-mix NAMENODE [--mix] [--op OPERATION]... [--ops] [--clients N] [--files N] [--files-a-dir N] [--operations N]
//!              [--turns N] [--seed N] [--zipf EXPONENT] [--replication N] [--write-plan FILE]
//!
//! With `--write-plan` nothing is done but to write down what would be, for `java/HadoopMix.java`: a step in a line (workload, turn, client,
//! phase, operation, path, where to).
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
    plan: Option<String>,
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
        plan: None,
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
                    "--write-plan" => wanted.plan = Some(value.clone()),
                    "--replication" => wanted.replication = number()?.clamp(1, 512) as u32,
                    _ => return Err(format!("{word} is not known")),
                }
            }
        }
    }
    Ok(wanted)
}

impl Wanted {
    fn plan(&self) -> Plan {
        Plan::new(Tree::new("mix", self.files, self.files_a_dir), self.zipf, self.seed)
    }

    fn workloads(&self) -> Vec<Workload> {
        let mix = self.mix.then(|| Workload::mix(self.operations));
        mix.into_iter().chain(self.alone.iter().map(|op| Workload::alone(*op, self.operations))).collect()
    }
}

/// The turns of [`take_turns`], but the one that warms up is as long as the others: a virtual machine that compiles what runs often needs it.
fn write_plan(wanted: &Wanted, file: &str) -> Result<(), String> {
    use std::fmt::Write;
    let (plan, clients, mut number, mut text) = (wanted.plan(), wanted.clients as u64, 0, String::new());
    for workload in wanted.workloads() {
        for turn in 0..=wanted.turns {
            for client in 0..clients {
                let script = plan.script(&workload.mix, number, client, clients, workload.operations);
                // Also where a client has nothing to do.
                let _ = writeln!(text, "{}\t{turn}\t{client}\t\t\t\t", workload.name);
                for (phase, steps) in [("before", script.before), ("steps", script.steps), ("left", script.left)] {
                    for step in steps {
                        let (op, name) = (step.op.name(), &workload.name);
                        let _ = writeln!(text, "{name}\t{turn}\t{client}\t{phase}\t{op}\t{}\t{}", step.path, step.to);
                    }
                }
            }
            number += 1;
        }
    }
    std::fs::write(file, text).map_err(|e| format!("{file}: {e}"))
}

async fn run(wanted: Wanted) -> Result<Report, String> {
    let plan = wanted.plan();
    let hdfs = Arc::new(hdfs::Hdfs::open(&wanted.namenode, wanted.clients, wanted.replication).await?);
    hdfs.fill(&plan.tree).await?;
    let workloads = wanted.workloads();
    let course = Course { clients: wanted.clients, turns: wanted.turns };
    let targets: Vec<Arc<dyn Target>> = vec![hdfs];
    let cells = take_turns(&targets, &plan, &workloads, course).await?;
    let title = format!("HDFS: {} clients, {} files", wanted.clients, wanted.files);
    Ok(Report { title, machine: Report::machine(), cells, notes: Vec::new() })
}

fn main() -> Result<(), String> {
    let wanted = wanted(std::env::args().skip(1))?;
    if let Some(file) = &wanted.plan {
        return write_plan(&wanted, file);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    let report = runtime.block_on(run(wanted))?;
    println!("{}", serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?);
    Ok(())
}
