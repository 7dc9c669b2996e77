//! `braid fs du`.

use super::attributes::print_json;
use super::path::ClusterPath;
use super::progress::Counting;
use super::session::{Last, Paths, Session};
use crate::output::{Table, bytes};
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
        let (mut lines, mut seen) = (Vec::new(), HashSet::new());
        for path in &self.paths {
            if let Err(e) = self.one(s, path, &mut seen, &mut lines, &progress).await {
                s.note(&e);
            }
        }
        drop(progress);
        self.print(&lines)?;
        Ok(s.exit_code())
    }

    async fn one<F: Paths>(
        &self,
        s: &Session<F>,
        path: &ClusterPath,
        seen: &mut HashSet<InodeId>,
        lines: &mut Vec<Line>,
        progress: &Counting,
    ) -> Result<()> {
        let top = s.find(path, Last::Follow).await?;
        // The directories that the walk is in, each with its sum.
        let mut open = vec![(path.clone(), Sum::default())];
        if let Some((_, sum)) = open.first_mut() {
            sum.add(&top);
        }
        if top.is_dir() {
            let mut walk = s.walk(path, top.id).await?;
            while let Some(met) = walk.next().await {
                progress.more(1);
                while open.len() > met.depth + 1 {
                    self.close(&mut open, lines);
                }
                if met.attr.nlink > 1 && !met.attr.is_dir() && !seen.insert(met.attr.id) {
                    continue;
                }
                if met.attr.is_dir() {
                    open.push((met.path, Sum::default()));
                }
                if let Some((_, sum)) = open.last_mut() {
                    sum.add(&met.attr);
                }
            }
        }
        while !open.is_empty() {
            self.close(&mut open, lines);
        }
        Ok(())
    }

    /// The innermost directory is finished.
    fn close(&self, open: &mut Vec<(ClusterPath, Sum)>, lines: &mut Vec<Line>) {
        let Some((path, sum)) = open.pop() else { return };
        if let Some((_, above)) = open.last_mut() {
            above.merge(sum);
        }
        if open.len() <= self.depth {
            lines.push(Line { path: path.to_string(), sum });
        }
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
