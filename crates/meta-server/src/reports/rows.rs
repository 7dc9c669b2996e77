//! The rows of a round, in pages: no transaction stays open, and whoever changes rows waits for nothing.

use crate::server::MetaServer;
use braid_api::admin::{KeptRow, Pending};
use braid_api::{Error, Result};
use braid_meta_engine::Engine;
use braid_meta_namespace::ReadOnly;
use braid_meta_namespace::ops::{admin, snapshot, spares};
use braid_report::{Named, View};
use braid_types::{ChainEpoch, ContainerId, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Rows in a page: about a millisecond of a reader's time.
const PAGE: u32 = 4096;
/// After each, so that whoever waits for the same thread or database is served in between.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Place {
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
}

/// Where containers are, as rows say.
#[derive(Default)]
pub(super) struct Places(BTreeMap<ContainerId, Place>);

impl Places {
    pub fn get(&self, id: ContainerId) -> Option<&Place> {
        self.0.get(&id)
    }

    pub fn of(&self, server: ServerId) -> impl Iterator<Item = ContainerId> + '_ {
        self.0.iter().filter(move |(_, place)| place.chain.contains(&server)).map(|(id, _)| *id)
    }
}

impl MetaServer {
    pub(super) async fn read_places(&self) -> Result<Places> {
        let (mut places, mut after) = (Places::default(), None);
        loop {
            let page = spares::ListContainers { after, limit: PAGE as usize };
            let page = self.engine.read(0, page).await.map_err(Error::from)?;
            let Some((last, _)) = page.last() else { return Ok(places) };
            after = Some(*last);
            places.0.extend(page.into_iter().map(|(id, row)| (id, Place { epoch: row.epoch, chain: row.chain })));
            self.env.sleep(PAUSE).await;
        }
    }

    /// Spares and what waits to be freed, files, snapshots, and the former again: see [`View`].
    pub(super) async fn read_view(&self, mut view: View) -> Result<View> {
        self.read_pending(&mut view).await?;
        let mut after = None;
        loop {
            let op = ReadOnly(admin::ChunkRows { after, limit: PAGE });
            let page = self.engine.read(0, op).await.map_err(Error::from)?;
            let Some(last) = page.last() else { break };
            after = Some((last.inode, last.index));
            for row in page {
                let named = Named { inode: row.inode, index: row.index, stable: row.stable };
                view.names(row.container, row.chunk, named);
            }
            self.env.sleep(PAUSE).await;
        }
        self.read_kept(&mut view).await?;
        self.read_pending(&mut view).await?;
        Ok(view)
    }

    /// What snapshots alone have. After the files: what leaves one for a snapshot is not missed.
    async fn read_kept(&self, view: &mut View) -> Result<()> {
        let mut after = None;
        loop {
            let op = ReadOnly(snapshot::KeptRows { after, limit: PAGE as usize });
            let page = self.engine.read(0, op).await.map_err(Error::from)?;
            for row in page.rows {
                if let KeptRow::Chunk(row) = row {
                    let named = Named { inode: row.inode, index: row.index, stable: row.stable };
                    view.names(row.container, row.chunk, named);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
            self.env.sleep(PAUSE).await;
        }
    }

    async fn read_pending(&self, view: &mut View) -> Result<()> {
        let mut after = None;
        loop {
            let op = ReadOnly(admin::PendingRows { after, limit: PAGE });
            let page = self.engine.read(0, op).await.map_err(Error::from)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(*last);
            for row in page {
                if let Pending::Spare(_, chunk, container) | Pending::Chunk(chunk, container) = row {
                    view.may_be(container, chunk);
                }
            }
            self.env.sleep(PAUSE).await;
        }
    }
}
