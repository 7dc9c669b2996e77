//! The load and the check: on a disk that keeps everything the check finds nothing, and whatever is lost or changed behind
//! its back it finds. That cuts are found is shown on the real thing, by `scripts/power-planted`.

#![allow(clippy::unwrap_used)]

use braid_powercut::{Expect, Load, Verdict, check, load};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

fn run_load(dir: &Path, aside: &Path, seed: u64, time: Duration) -> PathBuf {
    let (record, stop) = (aside.join("record"), aside.join("stop"));
    let calls =
        Load { dir: dir.to_owned(), also: Vec::new(), record: record.clone(), stop: stop.clone(), seed, workers: 2 };
    let stopper = thread::spawn(move || {
        thread::sleep(time);
        fs::write(stop, "").unwrap();
    });
    let report = load(&calls).unwrap();
    stopper.join().unwrap();
    assert!(report.failed.is_empty() && report.wrong.is_empty(), "{report}: {:?} {:?}", report.failed, report.wrong);
    assert!(report.acknowledged > 100 && report.syncs > 10, "{report}");
    record
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.symlink_metadata().unwrap().is_file()).collect();
    found.sort();
    found
}

fn problems(dir: &Path, record: &Path) -> Verdict {
    check(dir, record, Expect::Everything).unwrap()
}

#[test]
fn what_is_changed_behind_its_back_is_found() {
    let (tree, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dir = tree.path().join("load");
    let record = run_load(&dir, aside.path(), 3, Duration::from_millis(700));
    let clean = problems(&dir, &record);
    assert!(clean.problems.is_empty() && clean.names > 10 && clean.bytes > 10_000, "{clean}: {:#?}", clean.problems);

    let some = files(&dir.join("w0")).into_iter().find(|path| fs::metadata(path).unwrap().len() > 100).unwrap();
    let content = fs::read(&some).unwrap();
    let name = some.file_name().unwrap().to_str().unwrap().to_owned();
    let must_find = |what: &str, verdict: Verdict| {
        let named = verdict.problems.iter().any(|problem| problem.contains(&name));
        assert!(named, "{what} of {name} was not found: {:#?}", verdict.problems);
    };

    let mut torn = content.clone();
    torn[50] ^= 1;
    fs::write(&some, &torn).unwrap();
    must_find("a changed byte", problems(&dir, &record));
    fs::write(&some, &content[..content.len() - 1]).unwrap();
    must_find("a lost byte", problems(&dir, &record));
    fs::write(&some, &content).unwrap();
    assert!(problems(&dir, &record).problems.is_empty());

    let other = some.with_file_name("stray");
    fs::rename(&some, &other).unwrap();
    let verdict = problems(&dir, &record);
    assert!(verdict.problems.iter().any(|problem| problem.contains("stray")), "{:#?}", verdict.problems);
    must_find("a lost name", verdict);
}
