//! Rows that are brought over are those of the source, whatever was there.

use braid_meta_engine::{Engine, EngineError, Key, MemEngine, MemStore, Operation, Row, Table, Tx};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_transfer::{Batch, Counts, RowSource, StoredRows, TransferError, bring, compare};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

type Rows = BTreeMap<Key, Row>;

/// Rows in batches of some.
pub struct Given(VecDeque<Batch>);

impl Given {
    pub fn of(rows: &Rows) -> Given {
        let all: Vec<(Key, Row)> = rows.iter().map(|(key, row)| (key.clone(), row.clone())).collect();
        Given(all.chunks(7).map(<[_]>::to_vec).collect())
    }
}

impl RowSource for Given {
    async fn next(&mut self) -> Result<Option<Batch>, TransferError> {
        Ok(self.0.pop_front())
    }
}

struct Change(Vec<(Key, Option<Row>)>);

impl Operation for Change {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        for (key, row) in &self.0 {
            match row {
                Some(row) => tx.put(key.clone(), row.clone()),
                None => tx.delete(key.clone()),
            }
        }
        Ok(())
    }
}

pub fn random_rows(rng: &mut StdRng, count: usize) -> Rows {
    let row = |rng: &mut StdRng| {
        let table = Table::ALL[rng.random_range(0..Table::ALL.len())];
        let table = if table == Table::Elections { Table::Inodes } else { table };
        let rest: Vec<u8> = (0..rng.random_range(0..9)).map(|_| rng.random_range(0..4)).collect();
        let row = vec![rng.random::<u8>(); rng.random_range(1..300)];
        (Key::new(table, rng.random_range(0..40), &rest), row)
    };
    (0..count).map(|_| row(rng)).collect()
}

/// Some are gone, some are otherwise, some are new.
fn changed(rng: &mut StdRng, rows: &Rows) -> Rows {
    let mut changed = random_rows(rng, 50);
    for (key, row) in rows {
        match rng.random_range(0..10) {
            0 => {}
            1 => _ = changed.insert(key.clone(), [row, &b"x"[..]].concat()),
            _ => _ = changed.insert(key.clone(), row.clone()),
        }
    }
    changed
}

async fn rows_of<E: Engine>(engine: &E) -> Rows {
    let (mut source, mut rows) = (StoredRows::of(engine), Rows::new());
    while let Some(batch) = source.next().await.unwrap() {
        rows.extend(batch);
    }
    rows
}

async fn put<E: Engine>(engine: &E, rows: &Rows) {
    let all = rows.iter().map(|(key, row)| (key.clone(), Some(row.clone()))).collect();
    engine.transact(0, Change(all)).await.unwrap();
}

fn memory() -> MemEngine {
    MemEngine::new(MemStore::new())
}

async fn is_brought<E: Engine>(target: &E, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let source = random_rows(&mut rng, 5000);
    // The first pass, into what is empty or not.
    let before = changed(&mut rng, &source);
    put(target, &before).await;
    let counts = bring(&mut Given::of(&source), target, |_| {}).await.unwrap();
    assert!(rows_of(target).await == source, "seed {seed}");
    let deleted = before.keys().filter(|key| !source.contains_key(*key)).count() as u64;
    let differ = source.iter().filter(|(key, row)| before.get(*key) != Some(*row)).count() as u64;
    assert_eq!((counts.rows, counts.put, counts.deleted), (source.len() as u64, differ, deleted), "seed {seed}");
    // Another costs what has changed since.
    let later = changed(&mut rng, &source);
    bring(&mut Given::of(&later), target, |_| {}).await.unwrap();
    assert!(rows_of(target).await == later, "seed {seed}");
    let again = bring(&mut Given::of(&later), target, |_| {}).await.unwrap();
    assert_eq!((again.put, again.deleted), (0, 0), "seed {seed}");
    let looked = compare(&mut Given::of(&later), target, |_| {}).await.unwrap();
    assert_eq!(looked, Counts { put: 0, deleted: 0, ..looked });
}

#[tokio::test]
async fn whatever_was_there_the_rows_are_those_of_the_source() {
    for seed in 0..4 {
        is_brought(&memory(), seed).await;
        let dir = tempfile::tempdir().unwrap();
        let options = EmbeddedOptions { map_bytes: 1 << 30, reserve_bytes: 1 << 20, ..EmbeddedOptions::default() };
        is_brought(&EmbeddedEngine::open(dir.path(), options).unwrap(), seed).await;
    }
}

#[tokio::test]
async fn one_row_that_is_not_as_it_was_sent_is_found() {
    let rows = random_rows(&mut StdRng::seed_from_u64(9), 3000);
    let target = memory();
    bring(&mut Given::of(&rows), &target, |_| {}).await.unwrap();
    let (key, row) = rows.iter().nth(1700).map(|(key, row)| (key.clone(), row.clone())).unwrap();
    let last = Key::new(Table::Reclaim, u64::MAX, b"behind all others");
    let faults = [
        (key.clone(), Some([&row[..], &[0]].concat()), Some(row.clone())),
        (key.clone(), None, Some(row)),
        (last.clone(), Some(vec![1]), None),
    ];
    for (key, fault, right) in faults {
        target.transact(0, Change(vec![(key.clone(), fault)])).await.unwrap();
        let error = compare(&mut Given::of(&rows), &target, |_| {}).await.unwrap_err();
        assert!(
            matches!(&error, TransferError::Differs { differing: 1, first } if *first == format!("{key:?}")),
            "{error}"
        );
        target.transact(0, Change(vec![(key, right)])).await.unwrap();
        compare(&mut Given::of(&rows), &target, |_| {}).await.unwrap();
    }
}

#[tokio::test]
async fn who_leads_and_where_rows_go_is_not_taken_along() {
    let (elected, other) = (Key::new(Table::Elections, 0, b""), Key::new(Table::Globals, 0, b"format"));
    let handover = braid_meta_namespace::rows::keys::handover();
    let of = |value: u8| {
        Rows::from([(elected.clone(), vec![value]), (handover.clone(), vec![value]), (other.clone(), vec![value])])
    };
    let target = memory();
    put(&target, &of(1)).await;
    bring(&mut Given::of(&of(2)), &target, |_| {}).await.unwrap();
    let rows = rows_of(&target).await;
    assert_eq!([&rows[&elected], &rows[&handover], &rows[&other]], [&vec![1], &vec![1], &vec![2]]);
    compare(
        &mut Given::of(&of(3).into_iter().filter(|(key, _)| *key != other).chain([(other.clone(), vec![2])]).collect()),
        &target,
        |_| {},
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn rows_that_do_not_come_in_order_are_refused() {
    let rows = random_rows(&mut StdRng::seed_from_u64(3), 100);
    let mut given = Given::of(&rows);
    given.0.swap(2, 5);
    let error = bring(&mut given, &memory(), |_| {}).await.unwrap_err();
    assert!(matches!(error, TransferError::Disorder(_)), "{error}");
    let mut twice = Given::of(&rows);
    let again = twice.0[0].clone();
    twice.0.push_front(again);
    assert!(matches!(bring(&mut twice, &memory(), |_| {}).await, Err(TransferError::Disorder(_))));
}
