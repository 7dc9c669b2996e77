//! The copy of the metadata beside the chunks: what survives a power cut, what is cut, what is refused.
#![allow(clippy::unwrap_used)]

use braid_api::data::{AppendGroups, FetchRows, KeeperReport, PromiseTerm, PutBase, RecordSet, SyncGroups};
use braid_data_server::MetadataKeeper;
use braid_env::{DiskFile, Env, OpenMode};
use braid_types::{CopySet, MetaPosition, MetaTerm, RowChange, RowChanges, ServerId, Voter};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

fn term(counter: u64) -> MetaTerm {
    MetaTerm { counter, nonce: 5 }
}

fn at(counter: u64, number: u64) -> MetaPosition {
    MetaPosition { term: term(counter), number }
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn open(&self) -> MetadataKeeper {
        MetadataKeeper::open(Env::os(), self.dir.path(), ServerId(1)).unwrap()
    }

    fn copies(&self) -> Vec<PathBuf> {
        let names = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("copy.")).collect()
    }

    fn file(&self) -> Arc<dyn DiskFile> {
        Env::os().disk.open(&self.copies()[0], OpenMode::Existing).unwrap()
    }

    /// What the last `bytes` of the copy's file become.
    fn tear(&self, bytes: u64) {
        let file = self.file();
        let len = file.len().unwrap();
        file.write_at(&vec![0xee; bytes as usize], len - bytes).unwrap();
    }

    fn rot(&self, before: &str, after: &str) {
        let bytes = std::fs::read(&self.copies()[0]).unwrap();
        let at = bytes.windows(before.len()).position(|window| window == before.as_bytes()).unwrap();
        self.file().write_at(after.as_bytes(), at as u64).unwrap();
    }
}

async fn append(keeper: &MetadataKeeper, by: u64, prev: MetaPosition, groups: &[(MetaPosition, &str)]) -> KeeperReport {
    let payload: String = groups.iter().map(|(_, changes)| *changes).collect();
    let groups = groups.iter().map(|(at, changes)| (*at, changes.len() as u32)).collect();
    let message = AppendGroups { term: term(by), prev, groups, durable: 0 };
    keeper.append(message, Bytes::from(payload)).await.unwrap()
}

async fn rows(keeper: &MetadataKeeper, by: u64) -> String {
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let (answer, rows) = keeper.fetch(FetchRows { term: term(by), after }).await.unwrap();
        all.extend_from_slice(&rows);
        match answer.next {
            Some(next) => after = next,
            None => return String::from_utf8(all).unwrap(),
        }
    }
}

/// A copy of a base "base" at group 4 of term 1, then groups 5 and 6.
async fn formed(place: &Place) -> MetadataKeeper {
    let keeper = place.open();
    keeper.promise(PromiseTerm { term: Some(term(1)) }).await.unwrap();
    let page = |page, upto| PutBase { term: term(1), from: at(1, 4), page, upto, durable: 0 };
    keeper.put_base(page(0, None), Bytes::from("ba")).await.unwrap();
    keeper.put_base(page(0, None), Bytes::from("ba")).await.unwrap();
    let report = keeper.put_base(page(1, Some(5)), Bytes::from("se")).await.unwrap();
    assert!(report.copy.is_none() && report.forming.is_some(), "the base was read while group 5 was made");
    let report = append(&keeper, 1, at(1, 4), &[(at(1, 5), "-five"), (at(1, 6), "-six")]).await;
    assert_eq!(report.copy.unwrap().last, at(1, 6));
    keeper
}

#[tokio::test]
async fn a_copy_is_there_after_a_restart_and_does_not_count_until_it_is_told_so() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let keeper = formed(&place).await;
    assert!(keeper.promise(PromiseTerm { term: None }).await.unwrap().copy.unwrap().current);
    drop(keeper);
    let keeper = place.open();
    let report = keeper.promise(PromiseTerm { term: None }).await.unwrap();
    assert_eq!(report.promised, term(1));
    let copy = report.copy.unwrap();
    assert!(copy.last == at(1, 6) && !copy.current, "{copy:?}");
    assert_eq!(rows(&keeper, 1).await, "base-five-six");
}

#[tokio::test]
async fn a_torn_end_is_cut_and_what_is_before_it_stays() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    drop(formed(&place).await);
    place.tear(2);
    let keeper = place.open();
    assert_eq!(keeper.promise(PromiseTerm { term: None }).await.unwrap().copy.unwrap().last, at(1, 5));
    let report = append(&keeper, 1, at(1, 5), &[(at(1, 6), "-again")]).await;
    assert_eq!(report.copy.unwrap().last, at(1, 6));
    drop(keeper);
    assert_eq!(rows(&place.open(), 1).await, "base-five-again");
}

