//! A made-up tree, written row by row, the same on every engine.

use braid_api::meta::{Duty, ServerInfo, ServerState};
use braid_api::quota::{Limits, Payer};
use braid_meta_engine::conformance::{Script, Step};
use braid_meta_engine::{Counts, Engine, Key};
use braid_meta_namespace::rows::PolicyRow;
use braid_meta_namespace::rows::*;
use braid_types::*;
use bytes::Bytes;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;

/// Counts ids up.
struct Tree {
    steps: Vec<Step>,
    last: u64,
    now: Timestamp,
}

pub const REPLICA: &str = "replica:2,chunk=1MiB";

impl Tree {
    fn put(&mut self, key: Key, row: &impl RowFormat) {
        self.steps.push(Step::Put(key, row.encode()));
    }

    fn inode(&mut self, kind: FileKind, uid: u32, size: u64, days: i64, root: InodeId) -> Inode {
        self.last += 1;
        let at = Timestamp::from_parts(self.now.secs() - days * DAY - 60, 500_000_000);
        let policy: Policy = if root == InodeId::ROOT { Policy::PLAIN } else { REPLICA.parse().unwrap() };
        Inode {
            id: InodeId::new(self.last, Slot(7)),
            kind,
            mode: Mode(if kind == FileKind::Directory { 0o755 } else { 0o640 }),
            uid,
            gid: 100,
            rdev: DeviceId(0),
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            size,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            flags: 0,
            inline: InlineState::None,
            trunc_gen: TruncGen(0),
            cuts: Vec::new(),
            layout_gen: LayoutGen(0),
            lease_gen: LeaseGen(0),
            policy_root: root,
            policy: (kind == FileKind::File).then_some(policy),
            quota_roots: Vec::new(),
            room: 0,
            snapshot_root: InodeId(0),
            born: 0,
            changed: 0,
            target: Bytes::new(),
        }
    }

    fn name(&mut self, parent: InodeId, text: &[u8], inode: Inode) -> InodeId {
        let (id, name) = (inode.id, Name::new(text).unwrap());
        self.put(keys::inode_id(id), &IdRow::At { parent, name: text.to_vec() });
        self.put(keys::entry(parent, &name), &Entry::Here(inode));
        id
    }

    fn dir(&mut self, parent: InodeId, text: &str, uid: u32, entries: u64, root: InodeId) -> InodeId {
        let inode = self.inode(FileKind::Directory, uid, entries, 30, root);
        self.name(parent, text.as_bytes(), inode)
    }

    /// A file whose bytes are beside its row.
    fn small(&mut self, parent: InodeId, text: &str, uid: u32, size: u64, days: i64) -> InodeId {
        let inode = self.inode(FileKind::File, uid, size, days, InodeId::ROOT);
        self.name(parent, text.as_bytes(), Inode { inline: InlineState::Small, ..inode })
    }

    fn chunked(
        &mut self,
        parent: InodeId,
        text: &[u8],
        of: (u32, u64, i64),
        root: InodeId,
        containers: &[u64],
    ) -> InodeId {
        let mut inode = self.inode(FileKind::File, of.0, of.1, of.2, root);
        inode.flags = flags::CHUNKED;
        let id = self.name(parent, text, inode);
        for (index, container) in (0..).zip(containers) {
            let chunk = ChunkId(id.0 * 10 + index);
            let row = ChunkRow { chunk, container: ContainerId(*container), stable: true, born: None };
            self.put(keys::chunk(id, ChunkIndex(index)), &row);
        }
        id
    }

    fn container(&mut self, id: u64, chain: &[u64], copies: u8) {
        let layout = Layout::Replica { copies };
        let copies = (copies > 1).then(|| CopiesRow { copies, min_copies: 2, settled: true, ..CopiesRow::default() });
        let chain = chain.iter().map(|id| ServerId(*id)).collect();
        let (epoch, older) = (ChainEpoch(3), Vec::new());
        let row = ContainerRow { epoch, chain, layout, chunk_bytes: 1 << 20, given: 9, freed: 1, older, copies };
        self.put(keys::container(ContainerId(id)), &row);
    }
}

