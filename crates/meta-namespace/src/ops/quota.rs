//! Quotas: set, cleared, shown.

use super::restamp::{differing, expect_depth};
use crate::charges::{counts, sum, usage_of};
use crate::rows::{AnyLimitRow, LimitRow, RowFormat, keys};
use crate::{OpError, Place, Query, Unit};
use braid_api::meta::InodeRef;
use braid_api::quota::{Account, Limits, Miscount, Payer, Usage};
use braid_api::{Code, Error};
use braid_meta_engine::{Counts, Key, Lock, Operation, Table, Tx};
use braid_types::InodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Accounts are shared out over so many rows at the most.
const SHARES_MAX: u8 = 16;
/// Rows read at once.
const ROWS_A_PAGE: usize = 4096;

/// Gives a payer a quota, another one, or none. Answers whether a directory was listed whose entries are to be charged to others.
pub struct SetQuota {
    pub payer: Payer,
    pub limits: Option<Limits>,
}

impl Operation for SetQuota {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let key = keys::limit(self.payer);
        match self.payer {
            Payer::User(0) | Payer::Group(0) => {
                let cause = "the superuser's files are needed by everybody: it has no quota";
                return Err(Error::new(Code::Invalid, self.payer, cause).into());
            }
            Payer::Dir(id) if id != InodeId::ROOT => self.stamp(&mut unit, id).await?,
            _ => {}
        }
        match self.limits {
            Some(limits) => {
                unit.put(key, &LimitRow(limits));
                unit.put(keys::any_limit(), &AnyLimitRow(true));
            }
            None if unit.get_raw(&key).await?.is_some() => unit.delete(key),
            None => {}
        }
        let restamps = unit.charges.restamps;
        unit.charge_without_limits().await?;
        Ok(restamps)
    }
}

impl SetQuota {
    /// The directory says itself that it has a quota, and what is made in it from now on takes that over.
    async fn stamp(&self, unit: &mut Unit<'_>, id: InodeId) -> Result<(), OpError> {
        let mut dir = unit.find_dir(&id.into()).await?;
        let Place::Entry(parent, _) = &dir.place else { return Err(Code::NotFound.into()) };
        let above = unit.find_dir(&(*parent).into()).await?.inode.quota_roots;
        let mut roots = above.clone();
        if self.limits.is_some() {
            roots.push(id);
        }
        if roots == dir.inode.quota_roots {
            return Ok(());
        }
        let old = std::mem::replace(&mut dir.inode.quota_roots, roots);
        expect_depth(&dir.inode, &above)?;
        unit.list_restamp(id, differing(&old, &dir.inode.quota_roots));
        unit.store(&dir);
        Ok(())
    }
}

/// The account of a directory that has no quota any more, and may have gone, goes when nothing is charged to it. Answers whether something is:
/// what was removed is charged until it is freed, and what has a name elsewhere until it is moved or goes.
pub struct ForgetAccount {
    pub root: InodeId,
}

impl Operation for ForgetAccount {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let payer = Payer::Dir(self.root);
        let mut unit = Unit::new(tx, Lock::Exclusive);
        unit.load(&shares(payer).chain([keys::limit(payer)]).collect::<Vec<_>>()).await?;
        if self.root == InodeId::ROOT || unit.get_raw(&keys::limit(payer)).await?.is_some() {
            return Ok(false);
        }
        if recorded(&mut unit, payer).await? != Counts::default() {
            return Ok(true);
        }
        for key in shares(payer) {
            if unit.get_raw(&key).await?.is_some() {
                unit.delete(key);
            }
        }
        Ok(false)
    }
}

/// Directories with an account and, as far as a page of all accounts says, without a quota; and behind which row to go on.
pub struct WithoutLimit {
    pub after: Option<Key>,
}

impl Query for WithoutLimit {
    type Answer = (BTreeSet<InodeId>, Option<Key>);

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let page = unit.scan_table(Table::Quotas, self.after.as_ref(), ROWS_A_PAGE).await?;
        let (mut limited, mut found) = (BTreeSet::new(), BTreeSet::new());
        for (key, _) in &page.rows {
            match keys::account(key) {
                Some(keys::Account::Limit(Payer::Dir(dir))) => drop(limited.insert(dir)),
                Some(keys::Account::Usage(Payer::Dir(dir))) if dir != InodeId::ROOT => drop(found.insert(dir)),
                _ => {}
            }
        }
        found.retain(|dir| !limited.contains(dir));
        Ok((found, page.rows.into_iter().next_back().filter(|_| page.more).map(|(key, _)| key)))
    }
}

/// One account.
pub struct GetAccount(pub Payer);

impl Query for GetAccount {
    type Answer = Account;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Account, OpError> {
        let payer = self.0;
        // The root directory is there.
        if let Payer::Dir(id) = payer
            && id != InodeId::ROOT
        {
            unit.find_dir(&id.into()).await?;
        }
        let limit = keys::limit(payer);
        unit.load(&shares(payer).chain([limit.clone()]).collect::<Vec<_>>()).await?;
        let limits = unit.get::<LimitRow>(&limit).await?.map(|row| row.0);
        Ok(Account { payer, usage: usage_of(recorded(unit, payer).await?), limits, counting: None })
    }
}

