#![allow(clippy::unwrap_used)]
//! Every workload runs, and its exact counters are what the design says an operation costs.

use braid_bench::metadata::mix;
use braid_bench::{Counters, Report, data, metadata};
use std::time::Duration;

const SPAN: Duration = Duration::from_millis(60);

fn cell<'r>(report: &'r Report, workload: &str, target: &str) -> &'r braid_bench::Cell {
    let found = report.cells.iter().find(|c| c.workload == workload && c.target == target);
    found.unwrap_or_else(|| panic!("no figure for {workload} on {target}"))
}

/// What goes on beside a turn, whatever it does: a round of housekeeping twice a second, a renewed session, a block of ids.
const BESIDE_MAX: f64 = 5.0;

/// Every operation costs exactly this much, and at most [`BESIDE_MAX`] of a whole turn are nobody's. Less than half of one an
/// operation, too: a turn on a slow disk is few operations.
fn expect_exactly(what: &str, cell: &braid_bench::Cell, counted: f64, expected: f64) {
    let beside = counted - expected;
    let of_the_turn = beside * cell.per_second * SPAN.as_secs_f64();
    let said = format!("{what} of {} on {}: {counted}, not {expected}", cell.workload, cell.target);
    assert!(beside > -1e-9 && beside < expected / 2.0 && of_the_turn <= BESIDE_MAX, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_counts_one_message_an_operation() {
    let dir = tempfile::tempdir().unwrap();
    let settings = metadata::Settings { connections: 2, in_flight: 2, files: 1000, turns: 1, span: SPAN };
    let report = metadata::compare(dir.path(), settings).await.unwrap();
    // (workload, messages, round trips): 64 names share a message and its one round trip.
    for (workload, messages, round_trips) in
        [("stat", 1.0, 1.0), ("stat, 64 a message", 1.0 / 64.0, 1.0 / 64.0), ("create", 1.0, 2.0)]
    {
        let native = cell(&report, workload, "native");
        assert!(native.per_second > 0.0);
        assert_eq!(native.counters.messages, messages, "{workload}: nothing is sent but what was asked for");
        expect_exactly("round trips", native, native.counters.engine_round_trips, round_trips);
    }
    // Nothing keeps house in the bare engine: rows are read in one round trip, written rows are committed in another.
    for (workload, round_trips) in [("stat", 1.0), ("stat, 64 a message", 1.0), ("create", 2.0)] {
        let bare = cell(&report, workload, "bare engine").counters;
        assert_eq!((bare.engine_round_trips, bare.messages), (round_trips, 0.0), "{workload}");
    }
    // A range, since creations that wait at the same moment share a sync: all four that are under way at best, each its own
    // at worst, and one or two beside them.
    for target in ["native", "bare engine"] {
        let syncs = cell(&report, "create", target).counters.syncs;
        assert!((0.2..1.5).contains(&syncs), "{target}: {syncs} syncs a creation");
    }
    assert!(report.ratio("stat", "native", "bare engine").is_some());
}

/// More files than are made before the server is told which answers have arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_size_of_an_inode_is_that_of_all_files() {
    let dir = tempfile::tempdir().unwrap();
    let report = metadata::measure_size(dir.path(), 100, 3000, Duration::from_millis(20)).await.unwrap();
    assert!(report.files == 3000 && report.few_files == 100, "{report:?}");
    assert!(report.stats_a_second > 0.0 && report.stats_a_second_few > 0.0, "{report:?}");
    // A store begins with room for more than these files take: only of many is it what an inode costs.
    assert!(report.store_bytes_an_inode > 50.0, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_moves_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let settings = data::Settings { file_bytes: 16 << 20, turns: 1, span: SPAN };
    let report = data::compare(dir.path(), settings).await.unwrap();
    assert_eq!(report.cells.len(), 8);
    for target in ["native", "plain file"] {
        for (workload, bytes) in [("random read 4 KiB", 4096.0), ("read 1 MiB", 1048576.0)] {
            let read = cell(&report, workload, target);
            assert_eq!(read.counters.payload_bytes, bytes, "{target}: nothing is read ahead, and nothing twice");
            assert_eq!(read.counters.syncs, 0.0, "{target}");
            match target {
                "native" => expect_exactly("messages", read, read.counters.messages, 1.0),
                _ => assert_eq!(read.counters.messages, 0.0),
            }
        }
        for (workload, bytes) in [("random write 4 KiB", 4096.0), ("write 1 MiB", 1048576.0)] {
            let write = cell(&report, workload, target);
            let Counters { payload_bytes, messages, syncs, .. } = write.counters;
            assert!(syncs > 0.0, "{target}: the fsync at the end of a turn");
            match target {
                // A range, since what is overwritten before it was sent is never sent, and what lies side by side goes in one
                // message: how much of either depends on how fast the sending is. Nothing is sent twice.
                "native" => {
                    assert!(payload_bytes > 0.0 && payload_bytes <= bytes, "{workload}: {payload_bytes} bytes");
                    assert!(messages > 0.0 && messages < 1.5, "{workload}: {messages} messages");
                }
                _ => assert_eq!((payload_bytes, messages), (bytes, 0.0), "{workload}"),
            }
        }
    }
    let text = report.markdown();
    assert!(text.contains("fsync") && text.contains("page cache"), "conditions are stated: {text}");
}

/// Sixteen files in one directory below the root, so that every path has two components and every parent one.
fn small_mix(alone: &[mix::plan::Op]) -> mix::Settings {
    mix::Settings {
        clients: 2,
        files: 16,
        operations: 2000,
        turns: 1,
        mix: alone.is_empty(),
        alone: alone.to_vec(),
        ..mix::Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_by_path_cost_what_they_say() {
    use mix::plan::Op;
    let dir = tempfile::tempdir().unwrap();
    let report = mix::compare(dir.path(), small_mix(&Op::ALL)).await.unwrap();
    // (messages, engine round trips). A request takes its path along, which is one round trip once its directories are known.
    let expected = |op| match op {
        // A file that its path has led to before is read beside its path.
        Op::Stat | Op::Read | Op::GetSmall => (1.0, 1.0),
        Op::List => (1.0, 2.0),
        Op::Summary => (2.0, 2.0),
        Op::Delete | Op::Mkdirs | Op::SetOwner | Op::SetPermission | Op::SetReplication => (1.0, 3.0),
        Op::Create | Op::PutSmall => (1.0, 3.0),
        // Two parents are two walks.
        Op::Move => (1.0, 4.0),
        // The chunk is allocated, and is put into the file's row.
        Op::AddBlock => (2.0, 6.0),
    };
    for op in Op::ALL {
        let cell = cell(&report, op.name(), "BraidFS");
        let (messages, round_trips) = expected(op);
        assert_eq!(cell.counters.messages, messages, "messages of {}", op.name());
        let operations = mix::run::Workload::alone(op, 2000).operations;
        expect_about("round trips", cell, cell.counters.engine_round_trips, round_trips, operations);
        assert!(cell.latencies.is_empty() && cell.p50_us > 0.0 && cell.p99_us >= cell.p50_us, "{cell:?}");
    }
}

/// As [`expect_exactly`], where a turn is a number of operations and takes as long as it takes.
fn expect_about(what: &str, cell: &braid_bench::Cell, counted: f64, expected: f64, operations: u64) {
    let seconds = operations as f64 / cell.per_second.max(1e-9);
    let beside = (counted - expected) * operations as f64;
    let said = format!("{what} of {} on {}: {counted}, not {expected}", cell.workload, cell.target);
    assert!(beside > -1e-6 && beside <= BESIDE_MAX * (1.0 + seconds / SPAN.as_secs_f64()), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mix_runs_with_both_kinds_of_clients() {
    let dir = tempfile::tempdir().unwrap();
    let settings = mix::Settings { cached: true, files: 100, ..small_mix(&[]) };
    let report = mix::compare(dir.path(), settings).await.unwrap();
    let [plain, cached] = ["BraidFS", "BraidFS, caching clients"].map(|target| cell(&report, "mix", target));
    let counts = |cell: &braid_bench::Cell| -> Vec<(String, u64)> {
        cell.latencies.iter().map(|l| (l.operation.clone(), l.count)).collect()
    };
    assert_eq!(counts(plain), counts(cached), "both do the same");
    assert_eq!(counts(plain).iter().map(|(_, count)| count).sum::<u64>(), 2000);
    // Messages of the mix follow from what each operation costs and how often it came.
    let cost = |operation: &str| match operation {
        "add-block" | "content-summary" => 2.0,
        _ => 1.0,
    };
    let messages: f64 =
        counts(plain).iter().map(|(operation, count)| cost(operation) * *count as f64).sum::<f64>() / 2000.0;
    assert!((plain.counters.messages - messages).abs() < 1e-9, "{}, not {messages}", plain.counters.messages);
    assert!(
        cached.counters.messages < plain.counters.messages / 2.0,
        "caches save messages: {}",
        cached.counters.messages
    );
    let text = report.markdown();
    assert!(text.contains("durable when it returned") && text.contains("durable within 20 ms"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["cells"][0]["latencies"][0]["p99_us"].is_number());
}
