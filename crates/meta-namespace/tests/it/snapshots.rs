//! What a snapshot shows, whatever happened since; and that what nothing names any more is freed, once.

use crate::tree::{Tree, code, name};
use braid_api::admin::Repair;
use braid_api::meta::*;
use braid_api::{Code, Error};
use braid_meta_engine::{AnyEngine, Engine, Key, Lock, MemEngine, MemStore, Operation, Table, Tx};
use braid_meta_namespace::ops::ids::{Counter, TakeIds};
use braid_meta_namespace::ops::move_chunk::PutInPlace;
use braid_meta_namespace::ops::reclaim::{ForgetChunks, ListReclaim, ReclaimInodes};
use braid_meta_namespace::ops::remove_tree::{EmptyTree, Rescue};
use braid_meta_namespace::ops::repair::RepairRow;
use braid_meta_namespace::ops::session::{BeginSession, EndSession, ForgetSession};
use braid_meta_namespace::ops::snapshot::{
    CreateSnapshot, DropSnapshot, MakeRoot, SNAPSHOTS_MAX, SweepSnapshot, handle_of,
};
use braid_meta_namespace::ops::spares::{GiveSpares, Source};
use braid_meta_namespace::rows::keys;
use braid_meta_namespace::snapshots::{AtSnapshot, Keeping, Moment};
use braid_meta_namespace::{OpError, Query, ReadOnly};
use braid_types::*;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROOT: InodeId = InodeId::ROOT;
const CHUNK: u64 = 64 << 20;

struct World {
    tree: Tree<AnyEngine>,
    rng: StdRng,
    root: InodeId,
    /// What each snapshot has to show.
    shown: BTreeMap<u64, (Name, Shown)>,
    given: BTreeSet<ChunkId>,
    freed: BTreeSet<ChunkId>,
    did: BTreeMap<&'static str, u32>,
}

type Shown = BTreeMap<String, String>;

async fn ask<Q: Query>(engine: &AnyEngine, then: Option<&Moment>, query: Q) -> Result<Q::Answer, Error> {
    match then {
        Some(moment) => engine.read(1, AtSnapshot { moment: *moment, query }).await.map_err(Error::from),
        None => engine.read(1, ReadOnly(query)).await.map_err(Error::from),
    }
}

/// Everything below a directory that a user can see, now or then, and the chunks in it.
async fn dump(engine: &AnyEngine, top: InodeId, then: Option<&Moment>) -> (Shown, BTreeSet<ChunkId>) {
    let (mut shown, mut chunks) = (Shown::new(), BTreeSet::new());
    let mut dirs = vec![(String::new(), top)];
    let own = ask(engine, then, GetAttr { inode: top.into() }).await.unwrap();
    shown.insert("/".into(), format!("{:?}", own.attr));
    while let Some((path, dir)) = dirs.pop() {
        let mut after = None;
        loop {
            let limit = 3;
            let page =
                ask(engine, then, ReadDir { inode: dir, after, limit, plus: true, knows: Vec::new() }).await.unwrap();
            assert!(page.entries.len() <= limit as usize);
            after = page.entries.last().map(|(name, ..)| name.clone());
            for (name, id, kind, attr) in page.entries {
                let text = String::from_utf8(name.as_bytes().to_vec()).unwrap();
                let path = format!("{path}/{text}");
                let attr =
                    attr.unwrap_or_else(|| panic!("{path} leads to inode {id}, which has no attributes, in {then:?}"));
                assert_eq!((attr.id, attr.kind), (id, kind));
                let found = ask(engine, then, Lookup { parent: dir, name: name.clone() }).await.unwrap().attr;
                assert_eq!(found.as_ref(), Some(&attr), "{path}");
                let by_id = ask(engine, then, GetAttr { inode: id.into() }).await.unwrap().attr;
                assert_eq!(by_id, attr, "{path}");
                let mut what = format!("{attr:?}");
                for name in ask(engine, then, ListXattr { inode: id.into() }).await.unwrap() {
                    let value = ask(engine, then, GetXattr { inode: id.into(), name: name.clone() }).await.unwrap();
                    what += &format!(" {name:?}={value:?}");
                }
                match kind {
                    FileKind::Directory => dirs.push((path.clone(), id)),
                    FileKind::Symlink => {
                        what += &format!(" {:?}", ask(engine, then, ReadLink { inode: id.into() }).await.unwrap());
                    }
                    FileKind::File => {
                        let map =
                            ask(engine, then, GetMap { inode: id.into(), first: ChunkIndex(0) }).await.unwrap().map;
                        match map.content {
                            Content::Inline(bytes) => what += &format!(" {} of {:?}", bytes.len(), bytes.first()),
                            Content::Chunked(page) => {
                                assert!(!page.more);
                                chunks.extend(page.chunks.iter().map(|chunk| chunk.chunk));
                                what += &format!(
                                    " {:?}",
                                    page.chunks.iter().map(|c| (c.index, c.chunk)).collect::<Vec<_>>()
                                );
                            }
                        }
                    }
                    _ => {}
                }
                shown.insert(path, what);
            }
            if !page.more {
                break;
            }
        }
    }
    (shown, chunks)
}

impl World {
    async fn new(seed: u64, keeping: Keeping) -> World {
        let keeping = Arc::new(keeping);
        let engine = AnyEngine::new(Arc::new(MemEngine::new(MemStore::new()))).watched(keeping.clone());
        keeping.begin(&engine).await.unwrap();
        World::over(seed, engine).await
    }

