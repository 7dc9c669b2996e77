//! The program as people use it: a cluster of real processes on this machine, and the commands against it.
#![allow(clippy::unwrap_used)]

mod admin;
mod bad_input;
mod database;
mod database_snapshots;
mod defaults;
mod disks;
mod evening;
mod files;
mod growing;
mod listings;
mod litmus;
mod litmus_names;
mod litmus_open;
mod litmus_rights;
mod local;
mod metadata;
mod mounted;
mod moves;
mod next_read;
mod one_order;
mod pages;
mod pipes;
mod posix;
mod quotas;
mod reports;
mod sealed;
mod snapshots;
mod sql;
mod together;
mod transfer;
mod trash;
mod tree_changes;
mod two_mounts;
mod why;

use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A cluster in a directory of its own, stopped and removed with this value.
pub struct Cluster {
    dir: tempfile::TempDir,
}

/// A process that ends with this value, whatever becomes of the test.
pub struct Ends(pub std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// For what is about files with one copy. Without it there are two copies on the two data servers that most tests have.
pub const PLAIN: &[&str] = &["--set", "metadata.policy=plain"];

impl Cluster {
    pub fn start() -> Cluster {
        Cluster::start_with(&[])
    }

    pub fn start_with(more: &[&str]) -> Cluster {
        let cluster = Cluster::unmade();
        let ran = cluster.up_with(more);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        cluster
    }

    /// The place of one that is not made yet.
    pub fn unmade() -> Cluster {
        Cluster { dir: tempfile::tempdir().unwrap() }
    }

    /// Makes it, or starts what of it does not run.
    pub fn up(&self) -> Ran {
        self.up_with(&[])
    }

    pub fn up_with(&self, more: &[&str]) -> Ran {
        let root = self.root();
        let mut up = vec!["up".as_ref(), root.as_os_str(), "--no-mount".as_ref()];
        // Another time it knows how many it has.
        let is_said = more.iter().any(|word| word.starts_with("--data-servers"));
        up.extend((!root.join("braid.toml").exists() && !is_said).then_some(OsStr::new("--data-servers=2")));
        up.extend(more.iter().map(OsStr::new));
        // Not of a cluster that is to be made.
        ran(self.command(&up).env_remove("BRAID_CONFIG").output().unwrap())
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("c")
    }

    pub fn command(&self, arguments: &[&OsStr]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.args(arguments).env("BRAID_CONFIG", self.root().join("braid.toml")).stdin(Stdio::null());
        command
    }

    pub fn braid(&self, arguments: &[&OsStr]) -> Ran {
        ran(self.command(arguments).output().unwrap())
    }

    /// A shell whose `$0` is the program.
    pub fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_braid")]);
        command.env("BRAID_CONFIG", self.root().join("braid.toml")).stdin(Stdio::null());
        command
    }

    pub fn mount_point(&self) -> PathBuf {
        self.dir.path().join("m")
    }

    /// As [`Cluster::up`], with a mount.
    pub fn up_mounted(&self, more: &[&str]) -> Ran {
        let (root, at) = (self.root(), self.mount_point());
        let mut up = vec!["up".as_ref(), root.as_os_str(), "--data-servers=2".as_ref()];
        up.extend(["--mount".as_ref(), at.as_os_str()]);
        up.extend(more.iter().map(OsStr::new));
        ran(self.command(&up).env_remove("BRAID_CONFIG").output().unwrap())
    }

    /// `braid fs ls /` with this text as its line.
    pub fn run(&self, line: &str) -> Ran {
        let words: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
        self.braid(&words)
    }

    /// What it prints; it must end well and say nothing else.
    pub fn says(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}: {}", ran.out);
        ran.out
    }

    /// What it prints, byte by byte.
    pub fn bytes(&self, line: &str) -> Vec<u8> {
        let words: Vec<&OsStr> = line.split_whitespace().map(OsStr::new).collect();
        let output = self.command(&words).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// The one line of its complaint.
    pub fn fails(&self, line: &str) -> String {
        let ran = self.run(line);
        assert!(ran.code != 0 && ran.err.trim_end().lines().count() == 1, "{line}: {} {}", ran.code, ran.err);
        ran.err
    }

    /// kill -9 of one of its processes.
    pub fn kill(&self, name: &str) {
        self.signal(name, Signal::KILL);
    }

    /// After SIGSTOP all of it stands still when this returns: the thread that takes the signal stops the others, and may
    /// have to wait for its turn.
    pub fn signal(&self, name: &str, signal: Signal) {
        let pid = self.pid(name);
        rustix::process::kill_process(pid, signal).unwrap();
        while signal == Signal::STOP && !stands_still(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// `admin why`, twice a second, until the value is dropped. By a process that has no file of a mount open: to end one it would wait itself.
    pub fn asks_why_over_and_over(&self, into: &Path) -> Ends {
        let script = format!("while sleep 0.5; do \"$0\" admin why; done >{} 2>/dev/null", into.display());
        Ends(self.shell(&script).spawn().unwrap())
    }

    pub fn pid(&self, name: &str) -> Pid {
        let text = std::fs::read_to_string(self.root().join("run").join(format!("{name}.pid"))).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    /// It is there, and no zombie whose last thread has ended.
    pub fn is_running(&self, name: &str) -> bool {
        is_alive(self.pid(name))
    }
}

/// Every thread of it is stopped, or it has gone.
fn stands_still(pid: Pid) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
    })
}

pub fn is_alive(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero();
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads > 1 || !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// A test that leaves something out says so where nobody can miss it.
pub fn say_skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
}

pub fn ran(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command(&["down".as_ref(), self.root().as_os_str()]).output();
    }
}

/// A local tree with a small file, a large one, a link and a directory.
pub fn tree(at: &Path) {
    std::fs::create_dir_all(at.join("d/e")).unwrap();
    std::fs::write(at.join("small"), "hello\n").unwrap();
    std::fs::write(at.join("d/e/large"), pattern(3_000_001)).unwrap();
    std::fs::write(at.join("d/empty"), "").unwrap();
    std::os::unix::fs::symlink("d/e/large", at.join("link")).unwrap();
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}
