//! Opening a file by id, and reading more of its map.

use super::content::{file_map, keys_ahead, policy_of};
use super::free::truncate;
use super::seal::expect_unsealed;
use crate::rows::{Inode, flags};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::Code;
use braid_api::meta::{DirAfter, FileLease, FileWant, GetMap, Grant, MapAnswer, OpenAnswer, OpenFile};
use braid_meta_engine::Key;
use braid_types::{ChunkIndex, FileKind};

/// Only files are opened here; the door opens directories and the kernel all else.
pub(super) fn expect_file(inode: &Inode) -> Result<(), OpError> {
    match inode.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Code::IsDirectory.into()),
        _ => Err(Code::Invalid.into()),
    }
}

pub(super) async fn open_answer(unit: &mut Unit<'_>, inode: &Inode, created: bool) -> Result<OpenAnswer, OpError> {
    let map = file_map(unit, inode, ChunkIndex(0)).await?;
    debug_assert_eq!(map.policy, policy_of(inode));
    let shared = inode.has(flags::SHARED);
    Ok(OpenAnswer {
        attr: inode.attr(),
        grant: Grant::default(),
        lease: FileLease::default(),
        map,
        created,
        shared,
        room: None,
        dir: DirAfter::default(),
    })
}

/// Without truncation an open leaves no trace, so it is a question.
impl Query for OpenFile {
    type Answer = OpenAnswer;

    fn ahead(&self) -> Vec<Key> {
        let mut first = super::keys_of(&self.inode);
        first.extend(keys_ahead(self.inode.id));
        first
    }

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<OpenAnswer, OpError> {
        unit.load(&self.ahead()).await?;
        let located = unit.find(&self.inode).await?;
        expect_file(&located.inode)?;
        if matches!(self.want, FileWant::WriteDirect | FileWant::Alone) {
            expect_unsealed(&located.inode)?;
        }
        open_answer(unit, &located.inode, false).await
    }
}

/// Questions about several files at one moment, whose rows are read together: one round trip to a database where those ahead are all that each
/// needs. `None` where anything is wrong with one.
pub struct OfEach<Q>(pub Vec<Q>);

impl<Q: Query> Query for OfEach<Q> {
    type Answer = Vec<Option<Q::Answer>>;

    fn ahead(&self) -> Vec<Key> {
        self.0.iter().flat_map(Q::ahead).collect()
    }

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        unit.load(&self.ahead()).await?;
        let mut answers = Vec::with_capacity(self.0.len());
        for query in &self.0 {
            answers.push(match query.ask(unit).await {
                Ok(answer) => Some(answer),
                // Of the engine, and of all of them.
                Err(error) if matches!(error.0.code, Code::Busy | Code::NotServing | Code::Newer) => return Err(error),
                Err(_) => None,
            });
        }
        Ok(answers)
    }
}

/// With truncation.
impl Mutation for OpenFile {
    type Answer = OpenAnswer;

    fn first_keys(&self) -> Vec<Key> {
        let mut first = keys_ahead(self.inode.id);
        first.extend(super::keys_of(&self.inode));
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<OpenAnswer, OpError> {
        let mut located = unit.find(&self.inode).await?;
        expect_file(&located.inode)?;
        expect_unsealed(&located.inode)?;
        truncate(unit, &mut located.inode, 0).await?;
        located.inode.touch(cx.now);
        unit.store(&located);
        let answer = open_answer(unit, &located.inode, false).await?;
        let room = if cx.limits { super::room::opened(unit, &located.inode).await? } else { None };
        Ok(OpenAnswer { room, ..answer })
    }
}

impl Query for GetMap {
    type Answer = MapAnswer;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<MapAnswer, OpError> {
        let located = unit.find(&self.inode).await?;
        expect_file(&located.inode)?;
        let map = file_map(unit, &located.inode, self.first).await?;
        Ok(MapAnswer { attr: located.inode.attr(), map })
    }
}
