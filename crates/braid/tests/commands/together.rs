//! Metadata servers over one database that serve at once, as processes: who is one of them when one comes, stops or is killed.

use crate::database::{Machine, writer};
use rustix::process::Signal;

/// A process that serves beside others at an address of its own.
pub fn serve(m: &mut Machine, number: u32) {
    serve_with(m, number, &[]);
}

fn serve_with(m: &mut Machine, number: u32, more: &[&str]) {
    // What one before it said is not its own.
    let _ = std::fs::remove_file(m.path(&format!("metadata-{number}.log")));
    let at = m.path(&format!("together-{number}.sock"));
    let listen = format!("metadata.together_listen=[\"unix:{}\"]", at.display());
    let settings: Vec<String> = [listen.as_str()].iter().chain(more).map(|setting| setting.to_string()).collect();
    m.serve_with("metadata", number, &settings);
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

pub fn until_members(m: &Machine, leader: u32, all: &[u32]) {
    let count = Some(all.len());
    m.until("all are members", || {
        let leads = members(m, &format!("metadata-{leader}"), LEADS) == count;
        leads && all.iter().all(|number| members(m, &format!("metadata-{number}"), FOLLOWS) == count)
    });
}

/// Who leads of two is killed, the other leads, and it comes back. Answers who leads.
pub fn leader_is_killed(m: &mut Machine, leader: u32) -> u32 {
    let (name, other) = (format!("metadata-{leader}"), 3 - leader);
    m.signal(&name, Signal::KILL);
    m.ended(&name);
    m.until("the other leads", || members(m, &format!("metadata-{other}"), LEADS) == Some(1));
    serve(m, leader);
    until_members(m, other, &[1, 2]);
    other
}

/// Three, of which the first leads, and a data server.
pub fn three() -> Machine {
    three_with(&[])
}

fn three_with(settings: &[&str]) -> Machine {
    let mut m = Machine::new();
    serve_with(&mut m, 1, settings);
    m.until("the first serves", || m.is_ready("metadata-1"));
    serve_with(&mut m, 2, settings);
    serve_with(&mut m, 3, settings);
    m.serve("data", 1);
    m.until("the data server serves", || m.is_ready("data-1"));
    until_members(&m, 1, &[1, 2, 3]);
    m
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

#[test]
fn a_mount_goes_on_while_metadata_servers_come_stop_and_die() {
    let mut m = Machine::new();
    serve(&mut m, 1);
    m.until("the first serves", || m.is_ready("metadata-1"));
    serve(&mut m, 2);
    m.serve("data", 1);
    m.serve("data", 2);
    m.until("data servers serve", || m.is_ready("data-1") && m.is_ready("data-2"));
    until_members(&m, 1, &[1, 2]);
    m.put("before", 3_000_000);
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let stop = m.path("stop");
    let writer = writer(&at, &stop);
    // Directories of either, so that some are in slots of each.
    (0..20).for_each(|n| std::fs::create_dir(at.join(format!("dir-{n}"))).unwrap());

    serve(&mut m, 3);
    until_members(&m, 1, &[1, 2, 3]);
    (0..20).for_each(|n| std::fs::write(at.join(format!("dir-{n}/came")), "came").unwrap());
    m.signal("metadata-3", Signal::KILL);
    m.ended("metadata-3");
    until_members(&m, 1, &[1, 2]);
    (0..20).for_each(|n| std::fs::write(at.join(format!("dir-{n}/died")), "died").unwrap());
    m.put("after", 2_000_000);

    m.signal("metadata-1", Signal::KILL);
    m.ended("metadata-1");
    m.until("the second leads", || m.is_ready("metadata-2"));
    (0..20).for_each(|n| std::fs::rename(at.join(format!("dir-{n}/came")), at.join(format!("moved-{n}"))).unwrap());
    for n in 0..20 {
        assert_eq!(std::fs::read_to_string(at.join(format!("moved-{n}"))).unwrap(), "came");
        assert_eq!(m.says(&format!("fs cat /dir-{n}/died")), b"died");
    }
    m.all_there(&[("before", 3_000_000), ("after", 2_000_000)]);
    m.has_all_of(writer, &stop);
    m.says(&format!("umount {}", at.display()));
    m.is_clean();
}

/// Each directory is another server's part; all of them are in it, of one moment, and show it.
#[test]
fn a_snapshot_of_what_several_hold_is_of_one_moment() {
    const DIRS: usize = 24;
    let m = three();
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let top = at.join("top");
    std::fs::create_dir(&top).unwrap();
    let file = |n: usize| top.join(format!("dir-{n}/file"));
    // Never closed: what it has to be asked for each of them.
    let files: Vec<_> = (0..DIRS)
        .map(|n| {
            std::fs::create_dir(top.join(format!("dir-{n}"))).unwrap();
            std::fs::File::create(file(n)).unwrap()
        })
        .collect();
    let over = std::sync::atomic::AtomicBool::new(false);
    let shown = |name: &str, n: usize| -> u64 {
        let path = top.join(format!(".braid/snapshots/{name}/dir-{n}/file"));
        let bytes = std::fs::read(path).unwrap();
        if bytes.is_empty() { 0 } else { u64::from_le_bytes(bytes.try_into().unwrap()) }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // One number after the other goes into all files, in their order.
            for number in 1_u64.. {
                for file in &files {
                    std::os::unix::fs::FileExt::write_all_at(file, &number.to_le_bytes(), 0).unwrap();
                }
                if over.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
            }
        });
        for name in ["one", "two"] {
            m.says(&format!("fs snapshot create /top {name}"));
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    for name in ["one", "two"] {
        let numbers: Vec<u64> = (0..DIRS).map(|n| shown(name, n)).collect();
        assert!(numbers.windows(2).all(|two| two[0] >= two[1]), "{name}: {numbers:?}");
        assert!(numbers[0] - numbers[DIRS - 1] <= 1, "{name}: {numbers:?}");
    }
    m.says("fs snapshot delete /top one");
    let left = std::fs::read_dir(top.join(".braid/snapshots")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["two"]);
    drop(files);
    m.says(&format!("umount {}", at.display()));
    m.is_clean();
}

/// The one that serves alone ends, and serves beside another.
fn one_becomes_two(m: &mut Machine) {
    m.signal("metadata-1", Signal::TERM);
    assert_eq!(m.ended("metadata-1"), 0);
    serve(m, 1);
    m.until("the first of several serves", || m.is_ready("metadata-1"));
    serve(m, 2);
    until_members(m, 1, &[1, 2]);
}

/// Epochs of servers alone and of several rise together: what a mount and data servers know of the one setting is outdated under the next.
#[test]
fn a_mount_goes_on_while_one_alone_becomes_several_and_one_alone_again() {
    let mut m = Machine::new();
    m.serve("metadata", 1);
    m.until("it serves", || m.is_ready("metadata-1"));
    m.serve("data", 1);
    m.until("the data server serves", || m.is_ready("data-1"));
    for _ in 0..2 {
        m.signal("metadata-1", Signal::TERM);
        assert_eq!(m.ended("metadata-1"), 0);
        m.serve("metadata", 1);
        m.until("it serves again", || m.is_ready("metadata-1"));
    }
    let at = m.mount_point();
    let log = m.path("mount.log");
    m.says(&format!("mount {} --log {}", at.display(), log.display()));
    (0..10).for_each(|n| std::fs::create_dir(at.join(format!("dir-{n}"))).unwrap());
    let large = |round: u8| vec![round; 300_000];
    let change = |round: u8| {
        for n in 0..10 {
            let file = at.join(format!("dir-{n}/file"));
            let changed = || {
                std::fs::write(&file, large(round))?;
                std::fs::File::open(&file)?.sync_all()?;
                std::fs::write(at.join(format!("dir-{n}/of-{round}")), "x")
            };
            changed().unwrap_or_else(|e: std::io::Error| {
                panic!("round {round}, dir-{n}: {e}; the mount says\n{}", std::fs::read_to_string(&log).unwrap())
            });
        }
    };
    change(1);

    one_becomes_two(&mut m);
    change(2);

    m.signal("metadata-2", Signal::TERM);
    assert_eq!(m.ended("metadata-2"), 0);
    m.signal("metadata-1", Signal::TERM);
    assert_eq!(m.ended("metadata-1"), 0);
    m.serve("metadata", 1);
    m.until("it serves alone again", || m.is_ready("metadata-1"));
    change(3);

    // Nobody is left who could tell the mount that they are several no more.
    one_becomes_two(&mut m);
    change(4);
    m.signal("metadata-1", Signal::KILL);
    m.signal("metadata-2", Signal::KILL);
    m.ended("metadata-1");
    m.ended("metadata-2");
    m.serve("metadata", 1);
    m.until("it serves alone for good", || m.is_ready("metadata-1"));
    change(5);
    for n in 0..10 {
        assert!(std::fs::read(at.join(format!("dir-{n}/file"))).unwrap() == large(5), "dir-{n}");
        assert_eq!(std::fs::read_dir(at.join(format!("dir-{n}"))).unwrap().count(), 6);
    }
    m.says(&format!("umount {}", at.display()));
    m.is_clean();
}

/// What each of them is and what waits for it is known to it alone; who asks does not have to know which it is.
#[test]
fn status_and_why_ask_each_of_several_metadata_servers() {
    const DIRS: usize = 12;
    // Longer than everything below takes, however busy the machine is: who waits for a mount that stands still waits until it goes on.
    let mut m = three_with(&["metadata.session_lease=\"50s\""]);
    let status = |m: &Machine| {
        let ran = m.braid(&["admin", "status", "--json"]).output().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        (ran.status.code(), told)
    };
    let slots = |told: &serde_json::Value| -> Vec<u64> {
        let all = told["metadata_servers"].as_array().unwrap();
        all.iter().map(|one| one["slots"].as_u64().unwrap_or_default()).collect()
    };
    m.until("all slots are somebody's", || slots(&status(&m).1).iter().sum::<u64>() == 4096);
    let (code, told) = status(&m);
    let leads = told["metadata_servers"].as_array().unwrap().iter().filter(|one| one["leads"] == true).count();
    assert_eq!((code, slots(&told).len(), leads), (Some(0), 3, 1), "{told}");
    let table = String::from_utf8(m.says("admin status")).unwrap();
    assert_eq!(
        table.lines().filter(|line| line.contains(" serves ") || line.contains(" leads ")).count(),
        3,
        "{table}"
    );

    // A mount that has looked into each directory stands still: who makes something there waits at the one that holds its slot.
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let mount = m.mount().expect("it runs");
    (0..DIRS).for_each(|n| std::fs::create_dir(at.join(format!("dir-{n}"))).unwrap());
    (0..DIRS).for_each(|n| assert_eq!(std::fs::read_dir(at.join(format!("dir-{n}"))).unwrap().count(), 0));
    rustix::process::kill_process(mount, Signal::STOP).unwrap();
    let makers: Vec<_> =
        (0..DIRS).map(|n| m.braid(&["fs", "mkdir", &format!("/dir-{n}/made")]).spawn().unwrap()).collect();
    let waits_at = || {
        let told = String::from_utf8(m.says("admin why")).unwrap();
        let names = told.lines().filter_map(|line| {
            let (_, rest) = line.split_once("metadata server ")?;
            Some(rest.split_whitespace().next()?.to_owned())
        });
        names.collect::<std::collections::BTreeSet<_>>().len()
    };
    m.until("something waits at more than one of them", || waits_at() > 1);
    rustix::process::kill_process(mount, Signal::CONT).unwrap();
    for mut maker in makers {
        assert!(maker.wait().unwrap().success());
    }
    assert_eq!(String::from_utf8(m.says("admin why")).unwrap(), "nothing waits\n");

    m.signal("metadata-2", Signal::STOP);
    let (code, told) = status(&m);
    m.signal("metadata-2", Signal::CONT);
    assert_eq!(code, Some(1), "{told}");
    let problems = told["problems"].to_string();
    assert!(problems.contains("metadata server") && problems.contains("cannot be reached"), "{problems}");
    m.says(&format!("umount {}", at.display()));
}
