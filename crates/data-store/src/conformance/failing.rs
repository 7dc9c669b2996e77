//! What a store says and keeps when what it stands on fails: one promise, whatever the store.
//!
//! - What was synced before is there afterwards; a failure of one chunk is no other's.
//! - A byte that is read is one that was written, or an error names the block that cannot prove it.
//! - Whatever fails says so with an error of its kind: nothing panics, nothing hangs, nothing is called stable that is not.
//! - When the failure is over, the store, opened again where it must be, takes changes and keeps them.

use super::{info, must, read};
use crate::{BadBlockCause, ChunkStore, Cuts, Result, ScrubCursor, StoreError};
use braid_env::Disk;
use braid_env::simdisk::{SimDisk, SyncFault};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, TruncGen};
use std::path::{Path, PathBuf};

/// A store that can be made to fail.
pub struct Failing {
    pub store: Box<dyn ChunkStore>,
    pub ground: Ground,
}

/// What a store stands on, which says what can fail below it.
pub enum Ground {
    /// Memory only runs out. No other failure can exist there:
    /// - torn write: a write is a copy in memory under the chunk's lock; the process does not outlive a part of it;
    /// - power cut, lost or failed sync: a sync has nothing to do, and nothing of the store outlives its process;
    /// - bad block: memory is not verified, the machine's own check of it is all there is;
    /// - a disk that is read-only or gone: there is none.
    Memory,
    Disk {
        disk: SimDisk,
        /// The store's directory, for the names of its files.
        dir: PathBuf,
        reopen: Reopen,
    },
}

pub type Reopen = Box<dyn Fn(&SimDisk) -> Result<Box<dyn ChunkStore>>>;

/// All that can fail below this kind of store.
pub fn examine(make: &dyn Fn() -> Failing) {
    room_runs_out(make());
    match make().ground {
        Ground::Memory => memory_has_nothing_else_to_lose(make().store.as_ref()),
        Ground::Disk { .. } => {
            a_write_fails_half_way(OnDisk::of(make()));
            the_log_cannot_be_written(make);
            the_power_goes_in_a_write(make);
            a_sync_is_lost(make);
            a_sync_fails(OnDisk::of(make()));
            blocks_go_bad(OnDisk::of(make()));
            the_disk_becomes_read_only(OnDisk::of(make()));
            the_disk_goes_while_the_store_runs(OnDisk::of(make()));
        }
    }
}

/// Synced at first and left alone.
const KEPT: ChunkId = ChunkId(1);
/// Synced at first; the failure comes while it is changed.
const HIT: ChunkId = ChunkId(2);
const OTHER: ChunkId = ChunkId(3);
const BYTES: usize = 16_384;

fn prepare(store: &dyn ChunkStore) {
    for id in [KEPT, HIT] {
        must("write", store.write(id, 0, &[1; BYTES], &info(1)));
    }
    must("sync", store.sync_all());
}

fn expect_kept(store: &dyn ChunkStore) {
    assert_eq!(read(store, KEPT, 0, BYTES), [1; BYTES], "what was synced and left alone has changed");
    assert_eq!(must("stat", store.stat(KEPT)).length, BYTES as u64);
}

/// Each byte has one of these values; whether more than one of them occurs.
fn expect_one_of(bytes: &[u8], values: &[u8]) -> bool {
    assert!(bytes.iter().all(|byte| values.contains(byte)), "bytes that were never written");
    bytes.iter().any(|byte| *byte != bytes[0])
}

/// After the failure all is as ever.
fn expect_works(store: &dyn ChunkStore, counter: u64) {
    for id in [HIT, OTHER] {
        must("write when it is over", store.write(id, 0, &[9; BYTES], &info(counter)));
    }
    must("sync when it is over", store.sync_all());
    assert!([HIT, OTHER].iter().all(|id| read(store, *id, 0, BYTES) == [9; BYTES]));
}

