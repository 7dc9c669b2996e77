//! Accounts say what the rows of inodes sum up to, whatever was done; and what goes beyond a quota is refused.

use crate::tree::*;
use braid_api::Code;
use braid_api::meta::*;
use braid_api::quota::{Limits, Payer};
use braid_meta_engine::{Engine, MemEngine, MemStore, Table};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_namespace::ReadOnly;
use braid_meta_namespace::ops::quota::FoldAccounts;
use braid_meta_namespace::ops::reclaim::FreeOrphans;
use braid_meta_namespace::ops::remove_tree::{DeadEntries, EmptyTree};
use braid_meta_namespace::ops::room::GiveBack;
use braid_meta_namespace::rows::{Entry, flags, keys};
use braid_types::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

async fn memory(spread: u8) -> Tree<MemEngine> {
    Tree::new(MemEngine::new(MemStore::new()), spread).await
}

/// A tree that random operations change.
struct Walk<'t, E> {
    tree: &'t mut Tree<E>,
    dice: StdRng,
    done: HashMap<&'static str, u32>,
}

impl<E: Engine> Walk<'_, E> {
    fn below(&mut self, end: usize) -> usize {
        self.dice.random_range(0..end)
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len())]
    }

    /// Directories that are not being removed, the root directory first.
    async fn dirs(&self) -> Vec<InodeId> {
        let names = self.tree.names().await;
        let is_dir = |entry: &Entry| entry.kind() == FileKind::Directory;
        let mut above: HashMap<InodeId, InodeId> =
            names.iter().filter(|(_, _, entry)| is_dir(entry)).map(|(dir, _, entry)| (entry.id(), *dir)).collect();
        above.insert(ROOT, ROOT);
        let live = |mut at: InodeId| loop {
            match above.get(&at) {
                Some(&ROOT) => return true,
                Some(up) => at = *up,
                None => return false,
            }
        };
        let mut dirs: Vec<InodeId> = above.keys().copied().filter(|dir| live(*dir)).collect();
        dirs.sort();
        dirs
    }

    /// One operation; its name, and whether quotas are no matter to it.
    async fn step(&mut self) -> (&'static str, bool) {
        let dirs = self.dirs().await;
        let dir = dirs[self.below(dirs.len())];
        let other = dirs[self.below(dirs.len())];
        let (text, second) = (self.name(), self.name());
        let owner = 100 + self.below(3) as u32;
        let names = self.tree.names().await;
        let files: Vec<InodeId> = names.iter().filter(|n| n.2.kind() == FileKind::File).map(|n| n.2.id()).collect();
        let file = files.get(self.below(files.len().max(1))).copied();
        let size = [0, 1, 900, 5000, 60_000][self.below(5)];
        let tree = &self.tree;
        let spec = Tree::<E>::spec;
        match self.dice.random_range(0..30) {
            0..=3 => {
                let kind = [FileKind::Directory, FileKind::Symlink, FileKind::Directory][self.dice.random_range(0..3)];
                let node = MakeNode { parent: dir.into(), name: name(text), spec: spec(kind, owner) };
                (self.tally("make", tree.change(node, MetaAnswer::MakeNode).await), false)
            }
            4 => {
                let (parent, name, spec) = (dir.into(), name(text), spec(FileKind::File, owner));
                let create = CreateFile { parent, name, spec, exclusive: false, truncate: true, write: true };
                (self.tally("create", tree.change(create, MetaAnswer::CreateFile).await), false)
            }
            5..=8 => {
                let data = bytes::Bytes::from(vec![7; size as usize]);
                let (parent, name, spec) = (dir.into(), name(text), spec(FileKind::File, owner));
                let put = PutFile { parent, name, spec, data, replace: true, open_here: false };
                (self.tally("put", tree.change(put, MetaAnswer::PutFile).await), false)
            }
            9 => {
                let temporary = CreateTemporary { parent: dir.into(), spec: spec(FileKind::File, owner) };
                (self.tally("temporary", tree.change(temporary, MetaAnswer::CreateTemporary).await), false)
            }
            10 | 11 => {
                let Some(file) = file else { return ("nothing", true) };
                let link = Link { inode: file.into(), parent: dir.into(), name: name(text) };
                (self.tally("link", tree.change(link, MetaAnswer::Link).await), false)
            }
            12 => {
                // An inode without a name gets one.
                let Some(nameless) =
                    tree.elsewhere().await.into_iter().find(|i| i.nlink == 0 && i.has(flags::NAMELESS))
                else {
                    return ("nothing", true);
                };
                let link = Link { inode: nameless.id.into(), parent: dir.into(), name: name(text) };
                (self.tally("first name", tree.change(link, MetaAnswer::Link).await), false)
            }
            13 | 14 => {
                let open_here = self.dice.random_bool(0.5);
                let unlink = Unlink { parent: dir.into(), name: name(text), open_here };
                (self.tally("unlink", tree.change(unlink, MetaAnswer::Unlink).await), false)
            }
            15 => {
                let remove = RemoveDir { parent: dir.into(), name: name(text), tree: self.dice.random_bool(0.5) };
                (self.tally("rmdir", tree.change(remove, MetaAnswer::RemoveDir).await), false)
            }
            16..=18 => {
                let mode = [RenameKind::Replace, RenameKind::Replace, RenameKind::Exchange, RenameKind::NoReplace]
                    [self.dice.random_range(0..4)];
                let renamed = tree.rename((dir, text), (other, second), mode).await;
                (self.tally("rename", renamed), false)
            }
            19 | 20 => {
                let Some(file) = file else { return ("nothing", true) };
                let to = self.dice.random_range(0..3);
                let change = ChangeAttr {
                    inode: file.into(),
                    mode: None,
                    uid: (to == 0).then_some(owner),
                    gid: (to == 1).then_some(owner),
                    size: (to == 2).then_some(size * 3),
                    atime: None,
                    mtime: None,
                    kill_privileges: false,
                    cuts_applied: TruncGen(u32::MAX),
                };
                (self.tally("chown or truncate", tree.change(change, MetaAnswer::ChangeAttr).await), to == 0)
            }
            21 => {
                let Some(file) = file else { return ("nothing", true) };
                let commit = CommitFile {
                    inode: file.into(),
                    trunc_gen: TruncGen(u32::MAX),
                    size: size * 2,
                    mtime: None,
                    atime: None,
                    content: CommitContent::Unchanged,
                    cuts_applied: TruncGen(0),
                    kill_privileges: false,
                    unused: Vec::new(),
                };
                (self.tally("commit", tree.change(commit, MetaAnswer::CommitFile).await), true)
            }
            22 => {
                let change = TreeChange { uid: Some(owner), gid: Some(owner), ..TreeChange::default() };
                let change = ChangeTree { dir: dir.into(), change };
                (self.tally("chown -R", tree.change(change, MetaAnswer::ChangeTree).await), true)
            }
            23 => {
                let some = |bytes: bool| Limits { inodes: (!bytes).then_some(12), bytes: bytes.then_some(40_000) };
                let limits = [Some(Limits::default()), Some(some(true)), Some(some(false)), None, None];
                let limits = limits[self.dice.random_range(0..5)];
                let payer = match self.dice.random_range(0..8) {
                    0 => Payer::User(owner),
                    1 => Payer::Group(owner),
                    _ => Payer::Dir(dir),
                };
                (self.tally("quota", tree.set_quota(payer, limits).await), true)
            }
            24..=26 => {
                let listed = tree.listed().await;
                let Some(dir) = listed.get(self.dice.random_range(0..listed.len().max(1))) else {
                    return ("nothing", true);
                };
                tree.restamp(*dir).await;
                (self.tally("restamp", Ok(())), true)
            }
            27 => {
                let ids: Vec<InodeId> =
                    tree.elsewhere().await.into_iter().filter(|i| i.is_file()).map(|i| i.id).collect();
                (self.tally("free", tree.run(FreeOrphans { inodes: ids }).await), true)
            }
            28 => (self.tally("chown -R, a page", Ok(tree.change_entries().await)), true),
            _ => {
                let emptied = empty_some(tree).await;
                (self.tally("empty", Ok(emptied)), true)
            }
        }
    }

    fn tally<T>(&mut self, what: &'static str, result: Result<T, braid_api::Error>) -> &'static str {
        match result {
            Ok(_) => *self.done.entry(what).or_default() += 1,
            Err(e) if e.code == Code::QuotaExceeded => *self.done.entry("refused").or_default() += 1,
            Err(e) => assert!(!matches!(e.code, Code::Internal | Code::Stale), "{what}: {e}"),
        }
        what
    }
}

