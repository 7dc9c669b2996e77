//! Who is charged for what a transaction does (docs/design/0024-quotas.md).
//!
//! No operation counts anything itself. A [`Unit`] sees each row of an inode that is changed, with what it was before; at the end of the
//! transaction the difference is added to the accounts of who pays, in the same transaction. So what an account says is what the rows of
//! inodes sum up to, whatever an operation does with them, and there is nothing to make up for after a crash.
//!
//! Promises: without a quota anywhere no row of an account is read and nothing costs a round trip; what would go beyond a quota is refused
//! with [`Code::QuotaExceeded`] before anything is changed; what makes an account smaller is never refused.

use crate::rows::{LimitRow, RestampRow, RowFormat, keys};
use crate::{OpContext, OpError, Unit};
use braid_api::quota::{Limits, Payer, Usage};
use braid_api::{Code, Error};
use braid_meta_engine::{Counts, Key, Lock, Row};
use braid_types::InodeId;
use std::collections::{BTreeMap, HashMap};

/// While at least so much is left where an account is spread over several rows these are read without locks: transactions that run at
/// once go beyond it together by less. And a hundredth of the quota, if that is more. A mount asks for 64 MiB at a time at most, 256 times
/// that are 16 GiB.
const MARGIN_INODES: u64 = 4096;
const MARGIN_BYTES: u64 = 16 << 30;
/// Who asks for more than this part of that takes locks however much is left. So many transactions run at once at the most: eight metadata
/// servers with 32 connections each.
const LARGE_PART: i128 = 256;

/// What an operation says of the charges of its transaction.
#[derive(Debug, Default)]
pub struct Charges {
    /// It is let through whatever the quotas.
    exempt: bool,
    /// Quotas of users are not looked at.
    exempt_users: bool,
    /// What comes below them is of unknown size: they must not be full.
    arriving: Vec<Payer>,
    /// Directories with quotas that are removed.
    retired: Vec<InodeId>,
    /// Rows of accounts that were read without locks, where there are several of each.
    seen: HashMap<Key, Option<Row>>,
    /// A directory was listed whose entries are to be charged to others.
    pub restamps: bool,
    /// A directory with a quota goes, and something is charged to it still.
    pub outlived: bool,
}

type Sums = BTreeMap<Payer, Counts>;

