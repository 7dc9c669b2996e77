use super::*;
use crate::testing::{at, candidate};
use crate::{Domain, apart, apart_at_best};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const GOAL: Goal = Goal { within_permille: 50, bytes_least: MIB, bytes_reserved: 0 };

fn held(container: u64, chain: &[u64], bytes: u64) -> Holding {
    let chain = chain.iter().copied().map(ServerId).collect();
    Holding { container: ContainerId(container), chain, bytes, may_move: true }
}

/// One a host, with so much free.
fn servers(free: &[u64]) -> Vec<Candidate> {
    (1..).zip(free).map(|(id, free)| candidate(id, at("", &format!("h{id}"), 1), *free)).collect()
}

/// As everything lies after the plan.
fn after(candidates: &[Candidate], holdings: &[Holding], plan: &Plan) -> (Vec<Candidate>, Vec<Holding>) {
    let (mut candidates, mut holdings) = (candidates.to_vec(), holdings.to_vec());
    for Move { container, from, to, bytes, .. } in &plan.moves {
        let holding = holdings.iter_mut().find(|holding| holding.container == *container).unwrap();
        assert!(!holding.chain.contains(to), "two copies on {to}");
        assert_eq!(*bytes, holding.bytes);
        let place = holding.chain.iter_mut().find(|id| *id == from).unwrap();
        *place = *to;
        let domain = |id: &ServerId| candidates.iter().find(|c| c.id == *id).unwrap().domain.clone();
        let (gives, takes) = (domain(from), domain(to));
        let is_of = |a: &Candidate, id: ServerId, b: &Domain| {
            a.id == id || (a.domain.host == b.host && a.domain.disk == b.disk && b.disk != 0)
        };
        for candidate in &mut candidates {
            match (is_of(candidate, *from, &gives), is_of(candidate, *to, &takes)) {
                (true, false) => candidate.bytes_free += bytes,
                (false, true) => candidate.bytes_free -= bytes,
                _ => {}
            }
        }
    }
    (candidates, holdings)
}

fn moved(plan: &Plan) -> u64 {
    plan.moves.iter().map(|it| it.bytes).sum()
}

/// What must at least be moved so that all are equal.
fn least(plan: &Plan) -> u64 {
    plan.fills.iter().map(|fill| fill.bytes_now.saturating_sub(fill.bytes_fair)).sum()
}

#[test]
fn a_new_server_gets_its_part_and_no_more_is_moved_than_that() {
    // 90 containers of 100 MiB with one copy on each of three servers; two servers come. 27,000 MiB on five are 5,400 each,
    // and the old ones give 3 · 3,600 MiB.
    let all = servers(&[91 * GIB, 91 * GIB, 91 * GIB, 91 * GIB + 9000 * MIB, 91 * GIB + 9000 * MIB]);
    let holdings: Vec<_> = (1..=90).map(|id| held(id, &[1, 2, 3], 100 * MIB)).collect();
    let plan = rebalance(&all, &holdings, &[], GOAL);
    assert!(plan.fills.iter().all(|fill| fill.is_even && fill.bytes_fair == 5400 * MIB), "{:?}", plan.fills);
    // It ends as soon as all are within 5 %.
    assert_eq!(least(&plan), 10_800 * MIB);
    assert!((9_800 * MIB..=10_800 * MIB).contains(&moved(&plan)), "{} MiB", moved(&plan) / MIB);
    let (all, holdings) = after(&all, &holdings, &plan);
    assert_eq!(rebalance(&all, &holdings, &[], GOAL).moves, []);
}

#[test]
fn a_larger_disk_gets_more() {
    let all = servers(&[5 * GIB, 15 * GIB]);
    let holdings: Vec<_> = (1..=10).map(|id| held(id, &[1], GIB)).collect();
    let plan = rebalance(&all, &holdings, &[], GOAL);
    // 10 GiB on disks of 15 and 15: half each. On disks of 15 and 45: a quarter and three.
    assert_eq!(plan.fills.iter().map(|fill| fill.bytes_then / GIB).collect::<Vec<_>>(), [5, 5]);
    let plan = rebalance(&servers(&[5 * GIB, 45 * GIB]), &holdings, &[], GOAL);
    let then: Vec<u64> = plan.fills.iter().map(|fill| fill.bytes_then / GIB).collect();
    assert!(then == [2, 8] || then == [3, 7], "{then:?}");
}

