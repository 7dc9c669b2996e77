//! `braid admin status`.

use super::drain::duty_word;
use super::lacking::{LOOK_AGAIN, Lacking};
use super::members::{self, Member, MemberJson};
use super::status_notes::notes;
use super::status_parts::{ReportsJson, copy_json, reports_json};
use super::{Cluster, PATIENCE, strange};
use crate::cli::ClusterArgs;
use crate::local::{self, Layout, process};
use crate::output::{self, Table, brief, bytes, millis};
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery, Status};
use braid_api::data::{DataStatus, GetDataStatus};
use braid_api::meta::{Duty, ServerInfo, ServerState};
use braid_api::{Context, DataNode, DataPeers, Manner};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(after_help = "Examples:\n  braid admin status\n  braid admin status --json | jq .problems")]
pub struct StatusArgs {
    /// An object.
    #[arg(long)]
    json: bool,
}

/// A data server as the metadata server and as it itself sees it.
pub struct Seen {
    pub info: ServerInfo,
    /// Its own answer, or why there is none; not asked if it is down.
    pub status: Option<Result<DataStatus, String>>,
}

pub async fn look(cluster: &Cluster) -> Result<Vec<Seen>> {
    look_within(cluster, PATIENCE).await
}

/// Data servers that do not answer within `deadline` are told so.
pub async fn look_within(cluster: &Cluster, deadline: Duration) -> Result<Vec<Seen>> {
    let mut asked = Vec::new();
    // All at once: one that does not answer costs its patience, and not once for each such server.
    for info in cluster.servers().await? {
        let answer = (info.state == ServerState::Up).then(|| {
            let node = cluster.peers.node(&info);
            let cx = Context { deadline, manner: Manner::Once, ..Context::default() };
            tokio::spawn(async move { node.call(cx, GetDataStatus {}, Bytes::new()).await })
        });
        asked.push((info, answer));
    }
    let mut all = Vec::new();
    for (info, answer) in asked {
        let status = match answer {
            None => None,
            Some(answer) => Some(match answer.await {
                Ok(answer) => answer.map(|(status, _)| status).map_err(|e| brief(&e)),
                Err(ended) => Err(ended.to_string()),
            }),
        };
        all.push(Seen { info, status });
    }
    Ok(all)
}

