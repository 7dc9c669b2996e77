use super::*;

type Table = LockTable<u8, char>;

fn lock(owner: char, exclusive: bool, start: u64, end: u64) -> Lock<char> {
    Lock { owner, pid: owner as u32, exclusive, range: ByteRange::new(start, end) }
}

fn read(owner: char, start: u64, end: u64) -> Lock<char> {
    lock(owner, false, start, end)
}

fn write(owner: char, start: u64, end: u64) -> Lock<char> {
    lock(owner, true, start, end)
}

fn take(table: &mut Table, file: u8, lock: Lock<char>) -> Outcome {
    table.acquire(file, lock, true).0
}

fn wait(table: &mut Table, file: u8, lock: Lock<char>) -> Ticket {
    match table.acquire(file, lock, true) {
        (Outcome::Waiting(ticket), _) => ticket,
        other => panic!("does not wait: {other:?}"),
    }
}

fn ranges(table: &Table, owner: char) -> Vec<(u64, u64, bool)> {
    let mut ranges: Vec<_> = table.held(1).iter().filter(|l| l.owner == owner).collect();
    ranges.sort_by_key(|l| l.range);
    ranges.into_iter().map(|l| (l.range.start, l.range.end, l.exclusive)).collect()
}

#[test]
fn an_owner_s_locks_split_and_join() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, read('a', 0, 100));
    take(&mut t, 1, write('a', 40, 60));
    assert_eq!(ranges(&t, 'a'), [(0, 40, false), (40, 60, true), (60, 100, false)]);
    take(&mut t, 1, read('a', 40, 60));
    assert_eq!(ranges(&t, 'a'), [(0, 100, false)]);
    t.release(1, 'a', ByteRange::new(10, 20));
    assert_eq!(ranges(&t, 'a'), [(0, 10, false), (20, 100, false)]);
    t.release(1, 'a', ByteRange::new(0, u64::MAX));
    assert!(t.is_empty());
}

#[test]
fn readers_share_and_a_writer_is_in_the_way() {
    let mut t = Table::new(Flavour::Posix);
    assert_eq!(take(&mut t, 1, read('a', 0, 10)), Outcome::Granted);
    assert_eq!(take(&mut t, 1, read('b', 5, 15)), Outcome::Granted);
    assert_eq!(t.acquire(1, write('c', 12, 20), false).0, Outcome::WouldBlock);
    assert_eq!(t.test(1, &write('c', 0, 20)), Some(read('a', 0, 10)));
    assert_eq!(t.test(1, &read('c', 0, 20)), None);
    assert_eq!(t.test(1, &write('c', 15, 20)), None);
    assert_eq!(take(&mut t, 2, write('c', 0, 20)), Outcome::Granted);
}

#[test]
fn readers_do_not_starve_a_writer() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, read('a', 0, 10));
    let w = wait(&mut t, 1, write('w', 0, 10));
    let r = wait(&mut t, 1, read('b', 0, 10));
    // Who does not wait agrees with `test`, whatever the queue.
    assert_eq!(t.acquire(1, read('c', 0, 10), false).0, Outcome::Granted);
    assert_eq!(t.release(1, 'a', ByteRange::new(0, 10)), []);
    assert_eq!(t.release(1, 'c', ByteRange::new(0, 10)), [w]);
    assert_eq!(t.release(1, 'w', ByteRange::new(0, 10)), [r]);
}

#[test]
fn a_downgrade_lets_readers_in() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, write('a', 0, 10));
    let r = wait(&mut t, 1, read('b', 0, 10));
    assert_eq!(t.acquire(1, read('a', 0, 10), true), (Outcome::Granted, vec![r]));
}

#[test]
fn one_who_left_does_not_hold_up_those_behind() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, read('a', 0, 10));
    let w = wait(&mut t, 1, write('w', 0, 10));
    let r = wait(&mut t, 1, read('b', 0, 10));
    assert_eq!(t.cancel(1, w), (true, vec![r]));
    assert_eq!(t.cancel(1, r), (false, vec![]));
    assert_eq!(t.release_owner(1, 'a'), []);
    assert_eq!(ranges(&t, 'b'), [(0, 10, false)]);
}

#[test]
fn circles_of_waiting_are_refused() {
    let mut t = Table::new(Flavour::Posix);
    for (file, owner) in [(1, 'a'), (2, 'b'), (3, 'c')] {
        take(&mut t, file, write(owner, 0, 1));
    }
    wait(&mut t, 2, write('a', 0, 1));
    wait(&mut t, 3, write('b', 0, 1));
    assert_eq!(take(&mut t, 1, write('c', 0, 1)), Outcome::Deadlock);
    assert_eq!(t.acquire(1, write('c', 0, 1), false).0, Outcome::WouldBlock);
}

#[test]
fn two_upgrades_are_a_circle() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, read('a', 0, 1));
    take(&mut t, 1, read('b', 0, 1));
    let a = wait(&mut t, 1, write('a', 0, 1));
    assert_eq!(take(&mut t, 1, write('b', 0, 1)), Outcome::Deadlock);
    assert_eq!(t.release_owner(1, 'b'), [a]);
}

#[test]
fn the_order_yields_where_it_would_make_a_deadlock() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, read('a', 0, 10));
    let b = wait(&mut t, 1, write('b', 0, 20));
    // b waits for a, so a goes before b.
    assert_eq!(take(&mut t, 1, read('a', 10, 20)), Outcome::Granted);
    assert_eq!(t.release_owner(1, 'a'), [b]);
}

