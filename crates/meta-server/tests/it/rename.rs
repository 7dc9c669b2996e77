//! Directories that move at the same time: none ever comes to lie below itself.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::*;
use braid_api::{Code, Namespace, Result};
use braid_meta_engine::{Awaited, Counts, Engine, Key, Lock, Operation, Page, Row, Table, Tx};
use braid_meta_namespace::ops::rename::RenameAlong;
use braid_meta_namespace::rows::keys;
use braid_meta_namespace::{OpContext, OpError, Recorded};
use braid_types::*;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;

type At = (InodeId, &'static str);

/// Asked by two sessions at once; the answers in the order of `moves`.
async fn at_once(w: &Arc<World>, sessions: &[SessionReply], moves: &[(At, At, RenameKind)]) -> Vec<Result<()>> {
    let tasks: Vec<_> = moves
        .iter()
        .zip(sessions.iter().cycle())
        .map(|((from, to, kind), session)| {
            let (w, cx, message) = (w.clone(), w.cx_of(session), rename(*from, *to, *kind));
            tokio::spawn(async move { w.server.call(cx, message).await.map(drop) })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

/// Walks from the directory to the root, by names that lead back down.
async fn expect_way_to_root(w: &World, dir: InodeId) {
    let mut at = dir;
    for _ in 0..16 {
        if at == ROOT {
            return;
        }
        let place = w.call(GetPlace { id: at }).await.unwrap();
        let entry = w.lookup(place.parent, &place.name.unwrap().to_string()).await;
        assert_eq!(entry.map(|attr| attr.id), Some(at), "the name of its place leads to it");
        at = place.parent;
    }
    panic!("directory {dir} lies below itself")
}

/// All below a directory, found from above: a loop is cut off from there.
async fn all_below(w: &World, top: InodeId) -> Vec<InodeId> {
    let (mut found, mut next) = (Vec::new(), vec![top]);
    while let Some(inode) = next.pop() {
        let page = w.call(ReadDir { inode, after: None, limit: 100, plus: false, knows: Vec::new() }).await.unwrap();
        let below: Vec<InodeId> = page.entries.iter().map(|(_, id, ..)| *id).collect();
        assert_eq!(w.attr(inode).await.unwrap().nlink as usize, 2 + below.len(), "links of a directory of directories");
        next.extend(&below);
        found.extend(below);
    }
    found
}

/// What crosses: two names, whatever else each round needs below a directory of its own, and how they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Each into the other.
    Direct,
    /// Each below a child of the other: no row of one rename is one of the other's.
    Deep,
    /// Each takes the place of a child of the other, which comes up.
    Exchange,
    /// Three in a ring: any two may succeed.
    Ring,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn directories_renamed_into_each_other_at_once_never_make_a_loop() {
    let w = Arc::new(World::new().await);
    let sessions = [open_session(&w.server, 2).await, open_session(&w.server, 3).await];
    // Between order and durability, so that every rename sees the other's change before that is known to stay.
    let (slow, under_way, overlaps) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), AtomicU64::new(0));
    let overlaps = Arc::new(overlaps);
    let (delayed, there, both) = (slow.clone(), under_way.clone(), overlaps.clone());
    w.store.set_commit_delay(move || {
        let (delayed, there, both) = (delayed.clone(), there.clone(), both.clone());
        Box::pin(async move {
            if delayed.load(Ordering::Relaxed) {
                both.fetch_add(u64::from(there.fetch_add(1, Ordering::AcqRel) > 0), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
                there.fetch_sub(1, Ordering::AcqRel);
            }
        })
    });
    never_a_loop(&w, &sessions, 60, |on| slow.store(on, Ordering::Relaxed)).await;
    let overlaps = overlaps.load(Ordering::Relaxed);
    assert!(overlaps >= 2 * 60, "they did not overlap: {overlaps} of {} times", 4 * 60);
}

/// Where the rows of one are locked while another waits for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn directories_renamed_into_each_other_at_once_never_make_a_loop_in_a_database() {
    let rows = rows::Rows::Database(rows::mariadb::database());
    let w = Arc::new(rows.world(fast_config()).await);
    let sessions = [open_session(&w.server, 2).await, open_session(&w.server, 3).await];
    never_a_loop(&w, &sessions, 15, |_| {}).await;
}

/// `crosses` is told when renames begin, and when they have ended.
async fn never_a_loop(w: &Arc<World>, sessions: &[SessionReply], rounds: usize, crosses: impl Fn(bool)) {
    for shape in [Shape::Direct, Shape::Deep, Shape::Exchange, Shape::Ring] {
        for round in 0..rounds {
            let top = w.mkdir(ROOT, &format!("{shape:?} {round}")).await.id;
            let (a, b, c) = (w.mkdir(top, "a").await.id, w.mkdir(top, "b").await.id, w.mkdir(top, "c").await.id);
            let (in_a, in_b) = (w.mkdir(a, "in").await.id, w.mkdir(b, "in").await.id);
            let replace = RenameKind::Replace;
            let mut moves = match shape {
                Shape::Direct => vec![((top, "a"), (b, "x"), replace), ((top, "b"), (a, "y"), replace)],
                Shape::Deep => vec![((top, "a"), (in_b, "x"), replace), ((top, "b"), (in_a, "y"), replace)],
                Shape::Exchange => {
                    let exchange = RenameKind::Exchange;
                    vec![((top, "a"), (b, "in"), exchange), ((top, "b"), (a, "in"), exchange)]
                }
                Shape::Ring => vec![
                    ((top, "a"), (b, "x"), replace),
                    ((top, "b"), (c, "y"), replace),
                    ((top, "c"), (a, "z"), replace),
                ],
            };
            let turn = round % moves.len();
            moves.rotate_left(turn);
            crosses(true);
            let answers = at_once(w, sessions, &moves).await;
            crosses(false);
            let refused: Vec<Code> = answers.iter().filter_map(|a| a.as_ref().err().map(|e| e.code)).collect();
            assert_eq!(
                refused,
                [Code::Invalid],
                "{shape:?}, round {round}: all but one succeed, and that one is told why"
            );
            for dir in [a, b, c, in_a, in_b] {
                expect_way_to_root(w, dir).await;
            }
            let mut below = all_below(w, top).await;
            below.sort();
            let mut made = vec![a, b, c, in_a, in_b];
            made.sort();
            assert_eq!(below, made, "{shape:?}, round {round}: every directory is found from the root, once");
        }
    }
}

/// What a transaction asked for, in order. The engine in memory runs one after the other, so that it would not miss a
/// lock that engines with row locks need.
#[derive(Clone, Default)]
struct Asked {
    locked: Arc<Mutex<Vec<(Key, Lock)>>>,
    written: Arc<Mutex<Vec<Key>>>,
}

struct Watched<O> {
    op: O,
    asked: Asked,
}

struct WatchedTx<'t> {
    tx: &'t mut dyn Tx,
    asked: &'t Asked,
}

impl<O: Operation> Operation for Watched<O> {
    type Output = O::Output;
    type Error = O::Error;

    async fn run(&self, tx: &mut dyn Tx) -> std::result::Result<O::Output, O::Error> {
        self.op.run(&mut WatchedTx { tx, asked: &self.asked }).await
    }
}

impl Tx for WatchedTx<'_> {
    fn get<'a>(&'a mut self, keys: &'a [Key], lock: Lock) -> Awaited<'a, Vec<Option<Row>>> {
        self.asked.locked.lock().extend(keys.iter().map(|key| (key.clone(), lock)));
        self.tx.get(keys, lock)
    }

    fn scan<'a>(&'a mut self, prefix: &'a Key, after: Option<&'a Key>, limit: usize, lock: Lock) -> Awaited<'a, Page> {
        self.tx.scan(prefix, after, limit, lock)
    }

    fn scan_table<'a>(&'a mut self, table: Table, after: Option<&'a Key>, limit: usize) -> Awaited<'a, Page> {
        self.tx.scan_table(table, after, limit)
    }

    fn put(&mut self, key: Key, row: Row) {
        self.asked.written.lock().push(key.clone());
        self.tx.put(key, row);
    }

    fn insert(&mut self, key: Key, row: Row) {
        self.asked.written.lock().push(key.clone());
        self.tx.insert(key, row);
    }

    fn delete(&mut self, key: Key) {
        self.asked.written.lock().push(key.clone());
        self.tx.delete(key);
    }

    fn add(&mut self, key: Key, by: Counts) {
        self.tx.add(key, by);
    }
}

