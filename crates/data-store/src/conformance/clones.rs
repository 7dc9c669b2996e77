//! Chunks that are made from others: what they have, and that neither changes with the other.

use super::contents::Dice;
use super::{CHUNK_BYTES, CONTAINER, info, must, read, version};
use crate::{ChunkHead, ChunkStore, Cuts, StoreError, WriteInfo};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ChunkIndex, InodeId, TruncGen, Version};
use std::collections::BTreeMap;

const FROM: ChunkId = ChunkId(0x101);
const TO: ChunkId = ChunkId(0x202);

fn whole(store: &dyn ChunkStore, chunk: ChunkId) -> Vec<u8> {
    read(store, chunk, 0, CHUNK_BYTES as usize)
}

/// Data, a hole, data over the border of an extent, and a last block of which there is only a part.
fn made(store: &dyn ChunkStore, chunk: ChunkId) -> Vec<u8> {
    must("write", store.write(chunk, 0, &[1; 70_000], &info(1)));
    must("write", store.write(chunk, (1 << 20) - 5_000, &[2; 10_000], &info(2)));
    must("write", store.write(chunk, 3 << 20, &[3; 5_001], &info(3)));
    must("punch", store.punch(chunk, ByteRange::new(8_192, 16_384), &info(4)));
    whole(store, chunk)
}

pub fn a_clone_begins_as_the_other_and_neither_changes_with_the_other(store: &dyn ChunkStore) {
    let content = made(store, FROM);
    let of_file = WriteInfo { inode: InodeId(9), index: ChunkIndex(4), ..info(1) };
    let cloned = must("clone", store.clone_chunk(TO, FROM, &of_file));
    assert_eq!((cloned.version, cloned.grew), (version(1), true));
    assert!(whole(store, TO) == content);
    let stat = |chunk| must("stat", store.stat(chunk));
    assert_eq!(
        (stat(TO).length, stat(TO).chunk_bytes, stat(TO).container),
        (stat(FROM).length, CHUNK_BYTES, CONTAINER)
    );
    assert_eq!((stat(TO).inode, stat(TO).index, stat(TO).unsure), (InodeId(9), ChunkIndex(4), false));
    let all = ByteRange::new(0, CHUNK_BYTES);
    assert_eq!(must("extents", store.extents(TO, all)), must("extents", store.extents(FROM, all)));
    assert!(must("examine", store.examine(TO)).damage.is_none());
    assert!(must("scrub", store.scrub_step(Default::default(), 64 << 20)).bad.is_empty());

    must("write", store.write(TO, 100, &[9; 20], &info(2)));
    let mut changed = content.clone();
    changed[100..120].fill(9);
    assert!(whole(store, TO) == changed && whole(store, FROM) == content);
    must("write", store.write(FROM, 60_000, &[8; 20_000], &info(5)));
    must("punch", store.punch(FROM, ByteRange::new(1 << 20, CHUNK_BYTES), &info(6)));
    assert!(whole(store, TO) == changed, "what becomes of the other does not matter");
    must("again", store.clone_chunk(TO, FROM, &of_file));
    assert!(whole(store, TO) == changed, "an attempt that comes again does nothing");
    must("delete", store.delete(&[FROM]));
    assert!(whole(store, TO) == changed);
    must("sync", store.sync_all());
    assert!(matches!(store.clone_chunk(ChunkId(5), FROM, &info(1)), Err(StoreError::NoSuchChunk(id)) if id == FROM));
    assert!(matches!(store.stat(ChunkId(5)), Err(StoreError::NoSuchChunk(_))));
}

pub fn what_was_cut_since_is_not_in_the_clone(store: &dyn ChunkStore) {
    let content = made(store, FROM);
    let list = [(TruncGen(2), 66_000)];
    let cuts = Cuts { trunc_gen: TruncGen(3), list: &list };
    must("clone", store.clone_chunk(TO, FROM, &WriteInfo { cuts, ..info(1) }));
    let stat = must("stat", store.stat(TO));
    assert_eq!((stat.length, stat.trunc_gen), (66_000, TruncGen(3)));
    assert!(whole(store, TO)[..66_000] == content[..66_000] && whole(store, FROM) == content);
    must("write", store.write(TO, 100_000, &[4], &WriteInfo { cuts, ..info(2) }));
    assert!(read(store, TO, 66_000, 34_000).iter().all(|byte| *byte == 0), "nothing of it comes back");
    let small = WriteInfo { chunk_bytes: 4096, ..info(1) };
    assert!(matches!(store.clone_chunk(ChunkId(5), FROM, &small), Err(StoreError::BeyondChunk { .. })));
}

pub fn a_clone_is_cloned_again(store: &dyn ChunkStore) {
    let mut contents = vec![made(store, ChunkId(1))];
    for n in 1..12u64 {
        let (from, to) = (ChunkId(n), ChunkId(n + 1));
        must("clone", store.clone_chunk(to, from, &info(1)));
        let mut content = contents[n as usize - 1].clone();
        let at = n as usize * 5_000;
        must("write", store.write(to, at as u64, &[n as u8; 10], &info(2)));
        content[at..at + 10].fill(n as u8);
        contents.push(content);
    }
    let check = |contents: &[Vec<u8>], but: &[u64]| {
        for (content, n) in contents.iter().zip(1..).filter(|(_, n)| !but.contains(n)) {
            assert!(&whole(store, ChunkId(n)) == content, "clone {n}, without {but:?}");
        }
    };
    check(&contents, &[]);
    must("delete one in the middle", store.delete(&[ChunkId(5)]));
    check(&contents, &[5]);
    must("delete the first, and one that has blocks of it", store.delete(&[ChunkId(1), ChunkId(2)]));
    check(&contents, &[1, 2, 5]);
    // Two of one.
    must("clone", store.clone_chunk(ChunkId(50), ChunkId(3), &info(1)));
    must("clone", store.clone_chunk(ChunkId(51), ChunkId(3), &info(1)));
    must("delete", store.delete(&[ChunkId(3)]));
    assert!(whole(store, ChunkId(50)) == contents[2] && whole(store, ChunkId(51)) == contents[2]);
}