#[test]
fn what_is_even_enough_stays_and_how_much_that_is_is_said() {
    let all = servers(&[100 * GIB, 100 * GIB]);
    let holdings: Vec<_> = (1..=21).map(|id| held(id, &[if id <= 11 { 1 } else { 2 }], 100 * MIB)).collect();
    assert_eq!(
        rebalance(&all, &holdings, &[], GOAL).moves,
        [],
        "1,100 and 1,000 MiB: 1,050 are fair, 5 % of it are 52"
    );
    // 1,200 and 900.
    let more = rebalance(
        &all,
        &holdings
            .iter()
            .map(|it| match it.container.0 {
                12 => Holding { chain: vec![ServerId(1)], ..it.clone() },
                _ => it.clone(),
            })
            .collect::<Vec<_>>(),
        &[],
        GOAL,
    );
    assert_eq!((more.moves.len(), moved(&more)), (1, 100 * MIB));
    let wide = Goal { within_permille: 200, ..GOAL };
    assert_eq!(rebalance(&all, &holdings, &[], wide).moves, []);
    // Crumbs are not worth a change of a chain.
    let crumbs: Vec<_> = (1..=10).map(|id| held(id, &[1], MIB / 10)).collect();
    assert_eq!(rebalance(&all, &crumbs, &[], GOAL).moves, []);
}

#[test]
fn what_cannot_get_better_stays_as_it_is() {
    // One container: wherever it lies, that server is the fullest.
    let all = servers(&[9 * GIB, 10 * GIB]);
    let plan = rebalance(&all, &[held(1, &[1], GIB)], &[], GOAL);
    assert!(plan.moves.is_empty() && plan.fills.iter().all(|fill| !fill.is_even), "{plan:?}");
    // The taker has a copy of each.
    let all = servers(&[9 * GIB, 10 * GIB, 10 * GIB]);
    let both: Vec<_> = (1..=4).map(|id| held(id, &[1, 2, 3], GIB)).collect();
    assert_eq!(rebalance(&all, &both, &[], GOAL).moves, []);
    // No room, or only with what is to stay free.
    let all = servers(&[GIB, 2 * GIB]);
    let four: Vec<_> = (1..=4).map(|id| held(id, &[1], GIB)).collect();
    assert_eq!(rebalance(&all, &four, &[], Goal { bytes_reserved: GIB + 1, ..GOAL }).moves, []);
    assert_eq!(rebalance(&all, &four, &[], GOAL).moves.len(), 1);
    assert_eq!(rebalance(&[], &four, &[], GOAL), Plan::default());
}

#[test]
fn what_leaves_is_down_or_changes_is_left_alone() {
    let mut all = servers(&[9 * GIB, 9 * GIB, 20 * GIB, 20 * GIB]);
    all[3].takes_new = false;
    let mut holdings: Vec<_> = (1..=8).map(|id| held(id, &[1, if id < 5 { 2 } else { 4 }], GIB)).collect();
    holdings[0].may_move = false;
    let plan = rebalance(&all, &holdings, &[], GOAL);
    assert!(!plan.moves.is_empty());
    let touched = |it: &Move| it.container.0 == 1 || it.container.0 >= 5 || it.to == ServerId(4);
    assert!(!plan.moves.iter().any(touched), "{:?}", plan.moves);
    all[2].up = false;
    assert!(rebalance(&all, &holdings, &[], GOAL).moves.iter().all(|it| it.to != ServerId(3)));
}

