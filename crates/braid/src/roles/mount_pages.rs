//! The health page and metrics of a mount.

use crate::http::Pages;
use crate::metrics::Metrics;
use braid_api::admin::Waiting;
use braid_client::{Client, Stats};
use std::path::PathBuf;
use std::sync::Arc;

/// A mount is not well while something waits for so long: a server that is being started again needs less.
const WAITS_MS_MAX: u64 = 10_000;

pub struct MountPages {
    pub place: PathBuf,
    pub client: Arc<Client>,
    /// All that waits in it now.
    pub waiting: Box<dyn Fn() -> Vec<Waiting> + Send + Sync>,
    /// How many opens were passed through.
    pub passed: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Pages for MountPages {
    fn health(&self) -> (bool, String) {
        health(&self.place.display().to_string(), &(self.waiting)())
    }

    fn metrics(&self) -> String {
        let mut metrics = Metrics::default();
        let waiting = (self.waiting)();
        metrics.gauge("braid_mount_waiting", "Calls and messages that wait for a server.", waiting.len() as u64);
        let (name, help) =
            ("passthrough_opens", "Opens of sealed files that the kernel reads from then on without asking.");
        metrics.counter(&format!("braid_mount_{name}_total"), help, (self.passed)());
        add(&mut metrics, self.client.stats());
        metrics.0
    }
}

fn health(place: &str, waiting: &[Waiting]) -> (bool, String) {
    match waiting.iter().max_by_key(|one| one.since_ms) {
        None => (true, format!("mount at {place}: nothing waits")),
        Some(one) => {
            let longest = crate::output::millis(one.since_ms);
            let (count, who, what) = (waiting.len(), &one.who, &one.for_what);
            (one.since_ms < WAITS_MS_MAX, format!("mount at {place}: {count} wait, {who} for {longest}: {what}"))
        }
    }
}

fn add(metrics: &mut Metrics, stats: Stats) {
    let messages = stats.messages;
    metrics.counters("braid_mount_messages_total", "Messages sent to servers, by their kind.", "message", messages);
    for (name, help, value) in [
        ("read_bytes", "Bytes of files that the mount was asked for.", stats.bytes_read),
        (
            "fetched_bytes",
            "Bytes of files had from data servers, or from files of one on this host.",
            stats.bytes_fetched,
        ),
        ("local_reads", "Reads of a data server's files on this host, without a message.", stats.local_reads),
        ("written_bytes", "Bytes of files written.", stats.bytes_written),
        ("cache_hits", "Lookups and attributes answered from the cache.", stats.cache_hits),
        ("opens_known", "Files opened without a message, because they were held.", stats.opens_known),
        ("cache_misses", "Lookups and attributes that were asked for.", stats.cache_misses),
        ("writes_repeated", "Writes sent again to a server that had restarted.", stats.writes_repeated),
        ("sessions_lost", "Sessions that ended while the mount lived.", stats.sessions_lost),
        (
            "chunks_brought",
            "Chunks brought to a data server on this host, as they were written here again and again.",
            stats.chunks_brought,
        ),
        ("chunks_lost", "Chunks found lost unsynced, which read as holes.", stats.chunks_lost),
        (
            "changes_replayed",
            "Changes of names sent again after a crash of the metadata server.",
            stats.changes_replayed,
        ),
        ("changes_lost", "Changes of names that a crash of the metadata server has lost.", stats.changes_lost),
        (
            "lost_files",
            "Files of which unsaved changes went with a session that ended while the mount lived.",
            stats.files_lost,
        ),
        ("lost_bytes", "Bytes written that were given up after their error was reported.", stats.bytes_lost),
    ] {
        metrics.counter(&format!("braid_mount_{name}_total"), help, value);
    }
    for (name, help, value) in [
        ("changes_kept", "Changes of names that are answered and not durable yet.", stats.changes_kept),
        ("buffered_bytes", "Bytes written that no server has answered yet.", stats.bytes_buffered),
        ("retained_bytes", "Bytes that servers have and have not synced yet.", stats.bytes_retained),
        ("prefetched_bytes", "Bytes read ahead.", stats.bytes_prefetched),
        ("open_inodes", "Files and directories that are open.", stats.open_inodes),
        ("open_handles", "Open handles.", stats.open_handles),
        (
            "sealed_held",
            "Sealed files that the kernel may read without asking, and that wait with their unsealing.",
            stats.sealed_held,
        ),
    ] {
        metrics.gauge(&format!("braid_mount_{name}"), help, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_not_well_while_something_waits_for_long() {
        let waiting = |since_ms| Waiting { since_ms, ..Waiting::new("a read", "data server 1") };
        assert_eq!(health("/m", &[]), (true, "mount at /m: nothing waits".into()));
        assert!(health("/m", &[waiting(2_000)]).0);
        let (well, line) = health("/m", &[waiting(2_000), waiting(20_000)]);
        assert!(!well && line.contains("2 wait, a read for 20 s: data server 1"), "{line}");
    }
}