/// What the directories with quotas above an inode, itself among them, leave to it: the least of each.
pub struct LeftTo(pub InodeRef);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftBy {
    pub inodes: Option<Left>,
    pub bytes: Option<Left>,
}

/// Of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub left: u64,
    pub limit: u64,
}

impl Left {
    fn least(of: &mut Option<Left>, limit: Option<u64>, has: i64) {
        let Some(limit) = limit else { return };
        let this = Left { left: limit.saturating_sub(u64::try_from(has).unwrap_or(0)), limit };
        if of.is_none_or(|least| this.left < least.left) {
            *of = Some(this);
        }
    }
}

impl Query for LeftTo {
    type Answer = LeftBy;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<LeftBy, OpError> {
        let mut payers = vec![InodeId::ROOT];
        payers.extend(unit.find(&self.0).await?.inode.quota_roots);
        let payers: Vec<Payer> = payers.into_iter().map(Payer::Dir).collect();
        let rows = payers.iter().flat_map(|payer| shares(*payer).chain([keys::limit(*payer)]));
        unit.load(&rows.collect::<Vec<_>>()).await?;
        let mut left = LeftBy::default();
        for payer in payers {
            let Some(LimitRow(limits)) = unit.get(&keys::limit(payer)).await? else { continue };
            if limits.is_none() {
                continue;
            }
            let has = usage_of(recorded(unit, payer).await?);
            Left::least(&mut left.inodes, limits.inodes, has.inodes);
            Left::least(&mut left.bytes, limits.bytes, has.bytes);
        }
        Ok(left)
    }
}

fn shares(payer: Payer) -> impl Iterator<Item = Key> {
    (0..SHARES_MAX).map(move |share| keys::usage(payer, share))
}

/// What an account says.
async fn recorded(unit: &mut Unit<'_>, payer: Payer) -> Result<Counts, OpError> {
    let rows: Vec<Key> = shares(payer).collect();
    unit.load(&rows).await?;
    let mut found = Vec::new();
    for key in &rows {
        found.push(unit.get_raw(key).await?);
    }
    sum(&rows, &found)
}

/// Something is charged to the directory.
pub(super) async fn is_charged(unit: &mut Unit<'_>, dir: InodeId) -> Result<bool, OpError> {
    Ok(recorded(unit, Payer::Dir(dir)).await? != Counts::default())
}

/// The repair behind a [`Miscount`].
pub(super) async fn correct(unit: &mut Unit<'_>, miscount: &Miscount) -> Result<Option<String>, OpError> {
    let Miscount { payer, recorded: was, counted } = *miscount;
    let has = recorded(unit, payer).await?;
    if usage_of(has) != was {
        return Ok(None);
    }
    // From what is recorded, of which the message may not have said all.
    unit.correct(payer, Counts([i128::from(counted.inodes) - has.0[0], i128::from(counted.bytes) - has.0[1]]));
    Ok(Some(format!(
        "set the usage of {payer} from {} inodes and {} bytes to {} and {}",
        was.inodes, was.bytes, counted.inodes, counted.bytes
    )))
}

/// Somebody may have no more than so much.
pub struct AnyLimit;

impl Query for AnyLimit {
    type Answer = bool;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<bool, OpError> {
        let mut after: Option<Key> = None;
        loop {
            let page = unit.scan_table(Table::Quotas, after.as_ref(), ROWS_A_PAGE).await?;
            for (key, row) in &page.rows {
                if matches!(keys::account(key), Some(keys::Account::Limit(_)))
                    && !LimitRow::decode(key, row)?.0.is_none()
                {
                    return Ok(true);
                }
            }
            match page.rows.into_iter().next_back() {
                Some((key, _)) if page.more => after = Some(key),
                _ => return Ok(false),
            }
        }
    }
}

/// Says in a row whether somebody has a quota, for servers that do not set them. To be run by the one that does.
pub struct SayAnyLimit {
    /// One is about to be set.
    pub is_to_come: bool,
}

/// What [`SayAnyLimit`] says, and whether it said before that there are none.
pub struct SaidLimit {
    pub any: bool,
    pub was_none: bool,
}

impl Operation for SayAnyLimit {
    type Output = SaidLimit;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<SaidLimit, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let said = unit.get::<AnyLimitRow>(&keys::any_limit()).await?;
        // Looked for with the row locked, which who sets one writes as well: also a commit that nobody waited for to its end is found.
        let any = self.is_to_come || AnyLimit.ask(&mut unit).await?;
        if said != Some(AnyLimitRow(any)) {
            unit.put(keys::any_limit(), &AnyLimitRow(any));
        }
        Ok(SaidLimit { any, was_none: said == Some(AnyLimitRow(false)) })
    }
}

