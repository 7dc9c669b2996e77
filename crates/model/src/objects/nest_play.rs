//! [`Nest`] played on a file system.

use super::nest::ROOTS;
use super::play::{REFUSALS, name, number};
use super::{DirNumber, Nest, NestAnswer, NestOp, Plays, SEARCHES};
use crate::linear::End;
use braid_api::{Caller, Code, FileSystem, NewNode, NodeKind, RenameMode, Result};
use braid_types::{InodeId, Mode};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

/// So many are moved into each other: few, so that two moves that go on at once often concern each other.
const AT_ONCE: usize = 4;

/// What all that play know of each other.
#[derive(Debug, Default)]
pub struct NestPlay {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Those that are known to be made.
    ids: HashMap<DirNumber, InodeId>,
    /// Of these those that are not known to have been removed, and where they were last.
    seen: Vec<(DirNumber, DirNumber)>,
    /// Answers come in another order than what they tell of.
    removed: HashSet<DirNumber>,
    last: DirNumber,
}

impl State {
    fn goes(&mut self, dir: DirNumber, to: Option<DirNumber>) {
        self.seen.retain(|(known, _)| *known != dir);
        match to {
            None => _ = self.removed.insert(dir),
            Some(to) if !self.removed.contains(&dir) => self.seen.push((dir, to)),
            Some(_) => {}
        }
    }

    /// It is not where it was seen last: it may have been removed by who never heard of it, and others are made instead.
    fn is_missed(&mut self, dir: DirNumber, at: DirNumber) {
        self.seen.retain(|seen| *seen != (dir, at));
    }
}

impl Plays for NestPlay {
    type Object = Nest;
    const SEARCH: fn() -> End<Nest> = || SEARCHES.6;

    fn draw(&self, mut throw: impl FnMut(u64) -> u64) -> NestOp {
        let mut state = self.state.lock();
        let any = |state: &State, throw: &mut dyn FnMut(u64) -> u64| -> DirNumber {
            let which = throw((ROOTS as usize + state.seen.len()) as u64) as usize;
            let made = which.checked_sub(ROOTS as usize).and_then(|at| state.seen.get(at));
            made.map_or(which as u32 % ROOTS, |(dir, _)| *dir)
        };
        let to = any(&state, &mut throw);
        let what = throw(12);
        if state.seen.len() < 2 || (what == 0 && state.seen.len() < AT_ONCE) {
            state.last = state.last.max(ROOTS - 1) + 1;
            return NestOp::Make { dir: state.last, parent: to };
        }
        let which = throw(state.seen.len() as u64) as usize;
        let Some((dir, at)) = state.seen.get(which).copied() else { return NestOp::List(to) };
        // Where it was seen last it may be no more, and now and then it is looked for elsewhere.
        let parent = if throw(6) == 0 { any(&state, &mut throw) } else { at };
        match what {
            0 | 1 => NestOp::Remove { dir, parent },
            2..=7 => NestOp::Move { dir, from: parent, to },
            8..=10 => NestOp::Lookup { dir, parent },
            _ => NestOp::List(to),
        }
    }

    async fn perform(
        &self,
        fs: &impl FileSystem,
        dirs: [InodeId; 2],
        op: NestOp,
    ) -> Result<(NestAnswer, Option<Code>)> {
        let cx = Caller::default();
        let id = |dir: DirNumber| match dirs.get(dir as usize) {
            Some(root) => *root,
            None => self.state.lock().ids.get(&dir).copied().unwrap_or_default(),
        };
        let done = match op {
            NestOp::Make { dir, parent } => {
                let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
                fs.make_node(&cx, id(parent), &name(dir), node).await.map(|made| {
                    let mut state = self.state.lock();
                    state.ids.insert(dir, made.attr.id);
                    state.goes(dir, Some(parent));
                })
            }
            NestOp::Remove { dir, parent } => {
                let removed = fs.remove_dir(&cx, id(parent), &name(dir)).await;
                removed.map(|()| self.state.lock().goes(dir, None))
            }
            NestOp::Move { dir, from, to } => {
                let name = name(dir);
                let moved = fs.rename(&cx, (id(from), &name), (id(to), &name), RenameMode::Replace).await;
                moved.map(|()| self.state.lock().goes(dir, Some(to)))
            }
            NestOp::Lookup { dir, parent } => {
                let why = match fs.lookup(&cx, id(parent), &name(dir)).await {
                    Ok(found) if found.attr.is_some() => return Ok((NestAnswer::Found, None)),
                    Ok(_) => None,
                    Err(error) if has_gone(error.code) => Some(error.code),
                    Err(error) => return Err(error),
                };
                self.state.lock().is_missed(dir, parent);
                return Ok((NestAnswer::Nothing, why));
            }
            NestOp::List(of) => {
                let listed = async {
                    let handle = fs.open_dir(&cx, id(of)).await?.handle;
                    let listed = fs.read_dir(&cx, handle, 0, 100, false).await;
                    fs.release(handle).await;
                    listed
                };
                return match listed.await {
                    Ok(listed) => {
                        let mut names: Vec<_> =
                            listed.iter().map(|entry| number(&entry.name, DirNumber::MAX)).collect();
                        names.sort_unstable();
                        Ok((NestAnswer::Listed(names), None))
                    }
                    Err(error) if has_gone(error.code) => Ok((NestAnswer::Listed(Vec::new()), Some(error.code))),
                    Err(error) => Err(error),
                };
            }
        };
        match done {
            Ok(()) => Ok((NestAnswer::Done, None)),
            // A loop.
            Err(error) if error.code == Code::Invalid || REFUSALS.contains(&error.code) => {
                Ok((NestAnswer::Refused, Some(error.code)))
            }
            Err(error) => Err(error),
        }
    }
}

fn has_gone(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::Stale)
}
