//! LMDB, unchanged, on the disk: a process commits, the power goes, another opens the environment.
//!
//! The processes are this test program started again: one that LMDB crashes, because the disk lied to it, is a finding and not
//! the end of the test.

#![allow(clippy::unwrap_used)]

use crate::common::{disk, process, sync_dir};
use braid_powercut::Options;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs};

/// Set for the processes that are started: `write`, `write-nosync` or `check`, and the directory.
const ROLE: &str = "POWERCUT_LMDB_ROLE";
const DIR: &str = "POWERCUT_LMDB_DIR";

fn open(dir: &Path, flags: EnvFlags) -> (Env, Database<'static, Bytes, Bytes>) {
    // SAFETY: only this process has the directory open, and it changes the file only through LMDB. NO_SYNC may corrupt the
    // environment at a cut, which is what is to be seen.
    let env = unsafe { EnvOpenOptions::new().map_size(256 << 20).flags(flags).open(dir) }.unwrap();
    let txn = env.write_txn().unwrap();
    let made = env.create_databases_and_commit(txn, |opener, txn| {
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(opener.create_database(txn, None)?))
    });
    let CommitOrAbort::Commit(database) = made.unwrap() else { unreachable!("it was to be committed") };
    sync_dir(dir);
    (env, database)
}

/// From a few bytes to a few pages, so that commits differ in shape.
fn value(number: u64) -> Vec<u8> {
    let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    bytes.iter().copied().cycle().take(8 + (bytes[3] as usize) * 40).collect()
}

/// Commits numbers in order for ever; each is told once its commit returned.
fn write(dir: &Path, flags: EnvFlags) {
    let (env, database) = open(dir, flags);
    let mut next = database.len(&env.read_txn().unwrap()).unwrap();
    loop {
        let mut txn = env.write_txn().unwrap();
        for _ in 0..1 + next % 4 {
            database.put(&mut txn, &next.to_be_bytes(), &value(next)).unwrap();
            next += 1;
        }
        txn.commit().unwrap();
        println!("committed {next}");
    }
}

/// Tells how many numbers there are, all of them whole and in order.
fn check(dir: &Path) {
    let (env, database) = open(dir, EnvFlags::empty());
    let txn = env.read_txn().unwrap();
    let mut count = 0u64;
    for entry in database.iter(&txn).unwrap() {
        let (key, found) = entry.unwrap();
        assert_eq!((key, found), (&count.to_be_bytes()[..], &value(count)[..]));
        count += 1;
    }
    println!("found {count}");
}

/// Not a test: what the started processes do.
#[test]
fn other_process() {
    let (Ok(role), Some(dir)) = (env::var(ROLE), env::var_os(DIR)) else { return };
    match role.as_str() {
        "write" => write(Path::new(&dir), EnvFlags::empty()),
        "write-nosync" => write(Path::new(&dir), EnvFlags::NO_SYNC),
        _ => check(Path::new(&dir)),
    }
}

fn start(role: &str, dir: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "lmdb::other_process", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(DIR, dir).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The numbers behind `word` that a process tells.
fn told(child: &mut Child, word: &'static str) -> impl Iterator<Item = u64> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(move |line| line.split_once(word)?.1.trim().parse().ok())
}

/// Lets a process commit a while and cuts the power under it. Gives how many numbers it was promised.
fn commit_and_cut(disk: &braid_powercut::PowerCutDisk, role: &str, dir: &Path, seed: u64) -> u64 {
    let mut writer = start(role, dir);
    let mut commits = told(&mut writer, "committed ");
    let mut promised = 0;
    for _ in 0..1 + seed % 13 {
        promised = commits.next().expect("a commit");
    }
    disk.cut(seed);
    writer.kill().unwrap();
    writer.wait().unwrap();
    commits.last().unwrap_or(promised)
}

/// What the next process finds; `None` if the environment cannot be read.
fn find(dir: &Path) -> Option<u64> {
    let mut checker = start("check", dir);
    let found = told(&mut checker, "found ").last();
    checker.wait().unwrap().success().then_some(found).flatten()
}

#[test]
fn every_acknowledged_commit_survives() {
    let Some(at) = disk(&Options::default()) else { return };
    let dir = at.path("env");
    fs::create_dir(&dir).unwrap();
    sync_dir(&at.path(""));
    let mut last = 0;
    for seed in 0..60 {
        let promised = commit_and_cut(&at.disk, "write", &dir, seed);
        let found = find(&dir).unwrap_or_else(|| panic!("seed {seed}: the environment does not open"));
        assert!(found >= promised && promised > last, "seed {seed}: promised {promised}, found {found}, had {last}");
        last = found;
    }
    let stats = at.disk.stats();
    assert!(stats.file_syncs > 200, "{stats}");
    let _ = writeln!(std::io::stderr(), "{last} numbers over 60 cuts; {stats}");
}

/// Measured: eight of ten seeds find each. When the cut comes depends on the machine too, so three must.
const SEEDS: u64 = 10;

#[test]
fn missing_and_lost_syncs_are_caught_within_ten_seeds() {
    for (role, lies) in [("write-nosync", false), ("write", true)] {
        let Some(at) = disk(&Options::default()) else { return };
        let caught = |seed: &u64| {
            let dir = at.path(&format!("env-{seed}"));
            fs::create_dir(&dir).unwrap();
            sync_dir(&at.path(""));
            // The environment itself is made while syncs are honest.
            assert_eq!(find(&dir), Some(0));
            at.disk.lose_syncs(lies);
            let promised = commit_and_cut(&at.disk, role, &dir, *seed);
            at.disk.lose_syncs(false);
            find(&dir).is_none_or(|found| found < promised)
        };
        let caught = (0..SEEDS).filter(caught).count();
        let _ = writeln!(std::io::stderr(), "{role}, lies {lies}: {caught} of {SEEDS}");
        assert!(caught >= 3, "{role}, lies {lies}: {caught} of {SEEDS}");
    }
}

/// The other way round: LMDB in this process and the disk in another, as it must be (`PowerCutDisk::mount` says why). The
/// environment is dropped before the cut, as LMDB allows one at a time.
#[test]
fn the_process_that_maps_the_disk_may_live_on_over_cuts() {
    let Some(disk) = process::start() else { return };
    let dir = disk.point.join("env");
    fs::create_dir(&dir).unwrap();
    sync_dir(&disk.point);
    for number in 0..40u64 {
        let (env, database) = open(&dir, EnvFlags::empty());
        let txn = env.read_txn().unwrap();
        assert_eq!(database.len(&txn).unwrap(), number);
        drop(txn);
        let mut txn = env.write_txn().unwrap();
        database.put(&mut txn, &number.to_be_bytes(), &value(number)).unwrap();
        txn.commit().unwrap();
        drop(env);
        disk.cut(number);
    }
}