fn room_runs_out(failing: Failing) {
    const LEFT: u64 = 3 * BLOCK_BYTES;
    const FILLER: ChunkId = ChunkId(u64::MAX);
    let store = failing.store.as_ref();
    prepare(store);
    match &failing.ground {
        Ground::Memory => {
            let free = must("usage", store.usage()).free_bytes;
            must("reserve", store.reserve(FILLER, free - LEFT));
        }
        // Behind the store's back, as another program would.
        Ground::Disk { disk, .. } => {
            let space = disk.space(Path::new("/")).unwrap_or_default();
            disk.set_capacity(Some(space.total - space.free + LEFT));
        }
    }
    for id in [HIT, OTHER] {
        let refused = store.write(id, 0, &[2; 100_000], &info(2));
        assert!(refused.as_ref().is_err_and(StoreError::is_no_space), "{refused:?}");
    }
    expect_kept(store);
    expect_one_of(&read(store, HIT, 0, BYTES), &[1, 2]);
    assert_eq!(must("stat", store.stat(HIT)).length, BYTES as u64, "a refused write makes nothing longer");
    must("overwriting needs no room", store.write(HIT, 4_096, &[3; 4_096], &info(3)));
    must("a sync needs no room", store.sync_all());
    assert_eq!(read(store, HIT, 4_096, 4_096), [3; 4_096]);
    must("a removal needs no room", store.delete(&[HIT]));
    match &failing.ground {
        Ground::Memory => store.unreserve(FILLER, u64::MAX),
        Ground::Disk { disk, .. } => disk.set_capacity(None),
    }
    expect_works(store, 4);
    expect_kept(store);
}

/// What the failures that [`Ground::Memory`] rules out would show as.
fn memory_has_nothing_else_to_lose(store: &dyn ChunkStore) {
    prepare(store);
    let written = must("write", store.write(HIT, 0, &[2; BYTES], &info(2)));
    assert!(store.stable_seq() >= written.seq, "what is in memory is as stable as it will be");
    assert_eq!(must("sync_all", store.sync_all()), store.write_seq());
    let step = must("scrub", store.scrub_step(ScrubCursor::default(), 1 << 20));
    let usage = must("usage", store.usage());
    assert_eq!((step.bad.len(), usage.bad_blocks, usage.sealed_blocks), (0, 0, 0));
    expect_kept(store);
}

/// A store on a disk, for failures that only a disk has.
struct OnDisk {
    store: Box<dyn ChunkStore>,
    disk: SimDisk,
    dir: PathBuf,
    reopen: Reopen,
}

impl OnDisk {
    fn of(failing: Failing) -> OnDisk {
        match failing.ground {
            Ground::Disk { disk, dir, reopen } => {
                prepare(failing.store.as_ref());
                OnDisk { store: failing.store, disk, dir, reopen }
            }
            Ground::Memory => panic!("one call makes a store on a disk, and another one in memory"),
        }
    }

    fn cut_power(&mut self, seed: u64) {
        self.disk.crash(seed);
        self.store = must("opening after the power cut", (self.reopen)(&self.disk));
    }

    fn data_file(&self, chunk: ChunkId) -> PathBuf {
        self.dir.join(format!("chunks/{:02x}/{:016x}.data", chunk.0 & 0xff, chunk.0))
    }

    /// After the failure, and after a power cut behind that.
    fn expect_works_and_keeps(&mut self, counter: u64) {
        expect_kept(self.store.as_ref());
        expect_works(self.store.as_ref(), counter);
        self.cut_power(counter);
        expect_kept(self.store.as_ref());
        for id in [HIT, OTHER] {
            assert_eq!(read(self.store.as_ref(), id, 0, BYTES), [9; BYTES], "it was synced");
        }
    }
}

fn a_write_fails_half_way(mut on: OnDisk) {
    // The extent is logged, so that the next write is the data's.
    must("write", on.store.write(HIT, 0, &[2; 8_192], &info(2)));
    on.disk.fail_writes(1);
    let failed = on.store.write(HIT, 4_096, &[3; 12_288], &info(3));
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    let found = read(on.store.as_ref(), HIT, 0, BYTES);
    assert_eq!(found[..4_096], [2; 4_096], "beside the write");
    assert!(expect_one_of(&found[4_096..], &[1, 2, 3]), "the failure was not half way");
    on.expect_works_and_keeps(4);
}

