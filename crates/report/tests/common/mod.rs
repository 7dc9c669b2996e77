#![allow(dead_code, clippy::unwrap_used)]

use braid_report::*;
use braid_types::*;
use std::collections::BTreeSet;

pub type State = Vec<(ContainerId, ChunkId)>;

/// Chunks 1 to `chunks`, so many in a container.
pub fn state(chunks: u64, a_container: u64) -> State {
    (0..chunks).map(|i| (ContainerId(1 + i / a_container), ChunkId(1 + i))).collect()
}

pub fn holdings(state: &State, mixer: Mixer) -> Holdings {
    let mut there = Holdings::default();
    there.use_key(mixer.key);
    state.iter().for_each(|(container, chunk)| there.insert(*chunk, *container));
    there
}

pub fn view(
    state: &[(ContainerId, ChunkId)],
    may: &[(ContainerId, ChunkId)],
    mixer: Mixer,
    ids: BTreeSet<ContainerId>,
) -> View {
    let mut view = View::new(mixer, ids, BTreeSet::new());
    let named = |chunk: ChunkId| Named { inode: InodeId(chunk.0), index: ChunkIndex(0), stable: true };
    state.iter().for_each(|(container, chunk)| view.names(*container, *chunk, named(*chunk)));
    may.iter().for_each(|(container, chunk)| view.may_be(*container, *chunk));
    view
}

pub fn expected(state: &State, may: &[(ContainerId, ChunkId)], mixer: Mixer) -> (View, Expected) {
    let view = view(state, may, mixer, BTreeSet::new());
    let expected = Expected::of(&view, mixer, view.containers());
    (view, expected)
}

pub struct Talk {
    pub found: Compared,
    pub questions: usize,
    /// As the wire has them, both ways.
    pub bytes: usize,
}

/// The whole dialogue.
pub fn talk(there: &Holdings, state: &State, may: &[(ContainerId, ChunkId)], mixer: Mixer) -> Talk {
    let mut talk = Talk { found: Compared::default(), questions: 0, bytes: 0 };
    let mut ask = |ask: &ReportAsk| {
        let part = there.answer(ask);
        talk.questions += 1;
        talk.bytes += postcard::to_allocvec(ask).unwrap().len() + postcard::to_allocvec(&part).unwrap().len();
        part
    };
    let (_, expected) = expected(state, may, mixer);
    if expected.fits(&ask(&ReportAsk::All)).unwrap() {
        return talk;
    }
    let shelves = expected.shelves(&ask(&expected.ask_shelves())).unwrap();
    let differ = expected.containers(&shelves, &ask(&expected.ask_containers(&shelves))).unwrap();
    let second = view(state, may, mixer, differ.iter().map(|(id, _)| *id).collect());
    let buckets = Expected::ask_buckets(&differ);
    let ids = Expected::ask_ids(&second, mixer, &buckets, &ask(&buckets)).unwrap();
    let part = ask(&ids);
    talk.found = Expected::compare(&second, mixer, &ids, &part).unwrap();
    talk
}
