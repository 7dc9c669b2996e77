//! A disk for a test, which never outlives it: a watchdog ends the disk when the test hangs.

pub mod process;

use braid_powercut::{Options, PowerCutDisk, Watchdog};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

pub struct TestDisk {
    pub disk: PowerCutDisk,
    _watchdog: Watchdog,
    _dir: tempfile::TempDir,
}

impl TestDisk {
    pub fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }
}

/// `None`, said aloud, where nothing can be mounted.
pub fn disk(options: &Options) -> Option<TestDisk> {
    if !PowerCutDisk::is_available() {
        eprintln!("not tested: needs root and /dev/fuse");
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory to mount at");
    let disk = PowerCutDisk::mount(dir.path(), options).expect("a mounted disk");
    let watchdog = disk.watchdog(LIMIT).expect("a watchdog");
    Some(TestDisk { disk, _watchdog: watchdog, _dir: dir })
}

#[allow(dead_code, reason = "not every test has directories to sync")]
pub fn sync_dir(dir: &Path) {
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).expect("a synced directory");
}
