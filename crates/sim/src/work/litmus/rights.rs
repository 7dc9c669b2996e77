//! Names that are made, moved and removed, and a file whose mode is changed: what one mount allows the other sees at its next look.

use super::open::open_name;
use super::{Given, Litmus, Program, name};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::Mount;
use crate::seed::Stream;
use crate::work::Work;
use braid_api::{Caller, Code, FileSystem, OpenFlags, RenameMode, Result, SetAttr};
use braid_model::objects::{ModeOp, Modes, NAMES};
use braid_types::{InodeId, Mode, Name};
use rand::RngExt;
use std::sync::Arc;

/// It stays: a path is looked up before its mode is changed, and of another name the two would not be one operation.
const FIXED: usize = NAMES - 1;

pub struct Rights;

impl Rights {
    pub fn work() -> Arc<dyn Work> {
        Litmus::of(Rights)
    }
}

fn path(at: usize) -> Name {
    name(&format!("n{at}"))
}

/// Did it succeed? Names may be there or not.
fn seen(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.code, Code::NotFound | Code::Exists) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Program for Rights {
    const BREAKS: Invariant = Invariant::NamesAreLinearizable;
    type Object = Modes;
    /// The file whose name stays, and whether it was looked at by its number last.
    type Life = (InodeId, bool);

    fn object(&self) -> Modes {
        let mut modes = Modes::default();
        modes.0[FIXED] = Some(0);
        modes
    }

    async fn open(&self, _: &Process, fs: &Mount) -> Result<(InodeId, bool)> {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (entry, opened) = fs.create(&Caller::default(), InodeId::ROOT, &path(FIXED), Mode(0), flags).await?;
        fs.release(opened.handle).await;
        Ok((entry.attr.id, false))
    }

    fn draw(&self, _: usize, random: &mut Stream) -> ModeOp {
        let (at, mode) = (random.random_range(0..FIXED), random.random_range(0..8) * 0o100);
        match random.random_range(0..12) {
            0 | 1 => ModeOp::Create(at, mode),
            2 => ModeOp::Unlink(at),
            3 => ModeOp::Rename(at, (at + 1) % FIXED),
            4 | 5 => ModeOp::Chmod(FIXED, mode),
            6 => ModeOp::Open(at),
            _ => ModeOp::Stat(random.random_range(0..NAMES)),
        }
    }

    fn last(&self, _: usize) -> Vec<ModeOp> {
        (0..NAMES).map(ModeOp::Stat).collect()
    }

    async fn perform(
        &self,
        _: &Process,
        fs: &Mount,
        (fixed, by_number): &mut (InodeId, bool),
        op: &ModeOp,
    ) -> Given<(bool, Option<u32>)> {
        let (cx, root) = (Caller::default(), InodeId::ROOT);
        let done = match *op {
            ModeOp::Create(at, mode) => {
                let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
                match fs.create(&cx, root, &path(at), Mode(mode), flags).await {
                    Ok((_, opened)) => {
                        fs.release(opened.handle).await;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            ModeOp::Unlink(at) => fs.unlink(&cx, root, &path(at)).await,
            ModeOp::Rename(from, to) => {
                fs.rename(&cx, (root, &path(from)), (root, &path(to)), RenameMode::Replace).await
            }
            ModeOp::Chmod(_, mode) => {
                let change = SetAttr { mode: Some(Mode(mode)), ..SetAttr::default() };
                fs.set_attr(&cx, *fixed, None, change).await.map(drop)
            }
            ModeOp::Stat(at) => {
                // By its number as by its name: a mount keeps the two apart.
                *by_number = at == FIXED && !*by_number;
                let attr = match by_number {
                    true => Some(fs.get_attr(&cx, *fixed, None).await?.attr),
                    false => fs.lookup(&cx, root, &path(at)).await?.attr,
                };
                return Ok(Ok((attr.is_some(), attr.map(|attr| attr.mode.0 & 0o777))));
            }
            ModeOp::Open(at) => {
                let opened = open_name(fs, &path(at), OpenFlags::READ).await?;
                if let Some((_, handle)) = opened {
                    fs.release(handle).await;
                }
                return Ok(Ok((opened.is_some(), None)));
            }
        };
        Ok(Ok((seen(done)?, None)))
    }
}
