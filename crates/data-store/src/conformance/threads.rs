use super::{info, must, read, read_beside};
use crate::ChunkStore;
use braid_types::ChunkId;

pub fn chunks_do_not_mix(store: &dyn ChunkStore) {
    std::thread::scope(|scope| {
        for id in 1..=4u8 {
            scope.spawn(move || {
                for n in 0..100u64 {
                    let offset = n * 3_000;
                    must("write", store.write(ChunkId(id.into()), offset, &[id; 3_000], &info(n)));
                    if n % 10 == u64::from(id) {
                        must("sync", store.sync_all());
                    }
                    assert!(read(store, ChunkId(id.into()), 0, (offset + 3_000) as usize).iter().all(|&b| b == id));
                }
            });
        }
    });
    let stable = must("sync_all", store.sync_all());
    assert_eq!(stable, store.write_seq());
}

/// A read sees all of a write or nothing of it.
pub fn one_chunk_is_never_torn(store: &dyn ChunkStore) {
    let id = ChunkId(1);
    must("write", store.write(id, 1_000, &[1; 20_000], &info(0)));
    std::thread::scope(|scope| {
        for writer in 2..=3u8 {
            scope.spawn(move || {
                for n in 0..150 {
                    must("write", store.write(id, 1_000, &[writer; 20_000], &info(n)));
                    if n % 25 == 0 {
                        must("sync", store.sync(&[id]));
                    }
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..300 {
                let bytes = read_beside(store, id, 1_000, 20_000);
                assert!(bytes.iter().all(|b| *b == bytes[0]), "a torn read");
            }
        });
    });
}