#[test]
fn a_rack_that_comes_later_gets_a_copy_of_everything() {
    let places = [("r1", "a"), ("r1", "b"), ("r2", "c"), ("r3", "d")];
    let all: Vec<_> = (1..).zip(places).map(|(id, (rack, host))| candidate(id, at(rack, host, 1), 100 * GIB)).collect();
    let holdings: Vec<_> = (1..=9).map(|id| held(id, &[1, 2, 3], GIB)).collect();
    let plan = rebalance(&all, &holdings, &[], GOAL);
    let (all, holdings) = after(&all, &holdings, &plan);
    for holding in &holdings {
        assert_eq!(apart(&holding.chain, &all), apart_at_best(3, &all), "{holding:?}");
        assert!(holding.chain.contains(&ServerId(4)));
    }
    // One left r1 for each: they take turns.
    let at_one = holdings.iter().filter(|holding| holding.chain.contains(&ServerId(1))).count();
    assert!((4..=5).contains(&at_one), "{at_one}");
    assert_eq!(rebalance(&all, &holdings, &[], GOAL).moves, []);
}

/// Evening out would put two copies into a rack.
#[test]
fn an_empty_server_in_a_rack_that_has_a_copy_of_everything_takes_the_place_of_that_copy_alone() {
    let places = [("r1", "a"), ("r2", "b"), ("r3", "c"), ("r3", "d")];
    let all: Vec<_> = (1..).zip(places).map(|(id, (rack, host))| candidate(id, at(rack, host, 1), 100 * GIB)).collect();
    let holdings: Vec<_> = (1..=10).map(|id| held(id, &[1, 2, 3], GIB)).collect();
    let plan = rebalance(&all, &holdings, &[], GOAL);
    assert!(!plan.moves.is_empty() && plan.moves.iter().all(|it| it.from == ServerId(3)), "{:?}", plan.moves);
    // 30 GiB on four servers are 7.5 each: 3 gives until it is not above that.
    assert_eq!(moved(&plan), 3 * GIB);
}

#[test]
fn servers_on_one_disk_have_equal_parts_of_it() {
    // Two of one host on one disk of which 30 GiB are free, and one with a disk of its own.
    let all = [(1, "a", 7, 30), (2, "a", 7, 30), (3, "b", 7, 40)]
        .map(|(id, host, disk, free)| candidate(id, at("", host, disk), free * GIB));
    let holdings: Vec<_> = (1..=10).map(|id| held(id, &[1], GIB)).collect();
    let plan = rebalance(&all, &holdings, &[], GOAL);
    let parts: Vec<(u64, u64)> = plan.fills.iter().map(|fill| (fill.capacity / GIB, fill.bytes_then / GIB)).collect();
    // 10 GiB on 20, 20 and 40: 2.5, 2.5 and 5.
    assert!(parts.iter().map(|(capacity, _)| *capacity).eq([20, 20, 40]), "{parts:?}");
    assert!(matches!(parts[..], [(_, 2 | 3), (_, 2 | 3), (_, 5)]), "{parts:?}");
}

struct Rng(u64);
impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Some servers, of which some came later: what lies there was placed over the first of them.
fn random(seed: u64) -> (Vec<Candidate>, Vec<Holding>, bool) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let count = 2 + rng.below(9);
    let (racks, hosts) = (1 + rng.below(4), 1 + rng.below(count));
    let shares_disks = rng.below(4) == 0;
    let old = 1 + rng.below(count);
    let mut all: Vec<Candidate> = (1..=count)
        .map(|id| {
            let host = rng.below(hosts);
            let disk = if shares_disks { 1 + rng.below(2) } else { 100 + id };
            let free = (200 + rng.below(400)) * GIB;
            candidate(id, at(&format!("r{}", host % racks), &format!("h{host}"), disk), free)
        })
        .collect();
    for at in 0..all.len() {
        let (host, disk) = (all[at].domain.host.clone(), all[at].domain.disk);
        let first = all.iter().find(|c| c.domain.host == host && c.domain.disk == disk).unwrap().bytes_free;
        all[at].bytes_free = first;
    }
    let is_small = rng.below(2) == 0;
    let copies = 1 + rng.below(old.min(3)) as usize;
    let holdings = (1..=20 + rng.below(150))
        .map(|id| {
            let mut chain: Vec<u64> = Vec::new();
            while chain.len() < copies {
                let server = 1 + rng.below(old);
                if !chain.contains(&server) {
                    chain.push(server);
                }
            }
            let most = 1 << (20 + rng.below(12));
            let bytes = if is_small { 64 * MIB } else { 1 + rng.below(most) };
            held(id, &chain, bytes)
        })
        .collect();
    (all, holdings, is_small)
}