    async fn over(seed: u64, engine: AnyEngine) -> World {
        let mut tree = Tree::new(engine, 1).await;
        tree.others = false;
        let root = tree.mkdir(ROOT, "root").await;
        let (shown, given) = (BTreeMap::new(), BTreeSet::new());
        let rng = StdRng::seed_from_u64(seed);
        World { tree, rng, root, shown, given, freed: BTreeSet::new(), did: BTreeMap::new() }
    }

    /// Directories below the root, itself first, and everything with its place.
    async fn all(&self) -> (Vec<InodeId>, Vec<(InodeId, String, InodeId, FileKind)>) {
        let (mut dirs, mut found, mut at) = (vec![self.root], Vec::new(), 0);
        while at < dirs.len() {
            let dir = dirs[at];
            at += 1;
            let read = ReadDir { inode: dir, after: None, limit: 4096, plus: false, knows: Vec::new() };
            for (name, id, kind, _) in ask(&self.tree.engine, None, read).await.unwrap().entries {
                if kind == FileKind::Directory {
                    dirs.push(id);
                }
                found.push((dir, String::from_utf8(name.as_bytes().to_vec()).unwrap(), id, kind));
            }
        }
        (dirs, found)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.rng.random_range(0..of.len())].clone())
    }

    async fn spare(&mut self, beside: Option<ContainerId>, for_moves: bool) -> (ChunkId, ContainerId) {
        let source = match beside {
            Some(id) => Source::Beside(id),
            None => Source::NewContainer { chain: vec![ServerId(1)] },
        };
        let (layout, chunk_bytes) = (Policy::PLAIN.layout, CHUNK);
        let give = GiveSpares { layout, chunk_bytes, min_copies: 1, for_moves, sources: vec![(source, 1)] };
        match self.tree.change(give, MetaAnswer::TakeSpares).await.unwrap() {
            MetaAnswer::TakeSpares(spares) => {
                self.given.insert(spares.spares[0].0);
                spares.spares[0]
            }
            other => panic!("{other:?}"),
        }
    }

    async fn chunks_of(&self, file: InodeId) -> (Vec<ChunkRef>, Attr) {
        let map = ask(&self.tree.engine, None, GetMap { inode: file.into(), first: ChunkIndex(0) }).await.unwrap();
        match map.map.content {
            Content::Chunked(page) => (page.chunks, map.attr),
            Content::Inline(_) => (Vec::new(), map.attr),
        }
    }

    /// As a client does before it writes.
    async fn thaw(&mut self, file: InodeId, thaws: bool) -> Result<&'static str, Error> {
        let (chunks, attr) = self.chunks_of(file).await;
        let wanted: Vec<ChunkRef> = chunks.into_iter().filter(|chunk| chunk.frozen == thaws).collect();
        let Some(ChunkRef { index, chunk: from, container, .. }) = self.pick(&wanted) else { return Ok("no chunk") };
        let (to, _) = self.spare(thaws.then_some(container), true).await;
        let message = MoveChunk {
            inode: file.into(),
            index,
            from,
            to,
            trunc_gen: attr.trunc_gen,
            why: if thaws { MoveKind::Thawed } else { MoveKind::Moved },
        };
        self.tree.change(PutInPlace { message, alone: true }, MetaAnswer::MoveChunk).await?;
        Ok(if thaws { "thaw" } else { "move" })
    }

    async fn write(&mut self, file: InodeId) -> Result<&'static str, Error> {
        let index = self.rng.random_range(0..3);
        let (chunk, container) = self.spare(None, false).await;
        let chunk = ChunkRef { index: ChunkIndex(index), chunk, container, stable: false, frozen: false };
        let attr = ask(&self.tree.engine, None, GetAttr { inode: file.into() }).await.unwrap().attr;
        let commit = CommitFile {
            inode: file.into(),
            trunc_gen: attr.trunc_gen,
            size: (index + 1) * CHUNK - 100,
            mtime: None,
            atime: None,
            content: CommitContent::Chunks(vec![chunk]),
            cuts_applied: attr.trunc_gen,
            kill_privileges: false,
            unused: Vec::new(),
        };
        self.tree.change(commit, MetaAnswer::CommitFile).await?;
        Ok("chunk")
    }

    async fn step(&mut self) {
        let (dirs, found) = self.all().await;
        let files: Vec<_> = found.iter().filter(|(.., kind)| *kind == FileKind::File).cloned().collect();
        let dir = self.pick(&dirs).unwrap();
        let text = format!("n{}", self.rng.random_range(0..7));
        let any = self.pick(&found);
        let file = self.pick(&files);
        let what = self.rng.random_range(0..22);
        let result = match (what, any, file) {
            (0, ..) => self.tree.make(dir, &text, FileKind::Directory).await.map(|_| "mkdir"),
            (1, ..) => self.tree.make(dir, &text, FileKind::Symlink).await.map(|_| "symlink"),
            (2 | 3, ..) => {
                let bytes = self.rng.random_range(0..3) * 900;
                self.tree.put(dir, &text, bytes).await.map(|_| "put")
            }
            (4, ..) => self.tree.create(dir, &text).await.map(|_| "create"),
            (5..=7, _, Some((.., file, _))) => self.write(file).await,
            (8 | 9, _, Some((.., file, _))) => self.thaw(file, true).await,
            (10, _, Some((.., file, _))) => self.thaw(file, false).await,
            (11, _, Some((.., file, _))) => {
                let size = self.rng.random_range(0..3) * CHUNK / 2;
                let border = ChunkIndex(size / CHUNK);
                let is_frozen = self.chunks_of(file).await.0.iter().any(|chunk| chunk.index == border && chunk.frozen);
                let refused = !size.is_multiple_of(CHUNK) && is_frozen;
                let done = self.tree.resize(file, size).await;
                assert_eq!(done.as_ref().err().map(|e| e.code) == Some(Code::Frozen), refused);
                done.map(|()| "resize")
            }
            (12, _, Some((.., file, _))) => {
                let drop = DropChunks { inode: file.into(), from: ChunkIndex(0), until: ChunkIndex(2) };
                self.tree.change(drop, MetaAnswer::DropChunks).await.map(|_| "punch")
            }
            (13 | 14, Some((parent, from, ..)), _) => {
                let mode = self.pick(&[RenameKind::Replace, RenameKind::NoReplace, RenameKind::Exchange]).unwrap();
                self.tree.rename((parent, &from), (dir, &text), mode).await.map(|()| "rename")
            }
            (15, _, Some((.., file, _))) => {
                let link = Link { inode: file.into(), parent: dir.into(), name: name(&text) };
                self.tree.change(link, MetaAnswer::Link).await.map(|_| "link")
            }
            (16 | 17, Some((parent, text, _, kind)), _) if kind != FileKind::Directory => {
                let unlink = Unlink { parent: parent.into(), name: name(&text), open_here: false };
                self.tree.change(unlink, MetaAnswer::Unlink).await.map(|_| "unlink")
            }
            (18, Some((parent, text, _, FileKind::Directory)), _) => {
                let tree = self.rng.random_bool(0.5);
                let remove = RemoveDir { parent: parent.into(), name: name(&text), tree };
                self.tree.change(remove, MetaAnswer::RemoveDir).await.map(|_| if tree { "rm -r" } else { "rmdir" })
            }
            (19, Some((.., id, _)), _) => {
                let value = Bytes::from(vec![self.rng.random(); 3]);
                let name = Bytes::from_static(b"user.a");
                let set = SetXattr { inode: id.into(), name, value, mode: XattrKind::Any, clear_setgid: false };
                self.tree.change(set, MetaAnswer::SetXattr).await.map(|_| "xattr")
            }
            (20, Some((.., id, _)), _) => {
                let change = ChangeAttr {
                    inode: id.into(),
                    mode: Some(Mode(self.rng.random_range(0..0o777))),
                    uid: None,
                    gid: None,
                    size: None,
                    atime: None,
                    mtime: None,
                    kill_privileges: false,
                    cuts_applied: TruncGen(u32::MAX),
                };
                self.tree.change(change, MetaAnswer::ChangeAttr).await.map(|_| "chmod")
            }
            _ => {
                self.keep_house().await;
                Ok("housekeeping")
            }
        };
        if let Ok(done) = result {
            *self.did.entry(done).or_default() += 1;
        }
    }

    /// Frees what waits for it, trees page by page.
    async fn keep_house(&mut self) {
        loop {
            let waiting = self.tree.run(ListReclaim { after: None, limit: 1 << 20 }).await.unwrap();
            if waiting.trees.is_empty() && waiting.inodes.is_empty() && waiting.chunks.is_empty() {
                return;
            }
            for dir in waiting.trees {
                let read = ReadDir { inode: dir, after: None, limit: 3, plus: false, knows: Vec::new() };
                let page = ask(&self.tree.engine, None, read).await.unwrap();
                let entries = page.entries.into_iter().map(|(name, id, ..)| (name, id)).collect();
                let empty = EmptyTree { dir, entries, all: !page.more, others: false, now: Timestamp(1) };
                self.tree.run(empty).await.unwrap();
            }
            self.tree.run(ReclaimInodes { inodes: waiting.inodes }).await.unwrap();
            for (chunk, _) in &waiting.chunks {
                assert!(self.freed.insert(*chunk), "{chunk} is freed twice");
            }
            self.tree.run(ForgetChunks { chunks: waiting.chunks }).await.unwrap();
        }
    }

    async fn snapshot(&mut self, text: &str) -> u64 {
        // When the last has gone it is a root no more.
        self.tree.run(MakeRoot { dir: self.root }).await.unwrap();
        self.tree.restamp_all().await;
        let create = CreateSnapshot { root: self.root, name: name(text), now: Timestamp(7) };
        let (shown, _) = dump(&self.tree.engine, self.root, None).await;
        let made = self.tree.run(create).await.unwrap();
        self.shown.insert(made.number, (name(text), shown));
        made.number
    }

    fn moment(&self, number: u64) -> Moment {
        Moment { root: self.root, number }
    }

    async fn let_go(&mut self, number: u64, seen: bool) {
        let (name, _) = self.shown.remove(&number).unwrap();
        self.tree.run(DropSnapshot { root: self.root, name, seen }).await.unwrap();
        self.tree.run(SweepSnapshot { root: self.root, number, after: None, limit: 1000 }).await.unwrap();
    }

    /// In this order, and all are gone before the first is looked through.
    async fn drop_snapshots(&mut self, numbers: &[u64]) {
        for number in numbers {
            let (name, _) = self.shown.remove(number).unwrap();
            assert_eq!(self.tree.run(DropSnapshot { root: self.root, name, seen: true }).await.unwrap(), *number);
            self.step().await;
        }
        for number in numbers {
            // Between its pages life goes on, and other snapshots show what they have.
            let mut after = None;
            loop {
                let number = *number;
                after = self.tree.run(SweepSnapshot { root: self.root, number, after, limit: 5 }).await.unwrap();
                self.step().await;
                if after.is_none() {
                    break;
                }
                self.check().await;
            }
        }
    }

    /// Every snapshot shows what it had, and nothing that is named is freed.
    async fn check(&self) {
        let mut named = dump(&self.tree.engine, self.root, None).await.1;
        for (number, (_, had)) in &self.shown {
            let (shown, chunks) = dump(&self.tree.engine, self.root, Some(&self.moment(*number))).await;
            for (path, what) in had {
                assert_eq!(shown.get(path), Some(what), "{path} in snapshot {number}");
            }
            assert_eq!(shown.len(), had.len(), "snapshot {number} shows what came later");
            named.extend(chunks);
        }
        let lost: Vec<_> = named.intersection(&self.freed).collect();
        assert!(lost.is_empty(), "{lost:?} are freed and named");
    }

    async fn run(&mut self, steps: usize) {
        self.tree.run(MakeRoot { dir: self.root }).await.unwrap();
        self.tree.restamp_all().await;
        for i in 0..steps {
            match self.rng.random_range(0..24) {
                0 if self.shown.len() < 6 => {
                    self.snapshot(&format!("s{i}")).await;
                }
                1 if self.shown.len() > 1 => {
                    let mut numbers: Vec<u64> = self.shown.keys().copied().collect();
                    let mut gone = Vec::new();
                    for _ in 0..self.rng.random_range(1..3) {
                        gone.push(numbers.swap_remove(self.rng.random_range(0..numbers.len())));
                    }
                    self.drop_snapshots(&gone).await;
                }
                _ => self.step().await,
            }
            if i % 10 == 0 {
                self.check().await;
            }
        }
        self.check().await;
    }

    /// Nothing is left of anything that was there.
    async fn end(mut self) {
        for number in self.shown.keys().copied().collect::<Vec<_>>() {
            self.drop_snapshots(&[number]).await;
        }
        let read = ReadDir { inode: self.root, after: None, limit: 4096, plus: false, knows: Vec::new() };
        for (name, _, kind, _) in ask(&self.tree.engine, None, read).await.unwrap().entries {
            if kind == FileKind::Directory {
                let remove = RemoveDir { parent: self.root.into(), name, tree: true };
                self.tree.change(remove, MetaAnswer::RemoveDir).await.unwrap();
            } else {
                let unlink = Unlink { parent: self.root.into(), name, open_here: false };
                self.tree.change(unlink, MetaAnswer::Unlink).await.unwrap();
            }
        }
        self.keep_house().await;
        for table in [Table::OldRows, Table::Chunks, Table::Xattrs, Table::InlineSmall, Table::InlineLarge] {
            let left = self.tree.engine.snapshot(&[table]).await.unwrap().scan_table(table, None, 9).unwrap();
            assert_eq!(left.rows, [], "{table:?}");
        }
        let spares = self.tree.engine.snapshot(&[Table::Spares]).await.unwrap();
        let spares = {
            let mut spares = spares;
            spares.scan_table(Table::Spares, None, 1 << 20).unwrap().rows.len()
        };
        assert_eq!(self.given.len() - self.freed.len(), spares, "what is not freed was never used");
    }
}

