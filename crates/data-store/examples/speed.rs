//! Speed of a disk store beside the bare system calls: `cargo run --release --example speed -- DIR`.

use braid_data_store::{ChunkStore, DiskStore, StoreIdentity, StoreOptions, WriteInfo};
use braid_env::os::OsDisk;
use braid_env::{Disk, OpenMode};
use braid_types::{ChunkId, ClusterId, ContainerId, ServerId, Version};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const CHUNK_BYTES: u64 = 64 << 20;

/// Calls `work` for each position of a chunk, best of five rounds, and prints time a call and bytes a second.
fn measure(name: &str, step: usize, mut work: impl FnMut(u64)) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for at in (0..CHUNK_BYTES).step_by(step) {
            work(at);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    let calls = CHUNK_BYTES as f64 / step as f64;
    println!("{name:28} {:8.2} µs {:7.2} GB/s", best / calls * 1e6, CHUNK_BYTES as f64 / best / 1e9);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("name a directory for the store")?);
    let identity = StoreIdentity { cluster: ClusterId([1; 16]), server: ServerId(1) };
    let store = DiskStore::open_or_create(Arc::new(OsDisk), &dir, identity, StoreOptions::default())?;
    let id = ChunkId(1);
    let info = WriteInfo { container: ContainerId(1), chunk_bytes: CHUNK_BYTES, ..WriteInfo::default() };
    let bare = OsDisk.open(&dir.join("bare"), OpenMode::OrCreate)?;
    let mut buf = vec![7; 1 << 20];
    for (size, name) in [(1 << 20, "1 MiB"), (128 << 10, "128 KiB"), (4096, "4 KiB")] {
        let bytes = &mut buf[..size];
        measure(&format!("pwrite {name}"), size, |at| bare.write_at(bytes, at).expect("write"));
        measure(&format!("write {name}"), size, |at| {
            store.write(id, at, bytes, &info).expect("write");
        });
        measure(&format!("pread {name}"), size, |at| {
            bare.read_at(bytes, at).expect("read");
        });
        measure(&format!("read {name}"), size, |at| store.read(id, at, bytes).expect("read"));
        measure(&format!("read_cached {name}"), size, |at| {
            store.read_cached(id, at, bytes).expect("read");
        });
    }
    let small = &buf[..1000];
    measure("write 1000 B in a block", 4096, |at| {
        store.write(id, at + 100, small, &info).expect("write");
    });
    let start = Instant::now();
    for n in 0..100 {
        store.write(id, n * 8192, &buf[..4096], &info)?;
        store.sync(&[id])?;
    }
    println!("write 4 KiB + sync           {:8.0} µs", start.elapsed().as_secs_f64() * 1e4);
    OsDisk.remove(&dir.join("bare"))?;
    store.sync_all()?;
    for round in 0..3 {
        let clone = ChunkId(2 + round);
        let versioned = WriteInfo { version: Version { counter: 1, ..Version::default() }, ..info };
        let start = Instant::now();
        store.clone_chunk(clone, id, &versioned)?;
        let cloned = start.elapsed();
        let start = Instant::now();
        store.write(clone, 4096, &buf[..4096], &versioned)?;
        let first = start.elapsed();
        let start = Instant::now();
        store.write(clone, 8192, &buf[..4096], &versioned)?;
        println!("clone 64 MiB {cloned:?}, its first write of 4 KiB {first:?}, the second {:?}", start.elapsed());
        let start = Instant::now();
        let mut read = vec![0; 1 << 20];
        for at in (0..CHUNK_BYTES).step_by(1 << 20) {
            store.read(clone, at, &mut read)?;
        }
        println!("read 64 MiB of it {:?}", start.elapsed());
    }
    let start = Instant::now();
    store.delete(&[id])?;
    println!("delete what three clones share with {:?}", start.elapsed());
    Ok(())
}
