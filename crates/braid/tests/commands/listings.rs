//! Names and listings that kernel and mount know: nothing is asked while nobody else changes the directory, and what another mount
//! changes is in the next one.

use super::pages::get;
use super::two_mounts::Two;
use rustix::fs::Dir;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Several answers to the kernel, and several pages of the metadata server.
const NAMES: usize = 3000;

/// Made by the first mount.
fn filled(two: &Two) -> BTreeSet<String> {
    filled_by(two, 0)
}

fn filled_by(two: &Two, who: usize) -> BTreeSet<String> {
    let dir = two.at[who].join("d");
    fs::create_dir(&dir).unwrap();
    let names: BTreeSet<String> = (0..NAMES).map(|n| format!("a longer name than usual {n:04}")).collect();
    names.iter().for_each(|name| drop(File::create(dir.join(name)).unwrap()));
    names
}

fn list(dir: &Path) -> BTreeSet<String> {
    let names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let unique: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(unique.len(), names.len(), "each once");
    unique
}

fn rest(dir: &mut Dir) -> Vec<String> {
    let names = dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// What the first mount has sent to servers, by kind.
fn sent(two: &Two) -> BTreeMap<String, u64> {
    let status: serde_json::Value = serde_json::from_str(&two.c.says("admin status --json")).unwrap();
    let (_, text) = get(status["pages"]["mount"].as_str().unwrap(), "/metrics");
    let lines =
        text.lines().filter_map(|line| line.strip_prefix("braid_mount_messages_total{message=\"")?.split_once("\"} "));
    lines.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
}

/// What it has sent since, but for what a mount sends that nobody uses: also when a data server is seldom heard on a busy machine, which
/// a renewal tells, and to learn that the last change is durable when no answer after it said so.
fn more(two: &Two, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut more = sent(two);
    for (name, count) in &mut more {
        *count -= before.get(name).copied().unwrap_or_default();
    }
    let by_itself = ["Renew", "RenewSession", "Listen", "Mark", "GetServers", "LeaveSlots", "Settle"];
    more.retain(|name, count| *count > 0 && !by_itself.contains(&name.as_str()));
    more
}

/// How often it has asked what is in a directory.
fn asked(two: &Two) -> u64 {
    sent(two).get("ReadDir").copied().unwrap_or_default()
}

/// Longer than a term of leases: they are renewed all together.
#[test]
fn ten_thousand_names_are_looked_at_again_and_again_without_a_message_while_a_second_mount_is_idle() {
    const COUNT: usize = 10_000;
    let Some(two) = Two::new() else { return };
    let dir = two.at[0].join("many");
    fs::create_dir(&dir).unwrap();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                (0..COUNT / 4).for_each(|n| drop(File::create(dir.join(format!("{part}-{n}"))).unwrap()));
            });
        }
    });
    let look = || {
        for n in 0..COUNT {
            let found = fs::metadata(dir.join(format!("{}-{}", n % 4, n / 4))).unwrap();
            assert!(found.is_file() && found.len() == 0);
        }
    };
    look();
    for pause in [0, 11, 0] {
        std::thread::sleep(std::time::Duration::from_secs(pause));
        let before = sent(&two);
        look();
        assert_eq!(more(&two, &before), BTreeMap::new(), "after {pause} s");
    }
}