#[test]
fn the_order_yields_when_a_later_wait_closes_the_circle() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, read('d', 0, 10));
    take(&mut t, 2, write('b', 0, 10));
    let c = wait(&mut t, 1, write('c', 0, 10));
    let b = wait(&mut t, 1, read('b', 0, 10));
    // d waits for b, b stands behind c, c waits for d: only the order is to blame, so b goes first.
    let (outcome, granted) = t.acquire(2, write('d', 0, 10), true);
    assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    assert_eq!(granted, [b]);
    assert_eq!(t.cancel(1, b), (false, vec![]));
    t.release_owner(1, 'd');
    assert_eq!(t.release_owner(1, 'b'), [c]);
}

#[test]
fn a_dead_client_loses_everything() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, write('a', 0, 1));
    take(&mut t, 2, write('A', 0, 1));
    let b = wait(&mut t, 1, write('b', 0, 1));
    wait(&mut t, 1, write('A', 0, 1));
    let c = wait(&mut t, 2, write('b', 0, 1));
    let gone = t.owners_gone(|owner| owner.eq_ignore_ascii_case(&'a'));
    assert_eq!(gone, [b, c]);
    t.owners_gone(|_| true);
    assert!(t.is_empty());
}

#[test]
fn flock_gives_up_the_old_lock_first() {
    let mut t = Table::new(Flavour::Flock);
    take(&mut t, 1, read('a', 0, u64::MAX));
    take(&mut t, 1, read('b', 0, u64::MAX));
    let a = wait(&mut t, 1, write('a', 0, u64::MAX));
    // Neither waits for the other's shared lock for ever: b gives its own up, and a is first.
    let (outcome, granted) = t.acquire(1, write('b', 0, u64::MAX), true);
    assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    assert_eq!(granted, [a]);
}

/// A hundred thousand random steps, checked against the promise that holders never conflict and nobody who could go waits.
#[test]
fn holders_never_conflict_and_nobody_waits_for_nothing() {
    let mut t = Table::new(Flavour::Posix);
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut tickets: Vec<(u8, Ticket)> = Vec::new();
    let mut waited = 0;
    for _ in 0..100_000 {
        let owner = (b'a' + random(5) as u8) as char;
        let (file, start) = (random(3) as u8, random(8));
        let range = ByteRange::at(start, 1 + random(6));
        let granted = match random(10) {
            0..6 => {
                let lock = Lock { owner, pid: 1, exclusive: random(3) == 0, range };
                // A thread that waits does nothing else, so an owner here waits at most once.
                let wait = !t.waits.contains_key(&owner) && random(2) == 0;
                let (outcome, granted) = t.acquire(file, lock, wait);
                if let Outcome::Waiting(ticket) = outcome {
                    tickets.push((file, ticket));
                    waited += 1;
                }
                granted
            }
            6..9 => t.release(file, owner, range),
            _ if !tickets.is_empty() => {
                let (file, ticket) = tickets.swap_remove(random(tickets.len() as u64) as usize);
                let (waited, granted) = t.cancel(file, ticket);
                assert!(waited);
                granted
            }
            _ => t.release_owner(file, owner),
        };
        for ticket in granted {
            assert!(tickets.iter().any(|(_, t)| *t == ticket));
            tickets.retain(|(_, t)| *t != ticket);
        }
        // release_owner drops waiters without granting them.
        tickets
            .retain(|(file, ticket)| t.files.get(file).is_some_and(|f| f.waiting.iter().any(|w| w.ticket == *ticket)));
        for locks in t.files.values() {
            for (i, a) in locks.held.iter().enumerate() {
                assert!(
                    !locks.held[..i]
                        .iter()
                        .any(|b| a.conflicts(b) || (a.owner == b.owner && a.range.overlaps(b.range)))
                );
            }
            let first = locks.waiting.first();
            assert!(
                first.is_none_or(|w| locks.held.iter().any(|h| h.conflicts(&w.lock))),
                "the first waits for nothing"
            );
        }
    }
    assert!(waited > 1000, "{waited}");
}

#[test]
fn what_another_table_granted_replaces_all_of_its_owners_and_nothing_of_others() {
    let mut t = Table::new(Flavour::Posix);
    take(&mut t, 1, write('a', 0, 10));
    take(&mut t, 1, write('c', 20, 30));
    let (other, waits) = (write('d', 5, 6), write('e', 40, 50));
    take(&mut t, 1, read('b', 40, 50));
    let (first, second) = (wait(&mut t, 1, other), wait(&mut t, 1, waits));
    // Of those of this session, 'b' has taken what 'a' had, and 'a' something else; it also believes that it has what 'c' has.
    let of_session = |owner| owner == 'a' || owner == 'b';
    let (all, granted) = t.replace(1, of_session, &[write('b', 0, 10), read('a', 12, 14), read('a', 25, 35)]);
    assert_eq!((all, granted), (false, vec![second]), "'d' still waits, for 'b' now");
    assert_eq!(ranges(&t, 'a'), [(12, 14, false)]);
    assert_eq!(ranges(&t, 'b'), [(0, 10, true)]);
    assert_eq!(ranges(&t, 'c'), [(20, 30, true)]);
    assert_eq!(t.replace(1, of_session, &[]), (true, vec![first]));
    for gone in ['c', 'd', 'e'] {
        t.release_owner(1, gone);
    }
    assert!(t.is_empty());
}
