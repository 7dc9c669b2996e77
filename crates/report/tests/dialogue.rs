//! The dialogue between what is there and what rows name.
#![allow(clippy::unwrap_used)]

mod common;

use braid_report::{Compared, Holdings, Mixer};
use braid_types::{ChunkId, ContainerId, ReportAsk, ReportPart};
use common::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const LIST_BYTES_A_CHUNK: usize = 8;

#[test]
fn equal_states_compare_equal_in_whatever_order_they_came_about() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let mixer = Mixer { key: random.random() };
        let chunks = random.random_range(0..2_000u64);
        let state = state(chunks, random.random_range(1..300));
        let mut there = Holdings::default();
        there.use_key(mixer.key);
        // In another order, with detours.
        let mut order = state.clone();
        for i in (1..order.len()).rev() {
            order.swap(i, random.random_range(0..=i));
        }
        for (container, chunk) in order {
            there.insert(chunk, container);
            if random.random_range(0..4) == 0 {
                let other = ChunkId(1_000_000 + random.random_range(0..1_000));
                there.insert(other, ContainerId(random.random_range(0..400)));
                if random.random_range(0..2) == 0 {
                    there.remove(chunk);
                    there.insert(chunk, container);
                }
                there.remove(other);
            }
        }
        let talk = talk(&there, &state, &[], mixer);
        assert_eq!((talk.found, talk.questions), (Compared::default(), 1), "seed {seed}");
    }
}

#[test]
fn any_single_chunk_that_is_lost_extra_or_exchanged_is_found() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let mixer = Mixer { key: random.random() };
        let chunks = random.random_range(1..3_000u64);
        let state = state(chunks, [1, 7, 256][seed as usize % 3]);
        let mut there = holdings(&state, mixer);
        let (container, lost) = state[random.random_range(0..state.len())];
        let extra = ChunkId(5_000_000 + random.random_range(0..1_000));
        let mut expected = Compared::default();
        if seed % 3 != 1 {
            there.remove(lost);
            expected.lost.push((container, lost));
        }
        if seed % 3 != 0 {
            there.insert(extra, container);
            expected.extra.push((container, extra));
        }
        assert_eq!(talk(&there, &state, &[], mixer).found, expected, "seed {seed}");
    }
}

#[test]
fn everything_that_differs_is_found_whatever_it_is() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let mixer = Mixer { key: random.random() };
        let state = state(2_000, random.random_range(1..257));
        let mut there = holdings(&state, mixer);
        let mut expected = Compared::default();
        for (container, chunk) in &state {
            if random.random_range(0..50) == 0 {
                there.remove(*chunk);
                expected.lost.push((*container, *chunk));
            }
        }
        for i in 0..random.random_range(0..40) {
            let (container, chunk) = (ContainerId(random.random_range(1..400)), ChunkId(9_000_000 + i));
            there.insert(chunk, container);
            expected.extra.push((container, chunk));
        }
        let mut found = talk(&there, &state, &[], mixer).found;
        [&mut found, &mut expected].into_iter().for_each(|it| {
            it.lost.sort();
            it.extra.sort();
        });
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn spares_and_what_is_being_freed_may_be_there_or_not() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let mixer = Mixer { key: random.random() };
        let state = state(1_000, 100);
        let mut there = holdings(&state, mixer);
        let count = random.random_range(0..60);
        let may: Vec<_> = (0..count).map(|i| (ContainerId(1 + i % 12), ChunkId(7_000_000 + i))).collect();
        may.iter()
            .filter(|_| random.random_range(0..2) == 0)
            .for_each(|(container, chunk)| there.insert(*chunk, *container));
        let quiet = talk(&there, &state, &may, mixer);
        assert_eq!(quiet.found, Compared::default(), "seed {seed}");
        // A real difference is seen among them.
        let (container, lost) = state[random.random_range(0..state.len())];
        there.remove(lost);
        assert_eq!(talk(&there, &state, &may, mixer).found.lost, [(container, lost)], "seed {seed}");
    }
}

#[test]
fn a_report_of_100_000_chunks_costs_bytes_by_what_differs() {
    let mixer = Mixer { key: 4711 };
    for (per_container, one_most, hundred_most) in [(256, 1_000, 40_000), (8, 8_000, 50_000)] {
        let state = state(100_000, per_container);
        let mut there = holdings(&state, mixer);
        let equal = talk(&there, &state, &[], mixer);
        assert!(equal.bytes <= 32, "{}", equal.bytes);
        there.remove(state[50_000].1);
        let one = talk(&there, &state, &[], mixer);
        assert_eq!(one.found.lost.len(), 1);
        assert!(one.bytes < one_most, "{}", one.bytes);
        for i in 1..100 {
            there.remove(state[i * 1_000].1);
        }
        let hundred = talk(&there, &state, &[], mixer);
        assert!(hundred.found.lost.len() >= 99);
        assert!(hundred.bytes < hundred_most, "{}", hundred.bytes);
        let list = state.len() * LIST_BYTES_A_CHUNK;
        println!("{per_container} a container: {} {} {} against {list}", equal.bytes, one.bytes, hundred.bytes);
    }
}

/// Whoever answers need not be well.
#[test]
fn strange_answers_are_refused_and_strange_questions_answered_within_bounds() {
    let mixer = Mixer { key: 1 };
    let state = state(1_000, 100);
    let there = holdings(&state, mixer);
    let (_, expected) = expected(&state, &[], mixer);
    assert!(expected.fits(&ReportPart::Ids(Vec::new())).is_err());
    assert!(expected.shelves(&ReportPart::Shelves(Vec::new())).is_err());
    let ReportPart::Shelves(most) = there.answer(&ReportAsk::Shelves { shelves: u32::MAX }) else { panic!() };
    assert!(most.len() <= 1 << 12);
    let ReportPart::Shelves(least) = there.answer(&ReportAsk::Shelves { shelves: 0 }) else { panic!() };
    assert_eq!(least.len(), 1);
    let many = vec![(ContainerId(1), u32::MAX); 1_000];
    let ReportPart::Buckets(few) = there.answer(&ReportAsk::Buckets { of: many }) else { panic!() };
    assert_eq!(few.len(), 1);
    there.answer(&ReportAsk::Ids { of: vec![(ContainerId(1), 0, vec![0, u32::MAX])] });
    there.answer(&ReportAsk::Containers { shelves: 0, of: vec![7] });
}

#[test]
fn another_key_gives_other_numbers_of_the_same_chunks() {
    let state = state(500, 64);
    let mut there = holdings(&state, Mixer { key: 1 });
    let before = there.all();
    there.use_key(2);
    assert_eq!((there.all().count, there.all().sum == before.sum), (500, false));
    assert_eq!(talk(&there, &state, &[], Mixer { key: 2 }).found, Compared::default());
}
