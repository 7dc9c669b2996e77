//! The outcome of a check, for people and for scripts.

use super::finding::{Finding, Shown};
use serde::Serialize;

#[derive(Debug, Default)]
pub struct Report {
    /// What is wrong, or was and has been repaired.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub unchecked: Vec<String>,
    pub seen: Seen,
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub inodes: u64,
    pub names: u64,
    pub chunk_rows: u64,
    pub containers: u64,
    /// Chunks at data servers; `None` if they were not asked.
    pub chunks_held: Option<u64>,
    /// Inodes that did not fit between two pages, and were asked about again.
    pub doubts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Clean,
    /// Nothing is wrong with the rows; data servers were not asked.
    RowsSound,
    FaultsLeft,
    NotAllChecked,
}

impl Verdict {
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Clean | Verdict::RowsSound => 0,
            Verdict::FaultsLeft => 1,
            Verdict::NotAllChecked => 2,
        }
    }
}

impl Report {
    /// Faults that are left weigh more than what was not looked at.
    pub fn verdict(&self) -> Verdict {
        if self.left() > 0 {
            Verdict::FaultsLeft
        } else if !self.unchecked.is_empty() {
            Verdict::NotAllChecked
        } else if self.seen.chunks_held.is_none() {
            Verdict::RowsSound
        } else {
            Verdict::Clean
        }
    }

    fn left(&self) -> usize {
        self.findings.iter().filter(|f| f.done.is_none()).count()
    }

    pub fn text(&self) -> String {
        let mut lines: Vec<String> = self.findings.iter().map(Finding::line).collect();
        lines.extend(self.unchecked.iter().map(|what| format!("not checked: {what}")));
        lines.push(self.summary());
        lines.join("\n")
    }

    fn summary(&self) -> String {
        let (left, all) = (self.left(), self.findings.len());
        let verdict = match (self.verdict(), all - left) {
            (Verdict::Clean, 0) => "clean".to_owned(),
            (Verdict::Clean, repaired) => format!("clean after {}", many(repaired, "repair")),
            (Verdict::RowsSound, 0) => "no faults in the rows".to_owned(),
            (Verdict::RowsSound, repaired) => format!("no faults in the rows after {}", many(repaired, "repair")),
            (Verdict::FaultsLeft, 0) => many(left, "fault"),
            (Verdict::FaultsLeft, repaired) => {
                format!("{} left after {}", many(left, "fault"), many(repaired, "repair"))
            }
            (Verdict::NotAllChecked, 0) => "no faults in what could be checked".to_owned(),
            (Verdict::NotAllChecked, repaired) => {
                format!("no faults left in what could be checked after {}", many(repaired, "repair"))
            }
        };
        let Seen { inodes, names, chunk_rows, containers, chunks_held, .. } = self.seen;
        let held = match chunks_held {
            Some(held) => format!("{held} chunks at data servers"),
            None => "data servers not asked (--metadata-only)".to_owned(),
        };
        format!("{verdict}: {inodes} inodes, {names} names, {chunk_rows} chunk rows, {containers} containers, {held}")
    }

    pub fn json(&self) -> ReportJson<'_> {
        ReportJson {
            clean: self.verdict() == Verdict::Clean,
            findings: self.findings.iter().map(Finding::shown).collect(),
            unchecked: &self.unchecked,
            seen: self.seen,
        }
    }
}

fn many(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[derive(Serialize)]
pub struct ReportJson<'a> {
    clean: bool,
    findings: Vec<Shown<'a>>,
    unchecked: &'a [String],
    seen: Seen,
}