/// Neither written nor synced, one after the other: a write waits for the log, so it is refused and nothing hangs.
fn the_log_cannot_be_written(make: &dyn Fn() -> Failing) {
    type Plant = fn(&SimDisk);
    let plants: [Plant; 2] = [|disk| disk.fail_writes(1), |disk| disk.fail_next_sync(SyncFault::Error)];
    for plant in plants {
        let mut on = OnDisk::of(make());
        plant(&on.disk);
        let failed = on.store.write(HIT, 0, &[2; BYTES], &info(2));
        assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
        assert_eq!(read(on.store.as_ref(), HIT, 0, BYTES), [1; BYTES], "nothing of it was written");
        on.cut_power(1);
        assert_eq!(read(on.store.as_ref(), HIT, 0, BYTES), [1; BYTES]);
        on.expect_works_and_keeps(3);
    }
}

fn the_power_goes_in_a_write(make: &dyn Fn() -> Failing) {
    let (mut torn, mut sealed) = (false, 0);
    for seed in 0..20 {
        let mut on = OnDisk::of(make());
        must("write", on.store.write(HIT, 0, &[2; BYTES], &info(2)));
        must("write", on.store.write(OTHER, 0, &[2; BYTES], &info(1)));
        on.cut_power(seed);
        torn |= expect_one_of(&read(on.store.as_ref(), HIT, 0, BYTES), &[1, 2]);
        if let Some(stat) = on.store.stat(OTHER).ok().filter(|stat| stat.length > 0) {
            assert!(stat.unsure, "it was never synced");
            on.cut_power(seed + 100);
            must("write", on.store.write(OTHER, 0, &[2; 1], &info(2)));
            must("sync", on.store.sync(&[OTHER]));
            assert!(
                must("stat", on.store.stat(OTHER)).unsure,
                "another crash and a sync do not bring back what is missing"
            );
            expect_one_of(&read(on.store.as_ref(), OTHER, 0, BYTES), &[0, 2]);
        }
        sealed += must("usage", on.store.usage()).sealed_blocks;
        on.expect_works_and_keeps(3);
    }
    assert!(torn && sealed > 0, "no crash tore anything: {sealed} blocks sealed");
}

/// The disk says that it synced, and did not: no store can keep its promise then, but none may lie either.
fn a_sync_is_lost(make: &dyn Fn() -> Failing) {
    let (mut lost, mut named) = (0, 0);
    for seed in 0..20 {
        let mut on = OnDisk::of(make());
        must("write", on.store.write(HIT, 0, &[2; BYTES], &info(2)));
        // Of the data alone in half of the rounds, else of data, table and names.
        match seed % 2 {
            0 => on.disk.fail_next_sync(SyncFault::Lost),
            _ => on.disk.skip_syncs(true),
        }
        must("a sync that is lost", on.store.sync(&[HIT]));
        on.disk.skip_syncs(false);
        on.cut_power(seed);
        for block in 0..BYTES as u64 / BLOCK_BYTES {
            let mut bytes = [0; BLOCK_BYTES as usize];
            match on.store.read(HIT, block * BLOCK_BYTES, &mut bytes) {
                Ok(()) => {
                    expect_one_of(&bytes, &[1, 2]);
                    lost += u64::from(bytes != [2; BLOCK_BYTES as usize]);
                }
                Err(StoreError::BadBlock { chunk: HIT, block: bad, cause: BadBlockCause::Checksum, .. }) => {
                    assert_eq!(bad, block, "another block is named");
                    named += 1;
                }
                Err(error) => panic!("a lost sync shows as {error}"),
            }
        }
        on.expect_works_and_keeps(3);
    }
    assert!(lost + named > 0, "no sync was lost");
}

