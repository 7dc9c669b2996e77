//! Chunks that share blocks with another: what they occupy, and what happens when the other is damaged, gone, or deleted on a full disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use braid_data_store::{ChunkStore, DiskStore, ScrubCursor, StoreError, StoreIdentity, StoreOptions, WriteInfo};
use braid_env::Disk;
use braid_env::simdisk::SimDisk;
use braid_types::{ByteRange, ChunkId, ClusterId, ContainerId, ServerId, Version};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BASE: ChunkId = ChunkId(0x10);
const CLONE: ChunkId = ChunkId(0x20);
const MIB: usize = 1 << 20;

fn open_with(disk: &SimDisk, options: StoreOptions) -> DiskStore {
    let identity = StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(1) };
    DiskStore::open_or_create(Arc::new(disk.clone()), Path::new("/store"), identity, options).unwrap()
}

fn open(disk: &SimDisk) -> DiskStore {
    open_with(disk, StoreOptions::default())
}

fn info(counter: u64) -> WriteInfo<'static> {
    let version = Version { counter, ..Version::default() };
    WriteInfo { container: ContainerId(1), chunk_bytes: 8 << 20, version, ..WriteInfo::default() }
}

fn file(chunk: ChunkId, suffix: &str) -> PathBuf {
    PathBuf::from(format!("/store/chunks/{:02x}/{:016x}.{suffix}", chunk.0 & 0xff, chunk.0))
}

fn read(store: &DiskStore, chunk: ChunkId, offset: usize, len: usize) -> Result<Vec<u8>, StoreError> {
    let mut buf = vec![0xee; len];
    store.read(chunk, offset as u64, &mut buf).map(|()| buf)
}

/// Four extents, and a clone of them.
fn shared() -> (SimDisk, DiskStore) {
    let disk = SimDisk::new();
    let store = open(&disk);
    for part in 0..4 {
        store.write(BASE, part << 20, &vec![part as u8 + 1; MIB], &info(1)).unwrap();
    }
    store.clone_chunk(CLONE, BASE, &info(1)).unwrap();
    (disk, store)
}

#[test]
fn a_clone_occupies_what_was_changed_in_it() {
    let (disk, store) = shared();
    assert!(store.stat(CLONE).unwrap().occupied < 4096);
    assert!(store.local(CLONE).unwrap().is_none(), "not to be read from its files alone");
    store.reserve_at_least(CLONE, 4096).unwrap();
    assert_eq!(store.usage().unwrap().reserved_bytes, 4 * MIB as u64 + 4096, "a write copies what it does not bring");
    store.write(CLONE, MIB as u64 + 10, b"x", &info(2)).unwrap();
    assert_eq!(store.stat(CLONE).unwrap().occupied, MIB as u64);
    let all = ByteRange::new(0, 8 << 20);
    assert_eq!(store.extents(CLONE, all).unwrap(), store.extents(BASE, all).unwrap());
    store.unreserve(CLONE, u64::MAX);
    drop(store);
    disk.kill_process();
    let store = open(&disk);
    assert_eq!(read(&store, CLONE, 3 * MIB, 1).unwrap(), [4]);
    for part in 0..4 {
        store.punch(CLONE, ByteRange::new(part << 20, (part << 20) + 10), &info(3)).unwrap();
    }
    assert!(store.local(CLONE).unwrap().is_some(), "all of it is its own");
    assert_eq!(read(&store, BASE, 0, 10).unwrap(), [1; 10]);
}

#[test]
fn what_rots_in_the_base_is_bad_in_the_clone_until_it_is_written_whole() {
    let (disk, store) = shared();
    disk.corrupt(&file(BASE, "data"), 5_000, 1).unwrap();
    disk.bad_range(&file(BASE, "data"), 12_288..12_289).unwrap();
    let bad = read(&store, CLONE, 4_096, 10).unwrap_err();
    assert_eq!(
        bad.to_string(),
        "chunk 32, block 1 in /store/chunks/10/0000000000000010.data: its checksum is wrong",
        "whose block, and where it lies"
    );
    assert_eq!(read(&store, CLONE, 8_192, 10).unwrap(), [1; 10]);
    let scrubbed = store.scrub_step(ScrubCursor::default(), 64 << 20).unwrap();
    assert_eq!(scrubbed.bad, [(BASE, 1), (BASE, 3)], "it is verified where it lies");
    // A write beside them neither fails nor makes them good.
    store.write(CLONE, 0, b"x", &info(2)).unwrap();
    store.close().unwrap();
    drop(store);
    disk.kill_process();
    let store = open(&disk);
    for block in [1, 3] {
        let read = read(&store, CLONE, block * 4096, 10);
        assert!(matches!(read, Err(StoreError::BadBlock { chunk: CLONE, .. })), "block {block}: {read:?}");
    }
    assert!(store.write(CLONE, 5_000, b"a part", &info(3)).is_err());
    store.write(CLONE, 4_096, &[9; 12_288], &info(3)).unwrap();
    assert_eq!(read(&store, CLONE, 0, 16_384).unwrap()[4_096..], [9; 12_288]);
    assert!(store.examine(CLONE).unwrap().damage.is_none());
}

