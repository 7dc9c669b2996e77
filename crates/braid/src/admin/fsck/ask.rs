//! Typed forms of the questions that fsck asks a metadata server.

use braid_api::admin::*;
use braid_api::meta::{GetServers, ServerInfo};
use braid_api::quota::Miscount;
use braid_api::{Code, Context, Error, Namespace, Result};
use braid_types::{ChunkIndex, ContainerId, InodeId, SessionId};

/// Rows in one message: about 500 KiB. Few in tests, so that much happens between two pages.
const PAGE: u32 = if cfg!(test) { 8 } else { 4096 };

pub struct Ask<'a, N> {
    namespace: &'a N,
}

/// Takes the answer that belongs to the question.
macro_rules! expect {
    ($answer:expr, $variant:ident) => {
        match $answer {
            AdminAnswer::$variant(value) => Ok(value),
            _ => Err(Error::new(Code::BadMessage, stringify!($variant), "the metadata server answered something else")),
        }
    };
}

impl<'a, N: Namespace> Ask<'a, N> {
    pub fn new(namespace: &'a N) -> Self {
        Ask { namespace }
    }

    async fn query(&self, query: AdminQuery) -> Result<AdminAnswer> {
        self.namespace.call(Context::default(), query).await
    }

    /// Entries after this one; empty at the end.
    pub async fn inode_rows(&self, after: Option<(InodeId, Vec<u8>)>) -> Result<Vec<InodeRow>> {
        expect!(self.query(AdminQuery::InodeRows { after, limit: PAGE }).await?, InodeRows)
    }

    pub async fn id_rows(&self, after: Option<InodeId>) -> Result<Vec<IdRow>> {
        expect!(self.query(AdminQuery::IdRows { after, limit: PAGE }).await?, IdRows)
    }

    pub async fn chunk_rows(&self, after: Option<(InodeId, ChunkIndex)>) -> Result<Vec<ChunkRow>> {
        expect!(self.query(AdminQuery::ChunkRows { after, limit: PAGE }).await?, ChunkRows)
    }

    pub async fn kept_rows(&self, after: Option<Vec<u8>>) -> Result<KeptPage> {
        expect!(self.query(AdminQuery::KeptRows { after, limit: PAGE }).await?, KeptRows)
    }

    pub async fn containers(&self, after: ContainerId) -> Result<Vec<ContainerStatus>> {
        expect!(self.query(AdminQuery::Containers { after, limit: PAGE }).await?, Containers)
    }

    pub async fn container(&self, id: ContainerId) -> Result<Option<ContainerStatus>> {
        let query = AdminQuery::Containers { after: ContainerId(id.0.saturating_sub(1)), limit: 1 };
        let page = expect!(self.query(query).await?, Containers)?;
        Ok(page.into_iter().find(|c| c.id == id))
    }

    /// Orphans, spares and what waits to be freed, after this; empty at the end.
    pub async fn pending(&self, after: Option<Pending>) -> Result<Vec<Pending>> {
        expect!(self.query(AdminQuery::Pending { after, limit: PAGE }).await?, Pending)
    }

    pub async fn inode(&self, id: InodeId) -> Result<InodeCheck> {
        Ok(*expect!(self.query(AdminQuery::Inode { id }).await?, Inode)?)
    }

    pub async fn entry(&self, parent: InodeId, name: &[u8]) -> Result<EntryCheck> {
        Ok(*expect!(self.query(AdminQuery::Entry { parent, name: name.to_vec() }).await?, Entry)?)
    }

    pub async fn path_of(&self, id: InodeId) -> Result<PathCheck> {
        expect!(self.query(AdminQuery::PathOf { id }).await?, PathOf)
    }

    pub async fn chunk(&self, inode: InodeId, index: ChunkIndex, session: SessionId) -> Result<ChunkCheck> {
        expect!(self.query(AdminQuery::Chunk { inode, index, session }).await?, Chunk)
    }

    /// Inodes with rows beside them, after this one; empty at the end.
    pub async fn side_rows(&self, after: Option<(SideTable, InodeId)>) -> Result<Vec<SideRow>> {
        expect!(self.query(AdminQuery::SideRows { after, limit: PAGE }).await?, SideRows)
    }

    pub async fn side(&self, row: SideRow) -> Result<SideCheck> {
        expect!(self.query(AdminQuery::Side(row)).await?, Side)
    }

    /// Accounts that are not what the inodes sum up to, all of one moment.
    pub async fn miscounts(&self) -> Result<Vec<Miscount>> {
        expect!(self.query(AdminQuery::Miscounts).await?, Miscounts)
    }

    /// What was done, if the fault was still there.
    pub async fn repair(&self, repair: Repair) -> Result<Option<String>> {
        match self.query(AdminQuery::Repair(repair)).await? {
            AdminAnswer::Repaired { done, what } => Ok(done.then_some(what)),
            _ => Err(Error::new(Code::BadMessage, "Repair", "the metadata server answered something else")),
        }
    }

    pub async fn servers(&self) -> Result<Vec<ServerInfo>> {
        Ok(self.namespace.call(Context::default(), GetServers {}).await?.servers)
    }

    /// The path of a directory, or of a file with one name, as people read it.
    pub async fn path(&self, id: InodeId) -> Result<String> {
        let found = self.path_of(id).await?;
        let mut text = match found.end {
            PathEnd::Root => String::new(),
            PathEnd::Missing(at) | PathEnd::Circle(at) => format!("(inode {at})"),
        };
        for name in &found.names {
            text.push('/');
            text.push_str(&name.escape_ascii().to_string());
        }
        if text.is_empty() {
            text.push('/');
        }
        Ok(text)
    }

    /// The path of an entry.
    pub async fn path_in(&self, parent: InodeId, name: &[u8]) -> Result<String> {
        let dir = self.path(parent).await?;
        let gap = if dir.ends_with('/') { "" } else { "/" };
        Ok(format!("{dir}{gap}{}", name.escape_ascii()))
    }
}
