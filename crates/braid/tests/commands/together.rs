//! Metadata servers over one database that serve at once, as processes: who is one of them when one comes, stops or is killed.

use crate::database::Machine;
use rustix::process::Signal;

/// A process that serves beside others at an address of its own.
fn serve(m: &mut Machine, number: u32) {
    let at = m.path(&format!("together-{number}.sock"));
    m.serve_with("metadata", number, &[format!("metadata.together_listen=[\"unix:{}\"]", at.display())]);
}

/// The last roster that it wrote, or follows: of how many.
fn members(m: &Machine, name: &str, says: &str) -> Option<usize> {
    let log = m.log(name);
    let line = log.lines().rfind(|line| line.contains(says))?;
    let (_, rest) = line.split_once("members=")?;
    rest.split(' ').next()?.parse().ok()
}

const LEADS: &str = "metadata servers that serve at once";
const FOLLOWS: &str = "this metadata server follows a roster";
const ANSWERS: &str = "this metadata server answers for more";

fn until_members(m: &Machine, leader: u32, all: &[u32]) {
    let count = Some(all.len());
    m.until("all are members", || {
        let leads = members(m, &format!("metadata-{leader}"), LEADS) == count;
        leads && all.iter().all(|number| members(m, &format!("metadata-{number}"), FOLLOWS) == count)
    });
}

#[test]
fn metadata_servers_come_stop_and_die_and_the_others_know() {
    let mut m = Machine::new();
    serve(&mut m, 1);
    m.until("the first serves", || m.is_ready("metadata-1"));
    until_members(&m, 1, &[1]);
    serve(&mut m, 2);
    until_members(&m, 1, &[1, 2]);
    serve(&mut m, 3);
    until_members(&m, 1, &[1, 2, 3]);
    m.until("all answer for something", || (1..=3).all(|n| m.log(&format!("metadata-{n}")).contains(ANSWERS)));

    m.signal("metadata-3", Signal::TERM);
    assert_eq!(m.ended("metadata-3"), 0);
    until_members(&m, 1, &[1, 2]);

    m.signal("metadata-1", Signal::KILL);
    m.ended("metadata-1");
    m.until("the second leads", || m.is_ready("metadata-2"));
    until_members(&m, 2, &[2]);
    serve(&mut m, 1);
    until_members(&m, 2, &[1, 2]);

    // One that stands still is written out, sees that when it goes on, and is a member again as another.
    m.signal("metadata-1", Signal::STOP);
    m.until("the second serves alone", || members(&m, "metadata-2", LEADS) == Some(1));
    m.signal("metadata-1", Signal::CONT);
    until_members(&m, 2, &[1, 2]);
    assert!(m.log("metadata-1").contains("it begins anew"), "{}", m.log("metadata-1"));

    m.signal("metadata-2", Signal::TERM);
    assert_eq!(m.ended("metadata-2"), 0);
    m.until("the first leads", || m.is_ready("metadata-1"));
    until_members(&m, 1, &[1]);
}
