use super::RowFormat;
use braid_api::meta::{ChunkRef, ContainerInfo, Duty};
use braid_types::{ChainEpoch, ChunkId, ChunkIndex, ContainerId, Layout, ServerId};
use serde::{Deserialize, Serialize};

/// A row of `containers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRow {
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
    pub layout: Layout,
    pub chunk_bytes: u64,
    /// Chunks ever given out, at most [`braid_types::CONTAINER_CHUNKS_MAX`]; and those freed again.
    pub given: u32,
    pub freed: u32,
    /// Chains of epochs that are not open for every chunk yet (design.md *Take-over*), the oldest first.
    pub older: Vec<(ChainEpoch, Vec<ServerId>)>,
    /// Of a container whose chunks have several copies. `None`: one copy each, and its chain never changes.
    pub copies: Option<CopiesRow>,
}

/// What a new leader must know to go on with a chain; the words are those of `braid-chain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiesRow {
    pub copies: u8,
    pub min_copies: u8,
    /// It is written down who goes on with each chunk in the newest epoch.
    pub settled: bool,
    /// Chunks that are not open in the newest epoch, and the last in which they were; and the same for all others.
    pub last_open: Vec<(ChunkId, ChainEpoch)>,
    pub default_open: ChainEpoch,
}

/// The row as version 1 wrote it.
#[derive(Serialize, Deserialize)]
struct FirstContainerRow {
    epoch: ChainEpoch,
    chain: Vec<ServerId>,
    layout: Layout,
    chunk_bytes: u64,
    given: u32,
    freed: u32,
    older: Vec<(ChainEpoch, Vec<ServerId>)>,
}

impl RowFormat for ContainerRow {
    const VERSION: u8 = 2;

    fn decode_older(version: u8, body: &[u8]) -> Option<Result<Self, postcard::Error>> {
        let now = |row: FirstContainerRow| {
            let FirstContainerRow { epoch, chain, layout, chunk_bytes, given, freed, older } = row;
            ContainerRow { epoch, chain, layout, chunk_bytes, given, freed, older, copies: None }
        };
        (version == 1).then(|| postcard::from_bytes(body).map(now))
    }
}

impl ContainerRow {
    pub fn info(&self, id: ContainerId) -> ContainerInfo {
        ContainerInfo { id, epoch: self.epoch, chain: self.chain.clone() }
    }
}

/// A row of `servers`: what must outlive a metadata server. Liveness is soft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    pub addresses: Vec<String>,
    pub host: String,
    /// As the server says; empty where none is configured.
    pub rack: String,
    /// As an administrator says: a registration does not change it.
    pub duty: Duty,
}

/// The row as version 1 wrote it.
#[derive(Serialize, Deserialize)]
struct FirstServerRow {
    addresses: Vec<String>,
    host: String,
}

impl RowFormat for ServerRow {
    const VERSION: u8 = 2;

    fn decode_older(version: u8, body: &[u8]) -> Option<Result<Self, postcard::Error>> {
        let now = |FirstServerRow { addresses, host }| ServerRow { addresses, host, ..ServerRow::default() };
        (version == 1).then(|| postcard::from_bytes(body).map(now))
    }
}

/// The row of `globals` that says how moves between data servers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovesRow {
    /// Bytes a second in all.
    pub rate: u64,
}

impl RowFormat for MovesRow {}

/// A row of `spares`: a chunk a session may put into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareRow {
    pub container: ContainerId,
    /// What is written to it is a copy of another chunk.
    pub for_moves: bool,
}

/// The row as version 1 wrote it.
#[derive(Serialize, Deserialize)]
struct FirstSpareRow {
    container: ContainerId,
}

impl RowFormat for SpareRow {
    const VERSION: u8 = 2;

    fn decode_older(version: u8, body: &[u8]) -> Option<Result<Self, postcard::Error>> {
        let now = |FirstSpareRow { container }| SpareRow { container, for_moves: false };
        (version == 1).then(|| postcard::from_bytes(body).map(now))
    }
}

/// A row of `reclaim`; the key says whether it is an inode or a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimRow {
    /// Of a chunk.
    pub container: ContainerId,
}

impl RowFormat for ReclaimRow {}

/// A row of `chunks`: a chunk of a file at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRow {
    pub chunk: ChunkId,
    pub container: ContainerId,
    /// See [`braid_api::meta::ChunkRef::stable`].
    pub stable: bool,
    /// The newest snapshot of its root when it came into the file; none if there was none. Those that came after have it too, and nobody
    /// writes it any more.
    pub born: Option<u64>,
}

/// The row as version 1 wrote it.
#[derive(Serialize, Deserialize)]
struct FirstChunkRow {
    chunk: ChunkId,
    container: ContainerId,
}