fn steps() -> Vec<Step> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let mut tree = Tree { steps: Vec::new(), last: 1, now: Timestamp::from_parts(now, 0) };
    let root = InodeId::ROOT;
    let mut top = tree.inode(FileKind::Directory, 0, 2, 100, root);
    (top.id, top.nlink) = (root, 5);
    tree.put(keys::root_entry(), &Entry::Here(top));
    tree.put(keys::policy(root), &PolicyRow { policy: Policy::PLAIN });

    let home = tree.dir(root, "home", 0, 2, root);
    let anna = tree.dir(home, "anna", 1001, 4, root);
    let ben = tree.dir(home, "ben", 1002, 3, root);
    tree.chunked(anna, b"video.mp4", (1001, 150 << 20, 400), root, &[1, 1, 1]);
    tree.chunked(anna, b"old.iso", (1001, 100 << 20, 200), root, &[1, 1]);
    tree.small(anna, "report.txt", 1001, 300, 90);
    let link = tree.inode(FileKind::Symlink, 1001, 0, 10, root);
    tree.name(anna, b"latest", Inode { target: Bytes::from_static(b"video.mp4"), ..link });
    tree.small(ben, "report.txt", 1002, 300, 2);
    let copy = tree.dir(ben, "Copy", 1002, 2, root);
    tree.small(copy, "report.txt", 1002, 300, 0);
    tree.small(copy, "notes.txt", 1002, 12_000, 0);

    let data = tree.dir(root, "data", 0, 24, root);
    let own = InodeId::new(data.0 >> SLOT_BITS, Slot(7));
    tree.put(keys::policy(own), &PolicyRow { policy: REPLICA.parse().unwrap() });
    for n in 0..20 {
        tree.chunked(data, format!("part-{n:02}").as_bytes(), (1003, (1 << 20) + 1000, 50), own, &[2, 2]);
    }
    tree.chunked(data, b"short", (1003, 10, 50), own, &[3]);
    tree.chunked(data, b"on-a-dead-server", (1003, 2_000_000, 50), own, &[2, 4]);
    tree.chunked(data, b"\xff\xfe", (1003, 0, 50), own, &[]);

    // Two names of one inode, whose attributes are with neither.
    let linked = tree.inode(FileKind::File, 1002, 1000, 5, root);
    let (id, kind) = (linked.id, FileKind::File);
    tree.put(keys::inode_id(id), &IdRow::Attributes(Inode { nlink: 2, ..linked }));
    for (dir, name) in [(ben, "linked"), (data, "the-same")] {
        tree.put(keys::entry(dir, &name.parse().unwrap()), &Entry::Elsewhere { id, kind });
    }
    let gone = tree.inode(FileKind::File, 1002, 77, 0, root);
    let since = gone.ctime;
    tree.put(keys::orphan(gone.id), &OrphanRow { session: SessionId(1), since });
    tree.put(keys::inode_id(gone.id), &IdRow::Attributes(Inode { nlink: 0, ..gone }));
    // A directory that is cut off from the root.
    let lost = tree.inode(FileKind::File, 0, 1, 30, root);
    tree.name(InodeId(999_999), b"lost", lost);

    let snapshot = |number, name: &str, days| SnapshotEntry {
        number,
        name: name.into(),
        made: Timestamp::from_parts(now - days * DAY, 0),
    };
    let kept = vec![snapshot(1, "before", 60), snapshot(3, "after", 2)];
    tree.put(keys::snapshots(data), &SnapshotsRow { kept, going: vec![2] });
    let limits = Limits { inodes: None, bytes: Some(1 << 30) };
    tree.put(keys::limit(Payer::User(1001)), &LimitRow(limits));
    for share in [0, 3] {
        let row = Counts([3, 1 << 20]).to_row();
        tree.steps.push(Step::Put(keys::usage(Payer::User(1001), share), row));
    }
    tree.steps.push(Step::Put(keys::usage(Payer::Dir(root), 0), Counts([40, 5]).to_row()));
    tree.steps.push(Step::Put(keys::xattr(anna, b"user.colour"), b"blue".to_vec()));
    tree.container(1, &[1], 1);
    tree.container(2, &[1, 2], 2);
    tree.container(3, &[2], 2);
    tree.container(4, &[1, 3], 2);
    for id in 1..=3 {
        let addresses = vec![format!("tcp:h{id}:7401")];
        let row = ServerRow { addresses, host: format!("h{id}"), ..ServerRow::default() };
        tree.put(keys::server(ServerId(id)), &row);
    }
    tree.put(keys::spare(SessionId(1), ChunkId(5)), &SpareRow { container: ContainerId(2), for_moves: false });
    tree.put(keys::reclaim_chunk(ChunkId(6)), &ReclaimRow { container: ContainerId(2) });
    tree.put(
        keys::session(SessionId(1)),
        &SessionRow {
            epoch: SessionEpoch(1),
            client: 1,
            description: "fuse /mnt".into(),
            host: "h1".into(),
            since,
            keeps: false,
            caches: true,
            first: SessionId(1),
        },
    );
    tree.steps
}

/// The same rows for whoever asks: times are of the first.
pub async fn fill<E: Engine>(engine: &E) {
    static STEPS: std::sync::OnceLock<Vec<Step>> = std::sync::OnceLock::new();
    engine.transact(0, Script(STEPS.get_or_init(steps).clone())).await.unwrap();
}

/// Empty directories below `/many`, for counting.
pub async fn fill_many<E: Engine>(engine: &E, dirs: u64, files: u64) {
    let mut tree = Tree { steps: Vec::new(), last: 1000, now: Timestamp::from_parts(1_700_000_000, 0) };
    let many = tree.dir(InodeId::ROOT, "many", 0, dirs, InodeId::ROOT);
    for n in 0..dirs {
        let dir = tree.dir(many, &format!("dir-{n:03}"), 0, files, InodeId::ROOT);
        for m in 0..files {
            tree.small(dir, &format!("file-{m}"), 0, 100, 1);
        }
        let steps = std::mem::take(&mut tree.steps);
        engine.transact(0, Script(steps)).await.unwrap();
    }
}

/// What the metadata server knows of them: the third is down.
pub fn servers() -> Vec<ServerInfo> {
    let server = |id| ServerInfo {
        id: ServerId(id),
        addresses: Vec::new(),
        host: format!("h{id}"),
        state: if id == 3 { ServerState::Down } else { ServerState::Up },
        bytes_total: 1000 * id,
        bytes_free: 100 * id,
        chunks: 7,
        silent_ms: 5,
        rack: String::new(),
        disk: id,
        duty: Duty::Serves,
    };
    (1..=3).map(server).collect()
}

/// Names in the tree, with that of the root.
pub const NAMES: u64 = 39;