/// What the kernel asks in between, attributes of the directory and whether a name is there, is known.
#[test]
fn a_change_of_a_name_is_one_message() {
    const COUNT: u64 = 50;
    let Some(two) = Two::new() else { return };
    let made = two.at[0].join("made");
    fs::create_dir(&made).unwrap();
    // One that another mount made, and this one has listed.
    let listed = two.at[0].join("listed");
    fs::create_dir(two.at[1].join("listed")).unwrap();
    fs::write(two.at[1].join("listed/before"), "").unwrap();
    assert_eq!(list(&listed).len(), 1);
    for dir in [made, listed] {
        let path = |name: &str, n: u64| dir.join(format!("{name}{n}"));
        let run_beside = |what: &str, message: &str, besides: &[&str], act: &dyn Fn(u64)| {
            let before = sent(&two);
            (0..COUNT).for_each(act);
            let once = besides.iter().map(|name| ((*name).to_owned(), 1));
            let expected = once.chain([(message.to_owned(), COUNT)]).collect();
            assert_eq!(more(&two, &before), expected, "{what} in {}", dir.display());
        };
        let run = |what: &str, message: &str, act: &dyn Fn(u64)| run_beside(what, message, &[], act);
        // The first of them may have to find the way there.
        fs::create_dir(path("first", 0)).unwrap();
        run("mkdir", "MakeNode", &|n| fs::create_dir(path("d", n)).unwrap());
        run("create", "CreateFile", &|n| drop(File::create(path("f", n)).unwrap()));
        run("rename", "Rename", &|n| fs::rename(path("f", n), path("g", n)).unwrap());
        // With its bytes two.
        let before = sent(&two);
        (0..COUNT).for_each(|n| fs::write(path("s", n), b"bytes").unwrap());
        let expected = ["CommitFile", "CreateFile"].map(|name| (name.to_owned(), COUNT)).into();
        assert_eq!(more(&two, &before), expected, "small files in {}", dir.display());
        (0..COUNT).for_each(|n| fs::rename(path("s", n), path("g", n)).unwrap());
        // The directory to itself, for most of them.
        run_beside("unlink", "Unlink", &["TakeSlot"], &|n| fs::remove_file(path("g", n)).unwrap());
        run("rmdir", "RemoveDir", &|n| fs::remove_dir(path("d", n)).unwrap());
        run("absences", "MakeNode", &|n| {
            (0..10).for_each(|m| assert!(!path("no", n * 10 + m).exists()));
            fs::create_dir(path("e", n)).unwrap();
        });
    }
    // None of it is kept from the other mount, nor what that makes from this one.
    for n in 0..20 {
        let (one, other) = (&two.at[n % 2].join("made"), &two.at[1 - n % 2].join("made"));
        assert!(!one.join("x").exists() && !other.join("x").exists(), "{n}");
        fs::create_dir(one.join("x")).unwrap();
        assert!(other.join("x").exists(), "{n}");
        assert_eq!(list(other).len(), COUNT as usize + 2, "{n}");
        fs::remove_dir(other.join("x")).unwrap();
        assert!(!one.join("x").exists(), "{n}");
        assert_eq!(list(one).len(), COUNT as usize + 1, "{n}");
    }
}

#[test]
fn a_directory_that_nobody_changes_is_read_once() {
    let Some(two) = Two::new() else { return };
    let mut names = filled_by(&two, 1);
    let dir = two.at[0].join("d");
    let before = asked(&two);
    assert_eq!(list(&dir), names);
    let after = asked(&two);
    assert!(after > before, "the messages are counted: {before}, {after}");
    for _ in 0..20 {
        assert_eq!(list(&dir), names);
    }
    assert_eq!(asked(&two), after, "the kernel has it");
    // What this mount changes itself is in it.
    File::create(dir.join("own")).unwrap();
    names.insert("own".into());
    assert_eq!(list(&dir), names);
    assert_eq!(list(&dir), names);
    // Of files that the other mount has to itself attributes are not leased here: they come with the names.
    assert!(asked(&two) > after);
}

/// The kernel reads it anew after each change of its own.
#[test]
fn what_a_mount_made_is_listed_without_a_message() {
    let Some(two) = Two::new() else { return };
    let mut names = filled(&two);
    let dir = two.at[0].join("d");
    for round in 0..3 {
        let (made, name) = (format!("made {round}"), names.pop_first().unwrap());
        fs::create_dir(dir.join(&made)).unwrap();
        fs::rename(dir.join(name), dir.join(format!("renamed {round}"))).unwrap();
        fs::remove_file(dir.join(names.pop_last().unwrap())).unwrap();
        assert!(fs::create_dir(dir.join(&made)).is_err());
        names.extend([made, format!("renamed {round}")]);
        assert_eq!(list(&dir), names, "round {round}");
    }
    assert_eq!(asked(&two), 0);
    // With what another mount has changed in between it is not.
    File::create(two.at[1].join("d/other")).unwrap();
    names.insert("other".into());
    assert_eq!(list(&dir), names);
    assert!(asked(&two) > 0);
}