/// EIO from a sync leaves unknown what the disk has, for ever: a second one succeeds without having done the first one's work.
fn a_sync_fails(mut on: OnDisk) {
    let stable = on.store.stable_seq();
    must("write", on.store.write(HIT, 0, &[2; BYTES], &info(2)));
    on.disk.fail_next_sync(SyncFault::Error);
    let failed = on.store.sync(&[HIT]);
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    for again in [on.store.sync(&[HIT]).map(drop), on.store.sync_all().map(drop)] {
        assert!(matches!(again, Err(StoreError::Failed { chunk: HIT, .. })), "{again:?}");
    }
    let refused = on.store.write(HIT, 0, &[3], &info(3));
    assert!(matches!(refused, Err(StoreError::Failed { chunk: HIT, .. })), "{refused:?}");
    assert_eq!(read(on.store.as_ref(), HIT, 0, BYTES), [2; BYTES], "reads see what was written");
    must("another chunk", on.store.write(OTHER, 0, &[2; BYTES], &info(1)));
    must("another chunk", on.store.sync(&[OTHER]));
    assert_eq!(on.store.stable_seq(), stable, "what is not stable is not called stable");
    on.cut_power(1);
    expect_one_of(&read(on.store.as_ref(), HIT, 0, BYTES), &[1, 2]);
    assert_eq!(read(on.store.as_ref(), OTHER, 0, BYTES), [2; BYTES]);
    on.expect_works_and_keeps(4);
}

fn blocks_go_bad(mut on: OnDisk) {
    let file = on.data_file(HIT);
    assert!(on.disk.corrupt(&file, 5_000, 1).is_ok() && on.disk.bad_range(&file, 12_288..12_289).is_ok());
    let at = |block: u64| read(on.store.as_ref(), HIT, block * BLOCK_BYTES, BLOCK_BYTES as usize);
    assert!([0, 2].into_iter().all(|block| at(block) == [1; BLOCK_BYTES as usize]), "their neighbours are read");
    for (block, rotten) in [(1, true), (3, false)] {
        let error = on.store.read(HIT, block * BLOCK_BYTES + 100, &mut [0; 8]);
        let Err(StoreError::BadBlock { chunk: HIT, block: bad, cause, .. }) = error else { panic!("{error:?}") };
        assert_eq!((bad, cause == BadBlockCause::Checksum), (block, rotten));
    }
    expect_kept(on.store.as_ref());
    let step = must("scrub", on.store.scrub_step(ScrubCursor { chunk: HIT, block: 0 }, 1 << 20));
    assert_eq!(step.bad, [(HIT, 1), (HIT, 3)]);
    assert_eq!(must("usage", on.store.usage()).bad_blocks, 2);
    assert!(on.store.write(HIT, 5_000, b"a part", &info(2)).is_err(), "its checksum would vouch for the rot beside it");
    for block in [1, 3] {
        must("a block written whole", on.store.write(HIT, block * BLOCK_BYTES, &[2; 4_096], &info(3)));
    }
    expect_one_of(&read(on.store.as_ref(), HIT, 0, BYTES), &[1, 2]);
    assert_eq!(must("usage", on.store.usage()).bad_blocks, 0, "they are good again");
    on.expect_works_and_keeps(4);
}

/// Everything that changes a store, on chunks that a failure may hit.
fn changes(store: &dyn ChunkStore, counter: u64) -> Vec<(&'static str, Result<()>)> {
    let info = info(counter);
    let cuts = Cuts { trunc_gen: TruncGen(1), list: &[(TruncGen(1), 100)] };
    vec![
        ("a write over synced bytes", store.write(HIT, 0, &[2; BYTES], &info).map(drop)),
        ("a write behind the end", store.write(HIT, 2 * BYTES as u64, &[2; BYTES], &info).map(drop)),
        ("a write that makes a chunk", store.write(ChunkId(77), 0, &[2; BYTES], &info).map(drop)),
        ("create", store.create(ChunkId(78), super::CONTAINER, super::CHUNK_BYTES)),
        ("create_copy", store.create_copy(ChunkId(79), super::CONTAINER, super::CHUNK_BYTES)),
        ("punch", store.punch(HIT, ByteRange::new(0, 4_096), &info).map(drop)),
        ("a cut", store.apply_cuts(HIT, &cuts)),
        ("sync", store.sync(&[OTHER]).map(drop)),
        ("sync_all", store.sync_all().map(drop)),
        ("delete", store.delete(&[ChunkId(4)])),
    ]
}

