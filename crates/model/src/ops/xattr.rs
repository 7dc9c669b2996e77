use crate::state::State;
use braid_api::{Code, Error, Result, XattrMode};
use braid_posix::acl::{self, Acl, AclError};
use braid_types::{FileKind, InodeId, NAME_BYTES_MAX, Policy, Timestamp};
use bytes::Bytes;

/// A directory's policy, as text.
pub const POLICY: &[u8] = b"user.braid.policy";
/// What Linux passes at most.
const VALUE_BYTES_MAX: usize = 64 << 10;

fn acl_error(name: &[u8], error: AclError) -> Error {
    let code = if error == AclError::Version { Code::NotSupported } else { Code::Invalid };
    Error::new(code, name.escape_ascii(), error)
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Code::Range.into());
    }
    let known = [&b"user."[..], b"trusted.", b"security."].iter().any(|p| name.starts_with(p) && name.len() > p.len());
    if known || name == acl::ACCESS || name == acl::DEFAULT { Ok(()) } else { Err(Code::NotSupported.into()) }
}

impl State {
    /// The policy of the nearest directory above (or `id` itself) that has one.
    fn policy(&self, mut id: InodeId) -> Result<Policy> {
        loop {
            if let Some(policy) = self.inode(id)?.policy {
                return Ok(policy);
            }
            let parent = self.parent(id)?;
            if parent == id || !self.inodes.contains_key(&parent) {
                return Ok(Policy::default());
            }
            id = parent;
        }
    }

    pub fn get_xattr(&self, id: InodeId, name: &[u8]) -> Result<Bytes> {
        check_name(name)?;
        let inode = self.inode(id)?;
        if name == POLICY && inode.attr.is_dir() {
            return Ok(self.policy(id)?.to_string().into());
        }
        inode.xattrs.get(name).cloned().ok_or(Error::bare(Code::NoXattr))
    }

    pub fn set_xattr(&mut self, id: InodeId, name: &[u8], value: Bytes, mode: XattrMode, now: Timestamp) -> Result<()> {
        check_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Code::TooBig.into());
        }
        let inode = self.inode_mut(id)?;
        inode.check_unsealed()?;
        let plain = matches!(inode.attr.kind, FileKind::File | FileKind::Directory);
        let exists = if name == POLICY { inode.policy.is_some() } else { inode.xattrs.contains_key(name) };
        match name {
            _ if name.starts_with(b"user.") && !plain => return Err(Code::NotPermitted.into()),
            _ if exists && mode == XattrMode::Create => return Err(Code::Exists.into()),
            _ if !exists && mode == XattrMode::Replace => return Err(Code::NoXattr.into()),
            acl::ACCESS | acl::DEFAULT if inode.attr.kind == FileKind::Symlink => {
                return Err(Code::NotSupported.into());
            }
            acl::ACCESS => {
                let (mode, list) = acl::set_access(&value, inode.attr.mode).map_err(|e| acl_error(name, e))?;
                inode.attr.mode = mode;
                inode.keep_acl(name, list);
            }
            acl::DEFAULT => {
                let list = Acl::parse(&value).map_err(|e| acl_error(name, e))?;
                if !inode.attr.is_dir() {
                    return if list.is_none() { Ok(()) } else { Err(Code::AccessDenied.into()) };
                }
                inode.keep_acl(name, list);
            }
            POLICY => {
                if !inode.attr.is_dir() {
                    return Err(Error::new(Code::NotSupported, "user.braid.policy", "only directories have a policy"));
                }
                let bad = |cause: String| Error::new(Code::Invalid, "user.braid.policy", cause);
                let text = str::from_utf8(&value).map_err(|e| bad(e.to_string()))?;
                inode.policy = Some(text.parse().map_err(|e: braid_types::PolicyError| bad(e.to_string()))?);
            }
            _ => {
                inode.xattrs.insert(name.to_vec(), value);
            }
        }
        inode.attr.ctime = now;
        Ok(())
    }

    /// The policy is listed only where it was set, so that a copied tree does not pin what it inherited.
    pub fn list_xattr(&self, id: InodeId) -> Result<Vec<Bytes>> {
        let inode = self.inode(id)?;
        let policy = inode.policy.map(|_| Bytes::from_static(POLICY));
        Ok(inode.xattrs.keys().map(|name| Bytes::copy_from_slice(name)).chain(policy).collect())
    }

    pub fn remove_xattr(&mut self, id: InodeId, name: &[u8], now: Timestamp) -> Result<()> {
        check_name(name)?;
        let inode = self.inode_mut(id)?;
        inode.check_unsealed()?;
        let had = if name == POLICY { inode.policy.take().is_some() } else { inode.xattrs.remove(name).is_some() };
        if !had {
            // Linux sets an empty list instead of removing one, and an inode without a list has an empty one.
            let is_list = name == acl::ACCESS || name == acl::DEFAULT;
            return if is_list { Ok(()) } else { Err(Code::NoXattr.into()) };
        }
        inode.attr.ctime = now;
        Ok(())
    }
}
