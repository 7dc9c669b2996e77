//! What a disk store says and does when the disk, the directory or the process fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use braid_data_store::{
    BadBlockCause, ChunkStore, DamagedPart, DiskStore, FORMAT_VERSION, Result, ScrubCursor, StoreError, StoreIdentity,
    StoreOptions, WriteInfo,
};
use braid_env::simdisk::{SimDisk, SyncFault};
use braid_env::{Disk, OpenMode};
use braid_local::{LocalFetch, LocalRead};
use braid_types::{ByteRange, ChunkId, ClusterId, ContainerId, ServerId, Version};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ID: ChunkId = ChunkId(0x1ff);
const CHUNK_BYTES: u64 = 4 << 20;

fn identity() -> StoreIdentity {
    StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(1) }
}

fn open(disk: &SimDisk) -> Result<DiskStore> {
    open_with(disk, StoreOptions::default())
}

fn open_with(disk: &SimDisk, options: StoreOptions) -> Result<DiskStore> {
    DiskStore::open_or_create(Arc::new(disk.clone()), Path::new("/store"), identity(), options)
}

fn info(counter: u64) -> WriteInfo<'static> {
    let version = Version { counter, ..Version::default() };
    WriteInfo { container: ContainerId(1), chunk_bytes: CHUNK_BYTES, version, ..WriteInfo::default() }
}

/// A store with one synced chunk of 16 KiB.
fn store() -> (SimDisk, DiskStore) {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    store.write(ID, 0, &[1; 16_384], &info(1)).unwrap();
    store.sync_all().unwrap();
    (disk, store)
}

fn data_file() -> PathBuf {
    PathBuf::from("/store/chunks/ff/00000000000001ff.data")
}

fn meta_file() -> PathBuf {
    data_file().with_extension("meta")
}

#[test]
fn a_block_that_rots_is_named_and_never_served() {
    let (disk, store) = store();
    disk.corrupt(&data_file(), 5_000, 1).unwrap();
    let mut buf = [0; 100];
    store.read(ID, 0, &mut buf).unwrap();
    let error = store.read(ID, 8_100, &mut buf).unwrap_err();
    assert_eq!(
        error.to_string(),
        "chunk 511, block 1 in /store/chunks/ff/00000000000001ff.data: its checksum is wrong"
    );
    disk.bad_range(&data_file(), 12_288..12_289).unwrap();
    let mut all = [0; 16_384];
    assert!(matches!(store.read(ID, 0, &mut all), Err(StoreError::BadBlock { block: 1, .. })));
    let unreadable = store.read(ID, 8_192, &mut all[..8_192]);
    let expected =
        |e: &StoreError| matches!(e, StoreError::BadBlock { block: 3, cause: BadBlockCause::Unreadable(_), .. });
    assert!(unreadable.is_err_and(|e| expected(&e)));
    assert_eq!(store.usage().unwrap().bad_blocks, 2);

    let step = store.scrub_step(ScrubCursor::default(), 1 << 20).unwrap();
    assert_eq!((step.bad, step.next, step.checked_bytes), (vec![(ID, 1), (ID, 3)], None, 16_384));

    assert!(store.write(ID, 5_000, b"part of a bad block", &info(2)).is_err());
    store.write(ID, 4_096, &[2; 4_096], &info(3)).unwrap();
    store.write(ID, 12_288, &[2; 4_096], &info(3)).unwrap();
    store.read(ID, 0, &mut all).unwrap();
    assert_eq!(store.usage().unwrap().bad_blocks, 0, "written whole, they are good again");
}

