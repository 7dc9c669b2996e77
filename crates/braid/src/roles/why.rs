//! What waits in a mount, for `braid admin why`: a small file that is there while something waits.
//!
//! A mount has no address at which it could be asked, and the one thing that matters when it hangs is what it waits
//! for. So it writes that every second beside its other run files, and removes it when nothing waits. A reader takes
//! no notice of files whose process is gone.

use braid_api::admin::Waiting;
use braid_types::SessionId;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How names of such files end: `run/mount.why.json`.
pub const SUFFIX: &str = ".why.json";
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
pub struct Report {
    /// Who wrote it.
    pub process: u32,
    /// Where it is mounted.
    pub place: PathBuf,
    pub session: SessionId,
    /// The addresses of its metadata server.
    pub cluster: Vec<String>,
    pub waiting: Vec<Waiting>,
}

/// Ends the reports and removes the file when dropped.
#[must_use]
pub struct Reporter {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

/// Asks `report` every second and keeps `path` up to date.
pub fn spawn_reporter(path: PathBuf, report: impl Fn() -> Report + Send + 'static) -> Reporter {
    let file = path.clone();
    let task = tokio::spawn(async move {
        let mut there = false;
        let mut told = false;
        loop {
            let now = report();
            let done = match now.waiting.is_empty() {
                true if there => remove(&file),
                true => Ok(()),
                false => write(&file, &now),
            };
            there = file.exists();
            // Once is enough: the disk may be full for hours.
            if let Err(e) = &done
                && !std::mem::replace(&mut told, true)
            {
                tracing::warn!("cannot say in {} what waits: {e}", file.display());
            }
            tokio::time::sleep(PERIOD).await;
        }
    });
    Reporter { path, task }
}

/// Whole or not at all: a reader never sees half a file.
fn write(path: &Path, report: &Report) -> std::io::Result<()> {
    let text = serde_json::to_vec(report)?;
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
        // What is left behind is ignored once this process is gone.
        let _ = remove(&self.path);
    }
}

/// Where a mount of this user says what waits, unless it is of a cluster on this machine: made if it is not there. `None` without a
/// place that nobody else can write to.
pub fn own_dir() -> Option<PathBuf> {
    let user = rustix::process::getuid();
    let dir = match user.is_root() {
        true => PathBuf::from("/run/braid"),
        false => Path::new("/run/user").join(user.as_raw().to_string()).join("braid"),
    };
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir)
}

/// Where mounts of this machine do so, of all users.
pub fn all_dirs() -> Vec<PathBuf> {
    let users = std::fs::read_dir("/run/user").into_iter().flatten().flatten().map(|user| user.path().join("braid"));
    std::iter::once(PathBuf::from("/run/braid")).chain(users).collect()
}

/// The reports of living processes in a directory, with the names of their files. A directory or a file that cannot
/// be read has none.
pub fn reports(run: &Path) -> Vec<(String, Report)> {
    let Ok(entries) = std::fs::read_dir(run) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(who) = name.strip_suffix(SUFFIX) else { continue };
        let report = std::fs::read(entry.path()).ok().and_then(|text| serde_json::from_slice::<Report>(&text).ok());
        if let Some(report) = report.filter(|r| Path::new(&format!("/proc/{}", r.process)).exists()) {
            found.push((who.to_owned(), report));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn of(process: u32, waiting: Vec<Waiting>) -> Report {
        Report { process, place: "/m".into(), session: SessionId(3), cluster: Vec::new(), waiting }
    }

    async fn eventually(mut done: impl FnMut() -> bool) {
        for _ in 0..500 {
            if done() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it did not happen within 5 s");
    }

    #[tokio::test]
    async fn a_report_is_there_while_something_waits() {
        let dir = tempfile::tempdir().unwrap();
        let busy = Arc::new(AtomicBool::new(true));
        let asked = busy.clone();
        let one = Waiting { since_ms: 5, ..Waiting::new("read of inode 7", "data server 1") };
        let list = vec![one.clone()];
        let waiting = move || if asked.load(Ordering::Relaxed) { list.clone() } else { Vec::new() };
        let report = move || of(std::process::id(), waiting());
        let reporter = spawn_reporter(dir.path().join("mount.why.json"), report);
        eventually(|| reports(dir.path()).len() == 1).await;
        let found = reports(dir.path());
        assert_eq!((found[0].0.as_str(), &found[0].1.waiting), ("mount", &vec![one]));
        busy.store(false, Ordering::Relaxed);
        eventually(|| reports(dir.path()).is_empty()).await;
        busy.store(true, Ordering::Relaxed);
        eventually(|| !reports(dir.path()).is_empty()).await;
        drop(reporter);
        eventually(|| reports(dir.path()).is_empty()).await;
    }

    #[test]
    fn dead_writers_and_damaged_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let dead = of(u32::MAX, Vec::new());
        std::fs::write(dir.path().join("a.why.json"), serde_json::to_vec(&dead).unwrap()).unwrap();
        std::fs::write(dir.path().join("b.why.json"), "{").unwrap();
        assert!(reports(dir.path()).is_empty());
    }
}
