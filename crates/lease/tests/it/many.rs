//! What a client of several holders keeps of whom, and what a new roster moves.
#![allow(clippy::unwrap_used)]

use crate::server::ms;
use braid_lease::*;
use braid_types::{InodeId, MemberId, MembershipEpoch, SlotSet};

const ONE: MemberId = MemberId(1);
const TWO: MemberId = MemberId(2);

/// In slot 0, of the first; in slot 1, of the second or, `moved`, of the first. All other slots are the first's.
const NEAR: InodeId = InodeId(4096);
const FAR: InodeId = InodeId(4097);

fn roster(epoch: u64, moved: bool) -> Roster {
    let members = [ONE, TWO].into_iter().collect();
    Roster::new(MembershipEpoch(epoch), members, |slot| if slot.0 == 1 && !moved { TWO } else { ONE })
}

fn renewal(asked: u64, epoch: u64, reassert: Option<(u64, bool)>) -> Renewal {
    let (term, epoch) = (Limits::default().session_lease, MembershipEpoch(epoch));
    let (reassert, anew) = reassert.unzip();
    Renewal { asked: Moment(ms(asked)), term, prolonged: true, epoch, reassert, anew: anew.unwrap_or_default() }
}

/// Has a term at both, and of each an attribute and a file to itself.
fn client() -> ManyHoldings {
    let mut held = ManyHoldings::new(&Limits::default(), roster(1, false));
    for (server, inode) in [(ONE, NEAR), (TWO, FAR)] {
        held.renewed(Moment(ms(0)), server, renewal(0, 1, None));
        let ticket = held.ask(inode);
        assert_eq!(held.answered(Moment(ms(1)), ticket, vec![Key::Attr(inode)]), [Key::Attr(inode)]);
        let todo = held.on(Moment(ms(1)), server, Seen::Need { inode, want: Want::Write });
        let [ManyTodo::Of(to, Todo::Take { ticket, .. })] = todo[..] else { panic!("{todo:?}") };
        assert_eq!(to, server);
        assert_eq!(held.on(Moment(ms(2)), server, granted(Some(ticket), inode, 1, 10)), []);
    }
    assert!(serves(&held, 3, NEAR) && serves(&held, 3, FAR) && writes(&held, 3, NEAR) && writes(&held, 3, FAR));
    held
}

fn granted(ticket: Option<Ticket>, inode: InodeId, epoch: u64, count: u64) -> Seen {
    let number = Generation(Generation::begin(MembershipEpoch(epoch)).0 + count);
    Seen::Granted { ticket, inode, mode: Mode::Exclusive, generation: number, token: number, locks: false }
}

fn serves(held: &ManyHoldings, at: u64, inode: InodeId) -> bool {
    held.may_serve(Moment(ms(at)), &Key::Attr(inode))
}

fn writes(held: &ManyHoldings, at: u64, inode: InodeId) -> bool {
    held.of(inode).unwrap().may_use(Moment(ms(at)), inode, Want::Write).is_some()
}

fn drops(todo: &[ManyTodo]) -> Vec<(u64, SlotSet)> {
    let drop = |todo: &ManyTodo| match todo {
        ManyTodo::DropSlots { number, slots } => Some((*number, slots.clone())),
        _ => None,
    };
    todo.iter().filter_map(drop).collect()
}

fn says(todo: &[ManyTodo]) -> Vec<(MemberId, u64)> {
    let said = |todo: &ManyTodo| match todo {
        ManyTodo::Of(server, Todo::Reassert { round }) => Some((*server, *round)),
        _ => None,
    };
    todo.iter().filter_map(said).collect()
}

#[test]
fn a_term_that_runs_out_takes_that_holders_keys_alone() {
    let mut held = client();
    held.renewed(Moment(ms(5_000)), ONE, renewal(5_000, 1, None));
    let todo = held.tick(Moment(ms(9_600)));
    let [(_, slots)] = &drops(&todo)[..] else { panic!("{todo:?}") };
    assert!(slots.has(FAR.slot()) && !slots.has(NEAR.slot()));
    assert!(serves(&held, 9_600, NEAR) && writes(&held, 9_600, NEAR));
    assert!(!serves(&held, 9_600, FAR) && !writes(&held, 9_600, FAR));
}

