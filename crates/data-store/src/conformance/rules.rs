//! Single rules of the contract, each with the least it takes to break it.

use super::{CHUNK_BYTES, CONTAINER, info, must, read, version};
use crate::{ChunkStore, Cuts, StoreError, WriteInfo};
use braid_types::{ByteRange, ChunkId, ChunkIndex, ContainerId, InodeId, TruncGen};

pub fn chunks_are_made_and_removed(store: &dyn ChunkStore) {
    let id = ChunkId(5);
    assert!(matches!(store.stat(id), Err(StoreError::NoSuchChunk(c)) if c == id));
    assert!(matches!(store.read(id, 0, &mut [0]), Err(StoreError::NoSuchChunk(_))));
    must("create", store.create(id, CONTAINER, CHUNK_BYTES));
    must("a second create does nothing", store.create(id, ContainerId(1), 4096));
    let stat = must("stat", store.stat(id));
    assert_eq!((stat.container, stat.chunk_bytes, stat.length), (CONTAINER, CHUNK_BYTES, 0));
    must("a first write creates", store.write(ChunkId(900), 4000, b"hello", &info(1)));
    assert_eq!(read(store, ChunkId(900), 3999, 8), b"\0hello\0\0");
    must("write", store.write(ChunkId(6), 0, b"x", &info(1)));
    assert_eq!(store.list(ChunkId(0), 2), [ChunkId(5), ChunkId(6)]);
    assert_eq!(store.list(ChunkId(6), 9), [ChunkId(900)]);
    assert_eq!(must("usage", store.usage()).chunks, 3);
    must("delete", store.delete(&[ChunkId(900), ChunkId(901)]));
    must("delete again", store.delete(&[ChunkId(900)]));
    assert!(store.stat(ChunkId(900)).is_err());
    assert_eq!(store.list(ChunkId(0), 9), [ChunkId(5), ChunkId(6)]);
    must("sync", store.sync(&[ChunkId(5)]));
    must("sync after a delete", store.sync_all());
}

pub fn versions_and_numbers_rise(store: &dyn ChunkStore) {
    let (a, b) = (ChunkId(1), ChunkId(2));
    let first = must("write", store.write(a, 0, b"1", &info(10)));
    assert_eq!(first.version, version(10));
    let second = must("write", store.write(b, 0, b"2", &info(3)));
    assert!(second.seq > first.seq && store.write_seq() >= second.seq);
    let lower = must("write", store.write(a, 0, b"3", &info(4)));
    assert_eq!(lower.version, version(10), "a chunk keeps its highest version");
    let synced = must("sync", store.sync(&[a]));
    assert_eq!((synced.len(), synced[0].chunk, synced[0].version), (1, a, version(10)));
    assert!(store.stable_seq() >= first.seq, "what was before the oldest unsynced write is stable");
    let stable = must("sync_all", store.sync_all());
    assert!(stable >= lower.seq && stable == store.stable_seq() && stable == store.write_seq());
    let third = must("write", store.write(a, 0, b"4", &info(11)));
    assert!(third.seq > stable);
    must("sync", store.sync(&[a, b]));
    assert!(store.stable_seq() >= third.seq);
}

pub fn the_file_is_remembered(store: &dyn ChunkStore) {
    let id = ChunkId(4);
    let of = |inode, index| WriteInfo { inode: InodeId(inode), index: ChunkIndex(index), ..info(1) };
    let file = || must("stat", store.stat(id).map(|stat| (stat.inode.0, stat.index.0)));
    must("create", store.create(id, CONTAINER, CHUNK_BYTES));
    assert_eq!(file(), (0, 0));
    must("write", store.write(id, 0, b"x", &of(77, 5)));
    must("write for nobody", store.write(id, 0, b"y", &of(0, 9)));
    must("punch", store.punch(id, ByteRange::new(0, 1), &info(2)));
    assert_eq!(file(), (77, 5), "what says nothing changes nothing");
    must("write", store.write(id, 0, b"z", &of(78, 1 << 40)));
    must("sync", store.sync(&[id]));
    assert_eq!(file(), (78, 1 << 40));
}

