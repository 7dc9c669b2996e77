//! Listings that the kernel keeps: nothing is asked while nobody changes the directory, and what another mount changes is in the next one.

use super::pages::get;
use super::two_mounts::Two;
use rustix::fs::Dir;
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Several answers to the kernel, and several pages of the metadata server.
const NAMES: usize = 3000;

/// Made by the first mount.
fn filled(two: &Two) -> BTreeSet<String> {
    let dir = two.at[0].join("d");
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

/// How often the first mount has asked what is in a directory.
fn asked(two: &Two) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&two.c.says("admin status --json")).unwrap();
    let (_, text) = get(status["pages"]["mount"].as_str().unwrap(), "/metrics");
    let line =
        text.lines().find(|line| line.starts_with("braid_mount_messages_total{") && line.contains("\"ReadDir\""));
    line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[test]
fn a_directory_that_nobody_changes_is_read_once() {
    let Some(two) = Two::new() else { return };
    let mut names = filled(&two);
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
    assert!(asked(&two) > after);
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