/// Takes something out of a removed directory. True if there was one.
async fn empty_some<E: Engine>(tree: &Tree<E>) -> bool {
    let dead = tree.elsewhere().await.into_iter().find(|inode| inode.is_dir());
    let Some(dir) = dead.map(|inode| inode.id) else { return false };
    let found = tree.engine.read(1, ReadOnly(DeadEntries { dir, limit: 2 })).await.map_err(braid_api::Error::from);
    let found = found.unwrap();
    let entries = found.entries.into_iter().map(|(name, id, _)| (name, id)).collect();
    let empty = EmptyTree { dir, entries, all: !found.more, others: true, now: Timestamp(5) };
    tree.run(empty).await.unwrap();
    true
}

/// After each operation accounts are right, and none that was asked to obey has brought one beyond its quota.
async fn random<E: Engine>(mut tree: Tree<E>, seed: u64, steps: usize) -> HashMap<&'static str, u32> {
    tree.page = 2;
    let mut walk = Walk { tree: &mut tree, dice: StdRng::seed_from_u64(seed), done: HashMap::new() };
    for step in 0..steps {
        walk.tree.limits = step % 200 < 120;
        let before: HashMap<Payer, _> = walk.tree.accounts().await.into_iter().map(|a| (a.payer, a.usage)).collect();
        let (what, exempt) = walk.step().await;
        let context = format!("seed {seed}, step {step}: {what}");
        let wrong = walk.tree.miscounts().await;
        assert!(wrong.is_empty(), "{context}: {wrong:?}");
        if walk.tree.listed().await.is_empty() {
            expect_stamps(walk.tree, seed).await;
        }
        for account in walk.tree.accounts().await.into_iter().filter(|_| walk.tree.limits && !exempt) {
            let (was, is) = (before.get(&account.payer).copied().unwrap_or_default(), account.usage);
            let limits = account.limits.unwrap_or_default();
            let beyond =
                |limit: Option<u64>, was: i64, is: i64| is > was && limit.is_some_and(|limit| is > limit as i64);
            let inodes = beyond(limits.inodes, was.inodes, is.inodes);
            assert!(!inodes && !beyond(limits.bytes, was.bytes, is.bytes), "{context}: from {was:?} to {account:?}");
        }
    }
    let Walk { done, .. } = walk;
    finish(&tree, seed).await;
    done
}