impl Unit<'_> {
    /// What is done was granted before, or makes room.
    pub fn exempt(&mut self) {
        self.charges.exempt = true;
    }

    /// Only the superuser gives files to others, and no quota of the other keeps him from it, as in Linux.
    pub fn exempt_users(&mut self) {
        self.charges.exempt_users = true;
    }

    /// The root directory gains nothing by what comes from below it.
    pub fn arrives_below(&mut self, roots: &[InodeId]) {
        self.charges.arriving.extend(roots.iter().map(|id| Payer::Dir(*id)));
    }

    /// A directory with a quota of its own goes, and its account with it.
    pub fn retire(&mut self, root: InodeId) {
        self.delete(keys::limit(Payer::Dir(root)));
        self.charges.retired.push(root);
    }

    /// The entries of `dir` are charged to others than it is from now on, until they have been looked through.
    pub fn list_restamp(&mut self, dir: InodeId, roots: Vec<InodeId>) {
        self.put(keys::restamp(dir), &RestampRow { after: Vec::new(), roots });
        self.charges.restamps = true;
    }

    /// Reads the accounts of these payers, and one row with them, in one round trip.
    pub async fn read_accounts(
        &mut self,
        payers: impl Iterator<Item = Payer>,
        with: Option<Key>,
    ) -> Result<(), OpError> {
        if self.tx.spread() > 1 {
            return Ok(());
        }
        let rows = payers.flat_map(|payer| [keys::limit(payer), keys::usage(payer, 0)]);
        self.load(&rows.chain(with).collect::<Vec<_>>()).await
    }

    /// The last thing before the commit of what somebody asked for.
    pub async fn charge(&mut self, cx: &OpContext) -> Result<(), OpError> {
        let sums = self.sums();
        if cx.limits && !self.charges.exempt {
            self.expect_room(&sums).await?;
        }
        self.add(sums).await
    }

    /// The same of what nobody asked for, or was asked for before.
    pub async fn charge_without_limits(&mut self) -> Result<(), OpError> {
        let sums = self.sums();
        self.add(sums).await
    }

    /// Adds to an account what it lacks.
    pub fn correct(&mut self, payer: Payer, by: Counts) {
        self.tx.add(keys::usage(payer, 0), by);
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for [before, after] in self.changed.values().filter(|[before, after]| before != after) {
            for (charge, sign) in [(before, -1), (after, 1)] {
                let Some(charge) = charge else { continue };
                let by = Counts([sign, sign * i128::from(charge.bytes)]);
                charge.payers().for_each(|payer| sums.entry(payer).or_default().add(by));
            }
        }
        sums.retain(|_, by| *by != Counts::default());
        sums
    }

    async fn add(&mut self, mut sums: Sums) -> Result<(), OpError> {
        let spread = self.tx.spread();
        for root in std::mem::take(&mut self.charges.retired) {
            let payer = Payer::Dir(root);
            let rows: Vec<Key> = (0..spread).map(|share| keys::usage(payer, share)).collect();
            let found = self.tx.get(&rows, Lock::Exclusive).await?;
            let mut left = sum(&rows, &found)?;
            left.add(sums.get(&payer).copied().unwrap_or_default());
            // A file that has a name elsewhere is charged to it until it is moved or goes.
            if left == Counts::default() {
                sums.remove(&payer);
                rows.into_iter().zip(found).filter(|(_, row)| row.is_some()).for_each(|(key, _)| self.delete(key));
            } else {
                self.charges.outlived = true;
            }
        }
        let share = self.changed.keys().next().map_or(0, |key| mixed(key.partition()) % u64::from(spread.max(1)));
        for (payer, by) in sums {
            self.tx.add(keys::usage(payer, share as u8), by);
        }
        Ok(())
    }

    /// The least that is left to any of these; `None`: none has a quota of bytes.
    pub async fn bytes_left(&mut self, payers: impl Iterator<Item = Payer>) -> Result<Option<u64>, OpError> {
        let lock = if self.tx.spread() > 1 { Lock::None } else { Lock::Exclusive };
        let accounts = self.accounts(&payers.collect::<Vec<_>>(), lock).await?;
        let left = |(_, limits, Counts([_, bytes])): (Payer, Limits, Counts)| {
            Some(limits.bytes?.saturating_sub(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)))
        };
        Ok(accounts.into_iter().filter_map(left).min())
    }

    async fn expect_room(&mut self, sums: &Sums) -> Result<(), OpError> {
        let mut asked: Sums =
            sums.iter().filter(|(_, Counts([i, b]))| *i > 0 || *b > 0).map(|(p, by)| (*p, *by)).collect();
        if self.charges.exempt_users {
            asked.retain(|payer, _| !matches!(payer, Payer::User(_)));
        }
        let arriving = std::mem::take(&mut self.charges.arriving);
        arriving.iter().for_each(|payer| _ = asked.entry(*payer).or_default());
        if asked.is_empty() {
            return Ok(());
        }
        let mut payers: Vec<Payer> = asked.keys().copied().collect();
        if self.tx.spread() > 1 {
            let accounts = self.accounts(&payers, Lock::None).await?;
            let is_near = |(payer, limits, has): &(Payer, Limits, Counts)| {
                let by = asked.get(payer).copied().unwrap_or_default();
                is_near(limits.inodes, has.0[0], by.0[0], MARGIN_INODES)
                    || is_near(limits.bytes, has.0[1], by.0[1], MARGIN_BYTES)
            };
            payers = accounts.iter().filter(|account| is_near(account)).map(|(payer, ..)| *payer).collect();
            if payers.is_empty() {
                return Ok(());
            }
        }
        // Everybody who is near it locks the quota first, so what is read now holds until the commit.
        for (payer, limits, has) in self.accounts(&payers, Lock::Exclusive).await? {
            let by = asked.get(&payer).copied().unwrap_or_default();
            let arrives = arriving.contains(&payer);
            if is_full(limits.inodes, has.0[0], by.0[0], arrives) || is_full(limits.bytes, has.0[1], by.0[1], arrives) {
                return Err(exceeded(payer, limits, has));
            }
        }
        Ok(())
    }

    /// Of those that have a quota: it, and what they have.
    async fn accounts(&mut self, payers: &[Payer], lock: Lock) -> Result<Vec<(Payer, Limits, Counts)>, OpError> {
        let spread = self.tx.spread();
        let of = |payer: &Payer| {
            let payer = *payer;
            [keys::limit(payer)].into_iter().chain((0..spread).map(move |share| keys::usage(payer, share)))
        };
        let rows: Vec<Key> = payers.iter().flat_map(of).collect();
        let found = match spread {
            1 => {
                self.load(&rows).await?;
                rows.iter().map(|key| self.cache.get(key).cloned().flatten()).collect()
            }
            _ if lock == Lock::None => self.accounts_seen(&rows).await?,
            _ => self.tx.get(&rows, lock).await?,
        };
        let each = 1 + usize::from(spread);
        let mut accounts = Vec::new();
        for (payer, (keys, found)) in payers.iter().zip(rows.chunks(each).zip(found.chunks(each))) {
            if let (Some(key), Some(Some(row))) = (keys.first(), found.first()) {
                accounts.push((*payer, LimitRow::decode(key, row)?.0, sum(&keys[1..], &found[1..])?));
            }
        }
        Ok(accounts)
    }

    /// Rows without locks, each read once: who locks nothing lives with what is some milliseconds old.
    async fn accounts_seen(&mut self, rows: &[Key]) -> Result<Vec<Option<Row>>, OpError> {
        let missing: Vec<Key> = rows.iter().filter(|key| !self.charges.seen.contains_key(*key)).cloned().collect();
        if !missing.is_empty() {
            let found = self.tx.get(&missing, Lock::None).await?;
            self.charges.seen.extend(missing.into_iter().zip(found));
        }
        Ok(rows.iter().map(|key| self.charges.seen.get(key).cloned().flatten()).collect())
    }
}

