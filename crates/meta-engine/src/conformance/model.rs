//! Random scripts against a `BTreeMap`, which is small enough to be right. The same seed, the same scripts.

use super::script::*;
use crate::{Engine, EngineError, Key, Lock, Page, Row, Table};
use std::collections::BTreeMap;

type Model = BTreeMap<Key, Row>;

const SCRIPTS: u64 = 150;
const TABLES: [Table; 3] = [Table::Inodes, Table::InodeIds, Table::Requests];

pub async fn random_scripts_agree_with_the_model<E: Engine>(engine: &E, seed: u64) {
    let mut dice = Dice(seed);
    let mut model = Model::new();
    for number in 0..SCRIPTS {
        let steps = random_steps(&mut dice);
        let context = format!("seed {seed}, script {number}: {steps:?}");
        let mut after = model.clone();
        match (expect(&mut after, &steps), transact(engine, steps.clone()).await) {
            (Expected::Commits(expected), Ok(seen)) => {
                compare(expected, seen, &context);
                model = after;
            }
            (Expected::Exists, Err(ScriptError::Engine(EngineError::Exists(_)))) => {}
            (Expected::Aborts, Err(ScriptError::Own)) => {}
            (expected, answer) => panic!("{context}\nexpected {expected:?}, was answered {answer:?}"),
        }
        let reads: Vec<_> = random_steps(&mut dice).into_iter().filter(is_read).collect();
        if let Expected::Commits(expected) = expect(&mut model.clone(), &reads) {
            compare(expected, read(engine, reads).await, &context);
        }
    }
    for table in TABLES {
        let expected: Vec<_> = model.clone().into_iter().filter(|(key, _)| key.table() == table).collect();
        assert_eq!(whole_table(engine, table).await, expected, "{table:?} in the end, seed {seed}");
    }
}

#[derive(Debug)]
enum Expected {
    Commits(Vec<Shown>),
    Exists,
    Aborts,
}

/// What a reading step must show: rows, or a page of at most `usize` of all that follow.
#[derive(Debug)]
enum Shown {
    Rows(Vec<Option<Row>>),
    Page(Vec<(Key, Row)>, usize),
}

fn expect(model: &mut Model, steps: &[Step]) -> Expected {
    let mut shown = Vec::new();
    let mut exists = false;
    for step in steps {
        match step {
            Step::Get(keys, _) => shown.push(Shown::Rows(keys.iter().map(|key| model.get(key).cloned()).collect())),
            Step::Scan { prefix, after, limit } => {
                let inside = |key: &Key| key.table() == prefix.table() && key.bytes().starts_with(prefix.bytes());
                shown.push(Shown::Page(following(model, inside, after), *limit));
            }
            Step::ScanTable { table, after, limit } => {
                shown.push(Shown::Page(following(model, |key| key.table() == *table, after), *limit));
            }
            Step::Insert(key, row) => exists |= model.insert(key.clone(), row.clone()).is_some(),
            Step::Put(key, row) => {
                model.insert(key.clone(), row.clone());
            }
            Step::Delete(key) => {
                model.remove(key);
            }
            // In cases of its own.
            Step::Add(..) => {}
            // An engine may notice the clash of an insert only at the commit, which an abort does not reach.
            Step::Fail => return Expected::Aborts,
        }
    }
    if exists { Expected::Exists } else { Expected::Commits(shown) }
}

fn following(model: &Model, inside: impl Fn(&Key) -> bool, after: &Option<Key>) -> Vec<(Key, Row)> {
    let wanted = |key: &Key| inside(key) && after.as_ref().is_none_or(|after| key > after);
    model.iter().filter(|(key, _)| wanted(key)).map(|(key, row)| (key.clone(), row.clone())).collect()
}

fn compare(expected: Vec<Shown>, seen: Vec<Seen>, context: &str) {
    assert_eq!(expected.len(), seen.len(), "{context}");
    for (expected, seen) in expected.into_iter().zip(seen) {
        match expected {
            Shown::Rows(rows) => assert_eq!(seen.rows(), rows, "{context}"),
            Shown::Page(all, limit) => compare_page(&all, limit, &seen.page(), context),
        }
    }
}

/// A page may be shorter than its limit if it says that there is more.
fn compare_page(all: &[(Key, Row)], limit: usize, page: &Page, context: &str) {
    assert!(page.rows.len() <= limit.min(all.len()), "{page:?} of {all:?}\n{context}");
    assert_eq!(page.rows, all[..page.rows.len()], "{context}");
    assert!(page.more || page.rows.len() == all.len(), "{page:?} hides rows of {all:?}\n{context}");
    assert!(!page.more || !page.rows.is_empty(), "{page:?} does not get on\n{context}");
}

fn is_read(step: &Step) -> bool {
    matches!(step, Step::Get(..) | Step::Scan { .. } | Step::ScanTable { .. })
}

fn random_steps(dice: &mut Dice) -> Vec<Step> {
    let mut steps: Vec<_> = (0..=dice.below(9)).map(|_| random_step(dice)).collect();
    if dice.below(8) == 0 {
        // Inserts could fail before the abort is reached.
        steps.retain(|step| !matches!(step, Step::Insert(..)));
        steps.push(Step::Fail);
    }
    steps
}

fn random_step(dice: &mut Dice) -> Step {
    let key = random_key(dice);
    match dice.below(12) {
        0 | 1 => {
            let locks = [Lock::None, Lock::Shared, Lock::Exclusive];
            Step::Get((0..dice.below(5)).map(|_| random_key(dice)).collect(), locks[dice.below(3) as usize])
        }
        2 => Step::Scan { prefix: key, after: None, limit: 1 + dice.below(5) as usize },
        3 => {
            let prefix = Key::new(key.table(), key.partition(), b"");
            Step::Scan { prefix, after: Some(key), limit: 1 + dice.below(20) as usize }
        }
        4 => Step::ScanTable { table: key.table(), after: Some(key), limit: 1 + dice.below(20) as usize },
        5 => Step::ScanTable { table: key.table(), after: None, limit: 1 + dice.below(20) as usize },
        6..=8 => Step::Put(key, random_row(dice)),
        9 => Step::Insert(key, random_row(dice)),
        _ => Step::Delete(key),
    }
}

fn random_key(dice: &mut Dice) -> Key {
    let rests: [&[u8]; 7] = [b"", b"a", b"ab", b"b", &[0], &[0xff], &[0xff, 0xff]];
    let table = TABLES[dice.below(3) as usize];
    Key::new(table, 254 + dice.below(4), rests[dice.below(7) as usize])
}

/// Mostly small; some need pages of their own.
fn random_row(dice: &mut Dice) -> Row {
    let size = if dice.below(20) == 0 { dice.below(20_000) } else { dice.below(40) };
    vec![dice.below(256) as u8; size as usize]
}

/// SplitMix64: enough for tests, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
