//! CloneCopies: a chunk with copies that begins as another of its chain is.

use crate::core::{Call, Core};
use braid_api::data::{CloneCopies, CopiesAnswer};
use braid_api::{Code, Error, Result};
use std::sync::Arc;

impl Core {
    pub async fn clone_copies(self: &Arc<Self>, _call: &Call, m: CloneCopies) -> Result<CopiesAnswer> {
        let subject = format_args!("data server {}, chunk {}", self.id, m.clone.chunk);
        Err(Error::new(Code::NotSupported, subject, "it cannot be made from another yet"))
    }
}
