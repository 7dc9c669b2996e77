//! Chunks that are on stable storage.

use crate::rows::{ChunkRow, keys};
use crate::{OpError, Unit};
use braid_api::meta::MarkStable;
use braid_meta_engine::{Key, Lock, Operation, Tx};

/// The transaction behind [`MarkStable`]. Done again it changes nothing, so it is remembered under no request id.
pub struct Mark(pub MarkStable);

impl Operation for Mark {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let rows: Vec<Key> = self.0.chunks.iter().map(|(inode, index, _)| keys::chunk(*inode, *index)).collect();
        unit.load(&rows).await?;
        for (key, (_, _, chunk)) in rows.into_iter().zip(&self.0.chunks) {
            if let Some(row) = unit.get::<ChunkRow>(&key).await?
                && row.chunk == *chunk
                && !row.stable
            {
                unit.put(key, &ChunkRow { stable: true, ..row });
            }
        }
        Ok(())
    }
}
