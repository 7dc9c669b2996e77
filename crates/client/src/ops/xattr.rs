//! Extended attributes, and the policy as one of them.

use crate::core::Core;
use braid_api::meta::{GetPolicy, GetXattr, ListXattr, RemoveXattr, SetPolicy, SetXattr, XattrKind};
use braid_api::{Caller, Code, Error, Result, XattrMode};
use braid_types::{InodeId, Policy};
use bytes::Bytes;

/// Not listed, so that copying all attributes of a file does not copy where it lies.
const POLICY: &[u8] = b"user.braid.policy";

impl Core {
    pub async fn get_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> Result<Bytes> {
        let (op, inode) = (self.op(cx.trace), self.cache.inode(id));
        if name == POLICY {
            let answer = self.call(GetPolicy { inode }, op).await?;
            return Ok(Bytes::from(answer.policy.to_string()));
        }
        self.call(GetXattr { inode, name: Bytes::copy_from_slice(name) }, op).await
    }

    pub async fn set_xattr(&self, cx: &Caller, id: InodeId, name: &[u8], value: Bytes, mode: XattrMode) -> Result<()> {
        let (op, inode) = (self.op(cx.trace), self.cache.inode(id));
        let done = if name == POLICY {
            let text = std::str::from_utf8(&value).map_err(|_| Error::bare(Code::Invalid))?;
            let policy: Policy = text.parse().map_err(|e| Error::new(Code::Invalid, "user.braid.policy", e))?;
            self.call(SetPolicy { inode, policy: Some(policy) }, op).await
        } else {
            let mode = match mode {
                XattrMode::Any => XattrKind::Any,
                XattrMode::Create => XattrKind::Create,
                XattrMode::Replace => XattrKind::Replace,
            };
            let name = Bytes::copy_from_slice(name);
            self.call(SetXattr { inode, name, value, mode, clear_setgid: false }, op).await
        };
        self.cache.changed(id);
        done
    }

    pub async fn list_xattr(&self, cx: &Caller, id: InodeId) -> Result<Vec<Bytes>> {
        self.call(ListXattr { inode: self.cache.inode(id) }, self.op(cx.trace)).await
    }

    pub async fn remove_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> Result<()> {
        let (op, inode) = (self.op(cx.trace), self.cache.inode(id));
        let done = if name == POLICY {
            self.call(SetPolicy { inode, policy: None }, op).await
        } else {
            self.call(RemoveXattr { inode, name: Bytes::copy_from_slice(name) }, op).await
        };
        self.cache.changed(id);
        done
    }
}