/// `by` more do not go in, or what is to come `arrives` where nothing is left.
fn is_full(limit: Option<u64>, has: i128, by: i128, arrives: bool) -> bool {
    limit.map(i128::from).is_some_and(|limit| if by > 0 { has + by > limit } else { arrives && has >= limit })
}

/// So little is left behind this, or so much is asked for, that several who do not see each other could go far beyond it together.
fn is_near(limit: Option<u64>, has: i128, by: i128, margin: u64) -> bool {
    limit.is_some_and(|limit| {
        let margin = i128::from(margin.max(limit / 100));
        i128::from(limit) - has - by < margin || by > margin / LARGE_PART
    })
}

/// Neighbours among directories come to lie apart.
fn mixed(partition: u64) -> u64 {
    (partition ^ (partition >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// What the rows of an account say together.
pub(crate) fn sum(keys: &[Key], rows: &[Option<Row>]) -> Result<Counts, OpError> {
    let mut sum = Counts::default();
    for (key, row) in keys.iter().zip(rows) {
        if let Some(row) = row {
            sum.add(counts(key, row)?);
        }
    }
    Ok(sum)
}

pub(crate) fn counts(key: &Key, row: &[u8]) -> Result<Counts, OpError> {
    let damaged = || Error::new(Code::Internal, format_args!("{key:?}"), "damaged row: it is no account");
    Ok(Counts::from_row(row).ok_or_else(damaged)?)
}

pub(crate) fn usage_of(counts: Counts) -> Usage {
    let [inodes, bytes] = counts.shown();
    Usage { inodes, bytes }
}

fn exceeded(payer: Payer, limits: Limits, Counts([inodes, bytes]): Counts) -> OpError {
    let of = |limit: Option<u64>, has: i128, what: &str| limit.map(|limit| format!("{has} of {limit} {what}"));
    let has: Vec<String> =
        [of(limits.inodes, inodes, "inodes"), of(limits.bytes, bytes, "bytes")].into_iter().flatten().collect();
    Error::new(Code::QuotaExceeded, payer, format_args!("its quota allows no more: it has {}", has.join(", "))).into()
}