#[tokio::test]
async fn snapshots_show_what_was_whatever_happens_and_all_is_freed_once() {
    let mut did: BTreeMap<&str, u32> = BTreeMap::new();
    let seeds = std::env::var("SNAPSHOT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        println!("seed {seed}");
        let mut world = World::new(seed, Keeping::default()).await;
        // Some of it is there before.
        for _ in 0..30 {
            world.step().await;
        }
        world.run(220).await;
        for (what, count) in &world.did {
            *did.entry(what).or_default() += count;
        }
        world.end().await;
    }
    println!("{did:?}");
    for what in ["thaw", "move", "chunk", "resize", "punch", "rename", "link", "unlink", "rm -r", "xattr", "put"] {
        assert!(did.get(what).is_some_and(|count| *count > 5), "{what} happened too seldom: {did:?}");
    }
}

#[tokio::test]
#[should_panic(expected = "snapshot")]
async fn changes_that_are_not_kept_are_found() {
    let mut world = World::new(1, Keeping::forgetful()).await;
    world.run(200).await;
}

#[tokio::test]
async fn a_rename_or_link_does_not_leave_a_tree_with_snapshots_nor_enter_it() {
    let mut world = World::new(2, Keeping::default()).await;
    let (inside, outside) = (world.root, world.tree.mkdir(ROOT, "outside").await);
    world.tree.run(MakeRoot { dir: inside }).await.unwrap();
    world.tree.put(inside, "a", 9).await.unwrap();
    let file = world.tree.put(inside, "b", 9).await.unwrap();
    let other = world.tree.put(outside, "c", 9).await.unwrap();
    let link = |inode: InodeId, parent: InodeId| Link { inode: inode.into(), parent: parent.into(), name: name("l") };
    assert_eq!(world.listed().await, [inside], "it is looked through before the first");
    let early = CreateSnapshot { root: inside, name: name("s"), now: Timestamp(7) };
    assert_eq!(code(world.tree.run(early).await), Code::Busy);
    world.tree.restamp_all().await;
    world.snapshot("s").await;
    for (from, to) in [((inside, "a"), (outside, "x")), ((outside, "c"), (inside, "x"))] {
        assert_eq!(code(world.tree.rename(from, to, RenameKind::Replace).await), Code::CrossDevice);
    }
    assert_eq!(code(world.tree.rename((inside, "a"), (outside, "c"), RenameKind::Exchange).await), Code::CrossDevice);
    assert_eq!(code(world.tree.change(link(file, outside), MetaAnswer::Link).await), Code::CrossDevice);
    assert_eq!(code(world.tree.change(link(other, inside), MetaAnswer::Link).await), Code::CrossDevice);
    // The root itself is renamed like any directory, and keeps what it has.
    world.tree.rename((ROOT, "root"), (outside, "root"), RenameKind::Replace).await.unwrap();
    let moment = world.moment(*world.shown.keys().next().unwrap());
    assert_eq!(dump(&world.tree.engine, inside, Some(&moment)).await.0.len(), 3);
}

