//! Rows that come from a backup are older than what data servers and mounts know: what keeps the two from being taken for each other.
//!
//! - Numbers that were given since must not be given again: all counters go on from the time of the restoration ([`LeapIds`]). So sessions that began
//!   since are ended sessions, and every word of the next leader is newer than any of those that were.
//! - Mounts of then may have gone on for days: their sessions are in another epoch, and end ([`RestartSessions`]).
//! - Chains may have changed: each begins an epoch above all that there can have been, in which those who were members at the time of
//!   the backup say what they have, as in any take-over ([`RaiseChains`]).
//! - Data servers have chunks of files that these rows do not know. Nobody deletes them before an administrator says that these rows
//!   are the right ones ([`Confirm`]).

use super::ids::{Counter, go_on_from};
use crate::rows::{ContainerRow, RestoredRow, RowFormat, SessionRow, keys};
use crate::{OpError, Unit};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{ChainEpoch, SessionEpoch, Timestamp};

/// Numbers go on from the time of the restoration, and not from where the backup had them: the same or an older backup may be restored once
/// more, after numbers were given. 2^17 of them are good for 131,072 a second from one restoration to the next, and in the year 2106 they
/// have 49 bits, 12 less than there are for inodes.
const IDS_A_SECOND: u64 = 1 << 17;
/// People read the numbers of data servers, of which few are made.
const SERVERS_AN_HOUR: u64 = 16;
/// 2020 began so many seconds after 1970. Epochs have 32 bits, and a chain changes at most once a second: enough until 2156.
const SECONDS_BEFORE_2020: u64 = 1_577_836_800;
/// Rows in one transaction.
const A_PAGE: usize = 1024;

fn seconds(now: Timestamp) -> u64 {
    u64::try_from(now.0 / 1_000_000_000).unwrap_or(0)
}

fn epoch(now: Timestamp) -> u32 {
    u32::try_from(seconds(now).saturating_sub(SECONDS_BEFORE_2020)).unwrap_or(u32::MAX)
}

/// Above what it was and what it can have been since.
fn later(was: u32, now: Timestamp) -> Result<u32, OpError> {
    let next = was.checked_add(1).ok_or_else(|| Error::new(Code::Internal, "an epoch", "there is none after it"))?;
    Ok(next.max(epoch(now)))
}

/// A number that nobody has been given by then.
pub(super) fn leap(counter: Counter, now: Timestamp) -> u64 {
    match counter {
        Counter::Servers => seconds(now).saturating_sub(SECONDS_BEFORE_2020) / 3600 * SERVERS_AN_HOUR,
        _ => seconds(now) * IDS_A_SECOND,
    }
}

/// The first of all that is done: from here on the store says what it is.
pub struct LeapIds {
    /// When the backup was taken.
    pub taken: Timestamp,
    pub now: Timestamp,
}

impl Operation for LeapIds {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        for counter in Counter::ALL {
            go_on_from(&mut unit, counter, leap(counter, self.now)).await?;
        }
        unit.put(keys::restored(), &RestoredRow { taken: self.taken });
        Ok(())
    }
}

/// Sessions after this key; answers where to go on.
pub struct RestartSessions {
    pub after: Option<Key>,
    pub now: Timestamp,
}

impl Operation for RestartSessions {
    type Output = Option<Key>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<Key>, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let page = unit.scan_table(Table::Sessions, self.after.as_ref(), A_PAGE).await?;
        for (key, row) in &page.rows {
            let row = SessionRow::decode(key, row)?;
            if !row.has_ended() {
                let epoch = SessionEpoch(later(row.epoch.0, self.now)?);
                // Nobody comes who has kept anything for these rows.
                unit.put(key.clone(), &SessionRow { epoch, keeps: false, caches: false, ..row });
            }
        }
        Ok(page.rows.last().filter(|_| page.more).map(|(key, _)| key.clone()))
    }
}

