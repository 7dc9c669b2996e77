//! Attributes and totals: GETATTR, SETATTR, STATX, STATFS.

use crate::caller::caller;
use crate::convert::inode_of;
use crate::door::Door;
use crate::handles::handle;
use crate::{convert, stats::Stats};
use braid_api::{AttrReply, FileSystem, SetAttr};
use braid_fuse_kernel as kernel;
use braid_fuse_kernel::{AttrOut, Forget, Reply, Request, StatfsOut};
use braid_types::{InodeId, NAME_BYTES_MAX};

const BLOCK_BYTES: u32 = 4096;

fn tell_attr(reply: Reply, found: AttrReply) {
    reply.attr(&AttrOut { attr: convert::attr(&found.attr), attr_valid: found.valid });
}

impl<F: FileSystem> Door<F> {
    pub fn forget(&self, reply: Reply, nodes: &[Forget]) {
        Stats::add(&self.stats.forgotten, nodes.len() as u64);
        reply.none();
        nodes.iter().for_each(|node| self.passing.forgotten(inode_of(node.nodeid), node.nlookup));
    }

    pub fn get_attr(&self, request: &Request<'_>, reply: Reply, id: InodeId, fh: Option<u64>) {
        let (fs, cx, question) = (self.fs.clone(), caller(request), self.asked.begin(id));
        let call = async move {
            let found = fs.get_attr(&cx, id, fh.map(handle)).await;
            // Also one that ends with an error is over then.
            found.map(|found| (found, question))
        };
        self.answer(reply, call, |reply, (found, question)| tell_attr(reply.holding(question), found));
    }

    pub fn statx(&self, request: &Request<'_>, reply: Reply, id: InodeId, fh: Option<u64>) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let call = async move { fs.get_attr(&cx, id, fh.map(handle)).await };
        self.answer(reply, call, |reply, found| reply.statx(&convert::statx(&found)));
    }

    pub fn set_attr(&self, request: &Request<'_>, reply: Reply, id: InodeId, change: &kernel::SetAttr) {
        let (fs, cx, fh) = (self.fs.clone(), caller(request), change.fh);
        let privileges = change.size.and_then(|_| self.privileges_if_ours());
        let change = SetAttr {
            mode: change.mode.map(convert::mode),
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: change.atime.map(convert::new_time),
            mtime: change.mtime.map(convert::new_time),
            // A change of owner takes them whoever makes it.
            kill_privileges: change.kill_suidgid || change.uid.is_some() || change.gid.is_some(),
        };
        let call = async move {
            if let Some(privileges) = privileges {
                privileges.before_change(&*fs, &cx, id, fh).await?;
            }
            fs.set_attr(&cx, id, fh.map(handle), change).await
        };
        self.answer(reply, call, tell_attr);
    }

    pub fn read_link(&self, request: &Request<'_>, reply: Reply, id: InodeId) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        self.answer(reply, async move { fs.read_link(&cx, id).await }, |reply, target| reply.data(&target));
    }

    pub fn statfs(&self, request: &Request<'_>, reply: Reply, id: InodeId) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        self.answer(reply, async move { fs.statfs(&cx, id).await }, |reply, totals| {
            let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
            reply.statfs(&StatfsOut {
                blocks: blocks(totals.bytes_total),
                bfree: blocks(totals.bytes_free),
                bavail: blocks(totals.bytes_free),
                files: totals.files,
                ffree: totals.files_free,
                bsize: BLOCK_BYTES,
                namelen: NAME_BYTES_MAX as u32,
                frsize: BLOCK_BYTES,
            });
        });
    }
}