/// A chunk that cannot be verified hides nothing of the others, and nobody has to restart to find out that it is gone.
#[test]
fn a_scrub_goes_on_behind_a_damaged_chunk_and_tells_what_it_found_before() {
    let (disk, store) = store();
    let next = ChunkId(ID.0 + 1);
    for id in [ChunkId(3), next] {
        store.write(id, 0, &[1; 16_384], &info(1)).unwrap();
        store.sync(&[id]).unwrap();
    }
    let file = |id: ChunkId, suffix: &str| {
        Path::new("/store/chunks").join(format!("{:02x}/{:016x}.{suffix}", id.0 & 0xff, id.0))
    };
    disk.corrupt(&file(ChunkId(3), "data"), 5_000, 64).unwrap();
    disk.corrupt(&file(next, "data"), 9_000, 64).unwrap();
    disk.drop_caches();
    for missing in ["data", "meta"] {
        // It is open here: only its name tells.
        disk.remove(&file(ID, missing)).unwrap();
        let step = store.scrub_step(ScrubCursor::default(), 1 << 20).unwrap();
        assert_eq!(step.bad, [(ChunkId(3), 1)]);
        let (failed, error) = step.failed.unwrap();
        assert!(failed == ID && matches!(error, StoreError::Missing { .. }), "{error}");
        let step = store.scrub_step(step.next.unwrap(), 1 << 20).unwrap();
        assert_eq!((step.bad, step.next), (vec![(next, 2)], None));
        assert!(step.failed.is_none());
    }
}

/// Nothing of it is open: every block that had bytes is bad, none reads as zeros, and it takes writes again.
#[test]
fn a_copy_whose_data_is_gone_counts_as_bad_from_end_to_end() {
    let (disk, store) = store();
    let copy = ChunkId(0x77);
    let data = Path::new("/store/chunks/77/0000000000000077.data");
    store.create_copy(copy, ContainerId(1), 1 << 20).unwrap();
    store.write(copy, 0, &[7; 40_960], &info(1)).unwrap();
    let mark = store.sync_copy(copy).unwrap();
    store.put_record(copy, &mark, b"record").unwrap();
    drop(store);
    let store = open_with(&disk, StoreOptions { open_chunks_max: 1, ..StoreOptions::default() }).unwrap();
    for other in 1..4 {
        store.write(ChunkId(other), 0, &[1; 4_096], &info(1)).unwrap();
        store.sync(&[ChunkId(other)]).unwrap();
    }
    disk.remove(data).unwrap();
    assert!(matches!(store.read(copy, 0, &mut [0; 4_096]), Err(StoreError::Missing { .. })));
    let step = store.scrub_step(ScrubCursor { chunk: copy, block: 0 }, 1 << 20).unwrap();
    assert_eq!(step.bad, (0..10).map(|block| (copy, block)).collect::<Vec<_>>());
    assert!(step.failed.is_none() && matches!(store.read(copy, 0, &mut [0; 4_096]), Err(StoreError::BadBlock { .. })));
    store.write(copy, 0, &[8; 40_960], &info(2)).unwrap();
    let mut read = vec![0; 40_960];
    store.read(copy, 0, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 8));
}

#[test]
fn rot_is_not_taken_for_a_crash() {
    for seed in 0..10 {
        let (disk, store) = store();
        // Reopening makes the header with the synced length stable, as the next sync of the chunk would.
        store.write(ID, 0, &[1; 1], &info(2)).unwrap();
        store.close().unwrap();
        disk.corrupt(&data_file(), 9_000, 4).unwrap();
        disk.crash(seed);
        let store = open(&disk).unwrap();
        assert!(matches!(store.read(ID, 8_192, &mut [0; 4_096]), Err(StoreError::BadBlock { block: 2, .. })));
        assert_eq!(store.usage().unwrap().sealed_blocks, 0);
    }
}

#[test]
fn torn_writes_are_sealed_and_counted() {
    let sealed: u64 = (0..30)
        .map(|seed| {
            let (disk, store) = store();
            store.write(ID, 0, &[2; 16_384], &info(2)).unwrap();
            disk.crash(seed);
            let store = open(&disk).unwrap();
            let mut buf = [0; 16_384];
            store.read(ID, 0, &mut buf).unwrap();
            assert!(buf.iter().all(|b| [1, 2].contains(b)));
            store.usage().unwrap().sealed_blocks
        })
        .sum();
    assert!(sealed > 0);
}

