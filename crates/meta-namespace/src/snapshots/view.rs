use super::{damaged, inode_in, is_kept};
use crate::rows::{OldRow, RowFormat, SnapshotsRow, keys};
use crate::{OpError, Query, Unit};
use braid_api::{Code, Error};
use braid_meta_engine::{Awaited, Counts, EngineError, Key, Lock, Operation, Page, Row, Table, Tx};
use braid_types::InodeId;
use std::collections::BTreeMap;

/// A moment of a tree: a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub root: InodeId,
    pub number: u64,
}

/// A query as it would have been answered when the snapshot was made.
pub struct AtSnapshot<Q> {
    pub moment: Moment,
    pub query: Q,
}

impl<Q: Query> Operation for AtSnapshot<Q> {
    type Output = Q::Answer;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Q::Answer, OpError> {
        // In the same transaction as the rows: what was kept for a snapshot that came since, and is not known yet, is not missed.
        let Moment { root, number } = self.moment;
        let row = Unit::new(tx, Lock::None).get::<SnapshotsRow>(&keys::snapshots(root)).await?.unwrap_or_default();
        if !row.kept.iter().any(|snapshot| snapshot.number == number) {
            let of = format_args!("snapshot {number} of directory {root}");
            return Err(Error::new(Code::Stale, of, "it does not exist any more").into());
        }
        let mut then = Then { tx, moment: self.moment, numbers: row.numbers_from(number) };
        self.query.ask(&mut Unit::new(&mut then, Lock::None)).await
    }
}

/// A transaction that reads what was.
struct Then<'t> {
    tx: &'t mut dyn Tx,
    moment: Moment,
    /// Under which rows may have been kept that it has. Rising; the first is its own.
    numbers: Vec<u64>,
}

impl Moment {
    /// What a row was, of which this is there now and this was kept, by number.
    fn of(&self, key: &Key, now: Option<Row>, kept: impl IntoIterator<Item = Row>) -> Result<Option<Row>, EngineError> {
        let then = match kept.into_iter().next() {
            Some(old) => OldRow::decode(key, &old).map_err(damaged)?.row.map(Row::from),
            None => now,
        };
        let Some(row) = then else { return Ok(None) };
        // It came, or became what it is, after the snapshot.
        let is_later = inode_in(key, &row).map_err(damaged)?.is_some_and(|inode| inode.changed >= self.number);
        Ok((!is_later).then_some(row))
    }
}

/// Rows that are read to make a page of a directory of then.
const ROWS_AT_ONCE: usize = 4096;
/// More than there are versions of a row: snapshots of one root at once.
const ROWS_AT_LEAST: usize = 2 * crate::ops::snapshot::SNAPSHOTS_MAX;

impl Then<'_> {
    async fn read(&mut self, wanted: &[Key]) -> Result<Vec<Option<Row>>, EngineError> {
        let (root, numbers) = (self.moment.root, &self.numbers);
        let mut all = wanted.to_vec();
        let is_then = |key: &&Key| is_kept(key.table());
        for key in wanted.iter().filter(is_then) {
            all.extend(numbers.iter().map(|number| keys::old_row(root, key, *number)));
        }
        let mut rows = self.tx.get(&all, Lock::None).await?.into_iter();
        let now: Vec<Option<Row>> = rows.by_ref().take(wanted.len()).collect();
        let mut then = Vec::with_capacity(now.len());
        for (key, now) in wanted.iter().zip(now) {
            then.push(match is_kept(key.table()) {
                true => {
                    let kept: Vec<Row> = rows.by_ref().take(numbers.len()).flatten().collect();
                    self.moment.of(key, now, kept)?
                }
                false => now,
            });
        }
        Ok(then)
    }

    /// Of the rows that are there now and those that were kept, a page each, as far as both reach.
    async fn read_page(&mut self, prefix: &Key, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        let Moment { root, number } = self.moment;
        let mut page = Page::default();
        let mut after = after.cloned();
        let below = keys::old_rows_below(root, prefix);
        let at_once = limit.clamp(ROWS_AT_LEAST, ROWS_AT_ONCE);
        while page.rows.len() < limit {
            let now = self.tx.scan(prefix, after.as_ref(), at_once, Lock::None).await?;
            // Behind all that was kept of that row.
            let old_after = after.as_ref().map(|key| keys::old_row(root, key, keys::SNAPSHOT_MAX));
            let old = self.tx.scan(&below, old_after.as_ref(), at_once, Lock::None).await?;
            let of_old = |key: &Key| keys::of_old_row(key).map(|(of, _)| of);
            // What was kept of the last row of a page may go on in the next.
            let ends = [
                now.more.then(|| now.rows.last().map(|(key, _)| key.clone())).flatten(),
                old.more.then(|| old.rows.last().and_then(|(key, _)| of_old(key))).flatten(),
            ];
            let mut rows: BTreeMap<Key, (Option<Row>, Vec<Row>)> = BTreeMap::new();
            for (key, row) in now.rows {
                rows.entry(key).or_default().0 = Some(row);
            }
            for (key, row) in old.rows {
                if let Some((of, kept)) = keys::of_old_row(&key)
                    && kept >= number
                {
                    rows.entry(of).or_default().1.push(row);
                }
            }
            // Up to the row behind which something may be missing. Of a row with thousands of versions the page is read again whole.
            let (end, is_old) = match ends {
                [None, None] => (None, false),
                [Some(now), None] => (Some(now), false),
                [None, Some(old)] => (Some(old), true),
                [Some(now), Some(old)] => {
                    if old <= now {
                        (Some(old), true)
                    } else {
                        (Some(now), false)
                    }
                }
            };
            let mut last = None;
            for (key, (now, kept)) in rows {
                let is_out = end.as_ref().is_some_and(|end| if is_old { key >= *end } else { key > *end });
                if is_out {
                    break;
                }
                if page.rows.len() == limit {
                    page.more = true;
                    return Ok(page);
                }
                if let Some(row) = self.moment.of(&key, now, kept)? {
                    page.rows.push((key.clone(), row));
                }
                last = Some(key);
            }
            match (end, last) {
                (None, _) => return Ok(page),
                (Some(_), Some(last)) => after = Some(last),
                (Some(end), None) => {
                    let cause = format!("more than {at_once} versions of the row {end:?} were kept");
                    return Err(EngineError::Storage(cause));
                }
            }
        }
        page.more = true;
        Ok(page)
    }
}

impl Tx for Then<'_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], _: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        Awaited::waits(self.read(keys))
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, _: Lock) -> Awaited<'a, Page> {
        match is_kept(prefix.table()) {
            true => Awaited::waits(self.read_page(prefix, after, limit)),
            false => self.tx.scan(prefix, after, limit, Lock::None),
        }
    }

    fn scan_table<'a>(&'a mut self, table: Table, _: Option<&'a Key>, _: usize) -> Awaited<'a, Page> {
        Awaited::ready(Err(EngineError::Unsupported(format!("a whole table, {table:?}, as it was in a snapshot"))))
    }

    // A query writes nothing; what would is refused by the transaction below.
    fn put(&mut self, key: Key, row: Row) {
        self.tx.put(key, row);
    }

    fn insert(&mut self, key: Key, row: Row) {
        self.tx.insert(key, row);
    }

    fn delete(&mut self, key: Key) {
        self.tx.delete(key);
    }

    fn add(&mut self, key: Key, by: Counts) {
        self.tx.add(key, by);
    }
}
