//! Which inodes names stand for: what a change of them makes old besides.

use crate::rows::{Entry, keys};
use crate::{OpError, Query, Unit};
use braid_meta_engine::Key;
use braid_types::{InodeId, Name};

/// Of each of these names the inode, in their order; one round trip.
pub struct StandFor {
    pub names: Vec<(InodeId, Name)>,
}

impl Query for StandFor {
    type Answer = Vec<Option<InodeId>>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Self::Answer, OpError> {
        let all: Vec<Key> = self.names.iter().map(|(parent, name)| keys::entry(*parent, name)).collect();
        unit.load(&all).await?;
        let mut found = Vec::with_capacity(all.len());
        for key in &all {
            found.push(unit.get::<Entry>(key).await?.map(|entry| entry.id()));
        }
        Ok(found)
    }
}
