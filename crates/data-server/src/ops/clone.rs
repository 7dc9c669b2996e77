//! CloneChunk: a chunk that begins as another is, which nobody writes any more.

use crate::core::{Call, Core};
use braid_api::data::{CloneChunk, WriteAnswer};
use braid_api::{Code, Error, Result};
use std::sync::Arc;

impl Core {
    pub async fn clone_chunk(self: &Arc<Self>, _call: &Call, m: CloneChunk) -> Result<WriteAnswer> {
        let subject = format_args!("data server {}, chunk {}", self.id, m.chunk);
        Err(Error::new(Code::NotSupported, subject, "it cannot be made from another yet"))
    }
}