/// As a file system does to itself when it finds an error.
fn the_disk_becomes_read_only(mut on: OnDisk) {
    must("write", on.store.write(ChunkId(4), 0, &[1; BYTES], &info(1)));
    must("sync", on.store.sync_all());
    must("a write that no sync has covered", on.store.write(OTHER, 0, &[2; BYTES], &info(1)));
    let stable = on.store.stable_seq();
    on.disk.read_only(true);
    for round in 0..2 {
        for (what, result) in changes(on.store.as_ref(), 2 + round) {
            let said = match &result {
                Err(StoreError::ReadOnly(_)) => true,
                // It said so before, and that nobody knows what its files have.
                Err(StoreError::Failed { cause, .. }) => cause.contains("read-only"),
                _ => false,
            };
            assert!(said, "{what} on a read-only disk, round {round}: {result:?}");
        }
        expect_kept(on.store.as_ref());
        assert_eq!(read(on.store.as_ref(), HIT, 0, BYTES), [1; BYTES], "nothing that was refused shows");
        assert_eq!(read(on.store.as_ref(), OTHER, 0, BYTES), [2; BYTES], "what was written is read");
        assert_eq!(on.store.stable_seq(), stable, "nothing becomes stable");
        assert_eq!(must("usage", on.store.usage()).free_bytes, 0, "it has no room for anybody");
        assert!(matches!(on.store.reserve(HIT, 1), Err(StoreError::ReadOnly(_))));
    }
    let step = must("scrub", on.store.scrub_step(ScrubCursor { chunk: KEPT, block: 0 }, BYTES as u64));
    assert_eq!((step.bad.len(), step.checked_bytes), (0, BYTES as u64), "what is synced is sound");
    // Also one whose files the store has closed, as after a removal that failed.
    assert_eq!(read(on.store.as_ref(), ChunkId(4), 0, BYTES), [1; BYTES]);
    let refused = on.store.write(ChunkId(4), 0, &[2; BYTES], &info(5));
    let said = matches!(&refused, Err(StoreError::Failed { cause, .. }) if cause.contains("read-only"));
    assert!(said || matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    assert_eq!(must("usage", on.store.usage()).bad_blocks, 0);
    on.disk.read_only(false);
    on.cut_power(1);
    for id in [HIT, ChunkId(4)] {
        assert_eq!(
            read(on.store.as_ref(), id, 0, BYTES),
            [1; BYTES],
            "refused changes of chunk {id} are not made later"
        );
    }
    on.expect_works_and_keeps(9);
}

/// From one call to the next the disk answers nothing any more: it was pulled, or its controller died.
fn the_disk_goes_while_the_store_runs(mut on: OnDisk) {
    must("write", on.store.write(ChunkId(4), 0, &[1; BYTES], &info(1)));
    must("sync", on.store.sync_all());
    must("a write that no sync has covered", on.store.write(OTHER, 0, &[2; BYTES], &info(1)));
    let stable = on.store.stable_seq();
    on.disk.stop_after(Some(0));
    for round in 0..2 {
        for (what, result) in changes(on.store.as_ref(), 2 + round) {
            let said = matches!(&result, Err(StoreError::Io { .. } | StoreError::Failed { .. }));
            assert!(said, "{what} on a disk that has gone, round {round}: {result:?}");
        }
        let error = on.store.read(KEPT, 0, &mut [0; BYTES]);
        let said = matches!(error, Err(StoreError::BadBlock { cause: BadBlockCause::Unreadable(_), .. }));
        assert!(said, "a read from a disk that has gone: {error:?}");
        assert!(matches!(on.store.usage(), Err(StoreError::Io { .. })));
        assert_eq!(on.store.stable_seq(), stable, "nothing becomes stable");
        // Whatever it says, it returns.
        let _ = on.store.scrub_step(ScrubCursor::default(), 1 << 20);
        let _ = on.store.rest();
    }
    on.cut_power(1);
    for id in [HIT, ChunkId(4)] {
        assert_eq!(read(on.store.as_ref(), id, 0, BYTES), [1; BYTES], "chunk {id} was synced");
    }
    assert_eq!(must("usage", on.store.usage()).bad_blocks, 0, "its blocks were never bad");
    on.expect_works_and_keeps(9);
}