#[test]
fn a_killed_process_loses_nothing() {
    let (disk, store) = store();
    let mut expected = vec![1; 16_384];
    for n in 0..50u8 {
        let at = usize::from(n) * 531;
        store.write(ID, at as u64, &[n; 700], &info(2 + u64::from(n))).unwrap();
        expected.resize(expected.len().max(at + 700), 0);
        expected[at..at + 700].fill(n);
    }
    store.punch(ID, ByteRange::new(4_000, 9_000), &info(60)).unwrap();
    expected[4_000..9_000].fill(0);
    disk.kill_process();
    let store = open(&disk).unwrap();
    let mut buf = vec![9; expected.len()];
    store.read(ID, 0, &mut buf).unwrap();
    assert!(buf == expected);
    let stat = store.stat(ID).unwrap();
    assert_eq!((stat.length, stat.version.counter), (expected.len() as u64, 60));
    assert_eq!(store.usage().unwrap().sealed_blocks, 0);
}

#[test]
fn a_failed_sync_stops_the_chunk_and_no_other() {
    let (disk, store) = store();
    let stable = store.stable_seq();
    store.write(ID, 0, &[2; 4_096], &info(2)).unwrap();
    disk.fail_next_sync(SyncFault::Error);
    assert!(store.sync(&[ID]).is_err());
    assert!(matches!(store.sync(&[ID]), Err(StoreError::Failed { .. })), "a second sync does not make it good");
    assert!(matches!(store.write(ID, 0, &[3], &info(3)), Err(StoreError::Failed { .. })));
    store.read(ID, 0, &mut [0; 4_096]).unwrap();
    store.write(ChunkId(2), 0, &[2], &info(1)).unwrap();
    store.sync(&[ChunkId(2)]).unwrap();
    assert!(store.sync_all().is_err());
    assert_eq!(store.stable_seq(), stable, "what is not stable is not called stable");
}

#[test]
fn a_full_disk_refuses_and_goes_on() {
    let (disk, store) = store();
    let mut buf = [0; 16_384];
    // Behind the store's back, as another program would.
    let used = (1 << 40) - disk.space(Path::new("/")).unwrap().free;
    disk.set_capacity(Some(used + 4_096 * 3));
    let refused = store.write(ID, 0, &[2; 100_000], &info(2)).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    store.read(ID, 0, &mut buf).unwrap();
    store.write(ID, 0, &[3; 4_096], &info(3)).unwrap();
    store.sync_all().unwrap();
    store.read(ID, 0, &mut buf).unwrap();
    assert_eq!(buf[..4_096], [3; 4_096]);
    disk.set_capacity(None);
    store.write(ID, 0, &[4; 100_000], &info(4)).unwrap();
}

#[test]
fn a_write_that_fails_half_way_leaves_a_readable_chunk() {
    let (disk, store) = store();
    store.write(ID, 0, &[2; 8_192], &info(2)).unwrap();
    disk.fail_writes(1);
    assert!(store.write(ID, 4_096, &[3; 12_288], &info(3)).is_err());
    let mut buf = [0; 16_384];
    store.read(ID, 0, &mut buf).unwrap();
    assert!(buf[..4_096].iter().all(|&b| b == 2));
    store.write(ID, 4_096, &[4; 12_288], &info(4)).unwrap();
    store.sync_all().unwrap();
}

