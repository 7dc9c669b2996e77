//! Two file systems, one stream of operations: what differs is reported.

use crate::stream::{Op, Stream, Weights};
use crate::world::{Answer, OpenHandle, View, World, list};
use braid_api::{Caller, Code, Error, FileSystem, OpenFlags};
use braid_types::{Attr, FileKind, InodeId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// Operations shown before the one that differed.
const HISTORY: usize = 20;
/// Inodes the operations choose from; more would make them meet less often.
const NODES_MAX: usize = 32;
const DIRS_MAX: usize = 8;
/// Of each file, compared at the end; content is sparse and may be large.
const WALK_BYTES: u32 = 2 << 20;

/// What was done without a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub steps: usize,
    /// Steps that succeeded on both; a stream that only fails proves nothing.
    pub succeeded: usize,
    /// Inodes compared at the end.
    pub walked: usize,
}

/// The first difference.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub step: usize,
    pub difference: String,
    /// The last operations, the one that differed last.
    pub history: Vec<Op>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} differs at step {}: {}", self.seed, self.step, self.difference)?;
        self.history.iter().try_for_each(|op| writeln!(f, "  {op:?}"))
    }
}

impl std::error::Error for Report {}

/// Drives `a` and `b`, both empty, with `steps` operations of `seed`, and at the end compares both trees.
pub async fn compare<A: FileSystem, B: FileSystem>(
    a: &A,
    b: &B,
    seed: u64,
    steps: usize,
) -> Result<Summary, Box<Report>> {
    compare_stream(a, b, seed, Weights::default(), steps).await
}

pub async fn compare_stream<A: FileSystem, B: FileSystem>(
    a: &A,
    b: &B,
    seed: u64,
    weights: Weights,
    steps: usize,
) -> Result<Summary, Box<Report>> {
    let mut pair = Pair::new(a, b);
    let mut history = VecDeque::new();
    let report = |step, difference, history: VecDeque<Op>| {
        Box::new(Report { seed, step, difference, history: history.into_iter().collect() })
    };
    let mut summary = Summary::default();
    for (step, op) in Stream::new(seed, weights).take(steps).enumerate() {
        history.push_back(op.clone());
        if history.len() > HISTORY {
            history.pop_front();
        }
        match pair.step(&op).await {
            Ok(succeeded) => summary.succeeded += usize::from(succeeded),
            Err(difference) => return Err(report(step, difference, history)),
        }
        summary.steps += 1;
    }
    match pair.walk().await {
        Ok(walked) => Ok(Summary { walked, ..summary }),
        Err(difference) => Err(report(steps, format!("in the tree at the end: {difference}"), history)),
    }
}

struct Pair<'a, A, B> {
    a: World<'a, A>,
    b: World<'a, B>,
    /// Which inode of b is which of a, and back.
    a_to_b: BTreeMap<InodeId, InodeId>,
    b_to_a: BTreeMap<InodeId, InodeId>,
    /// The last change seen of each inode, on both sides: it never goes back.
    ctimes: BTreeMap<InodeId, (Timestamp, Timestamp)>,
    opened: u64,
}

type Difference = String;

/// What has gone may be named either way.
fn class(error: &Error) -> Code {
    if error.code == Code::Stale { Code::NotFound } else { error.code }
}

/// Of two parents that are both wrong either may be named.
fn is_either_parents(op: &Op, a: &Error, b: &Error) -> bool {
    let both = [class(a), class(b)];
    matches!(op, Op::Rename { .. }) && both.contains(&Code::NotDirectory) && both.contains(&Code::NotFound)
}

impl<'a, A: FileSystem, B: FileSystem> Pair<'a, A, B> {
    fn new(a: &'a A, b: &'a B) -> Self {
        let root = BTreeMap::from([(InodeId::ROOT, InodeId::ROOT)]);
        let (a, b) = (World::new(a), World::new(b));
        Pair { a, b, a_to_b: root.clone(), b_to_a: root, ctimes: BTreeMap::new(), opened: 0 }
    }

    /// True if the operation succeeded, on both.
    async fn step(&mut self, op: &Op) -> Result<bool, Difference> {
        let touched: Vec<_> = self.a.touched(op).into_iter().zip(self.b.touched(op)).collect();
        let (a, b) = (self.a.apply(op).await, self.b.apply(op).await);
        let (a, b) = match (a, b) {
            (Err(a), Err(b)) if class(&a) == class(&b) || is_either_parents(op, &a, &b) => {
                self.look_at(touched).await?;
                return Ok(false);
            }
            (Ok(a), Ok(b)) => (a, b),
            // Closed for the last time after its last name went: nobody says when an inode is freed.
            (Err(error), Ok(Answer::Attr(attr))) | (Ok(Answer::Attr(attr)), Err(error))
                if class(&error) == Code::NotFound && attr.nlink == 0 =>
            {
                return Ok(false);
            }
            (a, b) => return Err(format!("one gives {a:?}, the other {b:?}")),
        };
        self.same(&a, &b)?;
        self.learn(op, &a, &b);
        self.look_at(touched).await?;
        if let Op::RemoveTree { .. } = op {
            self.forget_unnamed().await;
        }
        if let (Op::SetAttr { change, .. }, Answer::Attr(a), Answer::Attr(b)) = (op, &a, &b)
            && let Some(braid_api::TimeOrNow::At(time)) = change.mtime
            && (a.mtime != time || b.mtime != time)
        {
            return Err(format!("mtime was set to {time:?} and is {:?} and {:?}", a.mtime, b.mtime));
        }
        Ok(true)
    }

