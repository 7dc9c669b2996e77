//! The binary, as shell scripts use it.

#![allow(clippy::unwrap_used)]

use crate::common::process::{BINARY, start};
use braid_powercut::{PowerCutDisk, ask};
use std::fs;
use std::process::Command;

#[test]
fn scripts_cut_and_ask() {
    let Some(mut disk) = start() else { return };
    fs::write(disk.point.join("f"), "unsynced").unwrap();
    let (ok, stats) = disk.ctl(&["stats"]);
    assert!(ok && stats.starts_with("ok ") && stats.contains("pending_writes=1"), "{stats}");
    let (ok, report) = disk.ctl(&["cut", "3"]);
    assert!(ok && report.contains("order=posix") && report.contains("names_"), "{report}");
    assert_eq!(disk.ctl(&["lose-syncs", "on"]), (true, "ok \n".into()));
    assert!(!disk.ctl(&["explode"]).0);
    assert!(ask(&disk.socket, "explode").unwrap_err().to_string().contains("stop-after"));
    ask(&disk.socket, "unmount").unwrap();
    assert!(disk.child.wait().unwrap().success());
    assert!(!disk.is_mounted() && !disk.socket.exists());
}

#[test]
fn it_leaves_no_mount_when_its_parent_or_a_signal_ends_it() {
    let Some(mut disk) = start() else { return };
    assert!(disk.is_mounted());
    drop(disk.child.stdin.take());
    assert!(disk.child.wait().unwrap().success());
    assert!(!disk.is_mounted());

    let Some(mut disk) = start() else { return };
    let pid = rustix::process::Pid::from_child(&disk.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(disk.child.wait().unwrap().success());
    assert!(!disk.is_mounted());
}

#[test]
fn the_mount_of_a_killed_disk_is_replaced() {
    let Some(mut disk) = start() else { return };
    disk.child.kill().unwrap();
    disk.child.wait().unwrap();
    let again = PowerCutDisk::mount(&disk.point, &braid_powercut::Options::default()).unwrap();
    fs::write(disk.point.join("f"), "alive").unwrap();
    drop(again);
    assert!(!disk.is_mounted());
}

#[test]
fn wrong_arguments_are_explained() {
    let output = Command::new(BINARY).args(["--order", "sideways"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("usage: braid-powercut MOUNTPOINT"));
}
