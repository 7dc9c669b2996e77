//! From what somebody waits for to what that waits for: what waits at one process is found among what waits at the next.

use braid_api::admin::Waiting;
use braid_api::lease::LeaseKey;
use braid_types::{ChunkId, ContainerId, InodeId, Name, ServerId, SessionId, TraceId};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A mount of this machine.
    Mount {
        at: PathBuf,
        process: u32,
        session: SessionId,
    },
    Metadata,
    Data(ServerId),
}

/// Something that waits, and where.
#[derive(Clone, Debug)]
pub struct Node {
    pub place: Place,
    /// What people call the place.
    pub at: String,
    pub waiting: Waiting,
}

/// What is asked about.
#[derive(Debug)]
pub enum Asked {
    Everything,
    File(File),
    /// A program, or the mounts it uses if none of its requests waits.
    Process(u32),
    Mounts(Vec<Mount>),
}

/// A file by its number, and by its name, under which changes that take it away or bring it wait.
#[derive(Debug, Default)]
pub struct File {
    pub id: InodeId,
    pub name: Option<(InodeId, Name)>,
    pub chunks: BTreeSet<ChunkId>,
    pub containers: BTreeSet<ContainerId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub at: PathBuf,
    /// Unless the metadata server could not be asked.
    pub session: Option<SessionId>,
}

/// One file operation: whose, and its number there.
type Operation = (SessionId, TraceId);

impl Node {
    fn operation(&self) -> Option<Operation> {
        let trace = Some(self.waiting.trace).filter(|trace| trace.0 != 0)?;
        Some((self.waiting.session?, trace))
    }

    fn is_at(&self, mount: &Path) -> bool {
        matches!(&self.place, Place::Mount { at, .. } if at == mount)
    }

    /// The mount it is at, as servers know it.
    fn session_here(&self) -> Option<SessionId> {
        match &self.place {
            Place::Mount { session, .. } => Some(*session),
            _ => None,
        }
    }

    fn is_asked(&self, asked: &Asked) -> bool {
        let w = &self.waiting;
        match asked {
            Asked::Everything => true,
            Asked::File(file) => {
                let is_name = |key: &LeaseKey| match (key, &file.name) {
                    (LeaseKey::Name(dir, name), Some((parent, own))) => (dir, name) == (parent, own),
                    _ => false,
                };
                let of_chunk = w.chunk.map(|chunk| file.chunks.contains(&chunk));
                let of_copies = w.container.is_some_and(|id| file.containers.contains(&id));
                w.inodes.contains(&file.id) || w.keys.iter().any(is_name) || of_chunk.unwrap_or(of_copies)
            }
            Asked::Process(pid) => w.process == Some(*pid),
            Asked::Mounts(mounts) => mounts.iter().any(|mount| {
                let is_its = mount.session.is_some() && (w.session == mount.session || w.holder == mount.session);
                self.is_at(&mount.at) || is_its
            }),
        }
    }

    /// This is, or may be, what the other waits for.
    fn is_behind(&self, other: &Node) -> bool {
        let (own, w) = (&self.waiting, &other.waiting);
        let share = |a: &[InodeId], b: &[InodeId]| a.iter().any(|id| b.contains(id));
        // The same operation at a server.
        if self.operation().is_some() && self.operation() == other.operation() {
            return true;
        }
        // What a server does for the session with the same file, and what the mount itself has to do first.
        let is_mount = other.session_here().is_some();
        if is_mount && own.session == other.session_here() && share(&own.inodes, &w.inodes) {
            return true;
        }
        // Who is to give something up, and has something to do with the same file.
        if w.holder.is_some()
            && self.session_here() == w.holder
            && (share(&own.inodes, &w.inodes) || w.inodes.is_empty())
        {
            return true;
        }
        // What the copies of a container wait for.
        w.container.is_some() && own.container == w.container && self.session_here().is_none()
    }
}

/// Those that were asked about, the longest first, each followed by what it leads to; with how many steps that is away.
pub fn follow(nodes: Vec<Node>, asked: &Asked) -> Vec<(usize, Node)> {
    // What a server does with the file for an operation of another (a lookup in its directory) leads to the program.
    let asked_for: BTreeSet<Operation> =
        nodes.iter().filter(|node| node.is_asked(asked)).filter_map(Node::operation).collect();
    let is_asked = |node: &Node| node.is_asked(asked) || node.operation().is_some_and(|of| asked_for.contains(&of));
    let mut nodes: Vec<Option<Node>> = sorted(nodes).into_iter().map(Some).collect();
    let mut found = Vec::new();
    for first in 0..nodes.len() {
        let Some(node) = nodes[first].take_if(|node| is_asked(node)) else { continue };
        let mut open = vec![(0, node)];
        while let Some((depth, node)) = open.pop() {
            let behind: Vec<Node> =
                nodes.iter_mut().filter_map(|slot| slot.take_if(|other| other.is_behind(&node))).collect();
            // The longest is the next that is taken.
            open.extend(behind.into_iter().rev().map(|node| (depth + 1, node)));
            found.push((depth, node));
        }
    }
    found
}