/// When all that is listed is done each inode is charged to the quotas above it, and to no others.
async fn finish<E: Engine>(tree: &Tree<E>, seed: u64) {
    while empty_some(tree).await {}
    while tree.change_entries().await {}
    tree.restamp_all().await;
    assert_eq!(tree.miscounts().await, [], "seed {seed}");
    expect_stamps(tree, seed).await;
}

/// Nothing is listed: each inode has the stamp of its directory.
async fn expect_stamps<E: Engine>(tree: &Tree<E>, seed: u64) {
    let names = tree.names().await;
    let mut stamps: HashMap<InodeId, Vec<InodeId>> = HashMap::from([(ROOT, Vec::new())]);
    for (_, _, entry) in &names {
        if let Entry::Here(inode) = entry {
            stamps.insert(inode.id, inode.quota_roots.clone());
        }
    }
    let roots: Vec<InodeId> = tree
        .accounts()
        .await
        .into_iter()
        .filter(|account| account.limits.is_some())
        .filter_map(|account| if let Payer::Dir(id) = account.payer { Some(id) } else { None })
        .collect();
    for (parent, text, entry) in &names {
        let Entry::Here(inode) = entry else { continue };
        let own = (inode.is_dir() && roots.contains(&inode.id)).then_some(inode.id);
        // Of a directory that is being removed.
        let Some(above) = stamps.get(parent) else { continue };
        let expected: Vec<InodeId> = above.iter().copied().chain(own).collect();
        assert_eq!(inode.quota_roots, expected, "seed {seed}: {text} in {parent}");
    }
}

