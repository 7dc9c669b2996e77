//! Progress on a terminal, at the standard error; nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes and files so far, where the end is not known.
pub struct Copying {
    bar: ProgressBar,
    files: AtomicU64,
}

fn spinner(template: &str) -> ProgressBar {
    // Hidden by itself where the standard error is no terminal.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

impl Copying {
    pub fn start() -> Self {
        Copying { bar: spinner("{spinner} {binary_bytes} {binary_bytes_per_sec} {wide_msg}"), files: AtomicU64::new(0) }
    }

    pub fn file(&self, path: impl std::fmt::Display) {
        let files = 1 + self.files.fetch_add(1, Relaxed);
        self.bar.set_message(format!("file {files}: {path}"));
    }

    pub fn bytes(&self, n: u64) {
        self.bar.inc(n);
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How something stands that others do.
pub struct Stage(ProgressBar);

impl Stage {
    pub fn start() -> Self {
        Stage(spinner("{spinner} {wide_msg}"))
    }

    pub fn says(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Things counted.
pub struct Counting(ProgressBar);

impl Counting {
    pub fn start() -> Self {
        Counting(spinner("{spinner} {human_pos} {wide_msg}"))
    }

    pub fn more(&self, n: u64) {
        self.0.inc(n);
    }

    /// So many in all.
    pub fn at(&self, n: u64) {
        self.0.set_position(n);
    }

    /// Another thing is counted from now on.
    pub fn of(&self, what: &str) {
        if self.0.message() != what {
            self.0.set_position(0);
            self.0.set_message(what.to_owned());
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