/// Some of what lies below says so already, and some does not.
#[tokio::test]
async fn while_a_root_is_being_prepared_names_go_anywhere_within_it_and_not_out() {
    let mut world = World::new(14, Keeping::default()).await;
    let (root, outside) = (world.root, world.tree.mkdir(ROOT, "outside").await);
    let sub = world.tree.mkdir(root, "sub").await;
    let deep = world.tree.mkdir(sub, "deep").await;
    let deeper = world.tree.mkdir(deep, "deeper").await;
    let early = world.tree.put(root, "early", 9).await.unwrap();
    let late = world.tree.put(deep, "late", 9).await.unwrap();
    for name in ["up", "exchanged"] {
        world.tree.put(deep, name, 9).await.unwrap();
    }
    world.tree.put(outside, "away", 9).await.unwrap();
    world.tree.run(MakeRoot { dir: root }).await.unwrap();
    world.tree.restamp(root).await;
    assert_eq!(world.listed().await, [sub], "what lies in it says so, and nothing further down");
    let link = |inode: InodeId, parent: InodeId, text: &str| Link {
        inode: inode.into(),
        parent: parent.into(),
        name: name(text),
    };
    world.tree.change(link(early, deep, "linked down"), MetaAnswer::Link).await.unwrap();
    world.tree.change(link(late, root, "linked up"), MetaAnswer::Link).await.unwrap();
    world.tree.rename((root, "early"), (deep, "early"), RenameKind::Replace).await.unwrap();
    world.tree.rename((deep, "up"), (root, "up"), RenameKind::Replace).await.unwrap();
    world.tree.rename((root, "up"), (deep, "exchanged"), RenameKind::Exchange).await.unwrap();
    // Neither the directory nor what is in it says whose it is, nor does where it would go.
    for (from, to) in [((deep, "deeper"), (outside, "x")), ((root, "sub"), (outside, "x"))] {
        assert_eq!(code(world.tree.rename(from, to, RenameKind::Replace).await), Code::CrossDevice, "{from:?}");
    }
    for (from, to) in [((outside, "away"), (root, "x")), ((root, "linked up"), (outside, "x"))] {
        assert_eq!(code(world.tree.rename(from, to, RenameKind::Replace).await), Code::CrossDevice, "{from:?}");
    }
    let free = world.tree.mkdir(ROOT, "free").await;
    assert_eq!(code(world.tree.rename((ROOT, "free"), (deep, "x"), RenameKind::Replace).await), Code::CrossDevice);
    world.tree.rename((ROOT, "free"), (outside, "free"), RenameKind::Replace).await.unwrap();
    world.tree.rename((deep, "deeper"), (root, "deeper"), RenameKind::Replace).await.unwrap();
    world.tree.restamp_all().await;
    world.snapshot("s").await;
    for file in [early, late] {
        world.write(file).await.unwrap();
    }
    world.tree.rename((root, "deeper"), (sub, "deeper"), RenameKind::Replace).await.unwrap();
    world.tree.put(deeper, "later", 9).await.unwrap();
    world.tree.put(free, "elsewhere", 9).await.unwrap();
    world.check().await;
}