#[tokio::test]
async fn accounts_are_right_after_every_operation() {
    let mut done: HashMap<&'static str, u32> = HashMap::new();
    for (seed, spread) in [(1, 1), (2, 1), (3, 16), (4, 3)] {
        for (what, times) in random(memory(spread).await, seed, 1800).await {
            *done.entry(what).or_default() += times;
        }
    }
    println!("{done:?}");
    let all = [
        "make",
        "create",
        "put",
        "temporary",
        "link",
        "first name",
        "unlink",
        "rmdir",
        "rename",
        "chown or truncate",
        "commit",
        "chown -R",
        "chown -R, a page",
        "quota",
        "restamp",
        "free",
        "empty",
        "refused",
    ];
    for what in all {
        assert!(done.get(what).is_some_and(|times| *times > 20), "{what} was hardly tried: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_are_right_on_the_embedded_engine() {
    let dir = tempfile::TempDir::new().unwrap();
    let engine = EmbeddedEngine::open(dir.path(), EmbeddedOptions::default()).unwrap();
    random(Tree::new(engine, 1).await, 5, 400).await;
}

#[tokio::test]
async fn a_quota_is_exact_in_inodes_and_in_bytes() {
    for spread in [1, 16] {
        let mut tree = memory(spread).await;
        tree.others = false;
        let dir = tree.mkdir(ROOT, "dir").await;
        // Itself, and three in it.
        tree.quota(dir, 4, 1000).await;
        tree.put(dir, "a", 400).await.unwrap();
        tree.put(dir, "b", 600).await.unwrap();
        assert_eq!(code(tree.put(dir, "c", 1).await), Code::QuotaExceeded, "bytes");
        let link = tree.make(dir, "c", FileKind::Symlink).await;
        assert!(link.is_ok(), "a link has no bytes that count");
        let refused = tree.make(dir, "d", FileKind::Directory).await.unwrap_err();
        assert_eq!(refused.code, Code::QuotaExceeded, "inodes");
        assert!(refused.to_string().contains(&format!("directory {dir}")), "{refused}");
        assert_eq!(tree.usage(Payer::Dir(dir)).await, (4, 1000));
        tree.make(ROOT, "outside", FileKind::Directory).await.unwrap();
        tree.put(dir, "b", 10).await.unwrap();
        assert_eq!(tree.usage(Payer::Dir(dir)).await, (4, 410), "what replaces costs the difference");
        let unlink = Unlink { parent: dir.into(), name: name("c"), open_here: false };
        tree.change(unlink, MetaAnswer::Unlink).await.unwrap();
        tree.make(dir, "d", FileKind::Directory).await.unwrap();
    }
}

#[tokio::test]
async fn a_rename_takes_the_charge_along() {
    let tree = memory(1).await;
    let (a, b) = (tree.mkdir(ROOT, "a").await, tree.mkdir(ROOT, "b").await);
    tree.quota(a, 100, 10_000).await;
    tree.quota(b, 2, 500).await;
    tree.put(a, "large", 600).await.unwrap();
    tree.put(a, "small", 300).await.unwrap();
    let replace = RenameKind::Replace;
    assert_eq!(code(tree.rename((a, "large"), (b, "large"), replace).await), Code::QuotaExceeded);
    tree.rename((a, "small"), (b, "small"), replace).await.unwrap();
    assert_eq!((tree.usage(Payer::Dir(a)).await, tree.usage(Payer::Dir(b)).await), ((2, 600), (2, 300)));
    let sub = tree.mkdir(a, "sub").await;
    assert_eq!(code(tree.rename((a, "sub"), (b, "sub"), replace).await), Code::QuotaExceeded, "it is full");
    tree.quota(b, 3, 300).await;
    assert_eq!(code(tree.rename((a, "sub"), (b, "sub"), replace).await), Code::QuotaExceeded, "of bytes, too");
    tree.quota(b, 3, 301).await;
    tree.put(sub, "in it", 200).await.unwrap();
    tree.rename((a, "sub"), (b, "sub"), replace).await.unwrap();
    assert_eq!(tree.usage(Payer::Dir(b)).await, (3, 300), "what is in it comes later");
    assert_eq!(code(tree.put(sub, "new", 1).await), Code::QuotaExceeded, "what is made in it is charged at once");
    tree.restamp_all().await;
    assert_eq!((tree.usage(Payer::Dir(a)).await, tree.usage(Payer::Dir(b)).await), ((2, 600), (4, 500)));
    tree.rename((b, "sub"), (ROOT, "sub"), replace).await.unwrap();
    tree.restamp_all().await;
    assert_eq!(tree.usage(Payer::Dir(b)).await, (2, 300));
}

/// A directory is looked through once: what comes to lie where it was passed already is charged by who puts it there.
#[tokio::test]
async fn a_rename_does_not_escape_the_counting_of_a_tree() {
    let (replace, exchange) = (RenameKind::Replace, RenameKind::Exchange);
    for (mode, counted) in [(replace, 6), (exchange, 7)] {
        let mut tree = memory(1).await;
        tree.page = 2;
        let top = tree.mkdir(ROOT, "top").await;
        let (x, y) = (tree.mkdir(top, "x").await, tree.mkdir(top, "y").await);
        tree.put(x, "f", 10).await.unwrap();
        tree.make(tree.mkdir(x, "sub").await, "in it", FileKind::File).await.unwrap();
        if mode == exchange {
            tree.put(y, "f", 3).await.unwrap();
        }
        tree.quota(top, 100, 10_000).await;
        tree.restamp(top).await;
        assert!(tree.listed().await.contains(&x));
        tree.restamp(y).await;
        tree.rename((x, "f"), (y, "f"), mode).await.unwrap();
        tree.rename((x, "sub"), (y, "sub"), replace).await.unwrap();
        finish(&tree, 0).await;
        assert_eq!(tree.usage(Payer::Dir(top)).await.0, counted, "{mode:?} into a directory that was looked through");
    }
    // Within one, from behind what was looked through to before it; and when the quota is cleared.
    let mut tree = memory(1).await;
    tree.page = 2;
    let top = tree.mkdir(ROOT, "top").await;
    for text in ["b", "c", "d", "z"] {
        tree.put(top, text, 10).await.unwrap();
    }
    tree.quota(top, 100, 10_000).await;
    assert!(tree.restamp(top).await.more);
    tree.rename((top, "z"), (top, "a"), replace).await.unwrap();
    finish(&tree, 0).await;
    assert_eq!(tree.usage(Payer::Dir(top)).await, (5, 40));
    tree.set_quota(Payer::Dir(top), None).await.unwrap();
    assert!(tree.restamp(top).await.more);
    tree.rename((top, "d"), (top, "0"), replace).await.unwrap();
    finish(&tree, 0).await;
    assert_eq!(tree.usage(Payer::Dir(top)).await, (0, 0));
}

/// More than 64 bits hold, and nobody is given what he does not have when they go.
#[tokio::test]
async fn sparse_files_of_any_length_are_counted_and_forgotten() {
    for spread in [1, 16] {
        let mut tree = memory(spread).await;
        tree.others = false;
        let dir = tree.mkdir(ROOT, "dir").await;
        for text in ["a", "b", "c"] {
            let file = tree.put(dir, text, 1).await.unwrap();
            tree.resize(file, FILE_BYTES_MAX).await.unwrap();
        }
        assert_eq!(tree.usage(Payer::Dir(ROOT)).await, (5, i64::MAX), "as much as can be said");
        assert_eq!(tree.miscounts().await, []);
        tree.set_quota(Payer::Dir(ROOT), Some(Limits { inodes: None, bytes: Some(u64::MAX) })).await.unwrap();
        assert_eq!(code(tree.put(dir, "d", 5).await), Code::QuotaExceeded);
        for text in ["a", "b", "c"] {
            let unlink = Unlink { parent: dir.into(), name: name(text), open_here: false };
            tree.change(unlink, MetaAnswer::Unlink).await.unwrap();
        }
        tree.put(dir, "d", 5).await.unwrap();
        assert_eq!(tree.usage(Payer::Dir(ROOT)).await, (3, 5));
        assert_eq!(tree.miscounts().await, []);
    }
}

/// Where an account is many rows, only who is near its quota waits for others, and for those alone who share that quota.
#[tokio::test]
async fn only_accounts_near_their_quota_are_locked() {
    let tree = memory(16).await;
    let (near, far) = (tree.mkdir(ROOT, "near").await, tree.mkdir(ROOT, "far").await);
    tree.quota(near, 10, 1 << 50).await;
    tree.quota(far, 1 << 40, 1 << 40).await;
    tree.set_quota(Payer::Dir(ROOT), Some(Limits { inodes: Some(1 << 40), bytes: None })).await.unwrap();
    tree.put(near, "a", 10).await.unwrap();
    assert_eq!(tree.accounts_read().1, [Payer::Dir(near)]);
    let file = tree.put(far, "a", 10).await.unwrap();
    assert_eq!(tree.accounts_read().1, [], "much is left");
    tree.resize(file, 20 << 30).await.unwrap();
    assert_eq!(tree.accounts_read().1, [Payer::Dir(far)], "much is asked for");
    tree.create(far, "b").await.unwrap();
    assert_eq!(tree.accounts_read(), (1, vec![]), "a creation reads accounts once");
}

#[tokio::test]
async fn a_directory_is_moved_below_a_full_root() {
    let tree = memory(1).await;
    let (a, sub) = (tree.mkdir(ROOT, "a").await, tree.mkdir(ROOT, "sub").await);
    tree.quota(a, 2, 10).await;
    tree.set_quota(Payer::Dir(ROOT), Some(Limits { inodes: Some(3), bytes: None })).await.unwrap();
    assert_eq!(code(tree.make(ROOT, "new", FileKind::Directory).await), Code::QuotaExceeded);
    tree.rename((ROOT, "sub"), (a, "sub"), RenameKind::Replace).await.unwrap();
    assert_eq!(tree.usage(Payer::Dir(a)).await.0, 2);
    tree.restamp(sub).await;
    assert_eq!(tree.usage(Payer::Dir(ROOT)).await.0, 3);
}

/// A session's room goes back in pages, and it is not noted where it got none.
#[tokio::test]
async fn room_goes_back_a_page_at_a_time() {
    let tree = memory(1).await;
    let dir = tree.mkdir(ROOT, "dir").await;
    let session = SessionId::default();
    let noted = async || {
        let rows = tree.rows(&[Table::Quotas]).await;
        rows.iter().filter(|(key, _)| keys::room_of(key).is_some()).count()
    };
    tree.quota(dir, 100, 10).await;
    tree.create(dir, "none").await.unwrap();
    assert_eq!((noted().await, tree.usage(Payer::Dir(dir)).await.1), (0, 0), "there is none to be had");
    tree.quota(dir, 100, 1 << 30).await;
    for text in ["a", "b", "c"] {
        tree.create(dir, text).await.unwrap();
    }
    assert_eq!((noted().await, tree.usage(Payer::Dir(dir)).await.1), (3, 3 << 20));
    assert!(tree.run(GiveBack { session, limit: 2 }).await.unwrap());
    assert_eq!((noted().await, tree.usage(Payer::Dir(dir)).await.1), (1, 1 << 20));
    assert!(!tree.run(GiveBack { session, limit: 2 }).await.unwrap());
    assert_eq!((noted().await, tree.usage(Payer::Dir(dir)).await.1), (0, 0));
}

/// What was made without a name is charged where it was made, until it gets one elsewhere.
#[tokio::test]
async fn a_file_that_gets_its_first_name_is_charged_there() {
    let tree = memory(1).await;
    let (a, b) = (tree.mkdir(ROOT, "a").await, tree.mkdir(ROOT, "b").await);
    tree.quota(a, 100, 10_000).await;
    tree.quota(b, 100, 10_000).await;
    let temporary = CreateTemporary { parent: a.into(), spec: Tree::<MemEngine>::spec(FileKind::File, 7) };
    let MetaAnswer::CreateTemporary(made) = tree.change(temporary, MetaAnswer::CreateTemporary).await.unwrap() else {
        panic!("another answer")
    };
    assert_eq!(tree.usage(Payer::Dir(a)).await.0, 2);
    let link = Link { inode: made.attr.id.into(), parent: b.into(), name: name("f") };
    tree.change(link, MetaAnswer::Link).await.unwrap();
    assert_eq!((tree.usage(Payer::Dir(a)).await.0, tree.usage(Payer::Dir(b)).await.0), (1, 2));
    assert_eq!(tree.miscounts().await, []);
}

#[tokio::test]
async fn a_quota_on_what_is_there_counts_it_page_by_page() {
    let tree = memory(1).await;
    let top = tree.mkdir(ROOT, "top").await;
    let below = tree.mkdir(top, "below").await;
    for n in 0..600 {
        tree.put(below, &format!("f{n}"), 2).await.unwrap();
    }
    tree.quota(top, 10_000, 1 << 40).await;
    assert_eq!(tree.usage(Payer::Dir(top)).await, (1, 0));
    tree.put(top, "new", 5).await.unwrap();
    assert_eq!(tree.usage(Payer::Dir(top)).await, (2, 5), "what is new counts at once");
    assert_eq!(tree.listed().await, [top]);
    assert!(!tree.restamp(top).await.more);
    assert_eq!(tree.listed().await, [below]);
    assert!(tree.restamp(below).await.more);
    let (inodes, bytes) = tree.usage(Payer::Dir(top)).await;
    assert!(inodes > 100 && inodes < 500 && bytes > 200, "{inodes} {bytes}: a page");
    tree.restamp_all().await;
    assert_eq!(tree.usage(Payer::Dir(top)).await, (603, 1205));
    // One within it, which is charged to both; and the outer one goes.
    tree.quota(below, 10_000, 1 << 40).await;
    tree.restamp_all().await;
    assert_eq!(tree.usage(Payer::Dir(below)).await, (601, 1200));
    assert_eq!(tree.usage(Payer::Dir(top)).await, (603, 1205));
    tree.set_quota(Payer::Dir(top), None).await.unwrap();
    tree.restamp_all().await;
    assert_eq!(tree.usage(Payer::Dir(top)).await, (0, 0));
    assert_eq!(tree.usage(Payer::Dir(below)).await, (601, 1200));
    assert_eq!(tree.usage(Payer::Dir(ROOT)).await, (604, 1205), "the root directory counts all, itself too");
}

#[tokio::test]
async fn users_and_groups_have_quotas_of_their_own() {
    let tree = memory(1).await;
    let limits = Some(Limits { inodes: Some(2), bytes: Some(1000) });
    for payer in [Payer::User(0), Payer::Group(0)] {
        assert_eq!(code(tree.set_quota(payer, limits).await), Code::Invalid, "the superuser has none");
    }
    tree.set_quota(Payer::User(7), limits).await.unwrap();
    tree.set_quota(Payer::Group(8), limits).await.unwrap();
    let make = |text: &str, owner| MakeNode {
        parent: ROOT.into(),
        name: name(text),
        spec: Tree::<MemEngine>::spec(FileKind::File, owner),
    };
    for text in ["a", "b"] {
        tree.change(make(text, 7), MetaAnswer::MakeNode).await.unwrap();
    }
    assert_eq!(code(tree.change(make("c", 7), MetaAnswer::MakeNode).await), Code::QuotaExceeded);
    let file = tree.put(ROOT, "file", 500).await.unwrap();
    let own = |uid, gid| ChangeAttr {
        inode: file.into(),
        mode: None,
        uid,
        gid,
        size: None,
        atime: None,
        mtime: None,
        kill_privileges: false,
        cuts_applied: TruncGen(0),
    };
    tree.change(own(Some(7), None), MetaAnswer::ChangeAttr).await.unwrap();
    assert_eq!(tree.usage(Payer::User(7)).await, (3, 500), "the superuser gives files away whatever the quota");
    tree.change(own(None, Some(8)), MetaAnswer::ChangeAttr).await.unwrap();
    assert_eq!(tree.usage(Payer::Group(8)).await, (1, 500));
    let other = tree.put(ROOT, "other", 600).await.unwrap();
    let refused = tree.change(ChangeAttr { inode: other.into(), ..own(None, Some(8)) }, MetaAnswer::ChangeAttr).await;
    assert_eq!(code(refused), Code::QuotaExceeded, "chgrp");
}

/// Rows of an account go with the directory, unless something is charged to it still.
#[tokio::test]
async fn an_account_goes_with_its_directory() {
    let tree = memory(3).await;
    let dir = tree.mkdir(ROOT, "dir").await;
    tree.quota(dir, 10, 1000).await;
    tree.put(dir, "a", 5).await.unwrap();
    tree.restamp_all().await;
    tree.change(Unlink { parent: dir.into(), name: name("a"), open_here: false }, MetaAnswer::Unlink).await.unwrap();
    let ids = tree.elsewhere().await.into_iter().map(|inode| inode.id).collect();
    assert_eq!(tree.usage(Payer::Dir(dir)).await, (2, 5), "unlinked and perhaps open: it is charged until it is freed");
    tree.run(FreeOrphans { inodes: ids }).await.unwrap();
    let remove = RemoveDir { parent: ROOT.into(), name: name("dir"), tree: false };
    tree.change(remove, MetaAnswer::RemoveDir).await.unwrap();
    let left = tree.rows(&[Table::Quotas]).await;
    assert!(left.iter().all(|(key, _)| key.partition() != dir.0), "{left:?}");
    assert_eq!(keys::account(&keys::usage(Payer::User(9), 3)), Some(keys::Account::Usage(Payer::User(9))));
}

/// What comes from a store that spreads accounts over more rows is one row here, and quotas are exact.
#[tokio::test]
async fn accounts_of_another_store_become_one_row() {
    let mut tree = memory(16).await;
    let dirs = [tree.mkdir(ROOT, "a").await, tree.mkdir(ROOT, "b").await, tree.mkdir(ROOT, "c").await];
    for dir in dirs {
        for n in 0..4 {
            tree.put(dir, &n.to_string(), 10).await.unwrap();
        }
    }
    let is_root = |key: &braid_meta_engine::Key| keys::account(key) == Some(keys::Account::Usage(Payer::Dir(ROOT)));
    let rows =
        async |tree: &Tree<MemEngine>| tree.rows(&[Table::Quotas]).await.iter().filter(|(key, _)| is_root(key)).count();
    assert!(rows(&tree).await > 1);
    tree.spread = 1;
    assert_eq!(tree.run(FoldAccounts { after: None }).await.unwrap(), None);
    assert_eq!((rows(&tree).await, tree.usage(Payer::Dir(ROOT)).await), (1, (16, 120)));
    assert_eq!(tree.miscounts().await, []);
    tree.set_quota(Payer::Dir(ROOT), Some(Limits { inodes: Some(16), bytes: None })).await.unwrap();
    assert_eq!(code(tree.put(dirs[0], "new", 1).await), Code::QuotaExceeded);
}