/// Runs the rename as a transaction of the server's own, and says whether it held `rename_lock`.
async fn holds_rename_lock(w: &World, message: Rename) -> bool {
    let (asked, parents) = (Asked::default(), [message.from.id.0, message.to.id.0]);
    let (cx, answer) = (OpContext::default(), MetaAnswer::Rename);
    let mutation = RenameAlong { rename: message, above_from: Vec::new(), above_to: Vec::new() };
    let op = Watched { op: Recorded { cx, mutation, message: 0, answer }, asked: asked.clone() };
    w.engine.transact(0, op).await.map_err(|OpError(e)| e).unwrap();
    let (locked, rename_lock) = (asked.locked.lock().clone(), keys::global("rename_lock"));
    assert!(
        locked.iter().all(|(_, lock)| *lock == Lock::Exclusive),
        "what it goes by changes under nobody: {locked:?}"
    );
    let at = locked.iter().position(|(key, _)| *key == rename_lock);
    assert_eq!(at.is_some(), asked.written.lock().contains(&rename_lock), "written if and only if it is held");
    // The parents' own rows come with the first batch, locked; every step above them is made under the lock.
    let is_step = |key: &Key| key.table() == Table::InodeIds && !parents.contains(&key.partition());
    let first_step = locked.iter().position(|(key, _)| is_step(key));
    assert_eq!(at.is_some(), first_step.is_some(), "it walks if and only if it holds the lock: {locked:?}");
    assert!(at <= first_step, "held before the first step: {locked:?}");
    at.is_some()
}

#[tokio::test]
async fn a_directory_that_goes_to_another_parent_holds_the_rename_lock_while_it_looks_up() {
    let w = World::new().await;
    let (up, side) = (w.mkdir(ROOT, "up").await.id, w.mkdir(ROOT, "side").await.id);
    let (from, to) = (w.mkdir(side, "from").await.id, w.mkdir(up, "to").await.id);
    w.mkdir(from, "dir").await;
    w.create(from, "file").await;
    let (replace, exchange) = (RenameKind::Replace, RenameKind::Exchange);
    // Two that hold it run one after the other wherever rows are locked, so nothing else may hold it.
    assert!(!holds_rename_lock(&w, rename((from, "dir"), (from, "same"), replace)).await);
    assert!(!holds_rename_lock(&w, rename((from, "file"), (to, "file"), replace)).await);
    assert!(holds_rename_lock(&w, rename((from, "same"), (to, "dir"), replace)).await);
    assert!(holds_rename_lock(&w, rename((to, "dir"), (from, "dir"), RenameKind::NoReplace)).await);
    assert!(holds_rename_lock(&w, rename((to, "file"), (from, "dir"), exchange)).await, "the other one is a directory");
    assert!(holds_rename_lock(&w, rename((to, "file"), (from, "dir"), exchange)).await);
    assert!(w.lookup(from, "dir").await.is_some_and(|attr| attr.is_dir()));
}