/// More than a billionth of the fair share fuller would be seen here.
fn fullness(fill: &Fill, bytes: u64) -> f64 {
    bytes as f64 / fill.capacity.max(1) as f64
}

#[test]
fn of_random_clusters_each_plan_ends_keeps_copies_apart_moves_little_and_leaves_nothing_to_be_done() {
    let (mut evened, mut spread, mut worst, mut all_moves, mut detours) = (0, 0, 0.0, 0, 0);
    for seed in 0..3000 {
        let (all, holdings, is_small) = random(seed);
        let plan = rebalance(&all, &holdings, &[], GOAL);
        let (all_then, then) = after(&all, &holdings, &plan);
        let again = rebalance(&all_then, &then, &[], GOAL);
        assert_eq!(again.moves, [], "seed {seed}: asked again about its own result");
        for (was, is) in holdings.iter().zip(&then) {
            assert!(apart(&is.chain, &all) >= apart(&was.chain, &all), "seed {seed}: {was:?} {is:?}");
        }
        let has_room = all.iter().all(|c| c.bytes_free > 200 * GIB);
        if has_room {
            // With room everywhere one exchange after the other comes to the racks there are.
            let racks = |chain: &[ServerId]| apart(chain, &all).racks;
            let most = apart_at_best(then[0].chain.len(), &all).racks;
            assert!(then.iter().all(|it| racks(&it.chain) == most), "seed {seed}");
        }
        let spreads = plan.moves.iter().any(|it| it.spreads);
        spread += u64::from(spreads);
        if !spreads && !plan.moves.is_empty() {
            evened += 1;
            let fullest =
                |bytes: fn(&Fill) -> u64| plan.fills.iter().map(|fill| fullness(fill, bytes(fill))).fold(0.0, f64::max);
            let (before, then) = (fullest(|fill| fill.bytes_now), fullest(|fill| fill.bytes_then));
            assert!(then <= before * (1.0 + 1e-9), "seed {seed}: the fullest is fuller");
            let (moved, least) = (moved(&plan), least(&plan));
            worst = f64::max(worst, moved as f64 / least as f64);
            // Each server may get one container more than its share.
            let slack = 64 * MIB * plan.fills.len() as u64;
            assert!(!is_small || moved <= least + slack, "seed {seed}: {moved} of {least}");
            // A copy goes by way of another server only where another of its chain moves in between.
            let twice = |at: usize| {
                plan.moves[..at]
                    .iter()
                    .any(|old| old.container == plan.moves[at].container && old.to == plan.moves[at].from)
            };
            (all_moves, detours) =
                (all_moves + plan.moves.len(), detours + (0..plan.moves.len()).filter(|at| twice(*at)).count());
        }
        // One copy, no domains that bind, and small containers: nothing stands in the way.
        if is_small && holdings[0].chain.len() == 1 {
            for (a, b) in plan.fills.iter().flat_map(|a| plan.fills.iter().map(move |b| (a, b))) {
                let may_go = a.bytes_then > a.bytes_fair && b.bytes_then < b.bytes_fair && !(a.is_even && b.is_even);
                let (left, came) =
                    (u128::from(a.bytes_then) - u128::from(64 * MIB), u128::from(b.bytes_then + 64 * MIB));
                let would_cross = left * u128::from(b.capacity) < came * u128::from(a.capacity);
                assert!(!may_go || would_cross, "seed {seed}: from {a:?} to {b:?}");
            }
        }
    }
    assert!(detours * 1000 < all_moves, "{detours} of {all_moves} moves");
    assert!(worst < 1.01, "{worst} times the least was moved");
    assert!(evened > 500 && spread > 300, "{evened} evened out, {spread} spread");
}

/// As a container of such chunks is counted: it does not move, its chunks do.
fn plain(container: u64, server: u64, bytes: u64) -> Holding {
    Holding { may_move: false, ..held(container, &[server], bytes) }
}

