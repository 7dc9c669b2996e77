//! Reads of a data server's files on its host: no message, and never what another mount has replaced.

use super::mounted::eventually;
use super::two_mounts::Two;
use super::{PLAIN, pages, pattern};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const LEN: usize = 300_000;

/// Reads that the mount of `up` has answered without a message.
fn local_reads(two: &Two) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&two.c.says("admin status --json")).unwrap();
    pages::metric(status["pages"]["mount"].as_str().unwrap(), "braid_mount_local_reads_total")
}

/// Not from this kernel's pages.
fn read_anew(file: &File, len: usize) -> Vec<u8> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut seen = vec![0; len];
    file.read_exact_at(&mut seen, 0).unwrap();
    seen
}

fn reads_here(two: &Two, file: &File, bytes: &[u8]) {
    let before = local_reads(two);
    eventually("a read without a message", Duration::from_secs(20), || {
        assert!(read_anew(file, bytes.len()) == bytes, "another content");
        local_reads(two) > before
    });
}

fn every_change_of_the_other_mount_is_seen_by_the_next_read(settings: &[&str]) {
    let Some(two) = Two::with(settings) else { return };
    let [here, there] = two.open("f");
    let mut bytes = pattern(LEN);
    for round in 0..12 {
        bytes[round * 5_000] ^= 0xff;
        there.write_all_at(&bytes, 0).unwrap();
        assert!(read_anew(&here, LEN) == bytes, "round {round}");
        reads_here(&two, &here, &bytes);
        // Cut by the other mount and grown again: its zeros, also in the middle of a block.
        let keep = 100_000 + round * 1_000;
        there.set_len(keep as u64).unwrap();
        there.set_len(LEN as u64).unwrap();
        bytes[keep..].fill(0);
        assert!(read_anew(&here, LEN) == bytes, "cut in round {round}");
        reads_here(&two, &here, &bytes);
        bytes = pattern(LEN);
    }
}

#[test]
fn files_with_one_copy() {
    every_change_of_the_other_mount_is_seen_by_the_next_read(PLAIN);
}

#[test]
fn files_with_two_copies() {
    every_change_of_the_other_mount_is_seen_by_the_next_read(&[]);
}

/// What a server that stands still has handed out is over with the time on its board; one that was killed and starts again hands out anew.
#[test]
fn a_server_that_stands_still_or_was_killed() {
    let Some(two) = Two::with(PLAIN) else { return };
    let [here, there] = two.open("f");
    let mut bytes = pattern(LEN);
    there.write_all_at(&bytes, 0).unwrap();
    there.sync_all().unwrap();
    reads_here(&two, &here, &bytes);
    let servers = ["data-1", "data-2"];
    servers.iter().for_each(|name| two.c.signal(name, Signal::STOP));
    std::thread::sleep(Duration::from_secs(1));
    let (reading, begun) = (here.try_clone().unwrap(), Instant::now());
    let read = std::thread::spawn(move || (read_anew(&reading, LEN), begun.elapsed()));
    std::thread::sleep(Duration::from_secs(1));
    servers.iter().for_each(|name| two.c.signal(name, Signal::CONT));
    let (seen, took) = read.join().unwrap();
    assert!(
        seen == bytes && took > Duration::from_millis(900),
        "answered for a server that stood still, after {took:?}"
    );
    for round in 0..2 {
        servers.iter().for_each(|name| two.c.kill(name));
        assert_eq!(two.c.up_mounted(&[]).code, 0);
        bytes[round] ^= 0xff;
        there.write_all_at(&bytes, 0).unwrap();
        assert!(read_anew(&here, LEN) == bytes, "after start {round}");
        reads_here(&two, &here, &bytes);
    }
}

#[test]
fn it_can_be_switched_off() {
    let off = [PLAIN, &["--set", "data.local_reads=false"]].concat();
    let Some(two) = Two::with(&off) else { return };
    let [here, there] = two.open("f");
    there.write_all_at(&pattern(LEN), 0).unwrap();
    (0..20).for_each(|_| assert!(read_anew(&here, LEN) == pattern(LEN)));
    assert_eq!(local_reads(&two), 0);
}

/// By who opens it anew, in pieces of several sizes, in order and not.
fn reads_in_all_ways(path: &Path, bytes: &[u8]) {
    for size in [4 << 10, 128 << 10, 1 << 20] {
        let file = File::open(path).unwrap();
        let mut seen = vec![0; size];
        let pieces = bytes.len() / size;
        // In order, and then not: an odd number of steps apart meets each once.
        let in_order = (0..pieces).map(|n| n * size);
        let at_random = (0..pieces).map(|n| n * 7_919 % pieces * size);
        for at in in_order.chain(at_random) {
            file.read_exact_at(&mut seen, at as u64).unwrap();
            assert!(seen == bytes[at..at + size], "{size} bytes at {at}");
        }
    }
}

/// As long as nobody changes the file: however it is read, and also by who opens it later.
fn held_pages_ask_for_nothing(settings: &[&str]) {
    const LEN: usize = 4 << 20;
    let Some(two) = Two::with(settings) else { return };
    let bytes = pattern(LEN);
    let status: serde_json::Value = serde_json::from_str(&two.c.says("admin status --json")).unwrap();
    let asked = || pages::metric(status["pages"]["mount"].as_str().unwrap(), "braid_mount_read_bytes_total");
    // A kernel that has other files to read takes pages back (in 3 of 100 runs beside one that goes through 60 GiB): then it is tried with
    // another file.
    let (mut asked_for, mut name) = (Vec::new(), String::new());
    while asked_for.last() != Some(&0) {
        assert!(asked_for.len() < 3, "the mount was asked for what the kernel holds: {asked_for:?}");
        name = format!("f{}", asked_for.len());
        std::fs::write(two.at[1].join(&name), &bytes).unwrap();
        let here = two.at[0].join(&name);
        let before = asked();
        assert!(std::fs::read(&here).unwrap() == bytes);
        // What was read ahead is on its way.
        eventually("all that was asked for", Duration::from_secs(10), || {
            let before = asked();
            std::thread::sleep(Duration::from_millis(100));
            asked() == before
        });
        assert!(asked() > before);
        let before = asked();
        reads_in_all_ways(&here, &bytes);
        asked_for.push(asked() - before);
    }
    let (here, before) = (two.at[0].join(&name), asked());
    // And it is known when it is not held any more.
    std::fs::write(two.at[1].join(&name), &bytes[..LEN / 2]).unwrap();
    assert!(std::fs::read(&here).unwrap() == bytes[..LEN / 2]);
    assert!(asked() > before);
}

#[test]
fn pages_that_the_kernel_holds_ask_the_mount_for_nothing() {
    held_pages_ask_for_nothing(PLAIN);
}

#[test]
fn pages_of_files_with_two_copies_ask_the_mount_for_nothing() {
    held_pages_ask_for_nothing(&[]);
}
