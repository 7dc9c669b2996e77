//! Commands whose output nobody reads, as in `braid admin status | head -1`.

use super::{Cluster, Ran, is_alive, ran};
use std::process::Stdio;

/// Runs it with an output that was closed before it began.
fn unheard(c: &Cluster, line: &str) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let words: Vec<_> = line.split_whitespace().map(AsRef::as_ref).collect();
    let mut command = c.command(&words);
    if words.first().is_some_and(|word| *word == "up") {
        command.env_remove("BRAID_CONFIG");
    }
    ran(command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap())
}

#[test]
fn nobody_needs_to_read_what_a_command_says() {
    let c = Cluster::unmade();
    let root = c.root();
    let up = format!("up {} --no-mount --data-servers 2", root.display());
    // What changes something goes on to its end.
    for _ in 0..2 {
        let up = unheard(&c, &up);
        assert_eq!((up.code, up.err.as_str()), (0, ""));
        assert!(["metadata", "data-1", "data-2"].iter().all(|name| c.is_running(name)));
    }
    c.says("fs put /proc/self/comm /f");
    for line in [
        "config",
        "completion bash",
        "--help",
        "fs --help",
        "fs ls /",
        "fs ls -l /",
        "fs ls --json /",
        "fs stat /f",
        "fs stat --json /f",
        "fs cat /f",
        "fs find /",
        "fs find --json /",
        "fs du /",
        "fs df",
        "fs policy get /",
        "admin status",
        "admin status --json",
        "admin servers",
        "admin sessions",
        "admin containers",
        "admin why",
        "admin fsck",
        "admin fsck --data --repair",
        "admin scrub",
        "bench data --mib 1 --turns 1 --seconds 0.01",
    ] {
        let ran = unheard(&c, line);
        assert_eq!(ran.err, "", "{line}: {}", ran.code);
        // Or its end by a closed pipe, as a shell shows it.
        assert!(matches!(ran.code, 0 | 141), "{line}: {}", ran.code);
    }
    assert_eq!(c.says("admin sessions").lines().count(), 1, "every session was ended");
    let pids = ["metadata", "data-1", "data-2"].map(|name| c.pid(name));
    let down = unheard(&c, &format!("down {}", root.display()));
    assert_eq!((down.code, down.err.as_str()), (0, ""));
    assert!(!pids.into_iter().any(is_alive), "all are stopped, whoever listens");
}

/// The complaint goes into a closed pipe too, or the output to a disk that is full.
#[test]
fn nobody_needs_to_read_what_went_wrong() {
    let c = Cluster::unmade();
    for line in ["fs ls /", "admin status", "up /proc/1/nowhere", "down /nowhere", "--nonsense"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let words: Vec<_> = line.split_whitespace().map(AsRef::as_ref).collect();
        let ran = ran(c.command(&words).stdout(writer.try_clone().unwrap()).stderr(writer).output().unwrap());
        assert!(matches!(ran.code, 1 | 2), "{line}: {}", ran.code);
    }
    let full = ran(c.shell("\"$0\" config >/dev/full").output().unwrap());
    assert_eq!((full.code, full.err.lines().count()), (1, 1), "{}", full.err);
    assert!(full.err.starts_with("braid: cannot write the output: "), "{}", full.err);
}
