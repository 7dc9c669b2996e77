//! What is found, for people and for programs.

use super::called::{Called, Names};
use super::follow::{Node, Place};
use super::gather::Gathered;
use crate::output::{Table, millis, shown};
use anyhow::Result;
use braid_api::admin::{HeldAs, Waiting};
use braid_api::lease::LeaseKey;
use braid_types::{ChunkId, ContainerId, InodeId, ServerId, SessionId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// All of it; `null` or empty is what is not known, or does not apply.
#[derive(Serialize)]
struct Line {
    /// Steps from what was asked about.
    depth: usize,
    at: String,
    who: String,
    for_what: String,
    since_ms: u64,
    mount: Option<PathBuf>,
    mount_process: Option<u32>,
    /// The program that waits.
    process: Option<u32>,
    inodes: Vec<InodeId>,
    paths: BTreeMap<InodeId, String>,
    session: Option<SessionId>,
    session_of: Option<String>,
    /// Who is to give something up.
    holder: Option<SessionId>,
    holder_of: Option<String>,
    lease: Option<HeldAs>,
    keys: Vec<String>,
    metadata: bool,
    servers: Vec<ServerId>,
    container: Option<ContainerId>,
    chunk: Option<ChunkId>,
    epoch: Option<u64>,
    /// The number of the operation in its mount, as the log has it.
    trace: Option<u64>,
}

pub fn print(found: Vec<(usize, Node)>, all: &Gathered, json: bool) -> Result<ExitCode> {
    let lines = found.into_iter().map(|(depth, node)| line(depth, node, &all.called, &all.names));
    if json {
        for line in lines {
            println!("{}", serde_json::to_string(&line)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let lines: Vec<Line> = lines.collect();
    match lines.is_empty() {
        true => println!("nothing waits"),
        false => print!("{}", table(lines)),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(lines: Vec<Line>) -> String {
    let mut table = Table::new(&["since", "at", "what", "waits for", "epoch"]);
    for line in lines {
        let at = if line.depth > 0 { format!("-> {}", line.at) } else { line.at };
        let epoch = line.epoch.map(|epoch| epoch.to_string()).unwrap_or_default();
        table.row([millis(line.since_ms), at, line.who, line.for_what, epoch]);
    }
    table.render()
}

fn line(depth: usize, node: Node, called: &Called, names: &Names) -> Line {
    let Node { place, at, waiting } = node;
    let Waiting { who, for_what, since_ms, trace, process, inodes, session, holder, lease, keys, .. } = waiting;
    // Where the words are those of a message, which names none.
    let for_what = match waiting.container {
        Some(id) if ![&who, &for_what].iter().any(|text| text.contains("container ")) => {
            format!("{for_what} (container {id})")
        }
        _ => for_what,
    };
    let told = |text: &str| names.told(&called.told(text));
    // What waits in a mount is all its own.
    let own = session.filter(|_| matches!(place, Place::Mount { .. }));
    let who = own.map_or(who.clone(), |own| super::called::replaced(&who, &format!(" of session {own}"), ""));
    let (mount, mount_process) = match place {
        Place::Mount { at, process, .. } => (Some(at), Some(process)),
        Place::Metadata | Place::Data(_) => (None, None),
    };
    let name_of = |session: Option<SessionId>| session.and_then(|session| names.sessions.get(&session).cloned());
    let paths = inodes.iter().filter_map(|id| names.paths.get(id).map(|path| (*id, path.clone()))).collect();
    Line {
        depth,
        at,
        who: told(&who),
        for_what: told(&for_what),
        since_ms,
        mount,
        mount_process,
        process,
        inodes,
        paths,
        session,
        session_of: name_of(session),
        holder,
        holder_of: name_of(holder),
        lease,
        keys: keys.iter().map(|key| key_name(key, names)).collect(),
        metadata: waiting.metadata,
        servers: waiting.servers,
        container: waiting.container,
        chunk: waiting.chunk,
        epoch: waiting.epoch,
        trace: (trace.0 != 0).then_some(trace.0),
    }
}

/// `attributes of /d/f`.
fn key_name(key: &LeaseKey, names: &Names) -> String {
    let of = |id: &InodeId| names.told(&format!("inode {id}"));
    match key {
        LeaseKey::Dir(id) => format!("listing of {}", of(id)),
        LeaseKey::Name(id, name) => format!("name {} in {}", shown(name.as_bytes()), of(id)),
        LeaseKey::Attr(id) => format!("attributes of {}", of(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            sessions: [
                (SessionId(3), "mount /r on host h (process 50)".to_owned()),
                (SessionId(4), "mount /w on host h (process 51)".to_owned()),
            ]
            .into(),
            paths: [(InodeId(7), "/d/f".to_owned())].into(),
        }
    }

    fn found() -> Vec<Line> {
        let (session, inodes) = (Some(SessionId(3)), vec![InodeId(7)]);
        let read = Waiting {
            since_ms: 8_400,
            process: Some(55),
            session,
            metadata: true,
            inodes: inodes.clone(),
            ..Waiting::new("OpenFile of session 3, for inode 7", "metadata server: no answer yet")
        };
        let lease = Waiting {
            since_ms: 8_300,
            session,
            inodes,
            holder: Some(SessionId(4)),
            lease: Some(HeldAs::Exclusive),
            keys: vec![LeaseKey::Attr(InodeId(7))],
            epoch: Some(2),
            ..Waiting::new("session 3, for inode 7", "session 4, to give up the exclusive lease of inode 7")
        };
        let place = Place::Mount { at: "/r".into(), process: 50, session: SessionId(3) };
        let nodes = [
            (0, Node { place, at: "mount /r (process 50)".into(), waiting: read }),
            (1, Node { place: Place::Metadata, at: "metadata server".into(), waiting: lease }),
        ];
        nodes.into_iter().map(|(depth, node)| line(depth, node, &Called::default(), &names())).collect()
    }

    #[test]
    fn the_table_names_mounts_files_leases_and_epochs_and_marks_what_follows() {
        let text = table(found());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(lines[0], ["since", "at", "what", "waits for", "epoch"]);
        assert_eq!(lines[1], ["8 s", "mount /r (process 50)", "OpenFile, for /d/f", "metadata server: no answer yet"]);
        assert_eq!(
            lines[2],
            [
                "8 s",
                "-> metadata server",
                "mount /r on host h (process 50), for /d/f",
                "mount /w on host h (process 51), to give up the exclusive lease of /d/f",
                "2"
            ]
        );
        let columns: Vec<Option<usize>> =
            text.lines().map(|line| line.find("-> ").or(line.find("mount /r (")).or(line.find("at "))).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn a_message_that_waits_for_copies_is_told_with_their_container() {
        let of = |text: &str| {
            let waiting = Waiting { container: Some(ContainerId(9)), ..Waiting::new("fsync", text) };
            let node = Node { place: Place::Data(ServerId(1)), at: String::new(), waiting };
            line(0, node, &Called::default(), &Names::default()).for_what
        };
        assert_eq!(of("data server 2: no answer yet"), "data server 2: no answer yet (container 9)");
        assert_eq!(of("chunk 12 of container 9: the disk"), "chunk 12 of container 9: the disk");
    }

    #[test]
    fn json_has_every_field() {
        let lines: Vec<serde_json::Value> = found().iter().map(|line| serde_json::to_value(line).unwrap()).collect();
        let lease = &lines[1];
        assert_eq!(
            (&lease["lease"], &lease["holder"], &lease["epoch"], &lease["depth"]),
            (&"exclusive".into(), &4.into(), &2.into(), &1.into())
        );
        assert_eq!(lease["holder_of"], "mount /w on host h (process 51)");
        assert_eq!((&lease["keys"][0], &lease["paths"]["7"]), (&"attributes of /d/f".into(), &"/d/f".into()));
        let read = &lines[0];
        assert_eq!((&read["mount"], &read["process"], &read["metadata"]), (&"/r".into(), &55.into(), &true.into()));
        assert!(read["lease"].is_null() && read["trace"].is_null() && read["servers"].as_array().unwrap().is_empty());
    }
}
