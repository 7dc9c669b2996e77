use crate::{Counts, Engine, EngineError, Key, Lock, Operation, Page, Row, Table, Tx};

/// One call of [`Tx`].
#[derive(Clone, Debug)]
pub enum Step {
    Get(Vec<Key>, Lock),
    Scan {
        prefix: Key,
        after: Option<Key>,
        limit: usize,
    },
    ScanTable {
        table: Table,
        after: Option<Key>,
        limit: usize,
    },
    Put(Key, Row),
    Insert(Key, Row),
    Delete(Key),
    Add(Key, Counts),
    /// The operation decides to abort.
    Fail,
}

/// What a reading step showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Rows(Vec<Option<Row>>),
    Page(Page),
}

impl Seen {
    pub fn rows(self) -> Vec<Option<Row>> {
        match self {
            Seen::Rows(rows) => rows,
            Seen::Page(page) => panic!("rows were expected, not {page:?}"),
        }
    }

    pub fn page(self) -> Page {
        match self {
            Seen::Page(page) => page,
            Seen::Rows(rows) => panic!("a page was expected, not {rows:?}"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the operation decided to abort")]
    Own,
}

/// An operation that takes the steps one after the other and tells what it saw.
#[derive(Clone, Debug)]
pub struct Script(pub Vec<Step>);

impl Operation for Script {
    type Output = Vec<Seen>;
    type Error = ScriptError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Vec<Seen>, ScriptError> {
        let mut seen = Vec::new();
        for step in &self.0 {
            match step.clone() {
                Step::Get(keys, lock) => seen.push(Seen::Rows(tx.get(&keys, lock).await?)),
                Step::Scan { prefix, after, limit } => {
                    seen.push(Seen::Page(tx.scan(&prefix, after.as_ref(), limit, Lock::None).await?));
                }
                Step::ScanTable { table, after, limit } => {
                    seen.push(Seen::Page(tx.scan_table(table, after.as_ref(), limit).await?));
                }
                Step::Put(key, row) => tx.put(key, row),
                Step::Insert(key, row) => tx.insert(key, row),
                Step::Delete(key) => tx.delete(key),
                Step::Add(key, by) => tx.add(key, by),
                Step::Fail => return Err(ScriptError::Own),
            }
        }
        Ok(seen)
    }
}

/// A key of the table most cases use.
pub(super) fn key(partition: u64, rest: &str) -> Key {
    Key::new(Table::Inodes, partition, rest.as_bytes())
}

pub(super) fn row(text: &str) -> Row {
    text.as_bytes().to_vec()
}

pub(super) fn get(keys: &[Key]) -> Step {
    Step::Get(keys.to_vec(), Lock::None)
}

pub(super) fn put(partition: u64, rest: &str, text: &str) -> Step {
    Step::Put(key(partition, rest), row(text))
}

pub(super) fn insert(partition: u64, rest: &str, text: &str) -> Step {
    Step::Insert(key(partition, rest), row(text))
}

pub(super) fn delete(partition: u64, rest: &str) -> Step {
    Step::Delete(key(partition, rest))
}

pub(super) fn scan(partition: u64, rest: &str, after: Option<Key>, limit: usize) -> Step {
    Step::Scan { prefix: key(partition, rest), after, limit }
}

pub(super) async fn transact<E: Engine>(engine: &E, steps: Vec<Step>) -> Result<Vec<Seen>, ScriptError> {
    engine.transact(1, Script(steps)).await
}

/// A transaction that must commit.
pub(super) async fn commit<E: Engine>(engine: &E, steps: Vec<Step>) -> Vec<Seen> {
    transact(engine, steps).await.expect("the transaction commits")
}

/// A read that must succeed.
pub(super) async fn read<E: Engine>(engine: &E, steps: Vec<Step>) -> Vec<Seen> {
    engine.read(1, Script(steps)).await.expect("the read succeeds")
}

/// The committed rows of `keys`.
pub(super) async fn rows<E: Engine>(engine: &E, keys: &[Key]) -> Vec<Option<Row>> {
    read(engine, vec![get(keys)]).await.remove(0).rows()
}

/// Every committed row of a table, page by page.
pub(super) async fn whole_table<E: Engine>(engine: &E, table: Table) -> Vec<(Key, Row)> {
    let mut all: Vec<(Key, Row)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let page = read(engine, vec![Step::ScanTable { table, after, limit: 100 }]).await.remove(0).page();
        assert!(!page.more || !page.rows.is_empty(), "a page promises more and has nothing");
        all.extend(page.rows);
        if !page.more {
            return all;
        }
    }
}
