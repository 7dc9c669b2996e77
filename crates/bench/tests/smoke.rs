#![allow(clippy::unwrap_used)]
//! Every workload runs, and its exact counters are what the design says an operation costs.

use braid_bench::{Report, data, metadata};
use std::time::Duration;

const SPAN: Duration = Duration::from_millis(60);

fn cell<'r>(report: &'r Report, workload: &str, target: &str) -> &'r braid_bench::Cell {
    let found = report.cells.iter().find(|c| c.workload == workload && c.target == target);
    found.unwrap_or_else(|| panic!("no figure for {workload} on {target}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_counts_one_message_an_operation() {
    let dir = tempfile::tempdir().unwrap();
    let settings = metadata::Settings { connections: 2, in_flight: 2, files: 1000, turns: 1, span: SPAN };
    let report = metadata::compare(dir.path(), settings).await.unwrap();
    for (workload, round_trips) in [("stat", 1.0), ("create", 3.0)] {
        let native = cell(&report, workload, "native");
        assert!(native.per_second > 0.0);
        assert_eq!(native.counters.messages, 1.0, "{workload}");
        // Housekeeping of the server adds a few.
        let counted = native.counters.engine_round_trips;
        assert!(counted >= round_trips * 0.5 && counted < round_trips + 0.5, "{workload}: {counted}");
    }
    assert!(report.ratio("stat", "native", "bare engine").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_moves_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let settings = data::Settings { file_bytes: 16 << 20, turns: 1, span: SPAN };
    let report = data::compare(dir.path(), settings).await.unwrap();
    assert_eq!(report.cells.len(), 8);
    for target in ["native", "plain file"] {
        let read = cell(&report, "random read 4 KiB", target);
        assert_eq!(read.counters.payload_bytes, 4096.0, "{target}: nothing is read ahead");
        let write = cell(&report, "write 1 MiB", target);
        assert!(write.counters.syncs > 0.0 && write.counters.payload_bytes > 0.0, "{target}");
    }
    let text = report.markdown();
    assert!(text.contains("fsync") && text.contains("page cache"), "conditions are stated: {text}");
}