pub fn truncate_generations_are_kept(store: &dyn ChunkStore) {
    let id = ChunkId(1);
    let cuts = |trunc_gen, list| Cuts { trunc_gen: TruncGen(trunc_gen), list };
    let with = |cuts| WriteInfo { cuts, ..info(1) };
    must("write", store.write(id, 0, &[7; 10_000], &info(1)));
    let list = [(TruncGen(1), 9_000), (TruncGen(2), 5_000), (TruncGen(3), 6_000)];
    must("the shortest of the newer cuts counts", store.apply_cuts(id, &cuts(3, &list)));
    let stat = must("stat", store.stat(id));
    assert_eq!((stat.length, stat.trunc_gen), (5_000, TruncGen(3)));
    must("write", store.write(id, 9_000, b"end", &with(cuts(3, &[]))));
    let bytes = read(store, id, 0, 9_003);
    assert!(bytes[..5_000].iter().all(|&b| b == 7), "below the cut nothing changes");
    assert!(bytes[5_000..9_000].iter().all(|&b| b == 0), "what was cut reads as zeros when the chunk grows");
    let stale = store.write(id, 0, b"old", &with(cuts(2, &[])));
    assert!(matches!(stale, Err(StoreError::StaleTruncGen { seen: TruncGen(3), got: TruncGen(2), .. })));
    assert!(matches!(store.apply_cuts(id, &cuts(1, &[])), Err(StoreError::StaleTruncGen { .. })));
    assert!(store.punch(id, ByteRange::new(0, 9), &with(cuts(0, &[]))).is_err());
    let list = [(TruncGen(3), 0), (TruncGen(4), 4_096)];
    must("a write brings its cut", store.write(id, 8_192, b"z", &with(cuts(4, &list))));
    let bytes = read(store, id, 0, 8_193);
    assert!(bytes[..4_096].iter().all(|&b| b == 7) && bytes[4_096..8_192].iter().all(|&b| b == 0));
    must("a cut beyond the end only raises the generation", store.apply_cuts(id, &cuts(9, &[(TruncGen(9), 1 << 20)])));
    let stat = must("stat", store.stat(id));
    assert_eq!((stat.length, stat.trunc_gen), (8_193, TruncGen(9)));
}

pub fn bounds_are_checked(store: &dyn ChunkStore) {
    let id = ChunkId(1);
    must("write to the end", store.write(id, CHUNK_BYTES - 1, b"x", &info(1)));
    for offset in [CHUNK_BYTES, u64::MAX] {
        let result = store.write(id, offset, b"x", &info(1));
        assert!(matches!(result, Err(StoreError::BeyondChunk { chunk_bytes: CHUNK_BYTES, .. })), "{result:?}");
    }
    assert_eq!(read(store, id, u64::MAX - 10, 4), [0; 4]);
    assert_eq!(read(store, id, CHUNK_BYTES - 2, 4), [0, b'x', 0, 0]);
    must("a write of nothing", store.write(id, 0, b"", &info(2)));
    let unmade = store.write(ChunkId(2), 0, b"x", &WriteInfo::default());
    assert!(matches!(unmade, Err(StoreError::NoSuchChunk(_))), "a chunk has a size");
}

pub fn space_is_promised_and_kept(store: &dyn ChunkStore) {
    let usage = must("usage", store.usage());
    let (a, b) = (ChunkId(1), ChunkId(2));
    let too_much = store.reserve(a, usage.free_bytes + 1);
    assert!(matches!(too_much, Err(StoreError::NoSpace { .. })), "{too_much:?}");
    must("reserve", store.reserve(a, 1 << 20));
    assert_eq!(must("usage", store.usage()).reserved_bytes, 1 << 20);
    // Another chunk takes all that is not reserved.
    let mut refused = None;
    for n in 0..(3 << 20) / 65_536 {
        if let Err(error) = store.write(b, n * 65_536, &[1; 65_536], &info(1)) {
            refused = Some(error);
        }
    }
    for n in 0..96 {
        if let Err(error) = store.write(ChunkId(3 + n / 48), n % 48 * 65_536, &[1; 65_536], &info(1)) {
            refused = Some(error);
        }
    }
    assert!(refused.is_some_and(|error| error.is_no_space()), "a store of 8 MiB must fill up");
    for n in 0..16 {
        must("what is reserved can be written", store.write(a, n * 65_536, &[2; 65_536], &info(1)));
    }
    must("sync", store.sync_all());
    assert!(store.write(a, 2 << 20, &[3; 1 << 20], &info(1)).is_err());
    must("overwriting needs no space", store.write(a, 0, &[4; 65_536], &info(1)));
    assert_eq!(read(store, a, 0, 65_536), [4; 65_536]);
    assert!(read(store, a, 65_536, 15 * 65_536).iter().all(|&b| b == 2), "a refused write changes nothing");
    must("delete", store.delete(&[b, ChunkId(3), ChunkId(4)]));
    must("what was deleted is free", store.reserve(b, 2 << 20));
    store.unreserve(b, u64::MAX);
    store.unreserve(b, 5);
    let reserved = || must("usage", store.usage()).reserved_bytes;
    for bytes in [300_000, 65_536, 300_000] {
        must("reserve_at_least", store.reserve_at_least(b, bytes));
        assert_eq!(reserved(), 300_000);
    }
    must("write", store.write(b, 0, &[5; 65_536], &info(1)));
    assert_eq!(reserved(), 300_000 - 65_536);
    must("reserve_at_least", store.reserve_at_least(b, 300_000));
    assert_eq!(reserved(), 300_000, "as much as before, although some is used");
    let too_much = store.reserve_at_least(b, 1 << 40);
    assert!(matches!(too_much, Err(StoreError::NoSpace { .. })) && reserved() == 300_000, "{too_much:?}");
    store.unreserve(b, u64::MAX);
    assert_eq!(must("usage", store.usage()).reserved_bytes, 0);
}