pub fn blocks_of_a_copy_are_cloned(store: &dyn ChunkStore) {
    must("create", store.create_copy(FROM, CONTAINER, CHUNK_BYTES));
    let content = made(store, FROM);
    must("create", store.create_copy(TO, CONTAINER, CHUNK_BYTES));
    must("write", store.write(TO, 4_096, &[7; 8_192], &info(1)));
    must("write", store.write(TO, (3 << 20) + 4_096, &[7; 4_096], &info(1)));
    let half = 256 + 10;
    must("clone", store.clone_blocks(TO, FROM, 2..half, &info(2)));
    let mut expected = vec![0; CHUNK_BYTES as usize];
    expected[4_096..8_192].fill(7);
    expected[8_192..half as usize * 4_096].copy_from_slice(&content[8_192..half as usize * 4_096]);
    expected[(3 << 20) + 4_096..(3 << 20) + 8_192].fill(7);
    assert!(whole(store, TO) == expected, "only what was named");
    must("clone the rest", store.clone_blocks(TO, FROM, 0..u64::MAX / BLOCK_BYTES, &info(3)));
    assert!(whole(store, TO) == content, "and zeros behind the other's end");
    let head = ChunkHead { chunk_bytes: CHUNK_BYTES, length: 66_000, ..ChunkHead::default() };
    must("a head that cuts", store.set_head(TO, &head));
    assert!(whole(store, TO)[..66_000] == content[..66_000]);
    let mark = must("sync", store.sync_copy(TO));
    must("record", store.put_record(TO, &mark, b"r"));
    must("delete", store.delete(&[FROM]));
    assert!(
        whole(store, TO)[..66_000] == content[..66_000] && whole(store, TO)[66_000..].iter().all(|byte| *byte == 0)
    );
    assert_eq!(must("seal", store.seal(TO, 0..20)), 0);
}

pub fn random_clones_match_plain_bytes(store: &dyn ChunkStore, seed: u64) {
    let dice = &mut Dice::new(seed);
    let mut chunks: BTreeMap<u64, (Vec<u8>, u64)> = BTreeMap::new();
    for step in 1..250 {
        let id = 1 + dice.below(5);
        let other = 1 + dice.below(5);
        let range = dice.range(CHUNK_BYTES);
        let (start, end) = (range.start as usize, range.end as usize);
        match (dice.below(10), chunks.contains_key(&id)) {
            (0..3, _) => {
                let bytes = dice.bytes(end - start);
                must("write", store.write(ChunkId(id), range.start, &bytes, &info(step)));
                let (plain, length) = chunks.entry(id).or_insert_with(|| (vec![0; CHUNK_BYTES as usize], 0));
                plain[start..end].copy_from_slice(&bytes);
                *length = range.end.max(*length);
            }
            (3, true) => {
                must("punch", store.punch(ChunkId(id), range, &info(step)));
                chunks.entry(id).and_modify(|(plain, _)| plain[start..end].fill(0));
            }
            (4..6, false) if chunks.contains_key(&other) => {
                must("clone", store.clone_chunk(ChunkId(id), ChunkId(other), &info(step)));
                chunks.insert(id, chunks[&other].clone());
            }
            (4..6, true) if id != other && chunks.contains_key(&other) => {
                let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
                let unversioned = WriteInfo { version: Version::default(), ..info(step) };
                must("clone", store.clone_blocks(ChunkId(id), ChunkId(other), blocks.clone(), &unversioned));
                let (from, of) = chunks[&other].clone();
                let bytes =
                    (blocks.start * BLOCK_BYTES) as usize..((blocks.end * BLOCK_BYTES).min(CHUNK_BYTES)) as usize;
                chunks.entry(id).and_modify(|(plain, length)| {
                    *length = of.min(bytes.end as u64).max(*length);
                    plain[bytes.clone()].copy_from_slice(&from[bytes]);
                });
            }
            (6, true) => {
                must("delete", store.delete(&[ChunkId(id)]));
                chunks.remove(&id);
            }
            (7, true) => drop(must("sync", store.sync(&[ChunkId(id)]))),
            (_, true) => {
                let bytes = read(store, ChunkId(id), range.start, end - start);
                assert!(bytes == chunks[&id].0[start..end], "seed {seed}, step {step}: read of {range:?} of {id}");
            }
            _ => {}
        }
        for (id, (_, length)) in &chunks {
            assert_eq!(must("stat", store.stat(ChunkId(*id))).length, *length, "seed {seed}, step {step}, chunk {id}");
        }
    }
    for (id, (plain, _)) in &chunks {
        assert!(&whole(store, ChunkId(*id)) == plain, "seed {seed}, chunk {id}");
        assert!(must("examine", store.examine(ChunkId(*id))).damage.is_none());
    }
    assert!(must("scrub", store.scrub_step(Default::default(), 64 << 20)).bad.is_empty());
}