    fn same_inode(&mut self, a: InodeId, b: InodeId) -> Result<(), Difference> {
        let (to, from) = (*self.a_to_b.entry(a).or_insert(b), *self.b_to_a.entry(b).or_insert(a));
        if (to, from) == (b, a) { Ok(()) } else { Err(format!("inode {a} is {b}, but was {to} (and {b} was {from})")) }
    }

    fn same_attr(&mut self, a: &Attr, b: &Attr) -> Result<(), Difference> {
        self.same_inode(a.id, b.id)?;
        let (seen, other) = (View::from(*a), View { id: a.id, ..View::from(*b) });
        if seen != other {
            return Err(format!("{seen:?} is not {other:?}"));
        }
        let before = self.ctimes.insert(a.id, (a.ctime, b.ctime));
        match before {
            Some(before) if a.ctime < before.0 || b.ctime < before.1 => {
                Err(format!("ctime of {} went back: {before:?}, now {:?} and {:?}", a.id, a.ctime, b.ctime))
            }
            _ => Ok(()),
        }
    }

    fn same(&mut self, a: &Answer, b: &Answer) -> Result<(), Difference> {
        match (a, b) {
            (Answer::Attr(a), Answer::Attr(b)) | (Answer::Opened(Some(a), _), Answer::Opened(Some(b), _)) => {
                self.same_attr(a, b)
            }
            (Answer::Inode(a), Answer::Inode(b)) => self.same_inode(*a, *b),
            (Answer::Opened(None, _), Answer::Opened(None, _)) => Ok(()),
            (Answer::Listing(a), Answer::Listing(b)) => self.same_listing(a, b),
            (Answer::Data(a), Answer::Data(b)) if a != b => Err(different_data(a, b)),
            _ if a == b => Ok(()),
            _ => Err(format!("{a:?} is not {b:?}")),
        }
    }

    fn same_listing(
        &mut self,
        a: &BTreeSet<(Vec<u8>, u8, InodeId)>,
        b: &BTreeSet<(Vec<u8>, u8, InodeId)>,
    ) -> Result<(), Difference> {
        let names = |set: &BTreeSet<(Vec<u8>, u8, InodeId)>| -> Vec<_> {
            set.iter().map(|(name, kind, _)| (String::from_utf8_lossy(name).into_owned(), *kind)).collect()
        };
        if names(a) != names(b) {
            return Err(format!("one lists {:?}, the other {:?}", names(a), names(b)));
        }
        a.iter().zip(b).try_for_each(|(a, b)| self.same_inode(a.2, b.2))
    }

    /// Keeps what the answer brought for later operations.
    fn learn(&mut self, op: &Op, a: &Answer, b: &Answer) {
        let node = match (a, b) {
            (Answer::Attr(a), Answer::Attr(b)) | (Answer::Opened(Some(a), _), Answer::Opened(Some(b), _)) => {
                Some((a.id, b.id))
            }
            _ => None,
        };
        if let Some((a, b)) = node
            && !self.a.nodes.contains(&a)
        {
            push(&mut self.a.nodes, &mut self.b.nodes, (a, b), NODES_MAX);
        }
        if let (Answer::Attr(a), Answer::Attr(b)) = (a, b)
            && a.is_dir()
            && !self.a.dirs.contains(&a.id)
        {
            push(&mut self.a.dirs, &mut self.b.dirs, (a.id, b.id), DIRS_MAX);
        }
        if let (Answer::Opened(_, handle_a), Answer::Opened(_, handle_b)) = (a, b) {
            let (a, b) = node.unwrap_or_else(|| match op {
                Op::Open { node, .. } | Op::OpenDir { node } => {
                    let index = node % self.a.nodes.len();
                    (self.a.nodes[index], self.b.nodes[index])
                }
                _ => (InodeId::ROOT, InodeId::ROOT),
            });
            self.opened += 1;
            self.a.handles.push(OpenHandle { handle: *handle_a, id: a, number: self.opened });
            self.b.handles.push(OpenHandle { handle: *handle_b, id: b, number: self.opened });
        }
        if let Op::Release { handle } = op {
            let index = handle % self.a.handles.len();
            self.a.handles.remove(index);
            self.b.handles.remove(index);
        }
    }