#[test]
fn what_another_mount_makes_and_removes_is_in_the_next_listing() {
    let Some(two) = Two::new() else { return };
    let mut names = filled(&two);
    let dirs = [two.at[0].join("d"), two.at[1].join("d")];
    let mut open = [0, 1].map(|who| Dir::new(File::open(&dirs[who]).unwrap()).unwrap());
    for round in 0..40 {
        let (who, other) = (round % 2, 1 - round % 2);
        // Both kernels have it.
        assert!(list(&dirs[0]) == names && list(&dirs[1]) == names, "round {round}");
        let name = format!("round {round}");
        let times = fs::metadata(&dirs[who]).unwrap();
        match round % 4 {
            0 | 1 => drop(File::create(dirs[who].join(&name)).unwrap()),
            2 => fs::rename(
                dirs[who].join("round 0").with_file_name(format!("round {}", round - 2)),
                dirs[who].join(&name),
            )
            .unwrap(),
            _ => fs::remove_file(dirs[who].join(format!("round {}", round - 2))).unwrap(),
        }
        match round % 4 {
            0 | 1 => _ = names.insert(name),
            2 => _ = (names.remove(&format!("round {}", round - 2)), names.insert(name)),
            _ => _ = names.remove(&format!("round {}", round - 2)),
        }
        if round % 3 == 0 {
            // As archivers do: the time of the last change says nothing.
            let times = FileTimes::new().set_modified(times.modified().unwrap());
            File::open(&dirs[who]).unwrap().set_times(times).unwrap();
        }
        assert!(list(&dirs[other]) == names, "round {round}");
        // Who has it open and begins anew.
        open[other].rewind();
        assert_eq!(rest(&mut open[other]).into_iter().collect::<BTreeSet<_>>(), names, "round {round}");
    }
}

#[test]
fn a_listing_from_the_kernel_goes_on_where_it_was_when_the_directory_changes() {
    let Some(two) = Two::new() else { return };
    let names: Vec<String> = filled(&two).into_iter().collect();
    let dirs = [two.at[0].join("d"), two.at[1].join("d")];
    for round in 0..4 {
        list(&dirs[0]);
        let here: BTreeSet<String> = list(&dirs[0]);
        let mut dir = Dir::new(File::open(&dirs[0]).unwrap()).unwrap();
        let first: Vec<String> =
            (&mut dir).take(1200).map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
        // Of what was told and of what was not.
        let gone: Vec<&String> = names.iter().skip(round).step_by(7).filter(|name| here.contains(*name)).collect();
        gone.iter().for_each(|name| fs::remove_file(dirs[1].join(name)).unwrap());
        File::create(dirs[1].join(format!("zzz {round}"))).unwrap();
        let mut seen: Vec<String> = first.into_iter().filter(|name| !name.starts_with('.')).collect();
        seen.extend(rest(&mut dir));
        let stayed: Vec<&String> = here.iter().filter(|name| !gone.contains(name)).collect();
        let seen: Vec<&String> = seen.iter().filter(|name| here.contains(*name) && !gone.contains(name)).collect();
        assert_eq!(seen.len(), stayed.len(), "round {round}");
        assert!(seen == stayed, "round {round}: what stays is told once, and in order");
        assert_eq!(list(&dirs[0]).len(), here.len() - gone.len() + 1);
    }
}

#[test]
fn the_parent_of_a_directory_that_another_mount_moved_is_the_new_one() {
    let Some(two) = Two::new() else { return };
    for dir in ["one", "two", "one/sub"] {
        fs::create_dir(two.at[0].join(dir)).unwrap();
    }
    let parent = |at: &Path| {
        let found = Dir::new(File::open(at).unwrap()).unwrap().map(|entry| entry.unwrap());
        found.into_iter().find(|entry| entry.file_name().to_bytes() == b"..").unwrap().ino()
    };
    for round in 0..6 {
        let (from, to) = if round % 2 == 0 { ("one", "two") } else { ("two", "one") };
        let sub = two.at[0].join(from).join("sub");
        assert_eq!((parent(&sub), parent(&sub)), (sub.parent().unwrap().metadata().unwrap().ino(), parent(&sub)));
        // By the other mount, and by this one.
        let at = &two.at[if round < 4 { 1 } else { 0 }];
        fs::rename(at.join(from).join("sub"), at.join(to).join("sub")).unwrap();
        let moved = two.at[0].join(to).join("sub");
        assert_eq!(parent(&moved), two.at[0].join(to).metadata().unwrap().ino(), "round {round}");
    }
}
