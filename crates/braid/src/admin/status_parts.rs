//! Parts of `braid admin status`: block reports, and copies of the metadata as an object.

use braid_api::admin::{CopyHealth, MissingChunk, ReportsStatus};
use serde::Serialize;

/// Missing chunks that are named in words; scripts get some more.
const NAMED: usize = 4;

fn name(chunk: &MissingChunk) -> String {
    format!("chunk {} of inode {} at data server {}", chunk.index.0, chunk.inode, chunk.server)
}

/// What is missing and is not being restored.
pub fn problems(reports: &ReportsStatus) -> Vec<String> {
    let gone = reports.missing.saturating_sub(reports.restoring);
    let mut problems = Vec::new();
    if gone > 0 {
        let some: Vec<String> = reports.some_missing.iter().take(NAMED).map(name).collect();
        let more = if reports.missing > some.len() as u64 { ", …" } else { "" };
        problems.push(format!(
            "{gone} chunks of files are missing at their data servers ({}{more}): braid admin fsck names the files",
            some.join("; ")
        ));
    }
    if reports.restoring > 0 {
        problems.push(format!("{} lost copies are being taken from other servers", reports.restoring));
    }
    problems
}

pub fn notes(reports: &ReportsStatus) -> Vec<String> {
    let mut notes = Vec::new();
    if reports.restored > 0 {
        notes.push(format!("{} lost copies were restored since the metadata server's start", reports.restored));
    }
    if reports.removed > 0 {
        notes.push(format!(
            "{} chunks that no file has were removed since the metadata server's start",
            reports.removed
        ));
    }
    notes
}

/// As [`ReportsStatus`].
#[derive(Serialize)]
pub struct ReportsJson {
    compared: u64,
    differing: u64,
    lost: u64,
    restored: u64,
    extra: u64,
    removed: u64,
    missing: u64,
    restoring: u64,
    some_missing: Vec<serde_json::Value>,
}

pub fn reports_json(reports: &ReportsStatus) -> ReportsJson {
    let ReportsStatus { compared, differing, lost, restored, extra, removed, missing, restoring, some_missing } =
        reports;
    let one = |it: &MissingChunk| {
        let MissingChunk { server, chunk, container, inode, index } = it;
        serde_json::json!({
            "server": server.0, "chunk": chunk.0, "container": container.0, "inode": inode.0, "index": index.0
        })
    };
    ReportsJson {
        compared: *compared,
        differing: *differing,
        lost: *lost,
        restored: *restored,
        extra: *extra,
        removed: *removed,
        missing: *missing,
        restoring: *restoring,
        some_missing: some_missing.iter().map(one).collect(),
    }
}

pub fn copy_json(copy: &CopyHealth) -> serde_json::Value {
    let CopyHealth { server, host, is_member, lag, silent_ms } = copy;
    serde_json::json!({ "server": server.0, "host": host, "member": is_member, "lag": lag, "silent_ms": silent_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{ChunkId, ChunkIndex, ContainerId, InodeId, ServerId};

    #[test]
    fn what_is_missing_is_a_problem_and_what_came_back_is_none() {
        assert!(problems(&ReportsStatus::default()).is_empty());
        let (server, chunk, container) = (ServerId(3), ChunkId(7), ContainerId(2));
        let lost = MissingChunk { server, chunk, container, inode: InodeId(4711), index: ChunkIndex(5) };
        let reports = ReportsStatus { missing: 3, restoring: 1, some_missing: vec![lost], ..ReportsStatus::default() };
        let said = problems(&reports).join("\n");
        assert!(said.contains("2 chunks of files are missing") && said.contains("fsck"), "{said}");
        assert!(said.contains("chunk 5 of inode 4711 at data server 3, …"), "{said}");
        assert!(said.contains("1 lost copies are being taken"), "{said}");
        let back = ReportsStatus { restored: 4, removed: 2, ..ReportsStatus::default() };
        assert!(problems(&back).is_empty());
        assert!(notes(&back).join("\n").contains("4 lost copies were restored"));
        assert_eq!(serde_json::to_value(reports_json(&reports)).unwrap()["some_missing"][0]["inode"], 4711);
    }
}
