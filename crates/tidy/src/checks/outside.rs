//! Only `env` touches clock, disk, socket and thread: the rest runs in a simulation, where these are made up.

use super::{Allowed, is_allowed};
use crate::workspace::Workspace;

const RULE: &str = "only env touches clock, disk, socket and thread";

/// What is outside, by the paths that lead there.
const OUTSIDE: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::fs",
    "std::net",
    "std::os::unix::net",
    "std::thread",
    "std::process::Command",
    "tokio::fs",
    "tokio::net",
    "tokio::process",
    "tokio::spawn",
    "tokio::task::spawn",
    "tokio::task::spawn_blocking",
    "tokio::time::Instant",
    "tokio::time::interval",
    "tokio::time::sleep",
    "tokio::time::sleep_until",
    "tokio::time::timeout",
    "tokio::time::timeout_at",
    "rustix::fs",
    "rustix::net",
    "rustix::time",
];

const ALLOWED: &[Allowed] = &[
    ("env", "", "it is the door to the outside"),
    ("meta-engine-embedded", "", "LMDB has its own files and threads, behind the engine trait"),
    ("meta-engine-sql", "", "the database's driver has its own sockets and tasks, and every wait for them a deadline"),
    ("fuse-kernel", "", "the kernel is the one outside that no simulator replaces"),
    ("front-fuse", "", "serves the kernel's threads and reads /proc for the groups of callers"),
    ("powercut", "", "is itself a disk, and runs beside what it tests"),
    ("braid", "", "the hands: puts the real outside in"),
    ("bench", "", "measures the real outside"),
    ("tidy", "", "reads the sources"),
    ("meta-engine", "src/conformance", "the examination of engines, run by tests alone"),
    ("data-store", "src/conformance", "the examination of stores, run by tests alone"),
    ("sim", "src/env", "makes env out of the simulator, whose time tokio's is"),
    ("sim", "src/cluster.rs", "sleeps by the simulator's time"),
    ("sim", "src/world.rs", "tells the simulator when its time begins"),
    ("sim", "src/main.rs", "tells how long a run took here"),
];

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        for source in krate.production() {
            if is_allowed(ALLOWED, krate, source) {
                continue;
            }
            for (line, path) in source.code.paths() {
                if OUTSIDE.iter().any(|outside| leads_to(&path, outside)) {
                    broken.push(format!("{}/{}:{line} names {path}: {RULE}", krate.name, source.path));
                }
            }
        }
    }
    broken
}

fn leads_to(path: &str, outside: &str) -> bool {
    path.strip_prefix(outside).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::planted::says;

    #[test]
    fn a_clock_in_a_server_is_named() {
        let text = "use std::time::{Duration, Instant};\nfn f() { tokio::spawn(g()) }\n#[cfg(test)]\nmod tests { use std::fs; }";
        let found = says(check, "meta-server", "", &[("src/a.rs", text)]);
        assert_eq!(found[0], format!("meta-server/src/a.rs:1 names std::time::Instant: {RULE}"));
        assert_eq!(found[1], format!("meta-server/src/a.rs:2 names tokio::spawn: {RULE}"));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_file_type_is_not_a_file() {
        let text = "use std::time::Duration;\nuse std::fsx::y;\nuse crate::thread;";
        assert!(says(check, "client", "", &[("src/a.rs", text)]).is_empty());
        assert!(says(check, "env", "", &[("src/os/disk.rs", "use std::fs;")]).is_empty());
    }
}
