//! Directories written by every version of the format open in this one, byte for byte.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use braid_data_store::{ChunkStore, Cuts, DiskStore, StoreIdentity, StoreOptions, WriteInfo};
use braid_env::os::OsDisk;
use braid_types::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILES: [&str; 4] =
    ["store.toml", "activity", "chunks/2a/000000000000072a.data", "chunks/2a/000000000000072a.meta"];
/// Of a chunk and of one that was made from it, whose blocks are all the other's; since format 3.
const CLONE_FILES: [&str; 5] = [
    "chunks/2a/000000000000062a.data",
    "chunks/2a/000000000000062a.meta",
    "chunks/2a/000000000000082a.data",
    "chunks/2a/000000000000082a.meta",
    "chunks/2a/000000000000082a.base-000000000000062a",
];
const BASE: ChunkId = ChunkId(0x62a);
const CLONE: ChunkId = ChunkId(0x82a);
const ID: ChunkId = ChunkId(0x72a);
const FILE: (InodeId, ChunkIndex) = (InodeId(0x5001), ChunkIndex(6));

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn identity() -> StoreIdentity {
    StoreIdentity { cluster: ClusterId([0xb1; 16]), server: ServerId(7) }
}

fn version(counter: u64) -> Version {
    Version { chain_epoch: ChainEpoch(3), owner_term: OwnerTerm(2), counter }
}

fn write(store: &DiskStore, offset: u64, bytes: &[u8], counter: u64) {
    let cuts = Cuts { trunc_gen: TruncGen(4), list: &[] };
    let info = WriteInfo {
        container: ContainerId(9),
        chunk_bytes: 1 << 20,
        version: version(counter),
        inode: FILE.0,
        index: FILE.1,
        cuts,
        ..WriteInfo::default()
    };
    store.write(ID, offset, bytes, &info).unwrap();
}

fn check(store: &DiskStore, file: (InodeId, ChunkIndex)) {
    let mut buf = vec![0xee; 16_384];
    store.read(ID, 0, &mut buf).unwrap();
    let mut expected = vec![0; 16_384];
    expected[..5_000].fill(1);
    expected[100..200].fill(2);
    expected[12_288..12_300].fill(3);
    assert!(buf == expected);
    let stat = store.stat(ID).unwrap();
    assert_eq!((stat.container, stat.chunk_bytes, stat.length), (ContainerId(9), 1 << 20, 12_300));
    assert_eq!((stat.version, stat.trunc_gen), (version(8), TruncGen(4)));
    assert_eq!((stat.inode, stat.index), file);
    let extents = store.extents(ID, ByteRange::new(8_192, 12_288)).unwrap();
    assert!(!extents[0].data);
}

/// The first version did not know the file.
#[test]
fn every_format_opens() {
    drop(opens("v1", &FILES, (InodeId(0), ChunkIndex(0))));
    drop(opens("v2", &FILES, FILE));
    let files: Vec<&str> = FILES.iter().chain(&CLONE_FILES).copied().collect();
    let (_dir, store) = opens("v3", &files, FILE);
    check_clone(&store);
    let cuts = Cuts { trunc_gen: TruncGen(4), list: &[] };
    store.write(BASE, 0, &[9], &WriteInfo { version: version(9), cuts, ..WriteInfo::default() }).unwrap();
    check_clone(&store);
}

fn check_clone(store: &DiskStore) {
    let mut buf = vec![0xee; 16_384];
    store.read(CLONE, 0, &mut buf).unwrap();
    let mut expected = vec![0; 16_384];
    expected[..5_000].fill(1);
    assert!(buf == expected);
}

fn opens(format: &str, files: &[&str], file_of_chunk: (InodeId, ChunkIndex)) -> (tempfile::TempDir, DiskStore) {
    let dir = tempfile::tempdir().unwrap();
    for shard in 0..256 {
        std::fs::create_dir_all(dir.path().join(format!("chunks/{shard:02x}"))).unwrap();
    }
    for file in files {
        std::fs::copy(golden().join(format).join(file), dir.path().join(file)).unwrap();
    }
    let store = DiskStore::open(Arc::new(OsDisk), dir.path(), identity(), StoreOptions::default()).unwrap();
    check(&store, file_of_chunk);
    assert_eq!(store.usage().unwrap().sealed_blocks, 0);
    (dir, store)
}

/// Wrote the files of `v3`, and those of `v2` and `v1` before. Kept to show what they hold; the next version of the format makes a
/// `v4` beside them.
#[test]
#[ignore = "writes the golden files"]
fn write_golden_files() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { share_from_bytes: 0, ..StoreOptions::default() };
    let store = DiskStore::create(Arc::new(OsDisk), dir.path(), identity(), options).unwrap();
    write(&store, 0, &[1; 5_000], 1);
    store.sync_all().unwrap();
    let cuts = Cuts { trunc_gen: TruncGen(4), list: &[] };
    let info = WriteInfo {
        container: ContainerId(9),
        chunk_bytes: 1 << 20,
        version: version(2),
        cuts,
        ..WriteInfo::default()
    };
    store.write(BASE, 0, &[1; 5_000], &info).unwrap();
    store.clone_chunk(CLONE, BASE, &info).unwrap();
    check_clone(&store);
    // Logged, and not synced: the log has a record.
    write(&store, 100, &[2; 100], 7);
    write(&store, 12_288, &[3; 12], 8);
    check(&store, FILE);
    for file in FILES.iter().chain(&CLONE_FILES) {
        let target = golden().join("v3").join(file);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(dir.path().join(file), target).unwrap();
    }
}
