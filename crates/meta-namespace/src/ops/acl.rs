//! POSIX ACLs in the namespace: inheritance and what chmod does to a list. The rules are in `braid-posix`.

use crate::rows::{Inode, flags, keys};
use crate::{OpError, Unit};
use braid_api::{Code, Error};
use braid_posix::acl::{self, Acl};
use braid_posix::acl_edit::{self, Rights};
use braid_types::{AclChange, FileKind, Mode};

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const PERMISSIONS: u32 = 0o777;

/// Gives a new inode its mode and lists: from the parent's default ACL, or by the umask.
pub(super) async fn inherit(unit: &mut Unit<'_>, parent: &Inode, inode: &mut Inode, umask: u32) -> Result<(), OpError> {
    if inode.kind == FileKind::Symlink {
        inode.mode = Mode(PERMISSIONS);
        return Ok(());
    }
    let default = if parent.has(flags::DEFAULT_ACL) {
        match unit.get_raw(&keys::xattr(parent.id, DEFAULT)).await? {
            Some(bytes) => Acl::parse(&bytes).map_err(|e| bad_acl(parent, e))?,
            None => None,
        }
    } else {
        None
    };
    let inherited = acl::inherit(default.as_ref(), inode.mode, umask, inode.is_dir());
    inode.mode = inherited.mode;
    if let Some(list) = inherited.access {
        unit.put_raw(keys::xattr(inode.id, ACCESS), list.to_bytes());
        inode.set(flags::XATTRS | flags::ACL, true);
    }
    if let Some(list) = inherited.default {
        unit.put_raw(keys::xattr(inode.id, DEFAULT), list.to_bytes());
        inode.set(flags::XATTRS | flags::DEFAULT_ACL, true);
    }
    Ok(())
}

/// After a chmod the access list shows the new mode.
pub(super) async fn follow_chmod(unit: &mut Unit<'_>, inode: &mut Inode) -> Result<(), OpError> {
    if !inode.has(flags::ACL) {
        return Ok(());
    }
    let key = keys::xattr(inode.id, ACCESS);
    let Some(bytes) = unit.get_raw(&key).await? else { return Ok(()) };
    match acl::chmod(&bytes, inode.mode).map_err(|e| bad_acl(inode, e))? {
        Some(list) => unit.put_raw(key, list.to_bytes()),
        None => {
            unit.delete(key);
            inode.set(flags::ACL, false);
        }
    }
    Ok(())
}

/// As setfacl does. True if the lists are others now; the mode follows them.
pub(super) async fn edit(unit: &mut Unit<'_>, inode: &mut Inode, change: &AclChange) -> Result<bool, OpError> {
    let access = list_of(unit, inode, flags::ACL, ACCESS).await?;
    let default = list_of(unit, inode, flags::DEFAULT_ACL, DEFAULT).await?;
    let before = Rights { mode: inode.mode, access, default };
    let after = acl_edit::edit(&before, change, inode.is_dir()).map_err(|e| bad_acl(inode, e))?;
    if after == before {
        return Ok(false);
    }
    inode.mode = after.mode;
    for (flag, name, list) in [(flags::ACL, ACCESS, after.access), (flags::DEFAULT_ACL, DEFAULT, after.default)] {
        let had = inode.has(flag);
        inode.set(flag, list.is_some());
        match list {
            Some(list) => {
                unit.put_raw(keys::xattr(inode.id, name), list.to_bytes());
                inode.set(flags::XATTRS, true);
            }
            None if had => unit.delete(keys::xattr(inode.id, name)),
            None => {}
        }
    }
    Ok(true)
}

async fn list_of(unit: &mut Unit<'_>, inode: &Inode, flag: u32, name: &[u8]) -> Result<Option<Acl>, OpError> {
    if !inode.has(flag) {
        return Ok(None);
    }
    let bytes = unit.get_raw(&keys::xattr(inode.id, name)).await?;
    bytes.map_or(Ok(None), |bytes| Acl::parse(&bytes).map_err(|e| bad_acl(inode, e)))
}

pub(super) fn bad_acl(inode: &Inode, cause: acl::AclError) -> OpError {
    Error::new(Code::Invalid, format_args!("the access list of inode {}", inode.id), cause).into()
}