    /// Looks at inodes an operation was about; those that have gone are not chosen again.
    async fn look_at(&mut self, touched: Vec<(InodeId, InodeId)>) -> Result<(), Difference> {
        for (a, b) in touched {
            if !self.look(a, b).await? {
                self.forget(a, b);
            }
        }
        Ok(())
    }

    /// Of a tree that went nobody is told what was in it, nor says anybody when it is freed: by its number none of it is asked for again.
    async fn forget_unnamed(&mut self) {
        let mut gone = Vec::new();
        for (&a, &b) in self.a.nodes.iter().zip(&self.b.nodes).chain(self.a.dirs.iter().zip(&self.b.dirs)) {
            let found = self.a.fs.get_attr(&Caller::default(), a, None).await;
            if found.is_err() || found.is_ok_and(|found| found.attr.nlink == 0) {
                gone.push((a, b));
            }
        }
        for (a, b) in gone {
            self.forget(a, b);
        }
    }

    fn forget(&mut self, a: InodeId, b: InodeId) {
        self.a.nodes.retain(|&id| id != a);
        self.b.nodes.retain(|&id| id != b);
        self.a.dirs.retain(|&id| id != a);
        self.b.dirs.retain(|&id| id != b);
    }

    /// Compares the attributes of an inode; false if it has gone on both sides.
    async fn look(&mut self, a: InodeId, b: InodeId) -> Result<bool, Difference> {
        let cx = Caller::default();
        match (self.a.fs.get_attr(&cx, a, None).await, self.b.fs.get_attr(&cx, b, None).await) {
            (Ok(a), Ok(b)) => self.same_attr(&a.attr, &b.attr).map(|()| a.attr.nlink > 0 || a.attr.is_file()),
            (Err(a), Err(b)) if class(&a) == class(&b) => Ok(false),
            (a, b) => Err(format!("one gives {a:?}, the other {b:?}")),
        }
    }

    /// Compares both trees from the root, with content and attributes.
    async fn walk(&mut self) -> Result<usize, Difference> {
        let mut todo = vec![(InodeId::ROOT, InodeId::ROOT)];
        let mut seen = BTreeSet::new();
        while let Some((a, b)) = todo.pop() {
            if !seen.insert(a) {
                continue;
            }
            self.look(a, b).await?;
            let (tree_a, tree_b) = (dump(self.a.fs, a).await, dump(self.b.fs, b).await);
            let ((data_a, xattrs_a, list_a), (data_b, xattrs_b, list_b)) = match (tree_a, tree_b) {
                (Ok(a), Ok(b)) => (a, b),
                (a, b) => return Err(format!("{a:?} is not {b:?}")),
            };
            if data_a != data_b {
                return Err(different_data(&data_a, &data_b));
            }
            if xattrs_a != xattrs_b {
                return Err(format!("inode {a} has {xattrs_a:?}, the other {xattrs_b:?}"));
            }
            self.same_listing(&list_a, &list_b)?;
            todo.extend(list_a.iter().zip(&list_b).map(|(a, b)| (a.2, b.2)));
        }
        Ok(seen.len())
    }
}

type Dump = (Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>, BTreeSet<(Vec<u8>, u8, InodeId)>);

/// Content or target, extended attributes, entries.
async fn dump<F: FileSystem>(fs: &F, id: InodeId) -> braid_api::Result<Dump> {
    let cx = Caller::default();
    let mut xattrs = BTreeMap::new();
    for name in fs.list_xattr(&cx, id).await? {
        xattrs.insert(name.to_vec(), fs.get_xattr(&cx, id, &name).await?.to_vec());
    }
    let (mut data, mut listing) = (Vec::new(), BTreeSet::new());
    match fs.get_attr(&cx, id, None).await?.attr.kind {
        FileKind::File => {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let handle = fs.open(&cx, id, flags).await?.handle;
            data = fs.read(handle, 0, WALK_BYTES).await?.concat();
            fs.release(handle).await;
        }
        FileKind::Directory => {
            let handle = fs.open_dir(&cx, id).await?.handle;
            listing = list(fs, handle, 100, false).await?;
            fs.release(handle).await;
        }
        FileKind::Symlink => data = fs.read_link(&cx, id).await?.to_vec(),
        _ => {}
    }
    Ok((data, xattrs, listing))
}

/// Adds to both lists; when they are full, one goes (never the root, which is first; the same on both sides).
fn push(a: &mut Vec<InodeId>, b: &mut Vec<InodeId>, new: (InodeId, InodeId), max: usize) {
    if a.len() >= max {
        let victim = 1 + new.0.0 as usize / 4096 % (max - 1);
        a.remove(victim);
        b.remove(victim);
    }
    a.push(new.0);
    b.push(new.1);
}

fn different_data(a: &[u8], b: &[u8]) -> Difference {
    let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let around = |bytes: &[u8]| bytes[at..(at + 8).min(bytes.len())].to_vec();
    format!("{} and {} bytes differ at {at}: {:?}, {:?}", a.len(), b.len(), around(a), around(b))
}