#[tokio::test]
async fn a_file_without_a_name_gets_its_first_wherever_snapshots_are() {
    let mut world = World::new(12, Keeping::default()).await;
    let outside = world.tree.mkdir(ROOT, "outside").await;
    let mut files = Vec::new();
    for (n, dir) in [world.root, outside].into_iter().cycle().enumerate().take(4) {
        // Two before there is a snapshot, and two then.
        if n == 2 {
            world.snapshot("one").await;
        }
        let spec = Tree::<AnyEngine>::spec(FileKind::File, 0);
        let made = CreateTemporary { parent: dir.into(), spec };
        match world.tree.change(made, MetaAnswer::CreateTemporary).await.unwrap() {
            MetaAnswer::CreateTemporary(made) => files.push(made.attr.id),
            other => panic!("{other:?}"),
        }
    }
    world.write(files[0]).await.unwrap();
    world.snapshot("two").await;
    for (n, file) in files.into_iter().enumerate() {
        let parent = if n < 2 { world.root } else { outside };
        let link = Link { inode: file.into(), parent: parent.into(), name: name(&format!("f{n}")) };
        world.tree.change(link, MetaAnswer::Link).await.unwrap();
        world.write(file).await.unwrap();
        world.check().await;
        world.snapshot(&format!("with {n}")).await;
        world.thaw(file, true).await.unwrap();
        world.tree.resize(file, 100).await.unwrap();
        world.check().await;
    }
    world.keep_house().await;
    world.check().await;
}