#[tokio::test]
async fn a_copy_that_has_rotted_is_not_given_away_and_another_takes_its_place() {
    for is_read in [true, false] {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        let keeper = formed(&place).await;
        assert_eq!(rows(&keeper, 1).await, "base-five-six");
        place.rot("-five", "-fivE");
        if is_read {
            // Also of a piece that is whole, so that whoever asks can turn to another copy before it has used anything.
            let refused = keeper.fetch(FetchRows { term: term(1), after: 0 }).await.unwrap_err();
            assert!(refused.code == braid_api::Code::DiskError && refused.cause().contains("damaged"), "{refused}");
        } else {
            keeper.verify().await;
        }
        assert_eq!(keeper.counters.damaged.load(Relaxed), 1);
        let report = keeper.promise(PromiseTerm { term: None }).await.unwrap();
        assert!(report.copy.is_some(), "while there is no other it is what there is");
        let report = append(&keeper, 1, at(1, 6), &[(at(1, 7), "-seven")]).await;
        assert!(report.copy.is_none(), "the metadata server is to give another");
        let page = PutBase { term: term(1), from: at(1, 7), page: 0, upto: Some(7), durable: 0 };
        let report = keeper.put_base(page, Bytes::from("new")).await.unwrap();
        assert_eq!(report.copy.unwrap().last, at(1, 7));
        assert_eq!(rows(&keeper, 1).await, "new");
        drop(keeper);
        assert_eq!(place.copies().len(), 1, "the damaged one is gone");
        assert_eq!(rows(&place.open(), 1).await, "new");
    }
}

#[tokio::test]
async fn a_new_term_drops_what_it_does_not_have_also_after_a_restart() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let keeper = formed(&place).await;
    keeper.promise(PromiseTerm { term: Some(term(2)) }).await.unwrap();
    let report = append(&keeper, 1, at(1, 6), &[(at(1, 7), "-old")]).await;
    assert_eq!((report.promised, report.copy.unwrap().last), (term(2), at(1, 6)), "the old server is refused");
    append(&keeper, 2, at(1, 5), &[(at(2, 6), "-new")]).await;
    let synced = keeper.sync(SyncGroups { term: term(2) }).await.unwrap().copy.unwrap();
    assert_eq!(synced.synced, 6);
    drop(keeper);
    let keeper = place.open();
    assert_eq!(rows(&keeper, 2).await, "base-five-new");
    let refused = keeper.fetch(FetchRows { term: term(1), after: 0 }).await.unwrap_err();
    assert_eq!(refused.code, braid_api::Code::StaleEpoch, "{refused}");
}

#[tokio::test]
async fn promises_and_sets_outlive_the_process_and_never_go_back() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let keeper = place.open();
    let voters = vec![Voter { id: ServerId(1), host: "h".into(), addresses: vec!["a:1".into()] }];
    let set = |counter, number| CopySet { term: term(counter), number, members: vec![], voters: voters.clone() };
    keeper.record(RecordSet { set: set(3, 2) }).await.unwrap();
    drop(keeper);
    let keeper = place.open();
    for old in [set(3, 1), set(2, 9)] {
        let report = keeper.record(RecordSet { set: old }).await.unwrap();
        assert_eq!((report.promised, report.set), (term(3), Some(set(3, 2))));
    }
    let bytes = std::fs::read(place.dir.path().join("promised")).unwrap();
    drop(keeper);
    for byte in [0, 7, 9, bytes.len() - 1] {
        let mut spoilt = bytes.clone();
        spoilt[byte] ^= 0x10;
        std::fs::write(place.dir.path().join("promised"), spoilt).unwrap();
        assert!(MetadataKeeper::open(Env::os(), place.dir.path(), ServerId(1)).is_err(), "byte {byte}");
    }
}

/// Rows as they end, of a copy's changes in their order.
fn settled(bytes: &[u8]) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = std::collections::BTreeMap::new();
    for change in RowChanges::read(bytes) {
        let change = change.unwrap();
        match change.row {
            Some(row) => rows.insert(change.key.to_vec(), row.to_vec()),
            None => rows.remove(change.key),
        };
    }
    rows
}

