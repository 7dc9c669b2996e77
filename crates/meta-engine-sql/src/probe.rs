//! The first conversation with a database: what it is, what it can do, whether it can be used; and making the tables.

use crate::capabilities::{Capabilities, Kind};
use crate::failure::{Cause, Failed};
use crate::fence;
use crate::options::SqlOptions;
use crate::schema::{self, FORMAT};
use crate::select::{bytes, number};
use crate::session::{Done, Message, Session};
use crate::settle::Mark;
use braid_meta_engine::EngineError;
use std::collections::HashMap;

/// A row of 1 MiB is 2 MiB of digits, and a message has room for it and as much again.
const MESSAGE_BYTES_MIN: usize = 4 << 20;

/// Beyond this nothing gets faster, and the server keeps a buffer as large for each connection.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Probed {
    pub capabilities: Capabilities,
    /// Which address answered.
    pub address: usize,
    /// For each new connection.
    pub set_up: Vec<String>,
    pub epoch: u64,
}

pub(crate) async fn probe(options: &SqlOptions) -> Result<Probed, EngineError> {
    let (mut session, address) = first(options).await?;
    let database = &options.database;
    if !has_database(&mut session, database).await? {
        ask(&mut session, &[&format!("CREATE DATABASE IF NOT EXISTS {database}")]).await?;
    }
    let variables = variables(&mut session).await?;
    let mut capabilities = judge(&variables)?;
    let set_up = set_up(options, &capabilities);
    let mut statements: Vec<_> = set_up.iter().map(String::as_str).collect();
    let chosen = format!("USE {database}");
    statements.push(&chosen);
    ask(&mut session, &statements).await?;
    tables(&mut session, options, capabilities.kind).await?;
    capabilities.partitions = partitions(&mut session).await?;
    ask(&mut session, &[&Mark::prune()]).await?;
    let mut other = Session::connect(options, address, true).await.map_err(Cause::into_error)?;
    ask(&mut other, &set_up.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    capabilities.shared_locks = locks_are_shared(&mut session, &mut other).await?;
    let epoch = read_epoch(&mut session).await?;
    Ok(Probed { capabilities, address, set_up, epoch })
}

async fn first(options: &SqlOptions) -> Result<(Session, usize), EngineError> {
    let mut why = Vec::new();
    for address in 0..options.addresses.len() {
        match Session::connect(options, address, false).await {
            Ok(session) => return Ok((session, address)),
            Err(cause) => why.push(cause.into_error().to_string()),
        }
    }
    Err(EngineError::Storage(why.join("; ")))
}

async fn ask(session: &mut Session, statements: &[&str]) -> Result<Vec<Done>, EngineError> {
    session.run(&Message::of(statements)).await.map_err(|failed| failed.cause.into_error())
}

/// A user that may use a database need not be one that may make it.
async fn has_database(session: &mut Session, database: &str) -> Result<bool, EngineError> {
    let text = format!("SELECT 1 FROM information_schema.schemata WHERE schema_name='{database}'");
    Ok(!ask(session, &[&text]).await?[0].rows.is_empty())
}

type Variables = HashMap<String, String>;

async fn variables(session: &mut Session) -> Result<Variables, EngineError> {
    let names = [
        "version",
        "version_comment",
        "max_allowed_packet",
        "innodb_flush_log_at_trx_commit",
        "log_bin",
        "sync_binlog",
        "wsrep_on",
        "group_replication_group_name",
        "group_replication_single_primary_mode",
        "ndb_version_string",
        "tidb_enable_shared_lock_promotion",
    ];
    let list: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    let text = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", list.join(","));
    let rows = ask(session, &[&text]).await?.into_iter().flat_map(|done| done.rows);
    let text = |value| bytes(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    Ok(rows.map(|mut row| (text(row.pop()), text(row.pop()))).map(|(value, name)| (name, value)).collect())
}

/// What the settings say. Refuses what cannot work.
fn judge(variables: &Variables) -> Result<Capabilities, EngineError> {
    let of = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
    let number = |name: &str| of(name).parse::<usize>().ok();
    let refuse = |why: String| Err(EngineError::Storage(format!("the database cannot be used: {why}")));
    let version = of("version").to_owned();
    let kind = kind(&version, !of("ndb_version_string").is_empty());
    if let Some(least) = least_version(kind)
        && numbers(&version, kind) < least
    {
        let (major, minor) = least;
        return refuse(format!("{kind:?} {version} is older than {major}.{minor}"));
    }
    let bytes = number("max_allowed_packet").unwrap_or(MESSAGE_BYTES_MIN);
    if bytes < MESSAGE_BYTES_MIN {
        return refuse(format!("max_allowed_packet is {bytes}, and {MESSAGE_BYTES_MIN} are needed"));
    }
    // Its servers see each other's row locks as little as Galera's, and fences were never tried with it.
    if !of("group_replication_group_name").is_empty() && of("group_replication_single_primary_mode") == "OFF" {
        let cause = "group_replication_single_primary_mode is OFF: where several servers of a group take writes, locks of one hold \
                     nobody up at another";
        return refuse(cause.to_owned());
    }
    let galera = of("wsrep_on") == "ON";
    let mut warnings = Vec::new();
    let own_log = matches!(kind, Kind::MariaDb | Kind::MySql);
    let flushes = !own_log || of("innodb_flush_log_at_trx_commit") == "1";
    if !flushes && !galera {
        let is = of("innodb_flush_log_at_trx_commit");
        return refuse(format!("innodb_flush_log_at_trx_commit is {is}: a commit is not durable when it is answered"));
    }
    if !flushes {
        warnings.push("commits are durable only while one server of the cluster runs".to_owned());
    }
    let binary_log = of("log_bin") == "ON" && of("sync_binlog") == "1";
    if own_log && !galera && !binary_log {
        warnings
            .push("without log_bin and sync_binlog=1 a read can show a commit that a crash then takes back".to_owned());
    }
    Ok(Capabilities {
        kind,
        version,
        // To be tried, as partitions are.
        shared_locks: false,
        cluster_wide_locks: !galera,
        partitions: 0,
        galera,
        // NDB knows only READ COMMITTED.
        snapshots: kind != Kind::Ndb,
        shows_only_durable: !own_log || (flushes && !galera && binary_log),
        message_bytes_max: bytes.min(MESSAGE_BYTES_MAX) - 1024,
        warnings,
    })
}

fn kind(version: &str, has_ndb: bool) -> Kind {
    match version {
        version if version.contains("TiDB") => Kind::TiDb,
        version if version.contains("MariaDB") => Kind::MariaDb,
        version if has_ndb && version.contains("cluster") => Kind::Ndb,
        _ => Kind::MySql,
    }
}

/// MariaDB 10.6: what Galera 4 and the tests stand on, older ones are no longer kept up. MySQL 8.0 likewise. TiDB 8.3 is the
/// first that promotes shared locks.
fn least_version(kind: Kind) -> Option<(u32, u32)> {
    match kind {
        Kind::MariaDb => Some((10, 6)),
        Kind::MySql | Kind::Ndb => Some((8, 0)),
        Kind::TiDb => Some((8, 3)),
    }
}

/// `10.11.6-MariaDB…`, `8.0.11-TiDB-v8.5.0`: TiDB's own version stands behind that of the MySQL it resembles.
fn numbers(version: &str, kind: Kind) -> (u32, u32) {
    let version = match kind {
        Kind::TiDb => version.rsplit_once("TiDB-v").map_or("", |(_, own)| own),
        _ => version,
    };
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Between two messages of a transaction. A microsecond's work of the operation lies between; a client that is paused is not waited for.
const IDLE_S: u32 = 10;

fn set_up(options: &SqlOptions, capabilities: &Capabilities) -> Vec<String> {
    let lock_wait = options.lock_wait.as_secs();
    let mut statements = vec![
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
        // Strict, so that a NULL that says no is an error and nothing is ever cut off.
        "SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',autocommit=1".to_owned(),
        format!("SET SESSION innodb_lock_wait_timeout={lock_wait}"),
    ];
    if capabilities.kind == Kind::MariaDb {
        // Whose client stands still, or is gone without a word, holds rows for no longer than that; no operation pauses so long.
        statements.push(format!("SET SESSION idle_transaction_timeout={IDLE_S}"));
    }
    if capabilities.galera {
        // Reads wait for what other servers have committed before.
        statements.push("SET SESSION wsrep_sync_wait=1".to_owned());
    }
    if capabilities.kind == Kind::TiDb {
        statements.push("SET SESSION tidb_enable_shared_lock_promotion=ON".to_owned());
    }
    statements
}

/// Makes what is not there; refuses what is newer before anything is touched.
async fn tables(session: &mut Session, options: &SqlOptions, kind: Kind) -> Result<(), EngineError> {
    let text = "SELECT 1 FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name='about'";
    let stored = match ask(session, &[text]).await?[0].rows.is_empty() {
        true => None,
        false => {
            let mut done = ask(session, &["SELECT num FROM about WHERE name='format'"]).await?;
            done.pop().and_then(|mut done| done.rows.pop()).and_then(|mut cells| number(cells.pop()))
        }
    };
    match stored {
        Some(FORMAT) => return Ok(()),
        Some(newer) if newer > FORMAT => {
            let why = format!("its format is {newer}, this program knows formats up to {FORMAT}");
            return Err(EngineError::Newer(why));
        }
        Some(other) => return Err(EngineError::Storage(format!("the format version {other} makes no sense"))),
        None => {}
    }
    let mut statements = schema::create(kind, Some(options.partitions));
    // The first is tried. Of databases that know no partitions some refuse them, and some make a table without.
    match session.run(&Message::of([statements[0].as_str()])).await {
        Ok(_) => {}
        Err(Failed { cause, .. }) if refuses_partitions(&cause) => {
            tracing::warn!(?cause, "the database makes no tables with partitions: they are made without");
            statements = schema::create(kind, None);
        }
        Err(failed) => return Err(failed.cause.into_error()),
    }
    for statement in statements {
        ask(session, &[&statement]).await?;
    }
    // The format comes last: where it is, all is.
    let format = format!("INSERT IGNORE INTO about (name,num,txt) VALUES ('lock',0,''),('format',{FORMAT},'')");
    ask(session, &[&fence::create(), &format]).await?;
    Ok(())
}

/// Not what may pass: tables that are made without partitions have none from then on.
fn refuses_partitions(cause: &Cause) -> bool {
    let is_named = |message: &str| message.to_ascii_lowercase().contains("partition");
    match cause {
        // What is not understood; what this version does not support; what is left out of this server.
        Cause::Other { code: 1064 | 1235 | 1289, .. } => true,
        Cause::Other { message, .. } | Cause::NotNow(message) => is_named(message),
        _ => false,
    }
}

/// How many those tables have that have some.
async fn partitions(session: &mut Session) -> Result<u64, EngineError> {
    let text = "SELECT COUNT(partition_name) FROM information_schema.partitions WHERE table_schema=DATABASE() AND table_name='inodes'";
    let mut done = ask(session, &[text]).await?;
    let row = done.pop().and_then(|mut done| done.rows.pop());
    Ok(row.and_then(|mut cells| number(cells.pop())).unwrap_or(0))
}

/// Tries it: whether two can share a row, and that nobody gets it for himself meanwhile.
async fn locks_are_shared(one: &mut Session, other: &mut Session) -> Result<bool, EngineError> {
    const SHARED: &str = "SELECT num FROM about WHERE name='lock' LOCK IN SHARE MODE";
    const EXCLUSIVE: &str = "SELECT num FROM about WHERE name='lock' FOR UPDATE";
    ask(one, &["START TRANSACTION", SHARED]).await?;
    // Not at all where it can be, which is MariaDB; the others take it as their shortest, a second.
    ask(other, &["SET SESSION innodb_lock_wait_timeout=0", "START TRANSACTION"]).await?;
    let shared = match other.run(&Message::of([SHARED])).await {
        Ok(_) => true,
        Err(failed) if matches!(failed.cause, Cause::LockWait | Cause::Deadlock) => false,
        Err(failed) => return Err(failed.cause.into_error()),
    };
    let kept = match other.run(&Message::of([EXCLUSIVE])).await {
        Ok(_) => false,
        Err(failed) if matches!(failed.cause, Cause::LockWait | Cause::Deadlock) => true,
        Err(failed) => return Err(failed.cause.into_error()),
    };
    ask(one, &["ROLLBACK"]).await?;
    ask(other, &["ROLLBACK"]).await?;
    match kept {
        true => Ok(shared),
        false => Err(EngineError::Storage("the database cannot be used: its row locks lock nothing".into())),
    }
}

pub(crate) async fn read_epoch(session: &mut Session) -> Result<u64, EngineError> {
    let done = ask(session, &[fence::READ]).await?;
    fence::epoch_of(done.last()).ok_or_else(|| EngineError::Storage(format!("the fence rows make no sense: {done:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(given: &[(&str, &str)]) -> Variables {
        given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn judged(given: &[(&str, &str)]) -> Result<Capabilities, String> {
        let usual = [("max_allowed_packet", "16777216"), ("innodb_flush_log_at_trx_commit", "1")];
        let mut all = variables(&usual);
        all.extend(variables(given));
        judge(&all).map_err(|error| error.to_string())
    }

    #[test]
    fn products_are_told_apart() {
        let maria = judged(&[("version", "10.11.6-MariaDB-0+deb12u1")]).unwrap();
        assert_eq!((maria.kind, maria.cluster_wide_locks, maria.shows_only_durable), (Kind::MariaDb, true, false));
        let galera = judged(&[("version", "10.11.6-MariaDB-log"), ("wsrep_on", "ON")]).unwrap();
        assert!(galera.galera && !galera.cluster_wide_locks);
        assert!(galera.to_string().contains("fence rows are written"), "{galera}");
        let ndb = judged(&[("version", "8.0.36-cluster"), ("ndb_version_string", "ndb-8.0.36")]).unwrap();
        assert_eq!((ndb.kind, ndb.snapshots), (Kind::Ndb, false));
        let tidb = judged(&[("version", "8.0.11-TiDB-v8.5.1"), ("innodb_flush_log_at_trx_commit", "")]).unwrap();
        assert_eq!((tidb.kind, tidb.shows_only_durable), (Kind::TiDb, true));
        assert_eq!(judged(&[("version", "8.4.0")]).unwrap().kind, Kind::MySql);
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_reason() {
        let maria = ("version", "10.11.6-MariaDB");
        let small = judged(&[maria, ("max_allowed_packet", "1048576")]).unwrap_err();
        assert!(small.contains("max_allowed_packet is 1048576"), "{small}");
        let lazy = judged(&[maria, ("innodb_flush_log_at_trx_commit", "2")]).unwrap_err();
        assert!(lazy.contains("innodb_flush_log_at_trx_commit is 2"), "{lazy}");
        let mysql = ("version", "8.4.0");
        let group = ("group_replication_group_name", "3e11fa47-71ca-11e1-9e33-c80aa9429562");
        let several = judged(&[mysql, group, ("group_replication_single_primary_mode", "OFF")]).unwrap_err();
        assert!(several.contains("group_replication_single_primary_mode is OFF"), "{several}");
        assert!(judged(&[mysql, group, ("group_replication_single_primary_mode", "ON")]).is_ok());
        // A server that is in no group has the variable too, where the plugin is there.
        assert!(judged(&[mysql, ("group_replication_single_primary_mode", "OFF")]).is_ok());
        assert!(judged(&[("version", "5.7.44")]).unwrap_err().contains("older than 8.0"));
        assert!(judged(&[("version", "8.0.11-TiDB-v7.5.0")]).unwrap_err().contains("older than 8.3"));
    }

    #[test]
    fn what_may_pass_is_no_reason_to_do_without_partitions() {
        let says = |code: u16, message: &str| {
            let (message, state) = (message.to_owned(), "HY000".to_owned());
            refuses_partitions(&Cause::of(mysql_async::Error::Server(mysql_async::ServerError {
                code,
                message,
                state,
            })))
        };
        assert!(says(1290, "The MariaDB server is running with the --skip-partition option"));
        assert!(says(1064, "You have an error in your SQL syntax"));
        assert!(!says(1290, "The MariaDB server is running with the --read-only option"));
        assert!(!says(1297, "Got temporary error 410 from NDBCLUSTER"));
        assert!(!says(1142, "CREATE command denied to user"));
        assert!(!says(1005, "Can't create table (errno: 24 Too many open files)"));
    }

    #[test]
    fn reads_that_a_crash_takes_back_are_warned_of() {
        let maria = ("version", "10.11.6-MariaDB-log");
        assert_eq!(judged(&[maria]).unwrap().warnings.len(), 1);
        let logged = judged(&[maria, ("log_bin", "ON"), ("sync_binlog", "1")]).unwrap();
        assert!(logged.warnings.is_empty() && logged.shows_only_durable);
    }
}
