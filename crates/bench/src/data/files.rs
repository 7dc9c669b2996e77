//! The limit: a plain file, read and written by its descriptor.

use super::{Kind, Settings};
use crate::report::Counters;
use crate::turns::{Outcome, Workload, anyhow_free::Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub struct Files {
    file: File,
    settings: Settings,
}

impl Files {
    pub fn make(path: &Path, settings: Settings) -> Result<Files> {
        let made = File::options().read(true).write(true).create_new(true).open(path);
        let file = made.map_err(|e| format!("{}: {e}", path.display()))?;
        let block = vec![1; 1 << 20];
        for at in (0..settings.file_bytes).step_by(block.len()) {
            file.write_all_at(&block, at).map_err(|e| e.to_string())?;
        }
        file.sync_all().map_err(|e| e.to_string())?;
        Ok(Files { file, settings })
    }

    pub fn workload(&self, kind: Kind) -> FileWorkload<'_> {
        FileWorkload { files: self, kind, state: 1, next: 0 }
    }
}

pub struct FileWorkload<'f> {
    files: &'f Files,
    kind: Kind,
    state: u64,
    next: u64,
}

impl Workload for FileWorkload<'_> {
    fn target(&self) -> String {
        "plain file".to_owned()
    }

    fn conditions(&self) -> String {
        self.kind.conditions().to_owned()
    }

    async fn turn(&mut self, span: Duration) -> Result<Outcome> {
        let (kind, file) = (self.kind, &self.files.file);
        let mut buffer = vec![2; kind.bytes() as usize];
        let (mut outcome, begun) = (Outcome::default(), Instant::now());
        while begun.elapsed() < span {
            let offset = kind.offset(self.next, &mut self.state, self.files.settings.file_bytes);
            self.next += 1;
            let at = Instant::now();
            let done = match kind.is_write() {
                true => file.write_all_at(&buffer, offset),
                false => file.read_exact_at(&mut buffer, offset),
            };
            done.map_err(|e| e.to_string())?;
            outcome.operations += 1;
            outcome.latencies.push(at.elapsed());
        }
        let mut syncs = 0.0;
        if kind.is_write() {
            file.sync_data().map_err(|e| e.to_string())?;
            syncs = 1.0;
        }
        outcome.took = begun.elapsed();
        let payload_bytes = (outcome.operations * kind.bytes()) as f64;
        outcome.counters = Counters { syncs, payload_bytes, ..Counters::default() };
        Ok(outcome)
    }
}