#[tokio::test]
async fn a_long_log_is_put_into_the_base_and_nothing_is_lost() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let keeper = place.open().with_log_bytes_max(2000);
    keeper.promise(PromiseTerm { term: Some(term(1)) }).await.unwrap();
    let change = |key: u64, row: Option<u64>| {
        let (key, row) = (format!("{key:03}"), row.map(|row| format!("row {row}")));
        let mut changes = RowChanges::default();
        changes.push(RowChange { table: 2, key: key.as_bytes(), row: row.as_ref().map(String::as_bytes) });
        changes.into_bytes()
    };
    let base: Vec<u8> = (0..50).flat_map(|key| change(2 * key, Some(0))).collect();
    let page = PutBase { term: term(1), from: at(1, 4), page: 0, upto: Some(4), durable: 0 };
    keeper.put_base(page, base.clone().into()).await.unwrap();
    let mut expected = settled(&base);
    let fetched = async |keeper: &MetadataKeeper| {
        let (mut after, mut all) = (0, Vec::new());
        loop {
            let (answer, rows) = keeper.fetch(FetchRows { term: term(1), after }).await.unwrap();
            all.extend_from_slice(&rows);
            match answer.next {
                Some(next) => after = next,
                None => return (settled(&all), all.len()),
            }
        }
    };
    let rotations = || keeper.counters.rotations.load(std::sync::atomic::Ordering::Relaxed);
    let begun = std::time::Instant::now();
    for number in 5.. {
        // The log is put into the base beside the groups that come, as fast as the disk syncs.
        if number >= 1000 {
            let (_, bytes) = fetched(&keeper).await;
            if rotations() >= 3 && bytes < 12_000 {
                break;
            }
            let waited = begun.elapsed();
            assert!(waited.as_secs() < 60, "{bytes} bytes after {number} groups, {} times a new base", rotations());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        // Every third removes; keys are in the base, between its rows, and behind them.
        let changes = change(number * 7 % 120, (number % 3 != 0).then_some(number));
        for (key, row) in settled(&changes) {
            expected.insert(key, row);
        }
        if number % 3 == 0 {
            expected.remove(format!("{:03}", number * 7 % 120).as_bytes());
        }
        let groups = vec![(at(1, number), changes.len() as u32)];
        let message =
            AppendGroups { term: term(1), prev: at(1, number - 1), groups, durable: number.saturating_sub(3) };
        let report = keeper.append(message, changes.into()).await.unwrap();
        assert_eq!(report.copy.unwrap().last, at(1, number));
    }
    assert_eq!(fetched(&keeper).await.0, expected);
    drop(keeper);
    assert_eq!(fetched(&place.open()).await.0, expected, "after a restart");
}

#[tokio::test]
async fn an_unfinished_base_does_not_replace_the_copy_that_is_there() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let keeper = formed(&place).await;
    keeper.promise(PromiseTerm { term: Some(term(2)) }).await.unwrap();
    let page = PutBase { term: term(2), from: at(2, 9), page: 0, upto: None, durable: 9 };
    let report = keeper.put_base(page, Bytes::from("half")).await.unwrap();
    assert!(report.forming.is_some() && !report.copy.unwrap().current);
    drop(keeper);
    let keeper = place.open();
    assert_eq!(rows(&keeper, 2).await, "base-five-six");
    let left = Env::os().disk.list(Path::new(place.dir.path())).unwrap();
    assert_eq!(left.len(), 2, "the promise and one copy: {left:?}");
}

/// What version 1 has written is read by every later one, and what is written is version 1.
#[tokio::test]
async fn the_files_are_those_of_version_1() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let keeper = formed(&place).await;
    keeper.promise(PromiseTerm { term: Some(term(2)) }).await.unwrap();
    append(&keeper, 2, at(1, 5), &[(at(2, 6), "-new")]).await;
    let voters = vec![Voter { id: ServerId(1), host: "h".into(), addresses: vec!["a:1".into()] }];
    let set = CopySet { term: term(2), number: 3, members: vec![ServerId(1)], voters };
    keeper.record(RecordSet { set }).await.unwrap();
    drop(keeper);
    for (name, golden_name) in [("copy.1", "metadata-copy.v1"), ("promised", "metadata-promised.v1")] {
        let written = std::fs::read(place.dir.path().join(name)).unwrap();
        assert_eq!(written, std::fs::read(golden.join(golden_name)).unwrap(), "{name}");
    }
    let old = Place { dir: tempfile::tempdir().unwrap() };
    std::fs::copy(golden.join("metadata-copy.v1"), old.dir.path().join("copy.1")).unwrap();
    std::fs::copy(golden.join("metadata-promised.v1"), old.dir.path().join("promised")).unwrap();
    let keeper = old.open();
    let report = keeper.promise(PromiseTerm { term: None }).await.unwrap();
    assert_eq!((report.promised, report.set.unwrap().number), (term(2), 3));
    assert_eq!(rows(&keeper, 2).await, "base-five-new");
}
