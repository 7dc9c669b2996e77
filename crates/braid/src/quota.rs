//! Quotas as people see them: of directories by `braid fs quota`, of users and groups by `braid admin quota`.

use crate::output::{Table, bytes};
use anyhow::{Result, bail};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::quota::{Account, Payer, ToSum, Weight};
use braid_types::InodeId;
use serde::Serialize;
use std::collections::BTreeMap;

/// Accounts in one message.
const PAGE: u32 = 1024;

/// Whoever can ask the metadata server.
pub trait Asked {
    fn ask(&self, query: AdminQuery) -> impl Future<Output = Result<AdminAnswer>> + Send;
}

/// An answer of another kind than was asked for.
pub fn strange<T>() -> Result<T> {
    bail!("the metadata server answered something else; is it of another version?")
}

pub async fn account(asked: &impl Asked, payer: Payer) -> Result<Account> {
    match asked.ask(AdminQuery::Account { payer }).await? {
        AdminAnswer::Account(account) => Ok(account),
        _ => strange(),
    }
}

/// All of them.
pub async fn accounts(asked: &impl Asked) -> Result<Vec<Account>> {
    let mut all: Vec<Account> = Vec::new();
    loop {
        let after = all.last().map(|account| account.payer);
        let AdminAnswer::Accounts(page) = asked.ask(AdminQuery::Accounts { after, limit: PAGE }).await? else {
            return strange();
        };
        let is_last = page.len() < PAGE as usize;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    of: &'a str,
    inodes: i64,
    inodes_max: Option<u64>,
    bytes: i64,
    bytes_max: Option<u64>,
    /// Inodes counted so far of a tree that is being counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    counting: Option<u64>,
}

/// One line each; `what` heads the column of names.
pub fn print(all: &[(String, Account)], what: &'static str, json: bool) -> Result<()> {
    let mut table = Table::new(&[what, "inodes", "of", "bytes", "of", ""]);
    for (of, account) in all {
        let (usage, limits) = (account.usage, account.limits.unwrap_or_default());
        if json {
            let (inodes, bytes, counting) = (usage.inodes, usage.bytes, account.counting);
            let shown = Shown { of, inodes, inodes_max: limits.inodes, bytes, bytes_max: limits.bytes, counting };
            println!("{}", serde_json::to_string(&shown)?);
            continue;
        }
        let any = |limit: Option<String>| limit.unwrap_or_else(|| "-".to_owned());
        table.row([
            of.clone(),
            usage.inodes.to_string(),
            any(limits.inodes.map(|limit| limit.to_string())),
            bytes(u64::try_from(usage.bytes).unwrap_or(0)),
            any(limits.bytes.map(bytes)),
            account.counting.map_or_else(String::new, |done| format!("counting, {done} done")),
        ]);
    }
    if !json && !all.is_empty() {
        table.print();
    }
    Ok(())
}

/// What a tree has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    inodes: u64,
    bytes: u64,
    /// Where they were counted for this.
    #[serde(skip_serializing_if = "Option::is_none")]
    directories: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
}

#[derive(Serialize)]
pub struct SumOf {
    path: String,
    #[serde(flatten)]
    sum: Sum,
}

impl Sum {
    /// By the account of its quota.
    pub fn known(account: &Account) -> Sum {
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        Sum { inodes: number(account.usage.inodes), bytes: number(account.usage.bytes), directories: None, files: None }
    }

    pub fn of(self, path: impl ToString) -> SumOf {
        SumOf { path: path.to_string(), sum: self }
    }

    pub fn print(self, path: impl std::fmt::Display) {
        let counted = match (self.directories, self.files) {
            (Some(directories), Some(files)) => format!(": {directories} directories, {files} others"),
            _ => String::new(),
        };
        println!("{path}  {} in {} inodes{counted}", bytes(self.bytes), self.inodes);
    }
}

/// What is below a directory, as the server counts it.
#[derive(Debug, Default)]
pub struct Counted {
    pub directories: u64,
    /// What is no directory and has one name.
    pub files: u64,
    pub weight: Weight,
    pub several: BTreeMap<InodeId, Weight>,
}

/// Page by page, each of them told.
pub async fn count(asked: &impl Asked, top: InodeId, mut page_counted: impl FnMut(u64)) -> Result<Counted> {
    let mut counted = Counted::default();
    let mut waiting = vec![ToSum { dir: top, after: None }];
    while !waiting.is_empty() {
        let AdminAnswer::Summary(page) = asked.ask(AdminQuery::Summary { waiting }).await? else { return strange() };
        page_counted(page.directories + page.files + page.several.len() as u64);
        counted.directories += page.directories;
        counted.files += page.files;
        counted.weight.add(page.weight);
        counted.several.extend(page.several);
        waiting = page.waiting;
    }
    Ok(counted)
}

/// The directory itself, and what is below it; what has several names counts once.
pub async fn sum_up(asked: &impl Asked, top: InodeId) -> Result<Sum> {
    let mut counted = count(asked, top, |_| {}).await?;
    counted.several.values().for_each(|weight| counted.weight.add(*weight));
    let (directories, files) = (1 + counted.directories, counted.files + counted.several.len() as u64);
    let bytes = counted.weight.bytes;
    Ok(Sum { inodes: directories + files, bytes, directories: Some(directories), files: Some(files) })
}