impl StatusArgs {
    pub async fn run(self, cluster: &Cluster, args: &ClusterArgs) -> Result<ExitCode> {
        let begun = Instant::now();
        let (status, servers) = loop {
            let AdminAnswer::Status(status) = cluster.ask(AdminQuery::Status).await? else { return strange() };
            let servers = look(cluster).await?;
            if lacking_at(&servers).is_clear(begun.elapsed()) {
                break (status, servers);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        let members = members::look(cluster).await?;
        let mut problems = problems(&status, &servers);
        problems.extend(members::problems(&members));
        problems.extend(args.dir().map(|dir| local::died(&dir, &cluster.config)).unwrap_or_default());
        let notes = notes(&status, &servers);
        if self.json {
            let json = json(&status, &members, &servers, &problems, &notes, pages(args));
            println!("{}", serde_json::to_string_pretty(&json)?);
        } else {
            print(&status, &members, &servers, &problems, &notes, &pages(args));
        }
        Ok(u8::from(!problems.is_empty()).into())
    }
}

/// A server with less than this share of its space free soon has none.
const FREE_PERCENT_MIN: u64 = 5;

/// What is not well, in words.
fn problems(status: &Status, servers: &[Seen]) -> Vec<String> {
    let mut problems = Vec::new();
    if !servers.iter().any(|s| s.info.state == ServerState::Up) {
        problems.push("no data server is up: files that are not inline can be neither read nor written".to_owned());
    }
    for Seen { info, status } in servers {
        let who = format!("data server {} on {}", info.id, info.host);
        match (info.state, status) {
            (ServerState::Down, _) if info.silent_ms == u64::MAX => {
                problems.push(format!("{who} is down: not heard of since the metadata server started"));
            }
            (ServerState::Down, _) => {
                problems.push(format!(
                    "{who} is down: silent for {}; what only it holds can be neither read nor written",
                    millis(info.silent_ms)
                ));
            }
            (ServerState::Up, Some(Err(why))) => problems.push(format!("{who} cannot be reached from here: {why}")),
            (ServerState::Up, Some(Ok(own))) => {
                if own.bad_blocks > 0 {
                    problems.push(format!(
                        "{who} has {} damaged blocks: braid admin scrub names the files",
                        own.bad_blocks
                    ));
                }
                if own.bytes_free < own.bytes_total / 100 * FREE_PERCENT_MIN {
                    problems.push(format!(
                        "{who} is nearly full: {} free of {}",
                        bytes(own.bytes_free),
                        bytes(own.bytes_total)
                    ));
                }
            }
            (ServerState::Up, None) => {}
        }
    }
    problems.extend(copies(status, servers));
    if status.metadata_copies == 0 {
        problems.push("there is no copy of the metadata".to_owned());
    }
    problems
}

pub fn lacking_at(servers: &[Seen]) -> Lacking {
    Lacking::of(servers.iter().filter_map(|seen| seen.status.as_ref()?.as_ref().ok()))
}

/// Where copies are missing.
fn copies(status: &Status, servers: &[Seen]) -> Vec<String> {
    let (chains, lacking) = (&status.chains, lacking_at(servers));
    let mut problems = super::status_parts::problems(&status.reports);
    if chains.short > 0 {
        problems.push(format!(
            "{} of {} containers have fewer live copies than they should, the worst {}: they get another server if there is one",
            chains.short,
            chains.containers,
            chains.live_min.unwrap_or(0)
        ));
    }
    if chains.unsettled > 0 {
        problems.push(format!("{} containers change their servers: writes to them may wait", chains.unsettled));
    }
    problems.extend(lacking.problem());
    problems
}

pub fn is_in_database(status: &Status) -> bool {
    status.engine == "sql"
}

/// The servers as `status` and `servers` print them.
pub fn table(servers: &[Seen]) -> Table {
    // What nobody configured, or asked for, has no column.
    let has_racks = servers.iter().any(|seen| !seen.info.rack.is_empty());
    let has_duties = servers.iter().any(|seen| seen.info.duty != Duty::Serves);
    let mut head = vec!["server", "state", "host", "used", "free", "chunks", "silent", "address"];
    if has_racks {
        head.insert(2, "rack");
    }
    if has_duties {
        head.insert(2, "duty");
    }
    let mut table = Table::new(&head);
    for Seen { info, .. } in servers {
        let mut row = vec![info.id.to_string(), state(info.state).to_owned()];
        row.extend(has_duties.then(|| info.duty.to_string()));
        row.extend(has_racks.then(|| info.rack.clone()));
        row.extend([
            info.host.clone(),
            bytes(info.bytes_total.saturating_sub(info.bytes_free)),
            bytes(info.bytes_free),
            info.chunks.to_string(),
            millis(info.silent_ms),
            info.addresses.first().cloned().unwrap_or_default(),
        ]);
        table.row(row);
    }
    table
}

pub fn state(state: ServerState) -> &'static str {
    match state {
        ServerState::Up => "up",
        ServerState::Down => "down",
    }
}

/// The processes of a cluster on this machine, each with the address of its health page and metrics.
fn pages(args: &ClusterArgs) -> BTreeMap<String, String> {
    let Some(layout) = args.dir().and_then(|dir| Layout::at(&dir, false).ok()) else { return BTreeMap::new() };
    let names = layout.names().unwrap_or_default();
    names.into_iter().filter_map(|name| process::pages(&layout, &name).map(|at| (name, at))).collect()
}

fn print(
    status: &Status,
    members: &[Member],
    servers: &[Seen],
    problems: &[String],
    notes: &[String],
    pages: &BTreeMap<String, String>,
) {
    println!("cluster   {}", status.cluster);
    println!("version   {}, up for {}, engine {}", status.version, millis(status.uptime_ms), status.engine);
    println!("sessions  {}", status.sessions);
    let copies = if status.metadata_copies == 1 { "copy" } else { "copies" };
    let size = bytes(status.metadata_bytes);
    let hosts: std::collections::BTreeSet<&str> =
        status.copies.iter().filter(|copy| copy.is_member).map(|copy| copy.host.as_str()).collect();
    let on = match hosts.len() {
        0 => String::new(),
        1 => ", those of data servers on 1 host".to_owned(),
        many => format!(", those of data servers on {many} hosts"),
    };
    match is_in_database(status) {
        // It counts neither rows nor bytes without reading them, and how many copies it has is its own matter.
        true => println!("metadata  in a database"),
        false => println!("metadata  {} inodes, {size}, {} {copies}{on}", status.inodes, status.metadata_copies),
    }
    println!();
    if !members.is_empty() {
        members::table(members).print();
        println!();
    }
    if servers.is_empty() {
        println!("no data servers");
    } else {
        table(servers).print();
    }
    println!();
    if !pages.is_empty() {
        let mut table = Table::new(&["process", "health and metrics"]);
        pages.iter().for_each(|(name, at)| table.row([name.clone(), at.clone()]));
        table.print();
        println!();
    }
    for note in notes {
        println!("note: {note}");
    }
    if problems.is_empty() {
        println!("healthy");
    }
    for problem in problems {
        println!("NOT WELL: {problem}");
    }
}

#[derive(Serialize)]
struct StatusJson<'a> {
    healthy: bool,
    problems: &'a [String],
    notes: &'a [String],
    cluster: String,
    version: &'a str,
    engine: &'a str,
    uptime_ms: u64,
    sessions: u32,
    /// See [`Status::leases_run_out`].
    leases_run_out: u64,
    inodes: u64,
    metadata_bytes: u64,
    metadata_copies: u32,
    metadata_copies_wanted: u32,
    metadata_copy_servers: Vec<serde_json::Value>,
    /// Where several serve at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metadata_servers: Vec<MemberJson<'a>>,
    /// When the backup was taken that it comes from, until that is confirmed.
    metadata_restored: Option<String>,
    reports: ReportsJson,
    copies: CopiesJson,
    servers: Vec<ServerJson<'a>>,
    /// By process, of a cluster on this machine: where health page and metrics are.
    pages: BTreeMap<String, String>,
}

