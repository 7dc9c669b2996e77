//! A disk in a process of its own, as shell scripts have it, and whoever maps its files.

#![allow(clippy::unwrap_used)]

use braid_powercut::PowerCutDisk;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const BINARY: &str = env!("CARGO_BIN_EXE_braid-powercut");

pub struct Running {
    pub child: Child,
    pub point: PathBuf,
    pub socket: PathBuf,
    dir: tempfile::TempDir,
}

/// The disk ends with its standard input, so it ends with this test however that ends.
pub fn start() -> Option<Running> {
    if !PowerCutDisk::is_available() {
        eprintln!("not tested: needs root and /dev/fuse");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (point, socket) = (dir.path().join("disk"), dir.path().join("control"));
    fs::create_dir(&point).unwrap();
    let mut command = Command::new(BINARY);
    command.arg(&point).arg("--control").arg(&socket).args(["--while-stdin", "--order", "posix"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Some(Running { child, point, socket, dir })
}

impl Running {
    pub fn is_mounted(&self) -> bool {
        device(&self.point) != device(self.dir.path())
    }

    pub fn cut(&self, seed: u64) {
        let (ok, report) = self.ctl(&["cut", &seed.to_string()]);
        assert!(ok, "{report}");
    }

    pub fn ctl(&self, command: &[&str]) -> (bool, String) {
        let output = Command::new(BINARY).arg("ctl").arg(&self.socket).args(command).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }
}

fn device(path: &Path) -> u64 {
    fs::metadata(path).unwrap().dev()
}
