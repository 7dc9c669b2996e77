//! Two sequences of rows in the same order, one read from where they come from and one from the target, beside each other.

use crate::source::PAGE_ROWS;
use crate::{Batch, RowSource, StoredRows, TransferError};
use braid_meta_engine::{Engine, EngineError, Key, Operation, Row, Tx};
use braid_meta_namespace::ops::handover::stays;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Of one transaction: enough that its sync or its round trips do not count, far below what a message to a database takes (16 MiB).
const WRITE_ROWS: usize = 2048;
const WRITE_BYTES: usize = 1 << 20;

/// What a pass has seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of the source.
    pub rows: u64,
    /// Of their keys and values.
    pub bytes: u64,
    /// Rows that were not there, or otherwise.
    pub put: u64,
    /// Rows that the source does not have.
    pub deleted: u64,
}

/// Makes the target's rows those of the source. `tell` is called now and then with what is done so far.
pub async fn bring<S: RowSource, E: Engine>(
    source: &mut S,
    target: &E,
    tell: impl Fn(&Counts) + Send,
) -> Result<Counts, TransferError> {
    let mut changes = Changes::default();
    let mut merge = Merge::new(source, target);
    while let Some(step) = merge.step().await? {
        match step {
            Step::Same => continue,
            Step::Put(key, row) => changes.push(key, Some(row)),
            Step::Delete(key) => changes.push(key, None),
        }
        if changes.are_enough() {
            changes.write(target).await?;
            tell(&merge.counts);
        }
    }
    changes.write(target).await?;
    tell(&merge.counts);
    Ok(merge.counts)
}

/// Looks whether the target's rows are those of the source, and changes nothing.
pub async fn compare<S: RowSource, E: Engine>(
    source: &mut S,
    target: &E,
    tell: impl Fn(&Counts) + Send,
) -> Result<Counts, TransferError> {
    let mut merge = Merge::new(source, target);
    let (mut first, mut seen) = (None, 0_u64);
    while let Some(step) = merge.step().await? {
        match step {
            Step::Same => {}
            Step::Put(key, _) | Step::Delete(key) => _ = first.get_or_insert(key),
        }
        seen += 1;
        if seen.is_multiple_of(PAGE_ROWS as u64) {
            tell(&merge.counts);
        }
    }
    let counts = merge.counts;
    match first {
        None => Ok(counts),
        Some(first) => {
            Err(TransferError::Differs { differing: counts.put + counts.deleted, first: format!("{first:?}") })
        }
    }
}

enum Step {
    Same,
    Put(Key, Row),
    Delete(Key),
}

struct Merge<'m, S, E> {
    source: &'m mut S,
    come: VecDeque<(Key, Row)>,
    all_come: bool,
    last_come: Option<Key>,
    there: VecDeque<(Key, Row)>,
    target: StoredRows<'m, E>,
    counts: Counts,
}

impl<'m, S: RowSource, E: Engine> Merge<'m, S, E> {
    fn new(source: &'m mut S, target: &'m E) -> Self {
        Merge {
            source,
            come: VecDeque::new(),
            all_come: false,
            last_come: None,
            there: VecDeque::new(),
            target: StoredRows::of(target),
            counts: Counts::default(),
        }
    }

    async fn step(&mut self) -> Result<Option<Step>, TransferError> {
        self.fetch().await?;
        self.look().await?;
        let order = match (self.come.front(), self.there.front()) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(come), Some(there)) => come.0.cmp(&there.0),
        };
        let mut have = None;
        if order != Ordering::Less {
            have = self.there.pop_front();
        }
        let mut wanted = None;
        if order != Ordering::Greater {
            wanted = self.come.pop_front();
        }
        Ok(Some(match (wanted, have) {
            (Some((key, row)), have) => {
                self.counts.rows += 1;
                self.counts.bytes += (key.bytes().len() + row.len()) as u64;
                match have {
                    Some((_, same)) if same == row => Step::Same,
                    _ => {
                        self.counts.put += 1;
                        Step::Put(key, row)
                    }
                }
            }
            (None, Some((key, _))) => {
                self.counts.deleted += 1;
                Step::Delete(key)
            }
            (None, None) => return Ok(None),
        }))
    }

    /// Until the next row of the source is here, if there is one.
    async fn fetch(&mut self) -> Result<(), TransferError> {
        while self.come.is_empty() && !self.all_come {
            let Some(batch) = self.source.next().await? else {
                self.all_come = true;
                return Ok(());
            };
            self.take(batch)?;
        }
        Ok(())
    }

    fn take(&mut self, batch: Batch) -> Result<(), TransferError> {
        for (key, row) in batch {
            if self.last_come.as_ref().is_some_and(|last| *last >= key) {
                return Err(TransferError::Disorder(format!("{key:?} after {:?}", self.last_come)));
            }
            self.last_come = Some(key.clone());
            if !stays(&key) {
                self.come.push_back((key, row));
            }
        }
        Ok(())
    }

    /// The same of the target.
    async fn look(&mut self) -> Result<(), TransferError> {
        while self.there.is_empty() {
            let Some(rows) = self.target.page().await.map_err(TransferError::Target)? else { return Ok(()) };
            self.there.extend(rows.into_iter().filter(|(key, _)| !stays(key)));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Changes {
    rows: Vec<(Key, Option<Row>)>,
    bytes: usize,
}

impl Changes {
    fn push(&mut self, key: Key, row: Option<Row>) {
        self.bytes += key.bytes().len() + row.as_ref().map_or(0, Vec::len);
        self.rows.push((key, row));
    }

    fn are_enough(&self) -> bool {
        self.rows.len() >= WRITE_ROWS || self.bytes >= WRITE_BYTES
    }

    async fn write<E: Engine>(&mut self, target: &E) -> Result<(), TransferError> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        match rows.is_empty() {
            true => Ok(()),
            false => target.transact(0, WriteRows(rows)).await.map_err(TransferError::Target),
        }
    }
}

struct WriteRows(Vec<(Key, Option<Row>)>);

impl Operation for WriteRows {
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
