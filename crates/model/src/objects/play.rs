//! [`Shared`] played on a file system: what is drawn is done there, and its answer is one of the object's.

use super::{Place, SEARCHES, Shared, SharedAnswer, SharedOp};
use crate::linear::{End, Sequential};
use braid_api::{Caller, Code, FileSystem, NewNode, NodeKind, OpenFlags, RenameMode, Result};
use braid_types::{FileKind, InodeId, Mode, Name};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Names of one directory.
const NAMES: u64 = 3;
/// Only of so many that were made last a further name is made: older ones have gone, most of them.
const RECENT: u32 = 8;

pub(super) const REFUSALS: [Code; 7] = [
    Code::NotFound,
    Code::Stale,
    Code::Exists,
    Code::IsDirectory,
    Code::NotDirectory,
    Code::NotEmpty,
    Code::NotPermitted,
];

/// An object that is played on a file system, in two directories.
pub trait Plays: Default + Send + Sync + 'static {
    type Object: Sequential<Op: Copy + Send + std::fmt::Debug, Answer: std::fmt::Debug> + Default;
    /// One of [`SEARCHES`].
    const SEARCH: fn() -> End<Self::Object>;

    /// `throw(n)` is a number below n.
    fn draw(&self, throw: impl FnMut(u64) -> u64) -> <Self::Object as Sequential>::Op;

    /// With why it was refused, for whoever reads the log.
    ///
    /// # Errors
    /// Those that are no answer: it may take effect yet.
    fn perform(
        &self,
        fs: &impl FileSystem,
        dirs: [InodeId; 2],
        op: <Self::Object as Sequential>::Op,
    ) -> impl Future<Output = Result<(<Self::Object as Sequential>::Answer, Option<Code>)>> + Send;
}

/// What all that play know of each other.
#[derive(Debug, Default)]
pub struct Play {
    /// Inodes of files by their makers' numbers, of those that are known to be made.
    files: Mutex<HashMap<u32, InodeId>>,
    last: Mutex<u32>,
}

pub(super) fn name(number: impl std::fmt::Display) -> Name {
    Name::new(format!("n{number}").as_bytes()).expect("a short name")
}

/// `other`: of what is not one of these names.
pub(super) fn number<N: std::str::FromStr>(name: &Name, other: N) -> N {
    let digits = name.as_bytes().get(1..).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(other)
}

impl Plays for Play {
    type Object = Shared;
    const SEARCH: fn() -> End<Shared> = || SEARCHES.5;

    fn draw(&self, mut throw: impl FnMut(u64) -> u64) -> SharedOp {
        let mut place = || -> Place { (throw(2) as u8, throw(NAMES) as u8) };
        let (one, other) = (place(), place());
        match throw(12) {
            0 | 1 => {
                let mut last = self.last.lock();
                *last += 1;
                SharedOp::Create(one, *last)
            }
            2 => SharedOp::Mkdir(one),
            3 | 4 => SharedOp::Unlink(one),
            5 => SharedOp::Rmdir(one),
            6 | 7 => SharedOp::Rename(one, other),
            8 => {
                let (files, last) = (self.files.lock(), *self.last.lock());
                let recent: Vec<u32> =
                    (0..RECENT).map(|back| last.saturating_sub(back)).filter(|file| files.contains_key(file)).collect();
                match recent.get(throw(recent.len().max(1) as u64) as usize) {
                    Some(file) => SharedOp::Link(*file, other),
                    None => SharedOp::List(one.0),
                }
            }
            9 | 10 => SharedOp::Lookup(one),
            _ => SharedOp::List(one.0),
        }
    }

    async fn perform(
        &self,
        fs: &impl FileSystem,
        dirs: [InodeId; 2],
        op: SharedOp,
    ) -> Result<(SharedAnswer, Option<Code>)> {
        let dir = |place: Place| dirs[usize::from(place.0 % 2)];
        let cx = Caller::default();
        let done = match op {
            SharedOp::Create(at, file) => {
                let maker = Caller { uid: file, ..Caller::default() };
                let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
                match fs.create(&maker, dir(at), &name(at.1), Mode(0o644), flags).await {
                    Ok((made, opened)) => {
                        self.files.lock().insert(file, made.attr.id);
                        fs.release(opened.handle).await;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            SharedOp::Mkdir(at) => {
                let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
                fs.make_node(&cx, dir(at), &name(at.1), node).await.map(drop)
            }
            SharedOp::Unlink(at) => fs.unlink(&cx, dir(at), &name(at.1)).await,
            SharedOp::Rmdir(at) => fs.remove_dir(&cx, dir(at), &name(at.1)).await,
            SharedOp::Rename(from, to) => {
                let (from_name, to_name) = (name(from.1), name(to.1));
                fs.rename(&cx, (dir(from), &from_name), (dir(to), &to_name), RenameMode::Replace).await
            }
            SharedOp::Link(file, at) => {
                let id = self.files.lock().get(&file).copied().unwrap_or_default();
                fs.link(&cx, id, dir(at), &name(at.1)).await.map(drop)
            }
            SharedOp::Lookup(at) => {
                let seen = match fs.lookup(&cx, dir(at), &name(at.1)).await?.attr {
                    None => SharedAnswer::Nothing,
                    Some(attr) if attr.is_dir() => SharedAnswer::Dir,
                    Some(attr) => SharedAnswer::File(attr.uid, attr.nlink),
                };
                return Ok((seen, None));
            }
            SharedOp::List(of) => {
                let handle = fs.open_dir(&cx, dirs[usize::from(of % 2)]).await?.handle;
                let listed = fs.read_dir(&cx, handle, 0, 100, false).await;
                fs.release(handle).await;
                let is_dir = |kind| kind == FileKind::Directory;
                let mut names: Vec<_> = listed?.iter().map(|e| (number(&e.name, u8::MAX), is_dir(e.kind))).collect();
                names.sort_unstable();
                return Ok((SharedAnswer::Listed(names), None));
            }
        };
        match done {
            Ok(()) => Ok((SharedAnswer::Done, None)),
            Err(error) if REFUSALS.contains(&error.code) => Ok((SharedAnswer::Refused, Some(error.code))),
            Err(error) => Err(error),
        }
    }
}
