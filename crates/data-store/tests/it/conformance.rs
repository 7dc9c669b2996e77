//! Both stores pass one examination, and the examination finds planted bugs.

use braid_data_store::conformance::failing::{Failing, Ground};
use braid_data_store::conformance::{self, copies, crash};
use braid_data_store::{ChunkStore, DiskStore, MemoryStore, StoreIdentity, StoreOptions};
use braid_env::os::OsDisk;
use braid_env::simdisk::SimDisk;
use braid_types::{ClusterId, ServerId};
use std::path::Path;
use std::sync::Arc;

fn identity() -> StoreIdentity {
    StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(1) }
}

#[test]
fn memory_passes() {
    conformance::run(
        &|bytes| Box::new(MemoryStore::new(bytes.unwrap_or(64 << 20))),
        Some(&|| Failing { store: Box::new(MemoryStore::new(64 << 20)), ground: Ground::Memory }),
    );
}

#[test]
fn the_simulated_disk_passes() {
    let dir = Path::new("/store");
    conformance::run(
        &|bytes| {
            let disk = SimDisk::new();
            disk.set_capacity(bytes);
            let options = StoreOptions { open_chunks_max: 2, ..StoreOptions::default() };
            Box::new(DiskStore::create(Arc::new(disk), dir, identity(), options).unwrap())
        },
        Some(&|| {
            let disk = SimDisk::new();
            let options = StoreOptions::default();
            let store = DiskStore::create(Arc::new(disk.clone()), dir, identity(), options).unwrap();
            let reopen = Box::new(move |disk: &SimDisk| {
                let store = DiskStore::open(Arc::new(disk.clone()), dir, identity(), options)?;
                Ok(Box::new(store) as Box<dyn ChunkStore>)
            });
            Failing { store: Box::new(store), ground: Ground::Disk { disk, dir: dir.to_owned(), reopen } }
        }),
    );
}

#[test]
fn a_real_disk_passes() {
    // A real disk is not filled up; its capacity comes from the simulated one.
    let root = tempfile::tempdir().unwrap();
    let next = std::sync::atomic::AtomicU64::new(0);
    let make = |bytes: Option<u64>| -> Box<dyn ChunkStore> {
        let Some(_) = bytes else {
            let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let dir = root.path().join(n.to_string());
            let options = StoreOptions::default();
            return Box::new(DiskStore::create(Arc::new(OsDisk), &dir, identity(), options).unwrap());
        };
        Box::new(MemoryStore::new(8 << 20))
    };
    conformance::run(&make, None);
}

/// Every way to share: by a base whatever the size, by the file system, and neither.
#[test]
fn chunks_are_made_from_others_in_every_way() {
    for (shares_ranges, share_from_bytes) in [(false, 0), (true, 0), (false, u64::MAX)] {
        conformance::run_clones(&|_| {
            let disk = SimDisk::new();
            disk.share_ranges(shares_ranges);
            let options = StoreOptions { open_chunks_max: 2, share_from_bytes, ..StoreOptions::default() };
            Box::new(DiskStore::create(Arc::new(disk), Path::new("/store"), identity(), options).unwrap())
        });
    }
}

#[test]
fn a_crash_at_any_moment_keeps_every_promise() {
    for script in 1..=5 {
        let cuts = crash::everywhere(script, 2, crash::Planted::default()).unwrap_or_else(|e| panic!("{e}"));
        assert!(cuts > 50, "script {script} is too short to find anything: {cuts}");
    }
}

#[test]
fn what_is_made_from_another_keeps_every_promise_over_a_crash() {
    for (script, clones) in (1..=2).flat_map(|n| [(n, crash::Clones::ByBase), (n, crash::Clones::ByDisk)]) {
        let cuts = crash::everywhere_with(script, 2, crash::Planted::default(), clones);
        let cuts = cuts.unwrap_or_else(|e| panic!("{clones:?}: {e}"));
        assert!(cuts > 50, "script {script} is too short to find anything: {cuts}");
    }
}

#[test]
fn what_is_copied_before_it_changes_and_not_synced_is_found() {
    let planted = crash::Planted { copy_up_unsynced: true, ..Default::default() };
    let finds = |script| crash::everywhere_with(script, 2, planted, crash::Clones::ByBase).is_err();
    assert!((1..=12).any(finds));
}

#[test]
fn skipped_syncs_are_found() {
    let planted = crash::Planted { skip_syncs: true, ..Default::default() };
    assert!((1..=3).any(|script| crash::everywhere(script, 1, planted).is_err()));
}

#[test]
fn a_missing_activity_log_is_found() {
    let planted = crash::Planted { no_activity_log: true, ..Default::default() };
    assert!((1..=6).any(|script| crash::everywhere(script, 2, planted).is_err()));
}

#[test]
fn a_record_never_speaks_of_what_a_crash_changed() {
    for script in 1..=12 {
        let cuts = copies::everywhere(script, 2, copies::Planted::default()).unwrap_or_else(|e| panic!("{e}"));
        assert!(cuts > 40, "script {script} is too short to find anything: {cuts}");
    }
}

#[test]
fn mistakes_with_records_are_found() {
    let none = copies::Planted::default();
    for planted in [
        copies::Planted { skip_syncs: true, ..none },
        copies::Planted { no_activity_log: true, ..none },
        copies::Planted { forgets_early: true, ..none },
    ] {
        assert!((1..=12).any(|script| copies::everywhere(script, 2, planted).is_err()), "{planted:?}");
    }
}

/// Longer, for a change of the format or of recovery: `BRAID_CRASH_SCRIPTS=200 cargo test --release -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn a_crash_at_any_moment_of_many_scripts() {
    let scripts = std::env::var("BRAID_CRASH_SCRIPTS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    for script in 1000..1000 + scripts {
        for clones in [crash::Clones::None, crash::Clones::ByBase, crash::Clones::ByDisk] {
            let cuts = crash::everywhere_with(script, 4, crash::Planted::default(), clones);
            cuts.unwrap_or_else(|e| panic!("{clones:?}: {e}"));
        }
        copies::everywhere(script, 4, copies::Planted::default()).unwrap_or_else(|e| panic!("{e}"));
    }
}
