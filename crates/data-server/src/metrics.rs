//! Names of the server's metrics; all of them, and only here. Stable unless marked experimental.

use crate::metadata::MetadataKeeper;
use crate::regions;
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
    pub moves: u64,
    pub checkpoints: u64,
    pub copied_bytes: u64,
    pub lacks: Lacks,
    pub lacking_ms: u64,
    pub registered: bool,
    pub write_seq: u64,
    pub stable_seq: u64,
    pub regions: regions::Counts,
}

/// The metrics as Prometheus reads them.
pub(crate) fn text(c: &DataCounters, g: &Gauges) -> String {
    let counters = [
        ("braid_data_reads_total", "Read requests.", c.reads),
        ("braid_data_read_bytes_total", "Bytes of files read.", c.bytes_read),
        ("braid_data_writes_total", "Write requests.", c.writes),
        ("braid_data_written_bytes_total", "Bytes of files written.", c.bytes_written),
        ("braid_data_sync_requests_total", "Requests to make writes stable.", c.sync_requests),
        ("braid_data_syncs_total", "Syncs of the disk.", c.syncs),
        ("braid_data_errors_total", "Requests answered with an error.", c.errors),
        ("braid_data_scrubbed_bytes_total", "Bytes whose checksums scrub has verified.", c.scrubbed_bytes),
        ("braid_data_scrubbed_bad_blocks_total", "Damaged blocks that scrub has found.", c.scrubbed_bad),
        ("braid_data_mended_blocks_total", "Damaged blocks taken from another copy.", g.mended_blocks),
        ("braid_data_copied_bytes_total", "Bytes of content sent to other copies.", g.copied_bytes),
        ("braid_data_moves_total", "Chunks owned here since their writers are on this host.", g.moves),
        (
            "braid_data_checkpoints_total",
            "Times a chunk owned here was found to be on stable storage at all of its servers, as far as it was not known to be.",
            g.checkpoints,
        ),
        ("braid_data_region_lock_waits_total", "Requests that waited for what another had locked.", g.regions.waits),
        (
            "braid_data_region_lock_wait_microseconds_total",
            "How long requests waited for what others had locked, in all.",
            g.regions.waited_us,
        ),
        ("braid_data_region_lock_timeouts_total", "Requests that waited so until their time was over.", g.regions.late),
        // Experimental: how much of the work needed no I/O thread.
        ("braid_data_reads_inline_total", "Reads that needed no I/O thread (experimental).", c.reads_inline),
        ("braid_data_writes_inline_total", "Writes that needed no I/O thread (experimental).", c.writes_inline),
    ];
    let gauges = [
        ("braid_data_chunks", "Chunks that lie here.", g.usage.chunks),
        ("braid_data_bytes", "Size of the disk: what is used and what is free.", g.usage.total_bytes),
        ("braid_data_free_bytes", "Bytes that may still be promised to files.", g.usage.free_bytes),
        ("braid_data_reserved_bytes", "Bytes promised to files that grow.", g.usage.reserved_bytes),
        ("braid_data_bad_blocks", "Damaged blocks known now.", g.usage.bad_blocks),
        (
            "braid_data_sealed_blocks",
            "Damaged blocks that read as an error until they are written again.",
            g.usage.sealed_blocks,
        ),
        ("braid_data_chunks_lacking", "Chunks with copies that are behind.", g.lacks.chunks),
        ("braid_data_copies_lacking", "Copies that are behind.", g.lacks.copies),
        ("braid_data_lacking_bytes", "Bytes that are being copied.", g.lacks.blocks * BLOCK_BYTES),
        ("braid_data_lacking_ms", "Milliseconds since what some copy has not was written.", g.lacking_ms),
        ("braid_data_registered", "1 while a metadata server knows this server.", u64::from(g.registered)),
        ("braid_data_region_locks", "Regions of chunks that are locked by operations under way.", g.regions.held),
        ("braid_data_region_locks_waiting", "Operations that wait for such a lock.", g.regions.waiting),
        ("braid_data_requests_in_process", "Requests that are being served.", g.in_process),
        ("braid_data_request_memory_bytes", "Memory held by requests that are being served.", g.memory_held_bytes),
        (
            "braid_data_unstable_writes",
            "Writes that no sync has made stable yet.",
            g.write_seq.saturating_sub(g.stable_seq),
        ),
    ];
    let mut text = String::new();
    let rows = counters.iter().map(|row| (row, "counter")).chain(gauges.iter().map(|row| (row, "gauge")));
    for ((name, help, value), kind) in rows {
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    text
}

/// Of the copy of the metadata that is kept here.
pub(crate) fn metadata(text: &mut String, keeper: &MetadataKeeper) {
    let c = &keeper.counters;
    let rows = [
        ("groups_total", "counter", "Groups of changes of the metadata that were kept.", c.groups.load(Relaxed)),
        ("messages_total", "counter", "Messages of the metadata server that leads.", c.messages.load(Relaxed)),
        ("syncs_total", "counter", "Syncs of the log of changes.", c.syncs.load(Relaxed)),
        ("bases_total", "counter", "Whole copies received.", c.bases.load(Relaxed)),
        ("rotations_total", "counter", "Logs begun anew.", c.rotations.load(Relaxed)),
        ("damaged_total", "counter", "Copies that were found damaged.", c.damaged.load(Relaxed)),
        ("last_group", "gauge", "The number of the last group kept.", keeper.last().map_or(0, |at| at.number)),
    ];
    for (name, kind, help, value) in rows {
        let name = format!("braid_data_metadata_{name}");
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
}
