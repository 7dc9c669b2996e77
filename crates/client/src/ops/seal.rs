//! Sealing files and unsealing them (docs/design/0015-sealed-files.md).

use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::inode::Inode;
use crate::map::file_name;
use braid_api::meta::SealFile;
use braid_api::{AttrReply, Caller, Code, Error, Result};
use braid_lease::{Key, Want};
use braid_types::InodeId;
use std::sync::Arc;
use std::time::Duration;

/// What was closed a moment ago may not be released yet: a kernel says so behind the close.
const CLOSING: Duration = Duration::from_secs(1);
/// Before it is looked again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A file that is being sealed: it is open here, and not opened for writing meanwhile.
struct Sealing {
    core: Arc<Core>,
    inode: Arc<Inode>,
}

impl Drop for Sealing {
    fn drop(&mut self) {
        self.inode.state.lock().sealing -= 1;
        self.core.close_inode(&self.inode);
    }
}

impl Core {
    pub async fn set_sealed(
        self: &Arc<Self>,
        cx: &Caller,
        id: InodeId,
        sealed: bool,
        wait: Duration,
    ) -> Result<AttrReply> {
        let op = self.op(cx.trace);
        let _sealing = match sealed {
            true => Some(self.begin_to_seal(id, wait.min(CLOSING), op).await?),
            false => None,
        };
        let wait_ms = wait.as_millis().try_into().unwrap_or(u32::MAX);
        let message = SealFile { inode: self.cache.existing(id)?, sealed, wait_ms };
        // Not before: what was written until now is in the answer.
        let asking = self.cache.change(id, vec![Key::Attr(id)]);
        let before = asking.ticket;
        let answer = self.call(message, op).await?;
        if let Some(inode) = self.inodes.get(id) {
            self.update(&inode, |state| state.adopt_attr(&answer.attr, Some(&answer.cuts)));
        }
        self.cache.own_change(&answer.attr);
        if !self.cache.changed_since(id, before) {
            let ticket = self.cache.ticket();
            let reply = self.attr_reply(answer, asking, ticket);
            if self.cache.valid(id, ticket) {
                return Ok(reply);
            }
        }
        self.get_attr(cx, id).await
    }

    /// Under a lease for writing. The metadata server grants that before it reads the row, and who was refused then, as the file is sealed, may
    /// be told with its next lease for reading that it has it. What comes with a lease says whether the file is sealed.
    pub async fn expect_unsealed(&self, inode: &Inode, op: Op) -> Result<()> {
        self.fresh(inode, op).await?;
        if !inode.state.lock().attr.sealed {
            return Ok(());
        }
        // Unsealing takes nobody's lease, so it may not be known here yet.
        self.refresh_map(inode, op).await?;
        if inode.state.lock().attr.sealed {
            return Err(Error::new(Code::Sealed, file_name(inode), "nothing of it changes until it is unsealed"));
        }
        Ok(())
    }

    /// What was written here is stable and in the row, and nobody here opens it for writing.
    async fn begin_to_seal(self: &Arc<Self>, id: InodeId, wait: Duration, op: Op) -> Result<Sealing> {
        let (inode, _) = self.open_inode(id, Want::Read, false, op).await?;
        inode.state.lock().sealing += 1;
        let sealing = Sealing { core: self.clone(), inode: inode.clone() };
        let end = self.now() + wait;
        while inode.state.lock().writers > 0 {
            if end <= self.now() {
                return Err(Error::new(
                    Code::TextBusy,
                    file_name(&inode),
                    "it is open for writing here; close it first",
                ));
            }
            self.env.sleep(LOOK_AGAIN).await;
        }
        self.commit(&inode, Reach::Stable, op).await?;
        Ok(sealing)
    }
}
