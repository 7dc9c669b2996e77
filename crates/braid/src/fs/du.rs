//! `braid fs du`.

use super::attributes::print_json;
use super::path::ClusterPath;
use super::progress::Counting;
use super::quota::ByClient;
use super::session::{Last, Paths, Session};
use crate::output::{Table, bytes};
use crate::quota::count;
use anyhow::Result;
use braid_types::{Attr, InodeId};
use clap::Args;
use serde::Serialize;
use std::collections::HashSet;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs du /home\n  braid fs du -d 1 /home --json")]
pub struct DuArgs {
    #[arg(default_value = "/")]
    paths: Vec<ClusterPath>,
    /// A line for each directory down to this level too.
    #[arg(short, long, default_value_t = 0)]
    depth: usize,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

/// What a tree has. A file with several names counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Sum {
    /// Sizes of files, holes included.
    size: u64,
    occupied: u64,
    files: u64,
    directories: u64,
}

impl Sum {
    fn add(&mut self, attr: &Attr) {
        if attr.is_dir() {
            self.directories += 1;
            return;
        }
        self.files += 1;
        self.size += attr.size;
        self.occupied += attr.blocks * 512;
    }

    fn merge(&mut self, other: Sum) {
        self.size += other.size;
        self.occupied += other.occupied;
        self.files += other.files;
        self.directories += other.directories;
    }
}

#[derive(Serialize)]
struct Line {
    path: String,
    #[serde(flatten)]
    sum: Sum,
}

impl DuArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let progress = Counting::start();
        progress.of("files and directories");
        let mut summing = Summing { s, depth: self.depth, seen: HashSet::new(), lines: Vec::new(), progress };
        for path in &self.paths {
            if let Err(e) = summing.argument(path).await {
                s.note(&e);
            }
        }
        let Summing { lines, progress, .. } = summing;
        drop(progress);
        self.print(&lines)?;
        Ok(s.exit_code())
    }

    fn print(&self, lines: &[Line]) -> Result<()> {
        if self.json {
            return lines.iter().try_for_each(print_json);
        }
        let mut table = Table::new(&["size", "occupied", "files", "directories", "path"]);
        for Line { path, sum } in lines {
            table.row([
                bytes(sum.size),
                bytes(sum.occupied),
                sum.files.to_string(),
                sum.directories.to_string(),
                path.clone(),
            ]);
        }
        table.print();
        Ok(())
    }
}

/// Directories that have a line of their own are listed here; what is below them, the server adds up.
struct Summing<'s, F: Paths> {
    s: &'s Session<F>,
    /// Levels with lines of their own, below an argument.
    depth: usize,
    /// What has several names and was counted.
    seen: HashSet<InodeId>,
    lines: Vec<Line>,
    progress: Counting,
}

impl<F: Paths> Summing<'_, F> {
    async fn argument(&mut self, path: &ClusterPath) -> Result<()> {
        let top = self.s.find(path, Last::Follow).await?;
        let mut sum = Sum::default();
        sum.add(&top);
        if top.is_dir() {
            // A line for each directory in it, the innermost first.
            sum.merge(Box::pin(self.below(path, top.id, 0)).await?);
        }
        self.lines.push(Line { path: path.to_string(), sum });
        Ok(())
    }

    async fn below(&mut self, path: &ClusterPath, dir: InodeId, level: usize) -> Result<Sum> {
        // What is in a snapshot is put together for each who asks.
        if level == self.depth && !dir.is_in_snapshot() {
            return self.counted(dir).await;
        }
        let (mut sum, mut listing) = (Sum::default(), self.s.list(path, dir).await?);
        loop {
            let page = listing.page().await?;
            if page.is_empty() {
                return Ok(sum);
            }
            self.progress.more(page.len() as u64);
            for (name, attr) in page {
                if attr.nlink > 1 && !attr.is_dir() && !self.seen.insert(attr.id) {
                    continue;
                }
                let mut of = Sum::default();
                of.add(&attr);
                if attr.is_dir() {
                    let path = path.join(&name);
                    match Box::pin(self.below(&path, attr.id, level + 1)).await {
                        Ok(below) => of.merge(below),
                        Err(e) => self.s.note(&e),
                    }
                    if level < self.depth {
                        self.lines.push(Line { path: path.to_string(), sum: of });
                    }
                }
                sum.merge(of);
            }
        }
    }

    async fn counted(&mut self, dir: InodeId) -> Result<Sum> {
        let counted = count(&ByClient(self.s), dir, |more| self.progress.more(more)).await?;
        let mut sum = Sum { files: counted.files, directories: counted.directories, ..Sum::default() };
        let mut weight = counted.weight;
        for (id, of) in counted.several {
            if self.seen.insert(id) {
                sum.files += 1;
                weight.add(of);
            }
        }
        Ok(Sum { size: weight.size, occupied: weight.blocks * 512, ..sum })
    }
}
