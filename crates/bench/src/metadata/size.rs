//! What an inode costs: bytes of metadata and memory for many files.

use super::native::Native;
use super::{Kind, Settings};
use crate::turns::{Workload, anyhow_free::Result};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct SizeReport {
    pub files: u64,
    /// For making all but the first few of them, one durable message each.
    pub seconds: f64,
    pub creates_a_second: f64,
    /// Names looked up at random, one message each, no cache but the server's and the kernel's, when there were so few files and when there
    /// were all: medians of turns.
    pub few_files: u64,
    pub stats_a_second_few: f64,
    pub stats_a_second: f64,
    /// Of the store's file on the disk.
    pub store_bytes: u64,
    pub store_bytes_an_inode: f64,
    /// Of this process, in which server and clients run; pages of the store that the kernel keeps for it apart.
    pub resident_anonymous_bytes: u64,
    pub resident_file_bytes: u64,
    /// Pages of a store that lies on tmpfs; one on a disk is among those of files.
    pub resident_shared_bytes: u64,
}

/// Operations a second of each, medians of turns that alternate: what else the machine does meanwhile slows down both. One turn before them
/// warms up.
async fn stats_a_second(natives: [&Native; 2], span: Duration) -> Result<[f64; 2]> {
    let mut workloads = natives.map(|native| native.workload(Kind::Stat));
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..10 {
        for which in [turn % 2, 1 - turn % 2] {
            let outcome = workloads[which].turn(span).await?;
            if turn > 0 {
                rates[which].push(outcome.operations as f64 / outcome.took.as_secs_f64());
            }
        }
    }
    Ok(rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }))
}

/// Creates `files` empty files in one directory, and `few` in another store, looks at what they take, and whether names are found more
/// slowly among all than among few; in turns of `span`.
pub async fn measure_size(dir: &Path, few: u64, files: u64, span: Duration) -> Result<SizeReport> {
    let few_files = files.min(few);
    let [few_dir, all_dir] = [dir.join("few"), dir.join("all")];
    let settings = Settings { files: few_files, ..Settings::default() };
    let mut native = Native::start(&all_dir, settings).await?;
    let begun = std::time::Instant::now();
    native.grow_to(files).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let beside = Native::start(&few_dir, settings).await?;
    let [stats_a_second_few, rate] = stats_a_second([&beside, &native], span).await?;
    let store_bytes = native.store_bytes();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |field: &str| -> u64 {
        status.lines().find_map(|l| l.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
    };
    Ok(SizeReport {
        files,
        seconds,
        creates_a_second: (files - few_files) as f64 / seconds,
        few_files,
        stats_a_second_few,
        stats_a_second: rate,
        store_bytes,
        store_bytes_an_inode: store_bytes as f64 / files.max(1) as f64,
        resident_anonymous_bytes: kib("RssAnon:") << 10,
        resident_file_bytes: kib("RssFile:") << 10,
        resident_shared_bytes: kib("RssShmem:") << 10,
    })
}
