//! PromiseTerm, RecordSet, AppendGroups, SyncGroups, PutBase, FetchRows: to the keeper of a copy of the metadata.

use crate::core::Core;
use crate::metadata::MetadataKeeper;
use braid_api::{Code, Error, Result};

impl Core {
    pub fn metadata(&self) -> Result<&MetadataKeeper> {
        let refused = || Error::new(Code::NotSupported, format_args!("data server {}", self.id), "keeps no metadata");
        self.metadata.get().ok_or_else(refused)
    }
}