#[test]
fn the_directory_is_checked_before_it_is_used() {
    let (disk, store) = store();
    let dir = Path::new("/store");
    let try_open = |disk: &SimDisk, identity| {
        let result = DiskStore::open(Arc::new(disk.clone()), dir, identity, StoreOptions::default());
        result.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(try_open(&disk, identity()), "/store is in use by another process");
    drop(store);
    let other = StoreIdentity { cluster: ClusterId([9; 16]), ..identity() };
    assert!(try_open(&disk, other).starts_with("/store belongs to cluster 0707"));
    let other = StoreIdentity { server: ServerId(2), ..identity() };
    assert_eq!(try_open(&disk, other), "/store belongs to data server 1, not to 2");
    disk.read_only(true);
    assert_eq!(try_open(&disk, identity()), "/store is on a read-only disk");
    disk.read_only(false);
    let file = disk.open(&dir.join("store.toml"), OpenMode::Existing).unwrap();
    let newer = format!("format = {}\ncluster = \"x\"\nserver = 1\n", FORMAT_VERSION + 1);
    file.set_len(0).unwrap();
    file.write_at(newer.as_bytes(), 0).unwrap();
    assert!(try_open(&disk, identity()).contains("format 2, this program knows 1"));
    file.write_at(b"rubbish", 0).unwrap();
    assert!(try_open(&disk, identity()).starts_with("/store is not a BraidFS data directory"));

    let foreign = SimDisk::new();
    foreign.create_dir_all(dir).unwrap();
    foreign.open(&dir.join("thesis.tex"), OpenMode::OrCreate).unwrap();
    assert!(open(&foreign).err().unwrap().to_string().contains("thesis.tex"));
    let full = SimDisk::new();
    full.set_capacity(Some(4_096));
    assert!(open(&full).err().unwrap().is_no_space());
}

#[test]
fn a_newer_or_damaged_chunk_is_refused_by_name() {
    let (disk, store) = store();
    store.close().unwrap();
    drop(store);
    let file = disk.open(&meta_file(), OpenMode::Existing).unwrap();
    for slot in 0..3 {
        file.write_at(&9u32.to_le_bytes(), slot * 512 + 8).unwrap();
    }
    let store = open(&disk).unwrap();
    assert!(store.stat(ID).is_err());
    for slot in 0..3 {
        file.write_at(b"garbage!", slot * 512).unwrap();
    }
    drop(store);
    let store = open(&disk).unwrap();
    assert!(matches!(store.stat(ID), Err(StoreError::BadHeader { chunk: ID, .. })));
}

#[test]
fn a_reader_beside_the_store_sees_what_is_written_later_and_believes_no_block_without_its_checksum() {
    let (disk, store) = store();
    let local = store.local(ID).unwrap().unwrap();
    let read = |offset, len| {
        let mut buf = vec![0xee; len];
        (local.read(offset, &mut buf, LocalFetch::Waiting) == LocalRead::Done).then_some(buf)
    };
    assert_eq!(read(4_000, 200), Some(vec![1; 200]));
    store.write(ID, 4_096, &[2; 8_192], &info(2)).unwrap();
    store.write(ID, 20_480, &[3; 100], &info(3)).unwrap();
    assert_eq!(read(4_095, 8_194), Some([&[1][..], &[2; 8_192], &[1]].concat()));
    assert_eq!(
        read(16_384, 8_192),
        Some([vec![0; 4_096], vec![3; 100], vec![0; 3_996]].concat()),
        "a hole, and the end"
    );
    assert_eq!(read(1 << 30, 10), Some(vec![0; 10]), "far beyond the end");
    assert_eq!(read(u64::MAX, 10), None);

    disk.corrupt(&data_file(), 5_000, 1).unwrap();
    assert_eq!((read(4_096, 10), read(0, 10)), (None, Some(vec![1; 10])));
    disk.bad_range(&data_file(), 12_288..12_289).unwrap();
    assert_eq!(read(8_192, 8_192), None);

    // Whether it is still to be read is not what the files say.
    store.delete(&[ID]).unwrap();
    assert_eq!(read(0, 10), Some(vec![1; 10]));
    assert!(matches!(store.local(ID), Err(StoreError::NoSuchChunk(ID))));
}

#[test]
fn a_store_stays_within_its_descriptors() {
    let disk = SimDisk::new();
    let options = StoreOptions { open_chunks_max: 8, ..StoreOptions::default() };
    let store = DiskStore::create(Arc::new(disk), Path::new("/store"), identity(), options).unwrap();
    for round in 0..3u8 {
        for id in 1..100 {
            store.write(ChunkId(id), 0, &[round; 5_000], &info(u64::from(round))).unwrap();
        }
    }
    for id in 1..100 {
        let mut buf = [9; 5_000];
        store.read(ChunkId(id), 0, &mut buf).unwrap();
        assert_eq!(buf, [2; 5_000]);
    }
}

#[test]
fn what_a_large_read_fetches_stays_if_it_is_read_again_and_is_not_kept_beside() {
    let (disk, store) = store();
    let bytes = vec![7; 256 << 10];
    store.write(ID, 0, &bytes, &info(2)).unwrap();
    let mut buf = vec![0; bytes.len()];
    let mut stays = |read: &dyn Fn(&mut [u8])| {
        disk.drop_caches();
        buf.fill(0);
        read(&mut buf);
        assert!(buf == bytes);
        store.read_cached(ID, 0, &mut buf).unwrap()
    };
    let plain = |buf: &mut [u8]| store.read(ID, 0, buf).unwrap();
    let kept_beside = |buf: &mut [u8]| store.read_kept_beside(ID, 0, buf).unwrap();
    assert!(!stays(&plain), "the first of a stream");
    assert!(stays(&plain), "read again");
    assert!(!stays(&kept_beside) && !stays(&kept_beside));
    assert!(stays(&plain), "by one that does not keep it");
    let small = |buf: &mut [u8]| {
        buf.chunks_mut(4096).zip(0..).for_each(|(part, i)| {
            store.read_kept_beside(ID, i * 4096, part).unwrap();
        })
    };
    assert!(stays(&small), "small reads are not worth it");
}

#[test]
fn what_a_large_write_brings_does_not_stay_if_it_is_kept_beside() {
    let (_, store) = store();
    let bytes = vec![7; 256 << 10];
    let mut buf = vec![0; bytes.len()];
    let mut stays = |chunk, part: usize, kept_beside| {
        let info = WriteInfo { kept_beside, ..info(2) };
        for (bytes, i) in bytes.chunks(part).zip(0..) {
            store.write(ChunkId(chunk), i * part as u64, bytes, &info).unwrap();
        }
        let stays = store.read_cached(ChunkId(chunk), 0, &mut buf).unwrap();
        store.read(ChunkId(chunk), 0, &mut buf).unwrap();
        assert!(buf == bytes);
        stays
    };
    assert!(stays(2, bytes.len(), false));
    assert!(!stays(3, bytes.len(), true));
    assert!(stays(ID.0, bytes.len(), true), "what overwrites synced blocks stays");
    assert!(stays(4, 64 << 10, true), "small writes are gathered here on their way to the disk");
}

#[test]
fn nothing_is_read_from_the_disk_inline() {
    let (disk, store) = store();
    let mut buf = [0; 4_096];
    assert!(store.read_cached(ID, 0, &mut buf).unwrap());
    disk.drop_caches();
    assert!(!store.read_cached(ID, 0, &mut buf).unwrap());
    store.read(ID, 0, &mut buf).unwrap();
    assert!(store.read_cached(ID, 0, &mut buf).unwrap());
}

/// What is wrong with the chunk, and whether its header can be read.
fn examined(store: &DiskStore, chunk: ChunkId) -> Option<(DamagedPart, String, bool)> {
    let found = store.examine(chunk).unwrap();
    found.damage.map(|d| (d.part, d.cause, found.stat.is_some()))
}

#[test]
fn files_that_are_gone_short_or_bad_are_found_while_the_store_has_them_open() {
    let (disk, store) = store();
    assert_eq!(examined(&store, ID), None);
    // A chunk may end in a hole, of which its file has nothing.
    store.write(ChunkId(2), 0, &[1; 8_192], &info(1)).unwrap();
    store.punch(ChunkId(2), ByteRange::new(4_096, 8_192), &info(2)).unwrap();
    disk.open(Path::new("/store/chunks/02/0000000000000002.data"), OpenMode::Existing).unwrap().set_len(4_096).unwrap();
    assert_eq!(examined(&store, ChunkId(2)), None);

    disk.open(&data_file(), OpenMode::Existing).unwrap().set_len(9_000).unwrap();
    let (part, cause, has_stat) = examined(&store, ID).unwrap();
    assert_eq!((part, has_stat), (DamagedPart::Data, true));
    assert!(cause.contains("block 2 in /store/chunks/ff/00000000000001ff.data"), "{cause}");
    disk.remove(&data_file()).unwrap();
    let (part, cause, has_stat) = examined(&store, ID).unwrap();
    assert_eq!((part, has_stat), (DamagedPart::Data, true));
    assert_eq!(cause, "chunk 511: /store/chunks/ff/00000000000001ff.data is missing");
    disk.remove(&meta_file()).unwrap();
    assert_eq!(examined(&store, ID).unwrap().0, DamagedPart::Header);

    store.write(ChunkId(3), 0, &[1; 16_384], &info(1)).unwrap();
    disk.corrupt(Path::new("/store/chunks/03/0000000000000003.data"), 5_000, 64).unwrap();
    assert_eq!(examined(&store, ChunkId(3)), None, "nobody has read it");
    store.scrub_step(ScrubCursor { chunk: ChunkId(3), block: 0 }, 1 << 20).unwrap();
    let (part, cause, _) = examined(&store, ChunkId(3)).unwrap();
    assert_eq!(part, DamagedPart::Data);
    assert!(cause.contains("1 block is damaged") && cause.ends_with("the first is block 1"), "{cause}");
}

#[test]
fn a_damaged_chunk_is_kept_beside_the_store_and_a_sound_one_stays() {
    let (disk, first) = store();
    first.write(ChunkId(2), 0, &[1; 100], &info(1)).unwrap();
    first.close().unwrap();
    drop(first);
    // Another chunk's header, under a name of its own.
    let stray = PathBuf::from("/store/chunks/07/0000000000000007.meta");
    let mut header = vec![0; 4_096];
    let n = disk.open(&meta_file(), OpenMode::Existing).unwrap().read_at(&mut header, 0).unwrap();
    disk.open(&stray, OpenMode::OrCreate).unwrap().write_at(&header[..n], 0).unwrap();
    disk.sync_dir(stray.parent().unwrap()).unwrap();
    disk.remove(&data_file()).unwrap();
    let store = open(&disk).unwrap();
    assert_eq!(examined(&store, ID).unwrap().0, DamagedPart::Data);
    let (part, cause, has_stat) = examined(&store, ChunkId(7)).unwrap();
    assert_eq!((part, has_stat), (DamagedPart::Header, false));
    assert!(cause.contains("0000000000000007.meta is damaged: it is another chunk's"), "{cause}");
    assert!(matches!(store.read(ID, 0, &mut [0; 1]), Err(StoreError::Missing { .. })));

    assert_eq!(store.set_aside(ChunkId(7)).unwrap(), Some(PathBuf::from("/store/aside")));
    assert_eq!(store.set_aside(ChunkId(2)).unwrap(), None);
    assert!(matches!(store.examine(ChunkId(7)), Err(StoreError::NoSuchChunk(_))));
    disk.crash(1);
    let store = open(&disk).unwrap();
    assert_eq!(store.list(ChunkId(0), 9), [ChunkId(2), ID]);
    assert!(disk.open(Path::new("/store/aside/0000000000000007.meta"), OpenMode::Existing).is_ok());
    store.delete(&[ID]).unwrap();
    assert_eq!(store.list(ChunkId(0), 9), [ChunkId(2)]);
}