/// All zero, but for the first, where every copy is whole.
#[derive(Serialize)]
struct CopiesJson {
    containers: u64,
    containers_short: u64,
    containers_changing: u64,
    /// See [`braid_api::admin::ChainsStatus::too_near`].
    containers_too_near: u64,
    chunks_lacking: u64,
    copies_lacking: u64,
    bytes_lacking: u64,
    /// What was written that long ago is not at all copies. Where there are writes, some are behind by milliseconds.
    lacking_ms: u64,
    servers_with_strays: u64,
}

#[derive(Serialize)]
pub struct ServerJson<'a> {
    id: u64,
    state: &'static str,
    /// What it is there for.
    duty: &'static str,
    /// Where it stands; a disk has a number of its host, 0 if that is not known.
    rack: &'a str,
    host: &'a str,
    disk: u64,
    addresses: &'a [String],
    bytes_total: u64,
    bytes_free: u64,
    chunks: u64,
    /// Absent if it was never heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad_blocks: Option<u64>,
    /// Taken from another copy since its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    mended_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

pub fn server_json(seen: &Seen) -> ServerJson<'_> {
    let info = &seen.info;
    ServerJson {
        id: info.id.0,
        state: state(info.state),
        duty: duty_word(info.duty),
        rack: &info.rack,
        host: &info.host,
        disk: info.disk,
        addresses: &info.addresses,
        bytes_total: info.bytes_total,
        bytes_free: info.bytes_free,
        chunks: info.chunks,
        silent_ms: Some(info.silent_ms).filter(|ms| *ms != u64::MAX),
        bad_blocks: seen.status.as_ref().and_then(|s| s.as_ref().ok()).map(|s| s.bad_blocks),
        mended_blocks: seen.status.as_ref().and_then(|s| s.as_ref().ok()).map(|s| s.mended_blocks),
        error: seen.status.as_ref().and_then(|s| s.as_ref().err()).map(String::as_str),
    }
}

