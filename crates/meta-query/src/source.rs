//! What the tables of one query are read from: the snapshot, what is remembered of it, and a count of what was read.

use crate::QueryError;
use crate::paths::Paths;
use crate::run::Stop;
use braid_api::meta::ServerInfo;
use braid_meta_engine::{EngineError, Key, Page, Snapshot, Table};
use braid_meta_namespace::rows::PolicyRow;
use braid_meta_namespace::rows::{Entry, IdRow, Inode, RowFormat, keys};
use braid_types::{InodeId, Name, Policy};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// SQLite wants what it keeps to be shareable; only the query's own thread ever comes here.
pub type Shared = Arc<Mutex<Source>>;

pub struct Source {
    /// There as soon as the query runs.
    pub snapshot: Option<Box<dyn Snapshot>>,
    pub servers: Vec<ServerInfo>,
    stop: Stop,
    /// Rows that were read from the snapshot.
    pub rows: u64,
    pub paths: Paths,
    policies: HashMap<InodeId, Option<Policy>>,
    /// The last that was asked for: chunks of a file follow each other.
    last: Option<(InodeId, Option<Inode>)>,
    /// Why the query failed, where SQLite has only words for it.
    pub failed: Option<QueryError>,
}

/// Directories with a policy of their own that are remembered.
const CLIMB_MAX: usize = 4096;
const POLICIES_MAX: usize = 4096;

impl Source {
    pub fn new(servers: Vec<ServerInfo>, stop: Stop) -> Source {
        Source {
            snapshot: None,
            servers,
            stop,
            rows: 0,
            paths: Paths::default(),
            policies: HashMap::new(),
            last: None,
            failed: None,
        }
    }

    /// Looks whether anybody still wants the answer.
    fn snapshot(&mut self) -> Result<&mut dyn Snapshot, QueryError> {
        if let Some(why) = (self.stop)() {
            return Err(QueryError::Stopped(why));
        }
        match &mut self.snapshot {
            Some(snapshot) => Ok(&mut **snapshot),
            None => Err(EngineError::Closed.into()),
        }
    }

    pub fn tick(&mut self) -> Result<(), EngineError> {
        self.snapshot.as_mut().map_or(Ok(()), |snapshot| snapshot.tick())
    }

    pub fn raw(&mut self, key: &Key) -> Result<Option<Vec<u8>>, QueryError> {
        let found = self.snapshot()?.get(key)?;
        self.rows += u64::from(found.is_some());
        Ok(found)
    }

    pub fn get<R: RowFormat>(&mut self, key: &Key) -> Result<Option<R>, QueryError> {
        Ok(self.raw(key)?.map(|row| R::decode(key, &row)).transpose()?)
    }

    pub fn scan(&mut self, prefix: &Key, after: Option<&Key>, limit: usize) -> Result<Page, QueryError> {
        let page = self.snapshot()?.scan(prefix, after, limit)?;
        self.rows += page.rows.len() as u64;
        Ok(page)
    }

    pub fn scan_table(&mut self, table: Table, after: Option<&Key>, limit: usize) -> Result<Page, QueryError> {
        let page = self.snapshot()?.scan_table(table, after, limit)?;
        self.rows += page.rows.len() as u64;
        Ok(page)
    }

    pub fn entry(&mut self, parent: InodeId, name: &[u8]) -> Result<Option<Entry>, QueryError> {
        let key = match (parent, name) {
            (keys::NO_PARENT, b"") => keys::root_entry(),
            _ => match Name::new(name) {
                Ok(name) => keys::entry(parent, &name),
                Err(_) => return Ok(None),
            },
        };
        self.get(&key)
    }

    /// Where an inode with one name has it.
    pub fn place(&mut self, id: InodeId) -> Result<Option<(InodeId, Vec<u8>)>, QueryError> {
        if id == InodeId::ROOT {
            return Ok(Some((keys::NO_PARENT, Vec::new())));
        }
        Ok(match self.get(&keys::inode_id(id))? {
            Some(IdRow::At { parent, name }) => Some((parent, name)),
            _ => None,
        })
    }

    pub fn inode(&mut self, id: InodeId) -> Result<Option<Inode>, QueryError> {
        if let Some((last, inode)) = &self.last
            && *last == id
        {
            return Ok(inode.clone());
        }
        let inode = self.read_inode(id)?;
        self.last = Some((id, inode.clone()));
        Ok(inode)
    }

    fn read_inode(&mut self, id: InodeId) -> Result<Option<Inode>, QueryError> {
        let (parent, name) = match id {
            InodeId::ROOT => (keys::NO_PARENT, Vec::new()),
            _ => match self.get(&keys::inode_id(id))? {
                None => return Ok(None),
                Some(IdRow::Attributes(inode)) => return Ok(Some(inode)),
                Some(IdRow::At { parent, name }) => (parent, name),
            },
        };
        Ok(match self.entry(parent, &name)? {
            Some(Entry::Here(inode)) if inode.id == id => Some(inode),
            _ => None,
        })
    }

    /// The policy that a directory has of its own.
    fn policy(&mut self, root: InodeId) -> Result<Option<Policy>, QueryError> {
        if let Some(known) = self.policies.get(&root) {
            return Ok(*known);
        }
        let policy = self.get::<PolicyRow>(&keys::policy(root))?.map(|row| row.policy);
        if self.policies.len() >= POLICIES_MAX {
            self.policies.clear();
        }
        self.policies.insert(root, policy);
        Ok(policy)
    }

    /// The one that holds in a directory: as the namespace finds it where the directory that had it is gone.
    pub fn policy_in_force(&mut self, dir: &Inode) -> Result<Option<Policy>, QueryError> {
        let (mut root, mut at) = (dir.policy_root, dir.id);
        for _ in 0..CLIMB_MAX {
            if let Some(policy) = self.policy(root)? {
                return Ok(Some(policy));
            }
            let Some((parent, _)) = self.place(at)?.filter(|(parent, _)| *parent != keys::NO_PARENT) else { break };
            let Some(above) = self.read_inode(parent)? else { break };
            (root, at) = (above.policy_root, parent);
        }
        Ok(None)
    }

    /// What a query is told of an error inside a table: SQLite carries the words, the rest is kept here.
    pub fn fail(&mut self, error: QueryError) -> rusqlite::Error {
        let words = error.to_string();
        self.failed.get_or_insert(error);
        rusqlite::Error::ModuleError(words)
    }
}
