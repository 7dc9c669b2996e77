use crate::inode::Node;
use crate::state::State;
use braid_api::{Code, Result, SetAttr, TimeOrNow};
use braid_posix::mode::without_privileges;
use braid_types::{Attr, FILE_BYTES_MAX, InodeId, Timestamp};
use bytes::Bytes;

/// Linux programs with file capabilities lose them like setuid.
const CAPABILITY: &[u8] = b"security.capability";

impl State {
    pub fn stat(&self, id: InodeId) -> Result<Attr> {
        Ok(self.inode(id)?.stat())
    }

    pub fn set_attr(&mut self, id: InodeId, change: SetAttr, now: Timestamp) -> Result<Attr> {
        let inode = self.inode_mut(id)?;
        if change.size.is_some_and(|size| size > FILE_BYTES_MAX) {
            return Err(Code::FileTooBig.into());
        }
        inode.check_unsealed()?;
        if let Some(size) = change.size {
            match &mut inode.node {
                Node::File(content) => content.truncate(size),
                Node::Directory { .. } => return Err(Code::IsDirectory.into()),
                _ => return Err(Code::Invalid.into()),
            }
            inode.attr.mtime = now;
            inode.attr.trunc_gen = inode.attr.trunc_gen.next();
        }
        inode.attr.uid = change.uid.unwrap_or(inode.attr.uid);
        inode.attr.gid = change.gid.unwrap_or(inode.attr.gid);
        if let Some(mode) = change.mode {
            inode.chmod(mode);
        }
        if change.kill_privileges && !inode.attr.is_dir() {
            inode.attr.mode = without_privileges(inode.attr.mode);
            inode.xattrs.remove(CAPABILITY);
        }
        let time = |time| match time {
            TimeOrNow::Now => now,
            TimeOrNow::At(time) => time,
        };
        inode.attr.atime = change.atime.map_or(inode.attr.atime, time);
        inode.attr.mtime = change.mtime.map_or(inode.attr.mtime, time);
        if change != SetAttr::default() {
            inode.attr.ctime = now;
        }
        Ok(inode.stat())
    }

    pub fn read_link(&mut self, id: InodeId, now: Timestamp) -> Result<Bytes> {
        let inode = self.inode_mut(id)?;
        let Node::Symlink(target) = &inode.node else { return Err(Code::Invalid.into()) };
        let target = target.clone();
        inode.accessed(now);
        Ok(target)
    }
}