#[tokio::test]
async fn a_file_with_a_name_elsewhere_stays_in_the_snapshots_of_the_one() {
    let mut world = World::new(6, Keeping::default()).await;
    let outside = world.tree.mkdir(ROOT, "outside").await;
    let file = world.tree.put(outside, "f", 900).await.unwrap();
    let link = |parent: InodeId, text: &str| Link { inode: file.into(), parent: parent.into(), name: name(text) };
    world.tree.change(link(world.root, "linked"), MetaAnswer::Link).await.unwrap();
    world.write(file).await.unwrap();
    world.snapshot("one").await;
    // Under its other name, which no snapshot has.
    world.tree.rename((outside, "f"), (outside, "g"), RenameKind::Replace).await.unwrap();
    world.tree.quota(outside, 100, 1 << 40).await;
    world.tree.restamp_all().await;
    world.check().await;
    world.thaw(file, true).await.unwrap();
    world.write(file).await.unwrap();
    world.tree.resize(file, 0).await.unwrap();
    world.keep_house().await;
    world.check().await;
    world.tree.put(outside, "other", 9).await.unwrap();
    let other =
        ask(&world.tree.engine, None, Lookup { parent: outside, name: name("other") }).await.unwrap().attr.unwrap();
    let refused = Link { inode: other.id.into(), parent: world.root.into(), name: name("other") };
    assert_eq!(code(world.tree.change(refused, MetaAnswer::Link).await), Code::CrossDevice);
}

#[tokio::test]
async fn roots_do_not_lie_within_each_other() {
    let world = World::new(3, Keeping::default()).await;
    let (tree, root) = (&world.tree, world.root);
    let dir = tree.mkdir(root, "dir").await;
    let deep = tree.mkdir(dir, "deep").await;
    let other = tree.mkdir(ROOT, "other").await;
    tree.run(MakeRoot { dir }).await.unwrap();
    tree.run(MakeRoot { dir }).await.unwrap();
    assert_eq!(code(tree.run(MakeRoot { dir: root }).await), Code::Invalid);
    // What is below is known when it was looked through.
    tree.restamp_all().await;
    assert_eq!(code(tree.run(MakeRoot { dir: deep }).await), Code::Invalid);
    tree.run(MakeRoot { dir: other }).await.unwrap();
    for from in [(root, "dir"), (ROOT, "root")] {
        let moved = tree.rename(from, (other, "x"), RenameKind::Replace).await;
        assert_eq!(code(moved), Code::CrossDevice, "{from:?}");
    }
}

#[tokio::test]
async fn a_directory_that_was_a_root_is_in_the_snapshots_of_the_one_above() {
    let mut world = World::new(8, Keeping::default()).await;
    let inner = world.tree.mkdir(world.root, "inner").await;
    let deep = world.tree.mkdir(inner, "deep").await;
    let file = world.tree.put(deep, "f", 900).await.unwrap();
    world
        .tree
        .change(Link { inode: file.into(), parent: deep.into(), name: name("g") }, MetaAnswer::Link)
        .await
        .unwrap();
    // One after the other, from below: each of them has a snapshot, and has none any more.
    for dir in [deep, inner] {
        world.tree.run(MakeRoot { dir }).await.unwrap();
        // What is below it does not say so yet.
        for (within, kind) in [(deep, "below"), (world.root, "above")] {
            if within != dir {
                assert_eq!(code(world.tree.run(MakeRoot { dir: within }).await), Code::Invalid, "{kind}");
            }
        }
        world.tree.restamp_all().await;
        let create = CreateSnapshot { root: dir, name: name("s"), now: Timestamp(7) };
        let number = world.tree.run(create).await.unwrap().number;
        world.tree.run(DropSnapshot { root: dir, name: name("s"), seen: true }).await.unwrap();
        world.tree.run(SweepSnapshot { root: dir, number, after: None, limit: 1000 }).await.unwrap();
    }
    world.snapshot("one").await;
    world.write(file).await.unwrap();
    world.tree.put(deep, "other", 9).await.unwrap();
    world.tree.rename((deep, "f"), (inner, "moved"), RenameKind::Replace).await.unwrap();
    world.check().await;
    let refused = world.tree.rename((inner, "deep"), (ROOT, "deep"), RenameKind::Replace).await;
    assert_eq!(code(refused), Code::CrossDevice);
    // In one that was a root there may be another, and it does not go with what is around it.
    let number = *world.shown.keys().next().unwrap();
    world.let_go(number, true).await;
    world.tree.run(MakeRoot { dir: deep }).await.unwrap();
    world.tree.restamp_all().await;
    world.tree.run(CreateSnapshot { root: deep, name: name("s"), now: Timestamp(8) }).await.unwrap();
    let remove = RemoveDir { parent: world.root.into(), name: name("inner"), tree: true };
    assert_eq!(code(world.tree.change(remove, MetaAnswer::RemoveDir).await), Code::NotEmpty);
}

/// Rows that are gone.
struct Lose(Vec<Key>);

impl Operation for Lose {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        tx.get(&self.0, Lock::Exclusive).await?;
        self.0.iter().for_each(|key| tx.delete(key.clone()));
        Ok(())
    }
}