fn json<'a>(
    status: &'a Status,
    members: &'a [Member],
    servers: &'a [Seen],
    problems: &'a [String],
    notes: &'a [String],
    pages: BTreeMap<String, String>,
) -> StatusJson<'a> {
    let lacking = lacking_at(servers);
    StatusJson {
        healthy: problems.is_empty(),
        problems,
        notes,
        cluster: status.cluster.to_string(),
        version: &status.version,
        engine: &status.engine,
        uptime_ms: status.uptime_ms,
        sessions: status.sessions,
        leases_run_out: status.leases_run_out,
        inodes: status.inodes,
        metadata_bytes: status.metadata_bytes,
        metadata_copies: status.metadata_copies,
        metadata_copies_wanted: status.copies_wanted,
        metadata_copy_servers: status.copies.iter().map(copy_json).collect(),
        metadata_servers: members.iter().map(members::json).collect(),
        metadata_restored: status.restored.map(output::time),
        reports: reports_json(&status.reports),
        copies: CopiesJson {
            containers: status.chains.containers,
            containers_short: status.chains.short,
            containers_changing: status.chains.unsettled,
            containers_too_near: status.chains.too_near,
            chunks_lacking: lacking.chunks,
            copies_lacking: lacking.copies,
            bytes_lacking: lacking.bytes,
            lacking_ms: lacking.ms,
            servers_with_strays: status.chains.with_strays,
        },
        servers: servers.iter().map(server_json).collect(),
        pages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_api::admin::{ChainsStatus, CopyHealth};
    use braid_types::{ClusterId, ServerId};

    fn status() -> Status {
        Status {
            cluster: ClusterId([1; 16]),
            version: "1".into(),
            engine: "memory".into(),
            uptime_ms: 5,
            sessions: 0,
            leases_run_out: 0,
            servers_up: 1,
            servers_down: 0,
            inodes: 1,
            metadata_bytes: 0,
            metadata_copies: 1,
            round_trips: 0,
            transactions: 0,
            reads: 0,
            syncs: 0,
            chains: ChainsStatus::default(),
            copies_wanted: 0,
            copies: Vec::new(),
            restored: None,
            reports: Default::default(),
        }
    }

    fn server(state: ServerState, silent_ms: u64, own: Option<Result<(u64, u64), &str>>) -> Seen {
        let info = ServerInfo {
            id: ServerId(1),
            addresses: vec!["tcp:h:1".into()],
            host: "h".into(),
            state,
            bytes_total: 100 << 30,
            bytes_free: 50 << 30,
            chunks: 0,
            silent_ms,
            rack: String::new(),
            disk: 0,
            duty: braid_api::meta::Duty::Serves,
        };
        let status = own.map(|own| match own {
            Ok((bytes_free, bad_blocks)) => Ok(DataStatus {
                id: ServerId(1),
                incarnation: 1,
                version: "1".into(),
                uptime_ms: 1,
                bytes_total: 100 << 30,
                bytes_free,
                bytes_reserved: 0,
                chunks: 0,
                bad_blocks,
                sealed_blocks: 0,
                reads: 0,
                writes: 0,
                syncs: 0,
                bytes_read: 0,
                bytes_written: 0,
                waiting: Vec::new(),
                mended_blocks: 0,
                chunks_lacking: 0,
                copies_lacking: 0,
                bytes_lacking: 0,
                lacking_ms: 0,
            }),
            Err(why) => Err(why.to_owned()),
        });
        Seen { info, status }
    }

    #[test]
    fn what_is_not_well_is_said_in_words() {
        let said = |servers: &[Seen]| problems(&status(), servers).join("\n");
        let up = ServerState::Up;
        assert_eq!(said(&[server(up, 5, Some(Ok((50 << 30, 0))))]), "");
        assert!(said(&[]).contains("no data server is up"));
        assert!(said(&[server(ServerState::Down, 7_000, None)]).contains("silent for 7 s"));
        assert!(said(&[server(ServerState::Down, u64::MAX, None)]).contains("not heard of"));
        assert!(said(&[server(up, 5, Some(Err("refused")))]).contains("cannot be reached from here: refused"));
        assert!(said(&[server(up, 5, Some(Ok((50 << 30, 3))))]).contains("3 damaged blocks"));
        assert!(said(&[server(up, 5, Some(Ok((1 << 30, 0))))]).contains("nearly full: 1.0 GiB free"));
    }

    #[test]
    fn missing_copies_are_said_and_what_was_mended_is_no_problem() {
        let mut status = status();
        let mut seen = server(ServerState::Up, 5, Some(Ok((50 << 30, 0))));
        if let Some(Ok(own)) = &mut seen.status {
            *own = DataStatus {
                mended_blocks: 4,
                chunks_lacking: 2,
                copies_lacking: 3,
                bytes_lacking: 8 << 20,
                lacking_ms: 61_000,
                ..own.clone()
            };
        }
        let mut servers = [seen];
        let said = problems(&status, &servers).join("\n");
        assert!(
            said.contains("3 copies of 2 chunks are behind, 8.0 MiB are being copied, the longest for 61 s"),
            "{said}"
        );
        assert!(notes(&status, &servers).join("\n").contains("4 damaged blocks were mended"));
        if let Some(Ok(own)) = &mut servers[0].status {
            own.lacking_ms = 700;
        }
        assert_eq!(problems(&status, &servers).join("\n"), "", "they follow");
        let said = notes(&status, &servers).join("\n");
        assert!(said.contains("3 copies of 2 chunks are behind") && said.contains("on its way"), "{said}");
        status.chains =
            ChainsStatus { containers: 9, unsettled: 1, short: 2, live_min: Some(1), with_strays: 0, too_near: 0 };
        let said = problems(&status, &[]).join("\n");
        assert!(said.contains("2 of 9 containers have fewer live copies than they should, the worst 1"), "{said}");
        assert!(said.contains("1 containers change their servers"), "{said}");
    }

    #[test]
    fn how_many_copies_the_metadata_has_is_said() {
        let up = |count| (0..count).map(|_| server(ServerState::Up, 5, None)).collect::<Vec<_>>();
        let said = |wanted: u32, members: u64, servers: usize| {
            let copy =
                |id| CopyHealth { server: ServerId(id), host: "h".into(), is_member: true, lag: Some(0), silent_ms: 5 };
            let copies = (1..=members).map(copy).collect();
            let status = Status { copies_wanted: wanted, metadata_copies: 1 + members as u32, copies, ..status() };
            notes(&status, &up(servers)).join("\n")
        };
        assert_eq!(said(2, 2, 4), "");
        assert!(said(0, 0, 4).contains("set metadata.copies"), "{}", said(0, 0, 4));
        let elsewhere = Status { engine: "sql".into(), ..status() };
        assert_eq!(notes(&elsewhere, &up(4)).join("\n"), "");
        assert!(said(2, 0, 1).contains("others begin with a second data server"), "{}", said(2, 0, 1));
        assert!(said(2, 1, 4).contains("1 of 2 copies") && said(2, 1, 4).contains("on their way"), "{}", said(2, 1, 4));
        assert!(said(3, 2, 2).contains("there are no more servers"), "{}", said(3, 2, 2));
        let chains = ChainsStatus { containers: 3, live_min: Some(3), ..ChainsStatus::default() };
        let one = Status { chains, ..status() };
        assert!(notes(&one, &up(4)).join("\n").contains("small files of directories with several copies go to chunks"));
    }

    #[test]
    fn scripts_get_the_same() {
        let servers = [server(ServerState::Down, u64::MAX, None)];
        let status = status();
        let problems = problems(&status, &servers);
        let value =
            serde_json::to_value(json(&status, &[], &servers, &problems, &notes(&status, &servers), BTreeMap::new()))
                .unwrap();
        assert_eq!((&value["healthy"], &value["servers"][0]["state"]), (&false.into(), &"down".into()));
        assert!(value["servers"][0].get("silent_ms").is_none());
    }
}
