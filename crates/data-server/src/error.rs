//! The one door at which errors of the store become errors of the protocol.

use braid_api::{Code, Error};
use braid_data_store::StoreError;
use braid_types::{ChunkId, ServerId};

/// The store's own words, which name chunk and file, under a stable code.
pub(crate) fn of_store(server: ServerId, chunk: ChunkId, error: &StoreError) -> Error {
    let subject = match chunk {
        ChunkId(0) => format!("data server {server}"),
        chunk => format!("data server {server}, chunk {chunk}"),
    };
    Error::new(code(error), subject, error)
}

fn code(error: &StoreError) -> Code {
    match error {
        StoreError::NoSuchChunk(_) => Code::ChunkUnknown,
        StoreError::BadBlock { .. } | StoreError::BadHeader { .. } | StoreError::Missing { .. } => Code::BadBlock,
        StoreError::StaleTruncGen { .. } => Code::StaleTruncGen,
        StoreError::BeyondChunk { .. } | StoreError::NotACopy(_) => Code::Invalid,
        StoreError::NoSpace { .. } | StoreError::Full { .. } => Code::DiskFull,
        StoreError::Failed { .. } | StoreError::Io { .. } | StoreError::ReadOnly(_) => Code::DiskError,
        StoreError::OtherCluster { .. } | StoreError::OtherServer { .. } => Code::WrongCluster,
        StoreError::NewerFormat { .. } => Code::Newer,
        StoreError::Locked(_) | StoreError::NotAStore { .. } => Code::BadConfig,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::TruncGen;

    #[test]
    fn an_error_names_server_chunk_and_cause() {
        let (chunk, seen, got) = (ChunkId(7), TruncGen(3), TruncGen(2));
        let error = of_store(ServerId(4), chunk, &StoreError::StaleTruncGen { chunk, seen, got });
        assert_eq!(error.code, Code::StaleTruncGen);
        let text = error.to_string();
        assert!(text.contains("data server 4, chunk 7") && text.contains("generation 3"), "{text}");
    }
}