#[tokio::test]
async fn what_is_moved_out_of_a_root_by_a_repair_stays_in_its_snapshots() {
    let mut world = World::new(9, Keeping::default()).await;
    let tree_dir = world.tree.mkdir(world.root, "tree").await;
    let other = world.tree.mkdir(world.root, "other").await;
    let sub = world.tree.mkdir(other, "sub").await;
    let [sealed, lost] =
        [world.tree.put(tree_dir, "sealed", 900).await.unwrap(), world.tree.put(sub, "f", 900).await.unwrap()];
    for file in [sealed, lost] {
        world.write(file).await.unwrap();
    }
    world.snapshot("one").await;
    // A tree is removed, and one of its files is sealed meanwhile: it gets another name. The rows of a directory are lost, and a repair finds
    // what was in it.
    let remove = RemoveDir { parent: world.root.into(), name: name("tree"), tree: true };
    world.tree.change(remove, MetaAnswer::RemoveDir).await.unwrap();
    let rescue = |text: &str| Rescue { dir: tree_dir, name: name(text), now: Timestamp(1) };
    let rescued = world.tree.run(rescue("sealed")).await.unwrap().unwrap();
    world.tree.run(Lose(vec![keys::entry(world.root, &name("other")), keys::inode_id(other)])).await.unwrap();
    let repair = Repair::MoveEntry { parent: other, name: b"sub".to_vec() };
    world.tree.run(RepairRow { repair, now: Timestamp(1) }).await.unwrap().unwrap();
    world.check().await;
    // They are renamed, counted for a quota, and written.
    let outside = world.tree.mkdir(ROOT, "outside").await;
    let text = |name: &Name| String::from_utf8(name.as_bytes().to_vec()).unwrap();
    world.tree.rename((ROOT, &text(&rescued)), (outside, "sealed"), RenameKind::Replace).await.unwrap();
    world.tree.rename((ROOT, &format!("#{sub}")), (outside, "sub"), RenameKind::Replace).await.unwrap();
    world.tree.quota(outside, 100, 1 << 40).await;
    world.tree.restamp_all().await;
    for file in [sealed, lost] {
        world.thaw(file, true).await.unwrap();
        world.write(file).await.unwrap();
        world.check().await;
        world.tree.resize(file, 0).await.unwrap();
    }
    world.keep_house().await;
    world.check().await;
}

#[tokio::test]
async fn a_root_does_not_come_below_one_that_is_being_prepared() {
    let world = World::new(10, Keeping::default()).await;
    let (tree, root) = (&world.tree, world.root);
    let deep = tree.mkdir(root, "deep").await;
    let other = tree.mkdir(ROOT, "other").await;
    let inner = tree.mkdir(other, "inner").await;
    for dir in [inner, root] {
        tree.run(MakeRoot { dir }).await.unwrap();
    }
    // No row of `deep` says yet that it is below a root.
    for (to, mode) in [("other", RenameKind::Replace), ("exchanged", RenameKind::Exchange)] {
        if mode == RenameKind::Exchange {
            tree.mkdir(deep, "exchanged").await;
        }
        assert_eq!(code(tree.rename((ROOT, "other"), (deep, to), mode).await), Code::CrossDevice, "{mode:?}");
    }
    assert_eq!(code(tree.rename((deep, "exchanged"), (ROOT, "other"), RenameKind::Exchange).await), Code::CrossDevice);
    let free = tree.mkdir(ROOT, "free").await;
    tree.rename((ROOT, "other"), (free, "other"), RenameKind::Replace).await.unwrap();
    tree.rename((ROOT, "free"), (root, "free"), RenameKind::Replace).await.unwrap_err();
}

/// As whoever changes something: two that wait for each other would have to be begun again.
#[tokio::test]
async fn what_was_kept_is_looked_through_in_the_order_of_changes() {
    let mut world = World::new(11, Keeping::default()).await;
    let file = world.tree.put(world.root, "f", 900).await.unwrap();
    world.write(file).await.unwrap();
    let number = world.snapshot("one").await;
    world.thaw(file, true).await.unwrap();
    let (name, _) = world.shown.remove(&number).unwrap();
    world.tree.run(DropSnapshot { root: world.root, name, seen: false }).await.unwrap();
    world.tree.run(SweepSnapshot { root: world.root, number, after: None, limit: 100 }).await.unwrap();
    let tables = world.tree.tables_locked();
    let at =
        |table: Table| tables.iter().position(|one| *one == table).unwrap_or_else(|| panic!("{table:?}: {tables:?}"));
    assert!(at(Table::Inodes) < at(Table::Snapshots), "{tables:?}");
    assert!(at(Table::Chunks) < at(Table::Snapshots), "{tables:?}");
    assert!(at(Table::Snapshots) < at(Table::OldRows), "{tables:?}");
}

#[tokio::test]
async fn names_are_unique_and_numbers_bounded() {
    let mut world = World::new(4, Keeping::default()).await;
    world.tree.run(MakeRoot { dir: world.root }).await.unwrap();
    world.tree.restamp_all().await;
    let create = |text: &str| CreateSnapshot { root: world.root, name: name(text), now: Timestamp(1) };
    world.tree.run(create("s")).await.unwrap();
    assert_eq!(code(world.tree.run(create("s")).await), Code::Exists);
    for i in 1..SNAPSHOTS_MAX {
        world.tree.run(create(&format!("s{i}"))).await.unwrap();
    }
    assert_eq!(code(world.tree.run(create("one more")).await), Code::NoSpace);
    let gone = DropSnapshot { root: world.root, name: name("none"), seen: true };
    assert_eq!(code(world.tree.run(gone).await), Code::NotFound);
    world.shown.clear();
}

