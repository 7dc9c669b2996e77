//! Punching holes of whole chunks.

use super::free::drop_chunk_rows;
use super::open::expect_file;
use super::seal::expect_unsealed;
use crate::rows::flags;
use crate::{Mutation, OpContext, OpError, Unit};
use braid_api::Code;
use braid_api::meta::{ChunkPage, CommitAnswer, DropChunks, Grant};
use braid_meta_engine::Key;

impl Mutation for DropChunks {
    type Answer = CommitAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::keys_of(&self.inode)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<CommitAnswer, OpError> {
        if self.from > self.until {
            return Err(Code::Invalid.into());
        }
        let mut located = unit.find(&self.inode).await?;
        expect_file(&located.inode)?;
        expect_unsealed(&located.inode)?;
        if located.inode.has(flags::CHUNKED) {
            drop_chunk_rows(unit, &located.inode, self.from, Some(self.until)).await?;
        }
        located.inode.touch(cx.now);
        unit.store(&located);
        Ok(CommitAnswer {
            attr: located.inode.attr(),
            cuts: located.inode.cuts,
            grant: Grant::default(),
            instead: ChunkPage::default(),
        })
    }
}
