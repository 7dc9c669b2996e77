//! What an inode costs: bytes of metadata and memory for many files.

use super::Settings;
use super::native::Native;
use crate::turns::anyhow_free::Result;
use serde::Serialize;
use std::path::Path;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct SizeReport {
    pub files: u64,
    pub seconds: f64,
    /// Of the store's file on the disk.
    pub store_bytes: u64,
    pub store_bytes_an_inode: f64,
    /// Of this process, in which server and clients run; pages of the store that the kernel keeps for it apart.
    pub resident_anonymous_bytes: u64,
    pub resident_file_bytes: u64,
}

/// Creates `files` empty files and looks at what they take.
pub async fn measure_size(dir: &Path, files: u64) -> Result<SizeReport> {
    let begun = std::time::Instant::now();
    let native = Native::start(dir, Settings { files, ..Settings::default() }).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let store_bytes = native.store_bytes();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |field: &str| -> u64 {
        status.lines().find_map(|l| l.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
    };
    Ok(SizeReport {
        files,
        seconds,
        store_bytes,
        store_bytes_an_inode: store_bytes as f64 / files.max(1) as f64,
        resident_anonymous_bytes: kib("RssAnon:") << 10,
        resident_file_bytes: kib("RssFile:") << 10,
    })
}