/// Forgets chunks that were given to sessions, which may be in files since. Answers whether there are more.
pub struct ForgetSpares;

impl Operation for ForgetSpares {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let page = unit.scan_table(Table::Spares, None, A_PAGE).await?;
        page.rows.into_iter().for_each(|(key, _)| unit.delete(key));
        Ok(page.more)
    }
}

/// Chains of containers after this key; answers where to go on.
pub struct RaiseChains {
    pub after: Option<Key>,
    pub now: Timestamp,
}

impl Operation for RaiseChains {
    type Output = Option<Key>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<Key>, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let page = unit.scan_table(Table::Containers, self.after.as_ref(), A_PAGE).await?;
        for (key, row) in &page.rows {
            let row = ContainerRow::decode(key, row)?;
            // A container whose chunks have one copy each has no epochs.
            if row.copies.is_some() {
                unit.put(key.clone(), &raised(row, self.now)?);
            }
        }
        Ok(page.rows.last().filter(|_| page.more).map(|(key, _)| key.clone()))
    }
}

/// The same members in a much later epoch, and who goes on with each chunk is to be found out. Which chains count is as it was.
fn raised(mut row: ContainerRow, now: Timestamp) -> Result<ContainerRow, OpError> {
    if let Some(copies) = &mut row.copies {
        let is_open = |epoch| copies.default_open == epoch || copies.last_open.iter().any(|(_, open)| *open == epoch);
        if is_open(row.epoch) {
            row.older.push((row.epoch, row.chain.clone()));
        }
        copies.settled = false;
        row.epoch = ChainEpoch(later(row.epoch.0, now)?);
    }
    Ok(row)
}

/// When the backup was taken that these rows come from, as long as nobody has confirmed that they are the right ones.
pub struct ReadRestored;

impl Operation for ReadRestored {
    type Output = Option<Timestamp>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<Timestamp>, OpError> {
        let row: Option<RestoredRow> = Unit::new(tx, Lock::None).get(&keys::restored()).await?;
        Ok(row.map(|row| row.taken))
    }
}

/// An administrator has said so. Answers whether it was not said before.
pub struct Confirm;

impl Operation for Confirm {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let there = unit.get_raw(&keys::restored()).await?.is_some();
        if there {
            unit.delete(keys::restored());
        }
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rows::CopiesRow;
    use braid_types::{Layout, ServerId};

    /// The first moment of 2027.
    const NOW: Timestamp = Timestamp(1_798_761_600_000_000_000);

    fn row(settled: bool, default_open: u32) -> ContainerRow {
        ContainerRow {
            epoch: ChainEpoch(7),
            chain: vec![ServerId(2), ServerId(3)],
            layout: Layout::Replica { copies: 2 },
            chunk_bytes: 1,
            given: 0,
            freed: 0,
            older: vec![(ChainEpoch(5), vec![ServerId(1), ServerId(2)])],
            copies: Some(CopiesRow { settled, default_open: ChainEpoch(default_open), ..CopiesRow::default() }),
        }
    }

    #[test]
    fn a_chain_that_acted_is_asked_in_the_epoch_that_follows() {
        let raised = raised(row(true, 7), NOW).unwrap();
        assert_eq!((raised.epoch, &raised.chain), (ChainEpoch(220_924_800), &vec![ServerId(2), ServerId(3)]));
        assert_eq!(raised.older.last(), Some(&(ChainEpoch(7), vec![ServerId(2), ServerId(3)])));
        assert!(!raised.copies.as_ref().is_some_and(|copies| copies.settled));
        let again = super::raised(raised, NOW).unwrap();
        assert_eq!(again.epoch, ChainEpoch(220_924_801), "also within the same second, or if a clock went back");
    }

    #[test]
    fn a_chain_that_had_not_begun_counts_no_more_than_before() {
        assert_eq!(raised(row(false, 5), NOW).unwrap().older, row(false, 5).older);
    }
}
