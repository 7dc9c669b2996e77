use crate::ops::handover::may_serve;
use crate::rows::{Entry, InlineState, Inode, RowFormat, SealedCount, keys};
use crate::{OpError, Unit};
use braid_api::{Code, Error};
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::*;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Version of the tables as a whole. Rows have versions of their own.
pub const FORMAT_VERSION: u32 = 1;

/// The row that says what this store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    pub version: u32,
    pub cluster: ClusterId,
}

impl RowFormat for Format {}

/// Makes an empty namespace for `cluster` if there is none; answers the cluster the store belongs to.
pub struct FormatCluster {
    pub cluster: ClusterId,
    pub policy: Policy,
    pub now: Timestamp,
}

impl Operation for FormatCluster {
    type Output = ClusterId;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<ClusterId, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        // In the same transaction: a store that somebody begins to fill at this moment gets no root of its own.
        unit.load(&[keys::global("format"), keys::handover()]).await?;
        may_serve(unit.get(&keys::handover()).await?)?;
        if let Some(format) = check(unit.get(&keys::global("format")).await?)? {
            return Ok(format.cluster);
        }
        let now = self.now;
        let root = Inode {
            id: InodeId::ROOT,
            kind: FileKind::Directory,
            mode: Mode(0o755),
            uid: 0,
            gid: 0,
            rdev: DeviceId(0),
            nlink: 2,
            size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            flags: 0,
            inline: InlineState::None,
            trunc_gen: TruncGen(0),
            cuts: Vec::new(),
            layout_gen: LayoutGen(0),
            lease_gen: LeaseGen(0),
            policy_root: InodeId::ROOT,
            policy: None,
            quota_roots: Vec::new(),
            room: 0,
            snapshot_root: InodeId(0),
            born: 0,
            changed: 0,
            target: Bytes::new(),
        };
        unit.put(keys::root_entry(), &Entry::Here(root));
        unit.put(keys::policy(InodeId::ROOT), &crate::rows::PolicyRow { policy: self.policy });
        unit.put(keys::sealed_count(), &SealedCount(0));
        unit.put(keys::global("format"), &Format { version: FORMAT_VERSION, cluster: self.cluster });
        unit.charge_without_limits().await?;
        Ok(self.cluster)
    }
}

/// The cluster a store belongs to; `None` if it is empty.
pub struct ReadFormat;

impl Operation for ReadFormat {
    type Output = Option<ClusterId>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<ClusterId>, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        Ok(check(unit.get(&keys::global("format")).await?)?.map(|f| f.cluster))
    }
}

fn check(format: Option<Format>) -> Result<Option<Format>, OpError> {
    match format {
        Some(f) if f.version > FORMAT_VERSION => Err(Error::new(
            Code::Newer,
            "the metadata store",
            format_args!("format {}, this version knows {FORMAT_VERSION}; run a newer braid", f.version),
        )
        .into()),
        other => Ok(other),
    }
}