/// That row says that there are none.
pub struct NoLimitSaid;

impl Query for NoLimitSaid {
    type Answer = bool;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<bool, OpError> {
        Ok(unit.get::<AnyLimitRow>(&keys::any_limit()).await? == Some(AnyLimitRow(false)))
    }
}

/// Accounts in more rows than this engine spreads them over come from a store of another kind: each becomes one row. To be run before
/// anything is served. Answers behind which row to go on.
pub struct FoldAccounts {
    pub after: Option<Key>,
}

impl Operation for FoldAccounts {
    type Output = Option<Key>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<Key>, OpError> {
        if tx.spread() >= SHARES_MAX {
            return Ok(None);
        }
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let page = unit.scan_table(Table::Quotas, self.after.as_ref(), ROWS_A_PAGE).await?;
        let spread = unit.tx.spread();
        let mut sums: BTreeMap<Payer, Counts> = BTreeMap::new();
        for (key, row) in &page.rows {
            if let (Some(keys::Account::Usage(payer)), Some(share)) = (keys::account(key), key.rest().last())
                && *share >= spread
            {
                sums.entry(payer).or_default().add(counts(key, row)?);
                unit.delete(key.clone());
            }
        }
        for (payer, sum) in sums {
            unit.correct(payer, sum);
        }
        Ok(page.rows.into_iter().next_back().filter(|_| page.more).map(|(key, _)| key))
    }
}

/// All accounts, in the order of payers' rows, after this one: a page.
pub struct ListAccounts {
    pub after: Option<Payer>,
    pub limit: u32,
}

impl Query for ListAccounts {
    type Answer = Vec<Account>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Vec<Account>, OpError> {
        let limit = (self.limit as usize).clamp(1, ROWS_A_PAGE);
        // Behind the last row of that payer.
        let mut after = self.after.map(|payer| keys::usage(payer, u8::MAX));
        let mut found: Vec<Account> = Vec::new();
        // The last of them: what its rows say so far.
        let mut has = Counts::default();
        loop {
            let page = unit.scan_table(Table::Quotas, after.as_ref(), ROWS_A_PAGE).await?;
            for (key, row) in &page.rows {
                let (payer, is_limit) = match keys::account(key) {
                    Some(keys::Account::Limit(payer)) => (payer, true),
                    Some(keys::Account::Usage(payer)) => (payer, false),
                    None => continue,
                };
                if found.last().is_none_or(|last| last.payer != payer) {
                    if found.len() == limit {
                        return Ok(found);
                    }
                    found.push(Account { payer, usage: Default::default(), limits: None, counting: None });
                    has = Counts::default();
                }
                let Some(account) = found.last_mut() else { continue };
                if is_limit {
                    account.limits = Some(LimitRow::decode(key, row)?.0);
                } else {
                    has.add(counts(key, row)?);
                    account.usage = usage_of(has);
                }
            }
            match page.rows.into_iter().next_back() {
                Some((key, _)) if page.more => after = Some(key),
                _ => return Ok(found),
            }
        }
    }
}

/// What is recorded, and what the rows of inodes sum up to, while they are gone through in any order.
#[derive(Default)]
pub struct Tally {
    recorded: BTreeMap<Payer, Counts>,
    counted: BTreeMap<Payer, Counts>,
}

impl Tally {
    /// A row of `inodes`, `inode_ids` or `quotas`.
    pub fn row(&mut self, key: &Key, row: &[u8]) -> Result<(), OpError> {
        use crate::rows::{Entry, IdRow};
        let charge = match key.table() {
            Table::Inodes => Entry::decode(key, row)?.charge(),
            Table::InodeIds => IdRow::decode(key, row)?.charge(),
            _ => {
                if let Some(keys::Account::Usage(payer)) = keys::account(key) {
                    self.recorded.entry(payer).or_default().add(counts(key, row)?);
                }
                return Ok(());
            }
        };
        if let Some(charge) = charge {
            let by = Counts([1, charge.bytes.into()]);
            charge.payers().for_each(|payer| self.counted.entry(payer).or_default().add(by));
        }
        Ok(())
    }

    pub fn miscounts(mut self) -> Vec<Miscount> {
        let mut all = Vec::new();
        for (payer, recorded) in self.recorded {
            let counted = self.counted.remove(&payer).unwrap_or_default();
            all.push((payer, recorded, counted));
        }
        all.extend(self.counted.into_iter().map(|(payer, counted)| (payer, Counts::default(), counted)));
        all.retain(|(_, recorded, counted)| recorded != counted);
        let shown =
            |(payer, recorded, counted)| Miscount { payer, recorded: usage_of(recorded), counted: usage_of(counted) };
        all.into_iter().map(shown).collect()
    }

    /// What is counted, of those that have anything.
    pub fn counted(&self) -> impl Iterator<Item = (Payer, Usage)> {
        self.counted.iter().map(|(payer, counts)| (*payer, usage_of(*counts)))
    }
}