fn loose(server: u64, bytes: u64, least: u64) -> Loose {
    Loose { server: ServerId(server), bytes, least }
}

#[test]
fn chunks_with_one_copy_go_to_a_new_server_and_no_more_of_them_than_it_lacks() {
    let all = servers(&[90 * GIB, 90 * GIB, 100 * GIB]);
    let holdings = [plain(1, 1, 10 * GIB), plain(2, 2, 10 * GIB)];
    let plan = rebalance(&all, &holdings, &[loose(1, 10 * GIB, MIB), loose(2, 10 * GIB, MIB)], GOAL);
    assert!(plan.moves.is_empty() && plan.fills.iter().all(|fill| fill.is_even), "{plan:?}");
    let all_moved: u64 = plan.shifts.iter().map(|it| it.bytes).sum();
    // Shares are whole bytes, rounded down: the taker's may be a byte or two less than what the givers have too much.
    assert!((least(&plan) - 2..=least(&plan)).contains(&all_moved), "{all_moved} of {}", least(&plan));
    assert!(plan.shifts.iter().all(|it| it.to == ServerId(3)));
    // Of its own result there is nothing to be done.
    let share = plan.fills[0].bytes_fair;
    let then = [plain(1, 1, share), plain(2, 2, share), plain(3, 3, 20 * GIB - 2 * share)];
    let all = servers(&[100 * GIB - share, 100 * GIB - share, 80 * GIB + 2 * share]);
    let known: Vec<Loose> = (1..).zip(&then).map(|(id, it)| loose(id, it.bytes, MIB)).collect();
    assert_eq!(rebalance(&all, &then, &known, GOAL).shifts, []);
}

#[test]
fn chunks_with_one_copy_stay_where_no_one_of_them_would_bring_both_nearer() {
    let all = servers(&[99 * GIB, 100 * GIB]);
    let holdings = [plain(1, 1, GIB)];
    // One chunk of 1 GiB: half of it would go.
    assert_eq!(rebalance(&all, &holdings, &[loose(1, GIB, GIB)], GOAL).shifts, []);
    let plan = rebalance(&all, &holdings, &[loose(1, GIB, GIB / 4)], GOAL);
    assert_eq!(plan.shifts, [Shift { from: ServerId(1), to: ServerId(2), bytes: GIB / 2 }]);
    // A server without room takes nothing, and what is not loose is not asked for.
    let goal = Goal { bytes_reserved: 100 * GIB, ..GOAL };
    assert_eq!(rebalance(&all, &holdings, &[loose(1, GIB, GIB / 4)], goal).shifts, []);
    assert_eq!(rebalance(&all, &holdings, &[loose(1, 0, 0)], GOAL).shifts, []);
}

#[test]
fn chunks_with_one_copy_even_out_what_containers_leave() {
    for seed in 0..500u64 {
        let mut random = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let count = 2 + random.below(5);
        let free: Vec<u64> = (0..count).map(|_| (50 + random.below(150)) * GIB).collect();
        let all = servers(&free);
        let holdings: Vec<Holding> = (1..=count).map(|id| plain(id, id, random.below(20) * GIB)).collect();
        let known: Vec<Loose> = holdings.iter().map(|it| loose(it.chain[0].0, it.bytes, MIB)).collect();
        let plan = rebalance(&all, &holdings, &known, GOAL);
        assert!(plan.fills.iter().all(|fill| fill.is_even), "seed {seed}: {:?}", plan.fills);
        let all_moved: u64 = plan.shifts.iter().map(|it| it.bytes).sum();
        assert!(all_moved <= least(&plan), "seed {seed}: {all_moved} and {}", least(&plan));
        for Shift { from, to, .. } in &plan.shifts {
            let fill = |id| plan.fills.iter().find(|fill| fill.server == id).unwrap();
            assert!(fill(*from).bytes_then >= fill(*from).bytes_fair, "seed {seed}: it gave more than it had too much");
            assert!(fill(*to).bytes_then <= fill(*to).bytes_fair, "seed {seed}");
        }
    }
}
