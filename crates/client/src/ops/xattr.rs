//! Extended attributes, and the policy as one of them.

use crate::core::Core;
use braid_api::meta::{GetPolicy, GetXattr, ListXattr, RemoveXattr, SetPolicy, SetXattr, XattrKind};
use braid_api::{Caller, Code, Error, Result, XattrMode};
use braid_lease::Key;
use braid_types::{InodeId, Policy};
use bytes::Bytes;
use std::sync::atomic::Ordering::Relaxed;

/// Not listed, so that copying all attributes of a file does not copy where it lies.
const POLICY: &[u8] = b"user.braid.policy";

/// Of Linux.
const XATTR_NAME_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 65_536;

/// As the metadata server, which comes too late where the inode has gone.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > XATTR_NAME_MAX || name.contains(&0) {
        return Err(Code::Range.into());
    }
    let prefixes = [&b"user."[..], b"trusted.", b"security."];
    let in_namespace = prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    let known = in_namespace || name == braid_posix::acl::ACCESS || name == braid_posix::acl::DEFAULT;
    if known { Ok(()) } else { Err(Code::NotSupported.into()) }
}

/// For setxattr(2) that is an attribute which this file cannot have.
fn only_directories(error: Error) -> Error {
    match error.code {
        Code::NotDirectory => Error::new(Code::NotSupported, "user.braid.policy", "only directories have a policy"),
        _ => error,
    }
}

impl Core {
    pub async fn get_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> Result<Bytes> {
        check_name(name)?;
        let (op, inode) = (self.op(cx.trace), self.cache.existing(id)?);
        if name == POLICY {
            let answer = self.call(GetPolicy { inode }, op).await?;
            return Ok(Bytes::from(answer.policy.to_string()));
        }
        if self.has_none(id) {
            return Err(Code::NoXattr.into());
        }
        self.call(GetXattr { inode, name: Bytes::copy_from_slice(name) }, op).await
    }

    /// Known without a message that there is no extended attribute: the kernel asks for `security.capability` before the
    /// first write through each handle and before each change of owner, two of the seven messages that a file of an archive took.
    fn has_none(&self, id: InodeId) -> bool {
        let none = self.cache.attr(id, self.now()).is_some_and(|(attr, _)| !attr.xattrs);
        if none {
            self.counters.cache_hits.fetch_add(1, Relaxed);
        }
        none
    }

    pub async fn set_xattr(&self, cx: &Caller, id: InodeId, name: &[u8], value: Bytes, mode: XattrMode) -> Result<()> {
        check_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Code::TooBig.into());
        }
        let (op, inode) = (self.op(cx.trace), self.cache.existing(id)?);
        // Others may see it before the answer comes.
        let changing = self.cache.change(id, vec![Key::Attr(id)]);
        let done = if name == POLICY {
            let text = std::str::from_utf8(&value).map_err(|_| Error::bare(Code::Invalid))?;
            let policy: Policy = text.parse().map_err(|e| Error::new(Code::Invalid, "user.braid.policy", e))?;
            self.call(SetPolicy { inode, policy: Some(policy) }, op).await.map_err(only_directories)
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
        drop(changing);
        done
    }

    pub async fn list_xattr(&self, cx: &Caller, id: InodeId) -> Result<Vec<Bytes>> {
        let inode = self.cache.existing(id)?;
        if self.has_none(id) {
            return Ok(Vec::new());
        }
        self.call(ListXattr { inode }, self.op(cx.trace)).await
    }

    pub async fn remove_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let (op, inode) = (self.op(cx.trace), self.cache.existing(id)?);
        // Others may see it before the answer comes.
        let changing = self.cache.change(id, vec![Key::Attr(id)]);
        let done = if name == POLICY {
            self.call(SetPolicy { inode, policy: None }, op).await.map_err(only_directories)
        } else {
            self.call(RemoveXattr { inode, name: Bytes::copy_from_slice(name) }, op).await
        };
        self.cache.changed(id);
        drop(changing);
        done
    }
}