/// The row as version 2 wrote it.
#[derive(Serialize, Deserialize)]
struct SecondChunkRow {
    chunk: ChunkId,
    container: ContainerId,
    stable: bool,
}

impl RowFormat for ChunkRow {
    const VERSION: u8 = 3;

    fn decode_older(version: u8, body: &[u8]) -> Option<Result<Self, postcard::Error>> {
        let first = |FirstChunkRow { chunk, container }| ChunkRow { chunk, container, stable: false, born: None };
        let second = |SecondChunkRow { chunk, container, stable }| ChunkRow { chunk, container, stable, born: None };
        match version {
            1 => Some(postcard::from_bytes(body).map(first)),
            2 => Some(postcard::from_bytes(body).map(second)),
            _ => None,
        }
    }
}

impl ChunkRow {
    /// In a file whose root has this snapshot as its newest (0: none).
    pub fn at(&self, index: ChunkIndex, newest: u64) -> ChunkRef {
        let frozen = self.is_older_than(newest);
        ChunkRef { index, chunk: self.chunk, container: self.container, stable: self.stable, frozen }
    }

    pub fn is_older_than(&self, snapshot: u64) -> bool {
        self.born.unwrap_or(0) < snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::keys;

    #[test]
    fn a_chunk_row_of_the_first_version_is_not_known_to_be_stable() {
        let key = keys::chunk(braid_types::InodeId(7), ChunkIndex(2));
        // As the first version wrote it, byte for byte: version, chunk, container.
        let row = ChunkRow::decode(&key, &[1, 9, 5]).unwrap();
        assert_eq!(row, ChunkRow { chunk: ChunkId(9), container: ContainerId(5), stable: false, born: None });
        let row = ChunkRow { stable: true, ..row };
        // And as the second wrote it.
        assert_eq!(ChunkRow::decode(&key, &[2, 9, 5, 1]).unwrap(), row);
        let row = ChunkRow { born: Some(7), ..row };
        assert_eq!(row.encode(), [3, 9, 5, 1, 1, 7]);
        assert_eq!([6, 7, 8].map(|newest| row.at(ChunkIndex(0), newest).frozen), [false, false, true]);
        assert_eq!(ChunkRow::decode(&key, &row.encode()).unwrap(), row);
    }

    #[test]
    fn a_spare_of_the_first_version_is_for_a_file() {
        let key = keys::spare(braid_types::SessionId(3), ChunkId(7));
        // As the first version wrote it, byte for byte: version, container.
        let row = SpareRow::decode(&key, &[1, 5]).unwrap();
        assert_eq!(row, SpareRow { container: ContainerId(5), for_moves: false });
        let row = SpareRow { for_moves: true, ..row };
        assert_eq!(SpareRow::decode(&key, &row.encode()).unwrap(), row);
    }

    #[test]
    fn a_data_server_of_the_first_version_serves() {
        let key = keys::server(ServerId(3));
        // As the first version wrote it, byte for byte: version, addresses, host.
        let row = ServerRow::decode(&key, b"\x01\x01\x05tcp:a\x01h").unwrap();
        let first = ServerRow { addresses: vec!["tcp:a".into()], host: "h".into(), ..ServerRow::default() };
        assert_eq!((&row, row.duty), (&first, Duty::Serves));
        let row = ServerRow { rack: "r".into(), duty: Duty::Paused, ..row };
        assert_eq!(row.encode(), b"\x02\x01\x05tcp:a\x01h\x01r\x02");
        assert_eq!(ServerRow::decode(&key, &row.encode()).unwrap(), row);
    }

    #[test]
    fn a_row_of_the_first_version_is_read_and_a_new_one_reads_back() {
        let first = FirstContainerRow {
            epoch: ChainEpoch(1),
            chain: vec![ServerId(3)],
            layout: Layout::Replica { copies: 1 },
            chunk_bytes: 64 << 20,
            given: 9,
            freed: 2,
            older: Vec::new(),
        };
        let key = keys::container(ContainerId(5));
        let bytes = postcard::to_extend(&first, vec![1]).unwrap();
        // As the first version wrote it, byte for byte.
        assert_eq!(bytes, [1, 1, 1, 3, 0, 1, 128, 128, 128, 32, 9, 2, 0]);
        let row = ContainerRow::decode(&key, &bytes).unwrap();
        assert_eq!((row.chain.as_slice(), row.given, row.copies.is_none()), (&[ServerId(3)][..], 9, true));
        let copies = CopiesRow { copies: 3, min_copies: 2, settled: true, ..CopiesRow::default() };
        let row = ContainerRow { copies: Some(copies), ..row };
        assert_eq!(ContainerRow::decode(&key, &row.encode()).unwrap(), row);
        assert!(ContainerRow::decode(&key, &[3, 0]).is_err());
    }
}
