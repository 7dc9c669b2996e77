//! The program as people use it: a cluster of real processes on this machine, and the commands against it.
#![allow(clippy::unwrap_used)]

mod admin;
mod files;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A cluster in a directory of its own, stopped and removed with this value.
pub struct Cluster {
    dir: tempfile::TempDir,
}

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Cluster {
    pub fn start() -> Cluster {
        let cluster = Cluster { dir: tempfile::tempdir().unwrap() };
        let root = cluster.root();
        let up = ["up".as_ref(), root.as_os_str(), "--no-mount".as_ref(), "--data-servers=2".as_ref()];
        let ran = cluster.braid(&up);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        cluster
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("c")
    }

    pub fn command(&self, arguments: &[&OsStr]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.args(arguments).env("BRAID_CONFIG", self.root().join("braid.toml")).stdin(Stdio::null());
        command
    }

    fn braid(&self, arguments: &[&OsStr]) -> Ran {
        ran(self.command(arguments).output().unwrap())
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

    /// The one line of its complaint.
    pub fn fails(&self, line: &str) -> String {
        let ran = self.run(line);
        assert!(ran.code != 0 && ran.err.trim_end().lines().count() == 1, "{line}: {} {}", ran.code, ran.err);
        ran.err
    }

    /// kill -9 of one of its processes.
    pub fn kill(&self, name: &str) {
        let pid = std::fs::read_to_string(self.root().join("run").join(format!("{name}.pid"))).unwrap();
        let pid = pid.split_whitespace().next().unwrap().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
    }
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