#[tokio::test]
async fn a_handle_is_not_given_again_while_somebody_may_know_it() {
    let mut world = World::new(6, Keeping::default()).await;
    world.tree.run(MakeRoot { dir: world.root }).await.unwrap();
    world.tree.restamp_all().await;
    let all = u64::from(SnapshotHandle::MAX) - 1;
    let begin = |client: u64, since: u64| BeginSession {
        client,
        former: None,
        since: SessionId(since),
        description: "a mount".into(),
        host: "h".into(),
        now: Timestamp(1),
        caches: true,
    };
    let (mount, _) = world.tree.run(begin(1, 0)).await.unwrap();
    let (one, two) = (world.snapshot("one").await, world.snapshot("two").await);
    world.let_go(one, true).await;
    world.let_go(two, false).await;
    // As if so many had been made and were gone that the handle of the first is the next one.
    let skip = |made: u64| TakeIds { counter: Counter::Snapshots, count: all - (made + 1 - one) % all };
    world.tree.run(skip(two)).await.unwrap();
    // Of the first the mount may have kept something, of the second nobody has.
    let made = world.snapshot("three").await;
    assert_eq!(handle_of(made), handle_of(two));
    // It has lost its session, and is the same mount.
    let (later, _) = world.tree.run(begin(2, mount.0)).await.unwrap();
    world.tree.run(EndSession { session: mount, remember: false }).await.unwrap();
    world.tree.run(skip(made)).await.unwrap();
    let made = world.snapshot("four").await;
    assert_ne!(handle_of(made), handle_of(one));
    // One that came after it had gone does not know it; the other may come back.
    world.tree.run(begin(3, 0)).await.unwrap();
    world.tree.run(EndSession { session: later, remember: true }).await.unwrap();
    world.tree.run(skip(made)).await.unwrap();
    let made = world.snapshot("five").await;
    assert_ne!(handle_of(made), handle_of(one));
    world.tree.run(ForgetSession { session: later }).await.unwrap();
    world.tree.run(skip(made)).await.unwrap();
    assert_eq!(handle_of(world.snapshot("six").await), handle_of(one));
    world.shown.clear();
}

#[tokio::test]
async fn when_no_handle_is_free_that_is_said() {
    let mut world = World::new(7, Keeping::default()).await;
    let begin = BeginSession {
        client: 1,
        former: None,
        since: SessionId(0),
        description: "a mount".into(),
        host: "h".into(),
        now: Timestamp(1),
        caches: true,
    };
    let (mount, _) = world.tree.run(begin).await.unwrap();
    for _ in 0..u64::from(SnapshotHandle::MAX) - 1 {
        let number = world.snapshot("s").await;
        world.let_go(number, true).await;
    }
    let create = || CreateSnapshot { root: world.root, name: name("s"), now: Timestamp(7) };
    world.tree.run(MakeRoot { dir: world.root }).await.unwrap();
    world.tree.restamp_all().await;
    assert_eq!(code(world.tree.run(create()).await), Code::NoSpace);
    world.tree.run(EndSession { session: mount, remember: false }).await.unwrap();
    world.tree.run(create()).await.unwrap();
}

#[tokio::test]
async fn a_directory_with_snapshots_is_not_removed_and_without_leaves_nothing() {
    let mut world = World::new(5, Keeping::default()).await;
    let remove = |parent: InodeId, text: &str, tree| RemoveDir { parent: parent.into(), name: name(text), tree };
    let above = world.tree.mkdir(ROOT, "above").await;
    world.tree.rename((ROOT, "root"), (above, "root"), RenameKind::Replace).await.unwrap();
    world.tree.run(MakeRoot { dir: world.root }).await.unwrap();
    world.tree.restamp_all().await;
    let number = world.snapshot("s").await;
    for (parent, text, tree) in [(above, "root", false), (above, "root", true), (ROOT, "above", true)] {
        let refused = world.tree.change(remove(parent, text, tree), MetaAnswer::RemoveDir).await;
        assert_eq!(code(refused), Code::NotEmpty, "{text}");
    }
    world.tree.mkdir(ROOT, "empty").await;
    let over = world.tree.rename((ROOT, "empty"), (above, "root"), RenameKind::Replace).await;
    assert_eq!(code(over), Code::NotEmpty);
    // With what it has let go of not looked through yet.
    let gone = DropSnapshot { root: world.root, name: name("s"), seen: true };
    world.tree.run(gone).await.unwrap();
    world.tree.change(remove(above, "root", false), MetaAnswer::RemoveDir).await.unwrap();
    let rows = async |world: &World| world.tree.rows(&[Table::Snapshots]).await.len();
    assert_eq!(rows(&world).await, 1);
    world.tree.run(SweepSnapshot { root: world.root, number, after: None, limit: 100 }).await.unwrap();
    assert_eq!(rows(&world).await, 0);
    // One that has none any more.
    let dir = world.tree.mkdir(ROOT, "dir").await;
    world.tree.run(MakeRoot { dir }).await.unwrap();
    world.tree.restamp_all().await;
    world.tree.change(remove(ROOT, "dir", false), MetaAnswer::RemoveDir).await.unwrap();
    assert_eq!(rows(&world).await, 0);
}

impl World {
    async fn listed(&self) -> Vec<InodeId> {
        self.tree.listed().await
    }
}
