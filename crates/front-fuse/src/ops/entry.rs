use crate::caller::caller;
use crate::convert::{self, name_of};
use crate::door::Door;
use crate::passing::Passing;
use crate::told::Telling;
use braid_api::{Code, EntryReply, FileSystem, LookupReply, RenameMode, Result};
use braid_fuse_kernel::{EntryOut, Reply, Request};
use braid_types::InodeId;
use std::sync::Arc;

fn tell_found(telling: &Telling, passing: &Arc<Passing>, reply: Reply, found: LookupReply) {
    match found.attr {
        Some(attr) => {
            let valid = telling.valid(attr.id, found.valid);
            passing.telling(reply, &attr).entry(&convert::entry(&EntryReply { attr, valid }));
        }
        None if found.valid.is_zero() => reply.error(libc::ENOENT),
        // An absence the kernel may remember.
        None => reply.entry(&EntryOut::absent(found.valid)),
    }
}

/// A node that has this name now.
pub fn tell_made(telling: &Telling, passing: &Arc<Passing>, reply: Reply, made: EntryReply) {
    let valid = telling.valid(made.attr.id, made.valid);
    passing.telling(reply, &made.attr).entry(&convert::entry(&EntryReply { valid, ..made }));
}

fn rename_mode(flags: u32) -> Result<RenameMode> {
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Code::Invalid.into()),
    }
}

impl<F: FileSystem> Door<F> {
    /// `.` and `..` come from the NFS server, which looks for a node it has only the number of.
    pub fn lookup(&self, request: &Request<'_>, reply: Reply, parent: InodeId, name: &[u8]) {
        let (fs, cx, telling) = (self.fs.clone(), caller(request), self.told.begin(parent));
        let passing = self.passing.clone();
        let tell_found = move |reply: Reply, found| tell_found(&telling, &passing, reply, found);
        if name == b"." || name == b".." {
            let up = name == b"..";
            let call = async move {
                let id = if up { fs.parent(&cx, parent).await? } else { parent };
                let found = fs.get_attr(&cx, id, None).await?;
                Ok(LookupReply { attr: Some(found.attr), valid: found.valid })
            };
            return self.answer(reply, call, tell_found);
        }
        match name_of(name) {
            Ok(name) => self.answer(reply, async move { fs.lookup(&cx, parent, &name).await }, tell_found),
            Err(error) => self.refuse(reply, &error),
        }
    }

    pub fn unlink(&self, request: &Request<'_>, reply: Reply, parent: InodeId, name: &[u8]) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let name = name_of(name);
        self.answer(reply, async move { fs.unlink(&cx, parent, &name?).await }, |reply, ()| reply.ok());
    }

    pub fn remove_dir(&self, request: &Request<'_>, reply: Reply, parent: InodeId, name: &[u8]) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let name = name_of(name);
        self.answer(reply, async move { fs.remove_dir(&cx, parent, &name?).await }, |reply, ()| reply.ok());
    }

    pub fn rename(
        &self,
        request: &Request<'_>,
        reply: Reply,
        from: (InodeId, &[u8]),
        to: (InodeId, &[u8]),
        flags: u32,
    ) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let (from_name, to_name, mode) = (name_of(from.1), name_of(to.1), rename_mode(flags));
        let (from, to) = (from.0, to.0);
        let call = async move { fs.rename(&cx, (from, &from_name?), (to, &to_name?), mode?).await };
        self.answer(reply, call, |reply, ()| reply.ok());
    }

    pub fn link(&self, request: &Request<'_>, reply: Reply, id: InodeId, parent: InodeId, name: &[u8]) {
        let (fs, cx, telling) = (self.fs.clone(), caller(request), self.told.begin(parent));
        let (name, passing) = (name_of(name), self.passing.clone());
        let call = async move { fs.link(&cx, id, parent, &name?).await };
        self.answer(reply, call, move |reply, made| tell_made(&telling, &passing, reply, made));
    }
}