#[test]
fn what_moves_is_dropped_before_the_new_holder_hears_of_it_and_the_rest_goes_on() {
    let mut held = client();
    assert_eq!(
        held.renewed(Moment(ms(10)), ONE, renewal(10, 2, Some((4, false)))),
        [ManyTodo::Learn { epoch: MembershipEpoch(2) }]
    );
    let todo = held.roster_is(Moment(ms(11)), roster(2, true));
    let [(number, slots)] = &drops(&todo)[..] else { panic!("{todo:?}") };
    assert!(slots.has(FAR.slot()) && !slots.has(NEAR.slot()) && todo.contains(&ManyTodo::Renew(ONE)), "{todo:?}");
    assert!(!serves(&held, 11, FAR) && !writes(&held, 11, FAR), "from here on");
    assert!(serves(&held, 11, NEAR) && writes(&held, 11, NEAR));
    let todo = held.renewed(Moment(ms(12)), ONE, renewal(11, 2, Some((4, false))));
    assert_eq!(says(&todo), [], "its kernel may still show what moved: {todo:?}");
    assert!(serves(&held, 12, NEAR) && writes(&held, 12, NEAR), "no pause");
    assert_eq!(says(&held.dropped(*number)), [(ONE, 4)]);
    assert_eq!(held.reassertion(ONE), [(FAR, Mode::Exclusive)], "of what came there");
    held.on(Moment(ms(13)), ONE, granted(None, FAR, 2, 1));
    assert!(writes(&held, 13, FAR));
    assert_eq!(held.renews_at().collect::<Vec<_>>(), [ONE]);
}

#[test]
fn a_former_holder_prolongs_nothing_that_has_moved_and_its_recall_is_not_obeyed() {
    let mut held = client();
    held.roster_is(Moment(ms(11)), roster(2, true));
    held.renewed(Moment(ms(12)), TWO, renewal(12, 1, None));
    assert!(!serves(&held, 12, FAR));
    let (generation, token) = (Generation(9 << 40), Generation(9 << 40));
    let recall = Seen::Recall { inode: FAR, generation, token, to: Mode::None, locks: false };
    assert_eq!(held.on(Moment(ms(12)), TWO, recall), []);
    assert_eq!(held.reassertion(ONE), [(FAR, Mode::Exclusive)]);
    // An answer that was on its way from there.
    let ticket = held.ask(FAR);
    assert_eq!(held.answered(Moment(ms(12)), ticket, vec![Key::Attr(NEAR)]), [Key::Attr(NEAR)], "asked of the first");
    let (term, epoch) = (Limits::default().session_lease, MembershipEpoch(1));
    let late = Seen::Renewed { asked: Moment(ms(12)), term, prolonged: true, epoch, reassert: Some(3) };
    assert_eq!(held.on(Moment(ms(12)), TWO, late), [], "what it asks for is not its own any more");
}

#[test]
fn a_change_at_two_holders_has_one_ticket_and_each_key_counts_at_its_own() {
    let mut held = client();
    let keys = [Key::Attr(NEAR), Key::Name(FAR, "n".parse().unwrap())];
    let ticket = held.changing(&keys);
    let epoch = Some(MembershipEpoch(1));
    let now = Moment(ms(20));
    assert!(held.changed(now, ticket, &keys[0], None), "held since before");
    assert!(held.changed(now, ticket, &keys[1], epoch), "granted with the answer");
    assert_eq!(held.answered(now, ticket, vec![]), []);
    assert!(held.may_serve(now, &keys[0]) && held.may_serve(now, &keys[1]));
    let ticket = held.changing(&keys);
    held.forget(&keys[1]);
    assert!(!held.changed(now, ticket, &keys[1], Some(MembershipEpoch(2))), "by whoever holds it then");
}

#[test]
fn a_revocation_takes_a_key_wherever_it_is_counted() {
    let mut held = client();
    let revocation = RevocationId(1);
    let todo = held.on(Moment(ms(5)), ONE, Seen::Revoke { revocation, keys: vec![Key::Attr(FAR)], open: false });
    assert!(matches!(todo[..], [ManyTodo::Of(ONE, Todo::Drop { .. })]), "{todo:?}");
    assert!(!serves(&held, 5, FAR));
    let todo = held.on(Moment(ms(5)), ONE, Seen::Dropped { revocation });
    assert_eq!(todo, [ManyTodo::Of(ONE, Todo::Acknowledge { revocation, open: false })]);
}

#[test]
fn who_missed_an_epoch_drops_all_names_and_says_all_files_where_it_is_asked() {
    let mut held = client();
    let todo = held.roster_is(Moment(ms(11)), roster(3, false));
    let [(number, slots)] = &drops(&todo)[..] else { panic!("{todo:?}") };
    assert!(slots.has(NEAR.slot()) && slots.has(FAR.slot()));
    assert!(!serves(&held, 11, NEAR) && !serves(&held, 11, FAR));
    assert!(writes(&held, 11, NEAR), "nobody else was granted it without this client's word");
    held.dropped(*number);
    let todo = held.renewed(Moment(ms(12)), ONE, renewal(12, 3, Some((8, false))));
    assert_eq!(says(&todo), [(ONE, 8)]);
    assert_eq!(held.reassertion(ONE), [(NEAR, Mode::Exclusive)], "it may have been away and come back");
    assert_eq!(held.reassertion(TWO), []);
}
