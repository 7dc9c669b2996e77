//! The examination of a chunk store: [`run`] for any store, with [`failing`] if what it stands on can be made to fail, and
//! [`crash`] for those that keep promises over a power cut.
//!
//! Checked: contents against plain bytes in memory, generations and versions, sequence numbers, space, names,
//! threads. Not checked: speed, and what two stores may do differently (when `read_cached` answers).

pub mod clones;
mod contents;
pub mod copies;
pub mod crash;
pub mod failing;
mod rules;
mod threads;

use crate::ChunkStore;
use braid_local::{LocalFetch, LocalRead};
use braid_types::{ChainEpoch, ChunkId, ContainerId, OwnerTerm, TruncGen, Version};

/// Bytes of the chunks of the suite: three extents of the activity log, and a part.
pub(crate) const CHUNK_BYTES: u64 = (3 << 20) + 12_288;
pub(crate) const CONTAINER: ContainerId = ContainerId(77);

/// Runs the whole examination. `make` gives an empty store that can hold at least 64 MiB, or, given a number, about
/// that many bytes (1 to 64 MiB). `failing` gives such an empty store and what it stands on, which is made to fail; `None`
/// for a store on something that does not fail on purpose, as a real disk.
///
/// # Panics
/// With the first rule that is broken.
pub fn run(make: &dyn Fn(Option<u64>) -> Box<dyn ChunkStore>, failing: Option<&dyn Fn() -> failing::Failing>) {
    rules::chunks_are_made_and_removed(make(None).as_ref());
    rules::versions_and_numbers_rise(make(None).as_ref());
    rules::truncate_generations_are_kept(make(None).as_ref());
    rules::the_file_is_remembered(make(None).as_ref());
    copies::a_copy_is_known_as_one(make(None).as_ref());
    copies::a_head_is_taken_as_it_is(make(None).as_ref());
    run_clones(make);
    rules::bounds_are_checked(make(None).as_ref());
    rules::space_is_promised_and_kept(make(Some(8 << 20)).as_ref());
    for seed in 0..8 {
        contents::random_changes_match_plain_bytes(make(None).as_ref(), seed);
    }
    contents::extents_tell_data_from_holes(make(None).as_ref());
    threads::chunks_do_not_mix(make(None).as_ref());
    threads::one_chunk_is_never_torn(make(None).as_ref());
    if let Some(make) = failing {
        failing::examine(make);
    }
}

/// The part of [`run`] that is about chunks made from others, for a store that shares in another way.
///
/// # Panics
/// With the first rule that is broken.
pub fn run_clones(make: &dyn Fn(Option<u64>) -> Box<dyn ChunkStore>) {
    clones::a_clone_begins_as_the_other_and_neither_changes_with_the_other(make(None).as_ref());
    clones::what_was_cut_since_is_not_in_the_clone(make(None).as_ref());
    clones::a_clone_is_cloned_again(make(None).as_ref());
    clones::blocks_of_a_copy_are_cloned(make(None).as_ref());
    for seed in 0..8 {
        clones::random_clones_match_plain_bytes(make(None).as_ref(), seed);
    }
}

pub(crate) fn version(counter: u64) -> Version {
    Version { chain_epoch: ChainEpoch(1), owner_term: OwnerTerm(1), counter }
}

pub(crate) fn info(counter: u64) -> crate::WriteInfo<'static> {
    let cuts = crate::Cuts { trunc_gen: TruncGen(0), list: &[] };
    crate::WriteInfo {
        container: CONTAINER,
        chunk_bytes: CHUNK_BYTES,
        version: version(counter),
        cuts,
        ..crate::WriteInfo::default()
    }
}

/// While others may be writing.
pub(crate) fn read_beside(store: &dyn ChunkStore, chunk: ChunkId, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    match store.read(chunk, offset, &mut buf) {
        Ok(()) => buf,
        Err(error) => panic!("a read of {len} bytes at {offset} failed: {error}"),
    }
}

/// While nobody writes the chunk.
pub(crate) fn read(store: &dyn ChunkStore, chunk: ChunkId, offset: u64, len: usize) -> Vec<u8> {
    let buf = read_beside(store, chunk, offset, len);
    // So a reader beside the store finds the same, up to where files end at all.
    if offset < i64::MAX as u64 - len as u64
        && let Some(local) = must("the files of a chunk that is there can be handed out", store.local(chunk))
    {
        let mut beside = vec![0xdd; len];
        assert_eq!(local.read(offset, &mut beside, LocalFetch::Waiting), LocalRead::Done, "{len} bytes at {offset}");
        assert!(beside == buf, "{len} bytes at {offset} are others beside the store");
    }
    buf
}

/// Unwraps with the rule that was broken.
pub(crate) fn must<T>(rule: &str, result: crate::Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{rule}: {error}"),
    }
}
