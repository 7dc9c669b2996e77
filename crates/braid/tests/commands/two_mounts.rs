//! Two mounts of one cluster, kernels and page caches included: what one has written the other reads at its next call.

use super::mounted::mounted;
use super::{Cluster, pattern};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub struct Two {
    pub c: Cluster,
    pub at: [PathBuf; 2],
    _second: tempfile::TempDir,
}

impl Two {
    pub fn new() -> Option<Two> {
        Two::with(&[])
    }

    pub fn with(settings: &[&str]) -> Option<Two> {
        let level = std::env::var("LITMUS_LOG").map(|level| format!("log.level={level}")).ok();
        let level = level.iter().flat_map(|level| ["--set", level]);
        let more: Vec<&str> = level.chain(settings.iter().copied()).collect();
        let (c, first) = mounted(&more)?;
        let second = tempfile::tempdir().unwrap();
        let at = second.path().to_path_buf();
        c.says(&format!("mount {}", at.display()));
        Some(Two { c, at: [first, at], _second: second })
    }

    pub fn open(&self, name: &str) -> [File; 2] {
        let open = |at: &PathBuf| {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at.join(name)).unwrap()
        };
        [open(&self.at[0]), open(&self.at[1])]
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        // What has failed once in hundred runs is looked for in the logs.
        if let (true, Ok(keep)) = (std::thread::panicking(), std::env::var("LITMUS_KEEP")) {
            let _ = Command::new("cp").arg("-r").arg(self.c.root().join("log")).arg(keep).status();
        }
        let _ = self.c.run(&format!("umount {}", self.at[1].display()));
    }
}

/// Nothing is closed, synced or opened in between.
#[test]
fn what_one_mount_writes_cuts_and_appends_the_other_sees_at_its_next_call() {
    let Some(two) = Two::new() else { return };
    // Inline, in a chunk.
    for (name, len) in [("small", 900), ("large", 300_000)] {
        let files = two.open(name);
        for round in 0..40 {
            let (writer, reader) = (&files[round % 2], &files[1 - round % 2]);
            let mut bytes = pattern(len);
            bytes[round] ^= 0xff;
            writer.write_all_at(&bytes, 0).unwrap();
            assert_eq!(reader.metadata().unwrap().len(), len as u64, "{name} {round}");
            let mut seen = vec![0; len];
            reader.read_exact_at(&mut seen, 0).unwrap();
            assert!(seen == bytes, "{name}, round {round}: the other mount reads what was before");
            let half = len / 2;
            reader.set_len(half as u64).unwrap();
            assert_eq!(writer.metadata().unwrap().len(), half as u64, "{name} {round}");
            assert_eq!(writer.read_at(&mut seen, 0).unwrap(), half, "{name} {round}");
            // Where it was cut it grows with zeros.
            writer.set_len(len as u64).unwrap();
            reader.read_exact_at(&mut seen, 0).unwrap();
            assert!(seen[..half] == bytes[..half] && seen[half..].iter().all(|byte| *byte == 0), "{name} {round}");
        }
    }
    assert!(two.c.says("admin fsck").starts_with("clean: "));
}

#[test]
fn appends_from_two_mounts_are_all_there() {
    const RECORDS: usize = 200;
    let Some(two) = Two::new() else { return };
    std::thread::scope(|scope| {
        for (who, at) in two.at.iter().enumerate() {
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).create(true).open(at.join("log")).unwrap();
                for n in 0..RECORDS {
                    log.write_all(format!("{who} {n:>5}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = std::fs::read_to_string(two.at[0].join("log")).unwrap();
    for who in 0..2 {
        let own: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{who} "))).collect();
        let expected: Vec<String> = (0..RECORDS).map(|n| format!("{who} {n:>5}")).collect();
        assert_eq!(own, expected, "in the order in which they were made");
    }
    assert_eq!(text.len(), 2 * RECORDS * 8);
}

/// A reader that keeps everything in its kernel's page cache, and a writer that goes on: nobody reads what a completed write made
/// old, and neither stands still.
#[test]
fn a_busy_reader_never_reads_what_a_completed_write_of_the_other_mount_made_old() {
    const BLOCKS: u64 = 16;
    const BLOCK: usize = 16 << 10;
    let Some(two) = Two::new() else { return };
    let [writer, reader] = two.open("shared");
    writer.write_all_at(&vec![0; BLOCKS as usize * BLOCK], 0).unwrap();
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let reads = std::thread::scope(|scope| {
        let reading = || {
            let (mut bytes, mut reads, mut longest) = (vec![0; BLOCK], 0_u64, Duration::ZERO);
            while !over.load(SeqCst) {
                let block = reads % BLOCKS;
                let (least, begun) = (written.load(SeqCst), Instant::now());
                reader.read_exact_at(&mut bytes, block * BLOCK as u64).unwrap();
                longest = longest.max(begun.elapsed());
                // Block b is written in rounds b, b + 16, … A kernel reads page by page, so that it may mix in what is newer.
                let newest = (least + BLOCKS - block - 1) / BLOCKS;
                let words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
                let oldest = words.min().unwrap();
                assert!(
                    oldest >= newest,
                    "block {block} reads as {oldest} after {least} writes, {newest} of them there"
                );
                reads += 1;
            }
            (reads, longest)
        };
        let first = scope.spawn(reading);
        let second = scope.spawn(reading);
        let begun = Instant::now();
        let mut n = 0;
        while begun.elapsed() < Duration::from_secs(3) {
            let value = (n / BLOCKS + 1).to_le_bytes();
            let bytes: Vec<u8> = value.iter().copied().cycle().take(BLOCK).collect();
            writer.write_all_at(&bytes, n % BLOCKS * BLOCK as u64).unwrap();
            n += 1;
            written.store(n, SeqCst);
        }
        over.store(true, SeqCst);
        assert!(n > 20, "the writer did {n} writes in three seconds");
        [first.join().unwrap(), second.join().unwrap()]
    });
    for (reads, longest) in reads {
        assert!(reads > 100 && longest < Duration::from_secs(2), "{reads} reads, the longest took {longest:?}");
    }
}
