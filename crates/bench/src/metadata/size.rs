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
}

/// Operations a second, the median of turns; one before them warms up.
async fn stats_a_second(native: &Native, span: Duration) -> Result<f64> {
    let (mut workload, mut rates) = (native.workload(Kind::Stat), Vec::new());
    for turn in 0..6 {
        let outcome = workload.turn(span).await?;
        if turn > 0 {
            rates.push(outcome.operations as f64 / outcome.took.as_secs_f64());
        }
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

/// Creates `few` and then `files` empty files in one directory and looks at what they take, and whether names are found more slowly among
/// all than among few; in turns of `span`.
pub async fn measure_size(dir: &Path, few: u64, files: u64, span: Duration) -> Result<SizeReport> {
    let few_files = files.min(few);
    let mut native = Native::start(dir, Settings { files: few_files, ..Settings::default() }).await?;
    let stats_a_second_few = stats_a_second(&native, span).await?;
    let begun = std::time::Instant::now();
    native.grow_to(files).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let rate = stats_a_second(&native, span).await?;
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
    })
}
