//! Names of the server's metrics; all of them, and only here. Stable unless marked experimental.

use crate::metadata::MetadataKeeper;
use crate::stats::DataCounters;
use braid_chain::Lacks;
use braid_data_store::StoreUsage;
use braid_types::BLOCK_BYTES;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// What is shown beside the counters.
pub(crate) struct Gauges {
    pub usage: StoreUsage,
    pub in_process: u64,
    pub memory_held_bytes: u64,
    /// Bad blocks of copies that were taken from another copy.
    pub mended_blocks: u64,
    pub lacks: Lacks,
    pub registered: bool,
    pub write_seq: u64,
    pub stable_seq: u64,
}

/// The metrics as Prometheus reads them.
pub(crate) fn text(c: &DataCounters, g: &Gauges) -> String {
    let counters = [
        ("braid_data_reads_total", c.reads),
        ("braid_data_read_bytes_total", c.bytes_read),
        ("braid_data_writes_total", c.writes),
        ("braid_data_written_bytes_total", c.bytes_written),
        ("braid_data_sync_requests_total", c.sync_requests),
        ("braid_data_syncs_total", c.syncs),
        ("braid_data_errors_total", c.errors),
        ("braid_data_scrubbed_bytes_total", c.scrubbed_bytes),
        ("braid_data_scrubbed_bad_blocks_total", c.scrubbed_bad),
        ("braid_data_mended_blocks_total", g.mended_blocks),
        // Experimental: how much of the work needed no I/O thread.
        ("braid_data_reads_inline_total", c.reads_inline),
        ("braid_data_writes_inline_total", c.writes_inline),
    ];
    let gauges = [
        ("braid_data_chunks", g.usage.chunks),
        ("braid_data_bytes", g.usage.total_bytes),
        ("braid_data_free_bytes", g.usage.free_bytes),
        ("braid_data_reserved_bytes", g.usage.reserved_bytes),
        ("braid_data_bad_blocks", g.usage.bad_blocks),
        ("braid_data_sealed_blocks", g.usage.sealed_blocks),
        ("braid_data_chunks_lacking", g.lacks.chunks),
        ("braid_data_copies_lacking", g.lacks.copies),
        ("braid_data_lacking_bytes", g.lacks.blocks * BLOCK_BYTES),
        ("braid_data_registered", u64::from(g.registered)),
        ("braid_data_requests_in_process", g.in_process),
        ("braid_data_request_memory_bytes", g.memory_held_bytes),
        ("braid_data_unstable_writes", g.write_seq.saturating_sub(g.stable_seq)),
    ];
    let mut text = String::new();
    let rows = counters.iter().map(|row| (row, "counter")).chain(gauges.iter().map(|row| (row, "gauge")));
    for ((name, value), kind) in rows {
        // Writing to a string does not fail.
        let _ = write!(text, "# TYPE {name} {kind}\n{name} {value}\n");
    }
    text
}
/// Of the copy of the metadata that is kept here.
pub(crate) fn metadata(text: &mut String, keeper: &MetadataKeeper) {
    let c = &keeper.counters;
    let rows = [
        ("groups_total", "counter", c.groups.load(Relaxed)),
        ("messages_total", "counter", c.messages.load(Relaxed)),
        ("syncs_total", "counter", c.syncs.load(Relaxed)),
        ("bases_total", "counter", c.bases.load(Relaxed)),
        ("rotations_total", "counter", c.rotations.load(Relaxed)),
        ("last_group", "gauge", keeper.last().map_or(0, |at| at.number)),
    ];
    for (name, kind, value) in rows {
        let _ = write!(text, "# TYPE braid_data_metadata_{name} {kind}\nbraid_data_metadata_{name} {value}\n");
    }
}