#[test]
fn a_base_whose_files_are_gone_takes_only_its_blocks_with_it() {
    let (disk, store) = shared();
    store.write(CLONE, 10, b"own", &info(2)).unwrap();
    store.close().unwrap();
    drop(store);
    disk.kill_process();
    for suffix in ["data", "meta"] {
        disk.remove(&file(BASE, suffix)).unwrap();
    }
    let store = open(&disk);
    assert_eq!(read(&store, CLONE, 10, 4).unwrap(), b"own\x01");
    let bad = read(&store, CLONE, MIB, 10).unwrap_err();
    assert!(bad.to_string().contains("it is a block of chunk 16, which is not here"), "{bad}");
    store.write(CLONE, MIB as u64, &vec![7; MIB], &info(3)).unwrap();
    assert_eq!(read(&store, CLONE, MIB, 10).unwrap(), [7; 10]);
    store.write(CLONE, 2 * MIB as u64, &[7; 4096], &info(3)).unwrap();
    let beside = read(&store, CLONE, 2 * MIB + 4096, 10);
    assert!(matches!(beside, Err(StoreError::BadBlock { block: 513, .. })), "never zeros: {beside:?}");
}

#[test]
fn a_base_is_deleted_from_a_full_disk() {
    for room in [0, 3 * MIB as u64 / 2] {
        let (disk, store) = shared();
        disk.set_capacity(Some(1 << 40));
        let space = disk.space(Path::new("/store")).unwrap();
        // What a disk keeps back is enough for an extent.
        let used = space.total - space.free;
        disk.set_capacity(Some(used + room + (3 * MIB as u64 / 2)));
        store.usage().unwrap();
        store.delete(&[BASE]).unwrap();
        for part in 0..4 {
            assert_eq!(read(&store, CLONE, part * MIB, MIB).unwrap(), vec![part as u8 + 1; MIB]);
        }
        disk.crash(room);
        let store = open(&disk);
        assert_eq!(read(&store, CLONE, 4 * MIB - 10, 10).unwrap(), [4; 10]);
        assert!(store.is_missing(BASE).unwrap());
    }
}

/// Two of three have room; the third goes on having blocks of it, and the deletion is asked for again.
#[test]
fn a_base_with_several_clones_stays_while_they_have_no_room() {
    let (disk, store) = shared();
    for id in [0x21, 0x22] {
        store.clone_chunk(ChunkId(id), BASE, &info(1)).unwrap();
    }
    disk.set_capacity(Some(1 << 40));
    let space = disk.space(Path::new("/store")).unwrap();
    disk.set_capacity(Some(space.total - space.free + 6 * MIB as u64));
    store.usage().unwrap();
    assert!(store.delete(&[BASE]).unwrap_err().is_no_space());
    for id in [0x20, 0x21, 0x22, 0x10] {
        assert_eq!(read(&store, ChunkId(id), 4 * MIB - 10, 10).unwrap(), [4; 10]);
    }
    disk.set_capacity(None);
    store.delete(&[BASE]).unwrap();
    for id in [0x20, 0x21, 0x22] {
        assert_eq!(read(&store, ChunkId(id), 4 * MIB - 10, 10).unwrap(), [4; 10]);
    }
}

#[test]
fn clones_and_their_bases_stay_within_the_stores_descriptors() {
    let disk = SimDisk::new();
    let store = open_with(&disk, StoreOptions { open_chunks_max: 8, share_from_bytes: 0, ..StoreOptions::default() });
    for family in 0..10u64 {
        let id = |n: u64| ChunkId(family * 10 + n + 1);
        store.write(id(0), 0, &vec![family as u8; 20_000], &info(1)).unwrap();
        for n in 1..6 {
            store.clone_chunk(id(n), id(n - 1), &info(1)).unwrap();
        }
    }
    for round in 0..3 {
        for id in 1..100 {
            if let Ok(found) = read(&store, ChunkId(id), 0, 20_000) {
                assert_eq!(found, vec![((id - 1) / 10) as u8; 20_000], "round {round}");
            }
        }
    }
    assert_eq!(store.list(ChunkId(0), 1000).len(), 60);
    for family in 0..10u64 {
        store.delete(&[ChunkId(family * 10 + 3)]).unwrap();
        assert_eq!(read(&store, ChunkId(family * 10 + 6), 19_999, 1).unwrap(), [family as u8]);
    }
}