/// Programs before what is done for them, or it would be taken for what was asked about; then the longest.
fn sorted(mut nodes: Vec<Node>) -> Vec<Node> {
    nodes.sort_by_key(|node| {
        let is_program = node.waiting.process.is_some();
        (!is_program, std::cmp::Reverse(node.waiting.since_ms))
    });
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: SessionId = SessionId(3);
    const WRITER: SessionId = SessionId(4);
    const FILE: InodeId = InodeId(7);
    const DIR: InodeId = InodeId(2);

    fn mount(at: &str, session: SessionId, waiting: Waiting) -> Node {
        let place = Place::Mount { at: at.into(), process: 50, session };
        Node { place, at: at.into(), waiting: Waiting { session: Some(session), ..waiting } }
    }

    fn server(place: Place, waiting: Waiting) -> Node {
        Node { at: format!("{place:?}"), place, waiting }
    }

    /// A read on one mount waits for the other to give the file up, which waits for a data server, which waits for another.
    fn chain() -> Vec<Node> {
        let of = |who: &str, since_ms| Waiting { since_ms, ..Waiting::new(who, "") };
        let copies = |waiting| Waiting { container: Some(ContainerId(9)), chunk: Some(ChunkId(12)), ..waiting };
        let read = Waiting { process: Some(55), inodes: vec![FILE], trace: TraceId(1), ..of("read", 8_000) };
        let lease = Waiting {
            session: Some(READER),
            holder: Some(WRITER),
            inodes: vec![FILE],
            trace: TraceId(1),
            ..of("lease", 7_900)
        };
        let gives_up = Waiting { inodes: vec![FILE], ..of("giving up", 7_800) };
        let write = Waiting { inodes: vec![FILE], trace: TraceId(5), ..copies(of("write", 7_700)) };
        let copy = Waiting {
            session: Some(WRITER),
            trace: TraceId(5),
            servers: vec![ServerId(2)],
            ..copies(of("WriteCopies", 7_600))
        };
        let epoch = Waiting { container: Some(ContainerId(9)), ..of("new chain", 2_000) };
        // Has to do with none of it.
        let other = Waiting { process: Some(56), inodes: vec![InodeId(8)], trace: TraceId(2), ..of("other", 9_000) };
        vec![
            server(Place::Metadata, epoch),
            mount("/w", WRITER, write),
            server(Place::Metadata, lease),
            mount("/r", READER, other),
            server(Place::Data(ServerId(1)), copy),
            mount("/w", WRITER, gives_up),
            mount("/r", READER, read),
        ]
    }

    fn told(asked: &Asked) -> Vec<(usize, String)> {
        follow(chain(), asked).into_iter().map(|(depth, node)| (depth, node.waiting.who)).collect()
    }

    fn in_order(names: &[(usize, &str)]) -> Vec<(usize, String)> {
        names.iter().map(|(depth, name)| (*depth, (*name).to_owned())).collect()
    }

    const LEADS_TO: [(usize, &str); 6] =
        [(0, "read"), (1, "lease"), (2, "giving up"), (2, "write"), (3, "WriteCopies"), (3, "new chain")];

    #[test]
    fn what_a_process_waits_for_is_followed_through_mounts_and_servers() {
        assert_eq!(told(&Asked::Process(55)), in_order(&LEADS_TO));
        assert_eq!(told(&Asked::Process(57)), []);
    }

    #[test]
    fn a_file_is_found_by_its_number_its_chunks_and_its_name() {
        let mut file = File { id: FILE, ..File::default() };
        assert_eq!(told(&Asked::File(File { ..file })), in_order(&LEADS_TO));
        file = File {
            id: InodeId(70),
            chunks: [ChunkId(12)].into(),
            containers: [ContainerId(9)].into(),
            ..File::default()
        };
        let found = told(&Asked::File(file));
        assert_eq!(found[0].1, "write");
        assert!(found.iter().any(|(_, who)| who == "new chain") && !found.iter().any(|(_, who)| who == "read"));
        // Whoever renames something onto a name waits for it, whatever its number is.
        let name: Name = "f".parse().unwrap();
        let keys = vec![LeaseKey::Name(DIR, name.clone())];
        let rename = server(Place::Metadata, Waiting { keys, ..Waiting::new("rename", "") });
        let of = |name| Asked::File(File { id: FILE, name: Some((DIR, name)), ..File::default() });
        assert_eq!(follow(vec![rename.clone()], &of(name)).len(), 1);
        assert_eq!(follow(vec![rename], &of("g".parse().unwrap())).len(), 0);
    }

    /// The kernel asks for a name in a directory; the metadata server finds out that the file is written elsewhere.
    #[test]
    fn who_waits_for_the_file_under_its_directory_is_found_too() {
        let trace = TraceId(1);
        let lookup = Waiting { process: Some(55), inodes: vec![DIR], trace, ..Waiting::new("lookup", "") };
        let (session, holder) = (Some(READER), Some(WRITER));
        let lease = Waiting { session, holder, inodes: vec![FILE], trace, ..Waiting::new("lease", "") };
        let nodes = vec![server(Place::Metadata, lease), mount("/r", READER, lookup)];
        let found = follow(nodes, &Asked::File(File { id: FILE, ..File::default() }));
        let told: Vec<_> = found.iter().map(|(depth, node)| (*depth, node.waiting.who.as_str())).collect();
        assert_eq!(told, [(0, "lookup"), (1, "lease")]);
    }

    #[test]
    fn a_mount_is_asked_for_what_waits_in_it_and_for_who_waits_for_it() {
        let at = |at: &str, session| Asked::Mounts(vec![Mount { at: at.into(), session }]);
        assert_eq!(told(&at("/r", Some(READER))), in_order(&[&[(0, "other")], &LEADS_TO[..]].concat()));
        // It holds what another waits for; nothing is known of what it does if it is stopped.
        let found = told(&at("/w", Some(WRITER)));
        assert_eq!(found[..2], in_order(&[(0, "read"), (1, "lease")]));
        let found = follow(chain(), &at("/w", None));
        assert!(found.iter().all(|(_, node)| node.waiting.who != "other" && node.waiting.who != "lease"));
        assert_eq!(told(&Asked::Everything).len(), 7);
    }
}
