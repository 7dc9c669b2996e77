//! Extended attributes: a row each.

use super::acl;
use super::seal::expect_unsealed;
use crate::rows::{Inode, flags, keys};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::meta::{GetXattr, ListXattr, RemoveXattr, SHARED_XATTR, SetXattr, XattrKind};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_posix::acl as rules;
use braid_types::{FileKind, Mode};
use bytes::Bytes;

/// XATTR_NAME_MAX and XATTR_SIZE_MAX of Linux.
const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 65_536;
/// XATTR_LIST_MAX of Linux: all names with their NULs.
const LIST_BYTES_MAX: usize = 65_536;

/// Linux leaves it to a FUSE file system which namespaces of names there are.
fn check_name(name: &[u8]) -> Result<(), OpError> {
    if name.len() > NAME_BYTES_MAX || name.contains(&0) {
        return Err(Code::Range.into());
    }
    let prefixes = [&b"user."[..], b"trusted.", b"security."];
    let in_namespace = prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    if in_namespace || name == acl::ACCESS || name == acl::DEFAULT { Ok(()) } else { Err(Code::NotSupported.into()) }
}

async fn expect_flag(unit: &mut Unit<'_>, inode: &braid_api::meta::InodeRef) -> Result<Inode, OpError> {
    Ok(unit.find(inode).await?.inode)
}

impl Query for GetXattr {
    type Answer = Bytes;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Bytes, OpError> {
        check_name(&self.name)?;
        let key = keys::xattr(self.inode.id, &self.name);
        let mut first = super::keys_of(&self.inode);
        first.push(key.clone());
        unit.load(&first).await?;
        let inode = expect_flag(unit, &self.inode).await?;
        if !inode.has(flags::XATTRS) {
            return Err(Code::NoXattr.into());
        }
        unit.get_raw(&key).await?.map(Bytes::from).ok_or_else(|| Code::NoXattr.into())
    }
}

impl Query for ListXattr {
    type Answer = Vec<Bytes>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Vec<Bytes>, OpError> {
        let inode = expect_flag(unit, &self.inode).await?;
        if !inode.has(flags::XATTRS) {
            return Ok(Vec::new());
        }
        names(unit, &inode).await
    }
}

async fn names(unit: &mut Unit<'_>, inode: &Inode) -> Result<Vec<Bytes>, OpError> {
    let page = unit.scan(&keys::xattrs(inode.id), None, LIST_BYTES_MAX).await?;
    Ok(page.rows.iter().map(|(key, _)| Bytes::copy_from_slice(key.rest())).collect())
}

impl Mutation for SetXattr {
    type Answer = ();

    fn first_keys(&self) -> Vec<Key> {
        let mut first = super::keys_of(&self.inode);
        first.push(keys::xattr(self.inode.id, &self.name));
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<(), OpError> {
        check_name(&self.name)?;
        if self.value.len() > VALUE_BYTES_MAX {
            return Err(Code::TooBig.into());
        }
        let mut located = unit.find(&self.inode).await?;
        expect_unsealed(&located.inode)?;
        let kind = located.inode.kind;
        if self.name.starts_with(b"user.") && !matches!(kind, FileKind::File | FileKind::Directory) {
            return Err(Code::NotPermitted.into());
        }
        let key = keys::xattr(self.inode.id, &self.name);
        let there = unit.get_raw(&key).await?.is_some();
        match self.mode {
            XattrKind::Create if there => return Err(Code::Exists.into()),
            XattrKind::Replace if !there => return Err(Code::NoXattr.into()),
            _ => {}
        }
        if kind == FileKind::Symlink && (self.name[..] == *acl::ACCESS || self.name[..] == *acl::DEFAULT) {
            return Err(Code::NotSupported.into());
        }
        let inode = &mut located.inode;
        if !there && inode.has(flags::XATTRS) {
            let used: usize = names(unit, inode).await?.iter().map(|n| n.len() + 1).sum();
            if used + self.name.len() + 1 > LIST_BYTES_MAX {
                return Err(Code::NoSpace.into());
            }
        }
        let value = self.effect(inode)?;
        match value {
            Some(value) => {
                unit.put_raw(key, value);
                inode.set(flags::XATTRS, true);
            }
            None => unit.delete(key),
        }
        inode.change(cx.now);
        unit.store(&located);
        Ok(())
    }
}

trait Effect {
    fn effect(&self, inode: &mut Inode) -> Result<Option<Vec<u8>>, OpError>;
}

impl Effect for SetXattr {
    /// What to keep as the value (`None`: nothing), after an access list has had its effect on the mode.
    fn effect(&self, inode: &mut Inode) -> Result<Option<Vec<u8>>, OpError> {
        match &self.name[..] {
            acl::ACCESS => {
                let (mode, list) = rules::set_access(&self.value, inode.mode).map_err(|e| acl::bad_acl(inode, e))?;
                inode.mode = mode;
                if self.clear_setgid {
                    inode.mode.0 &= !Mode::SETGID;
                }
                inode.set(flags::ACL, list.is_some());
                Ok(list.map(|l| l.to_bytes()))
            }
            acl::DEFAULT => {
                let list = rules::Acl::parse(&self.value).map_err(|e| acl::bad_acl(inode, e))?;
                if list.is_some() && !inode.is_dir() {
                    return Err(Code::AccessDenied.into());
                }
                inode.set(flags::DEFAULT_ACL, list.is_some());
                Ok(list.map(|l| l.to_bytes()))
            }
            SHARED_XATTR => {
                let on = match &self.value[..] {
                    b"0" => false,
                    b"1" => true,
                    _ => return Err(not_a_mark(inode)),
                };
                inode.set(flags::SHARED, on);
                Ok(Some(self.value.to_vec()))
            }
            _ => Ok(Some(self.value.to_vec())),
        }
    }
}

fn not_a_mark(inode: &Inode) -> OpError {
    let subject = format_args!("user.braid.shared of inode {}", inode.id);
    Error::new(Code::Invalid, subject, "the value is 1 (several mounts write it at once) or 0").into()
}

impl Mutation for RemoveXattr {
    type Answer = ();

    fn first_keys(&self) -> Vec<Key> {
        let mut first = super::keys_of(&self.inode);
        first.push(keys::xattr(self.inode.id, &self.name));
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<(), OpError> {
        check_name(&self.name)?;
        let mut located = unit.find(&self.inode).await?;
        expect_unsealed(&located.inode)?;
        let key = keys::xattr(self.inode.id, &self.name);
        let is_acl = matches!(&self.name[..], acl::ACCESS | acl::DEFAULT);
        if unit.get_raw(&key).await?.is_none() {
            // Removing an access list that is no more than the mode is not an error (setfacl -b).
            return if is_acl { Ok(()) } else { Err(Code::NoXattr.into()) };
        }
        unit.delete(key);
        let inode = &mut located.inode;
        match &self.name[..] {
            acl::ACCESS => inode.set(flags::ACL, false),
            acl::DEFAULT => inode.set(flags::DEFAULT_ACL, false),
            SHARED_XATTR => inode.set(flags::SHARED, false),
            _ => {}
        }
        inode.change(cx.now);
        unit.store(&located);
        Ok(())
    }
}
