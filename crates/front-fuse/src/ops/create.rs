//! What makes inodes: MKNOD, MKDIR, SYMLINK, CREATE, TMPFILE.

use crate::caller::creator;
use crate::convert::{self, name_of};
use crate::door::Door;
use crate::handles::number;
use crate::ops::entry::tell_made;
use crate::passing::Passing;
use crate::privileges::kill_privileges;
use braid_api::{Caller, Code, EntryReply, FileSystem, NewNode, NodeKind, OpenFlags, Opened};
use braid_fuse_kernel::{Reply, Request};
use braid_types::{DeviceId, FileKind, InodeId};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn tell_opened(passing: Arc<Passing>, flags: OpenFlags) -> impl FnOnce(Reply, (EntryReply, Opened)) {
    move |reply, (made, opened)| {
        let open = passing.open_made(made.attr.id, &opened, flags);
        passing.telling(reply, &made.attr).create(&convert::entry(&made), open);
    }
}

impl<F: FileSystem> Door<F> {
    fn creator(&self, request: &Request<'_>, umask: u32, mode: u32) -> Caller {
        creator(request, umask, mode, self.groups_sent.load(Ordering::Relaxed))
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the kernel's request")]
    pub fn make_node(
        &self,
        request: &Request<'_>,
        reply: Reply,
        parent: InodeId,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    ) {
        let kind = match convert::kind_of(mode) {
            Some(FileKind::File) => NodeKind::File,
            Some(FileKind::Directory) => NodeKind::Directory,
            Some(kind @ (FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice)) => {
                NodeKind::Special(kind, DeviceId(rdev))
            }
            Some(FileKind::Symlink) | None => return self.refuse(reply, &Code::Invalid.into()),
        };
        let cx = self.creator(request, umask, mode);
        self.make(cx, reply, parent, name, NewNode { kind, mode: convert::mode(mode) });
    }

    pub fn symlink(&self, request: &Request<'_>, reply: Reply, parent: InodeId, name: &[u8], target: &[u8]) {
        let kind = NodeKind::Symlink(Bytes::copy_from_slice(target));
        self.make(self.creator(request, 0, 0), reply, parent, name, NewNode { kind, mode: convert::mode(0o777) });
    }

    fn make(&self, cx: Caller, reply: Reply, parent: InodeId, name: &[u8], new: NewNode) {
        let (fs, name, telling) = (self.fs.clone(), name_of(name), self.told.begin(parent));
        let (call, passing) = (async move { fs.make_node(&cx, parent, &name?, new).await }, self.passing.clone());
        self.answer(reply, call, move |reply, made| tell_made(&telling, &passing, reply, made));
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the kernel's request")]
    pub fn create(
        &self,
        request: &Request<'_>,
        reply: Reply,
        parent: InodeId,
        name: &[u8],
        flags: u32,
        mode: u32,
        umask: u32,
    ) {
        let (fs, cx, name) = (self.fs.clone(), self.creator(request, umask, mode), name_of(name));
        let (flags, mode) = (convert::open_flags(flags), convert::mode(mode));
        let (privileges, telling) = (self.privileges.clone(), self.told.begin(parent));
        let call = async move {
            let (mut made, opened) = fs.create(&cx, parent, &name?, mode, flags).await?;
            // Nothing has changed since its birth: it is new, or nobody has given it anything. Else somebody was faster
            // with the name, and this is an open.
            if made.attr.ctime == made.attr.btime {
                privileges.created(number(opened.handle, flags.append));
            } else if flags.truncate && cx.uid != 0 {
                kill_privileges(&*fs, &cx, made.attr.id, Some(opened.handle)).await?;
            }
            made.valid = telling.valid(made.attr.id, made.valid);
            Ok((made, opened))
        };
        self.answer(reply, call, tell_opened(self.passing.clone(), flags));
    }

    pub fn make_temporary(
        &self,
        request: &Request<'_>,
        reply: Reply,
        parent: InodeId,
        flags: u32,
        mode: u32,
        umask: u32,
    ) {
        let (fs, cx) = (self.fs.clone(), self.creator(request, umask, mode));
        let (flags, mode) = (convert::open_flags(flags), convert::mode(mode));
        let privileges = self.privileges.clone();
        let call = async move {
            let made = fs.make_temporary(&cx, parent, mode, flags).await?;
            privileges.created(number(made.1.handle, flags.append));
            Ok(made)
        };
        self.answer(reply, call, tell_opened(self.passing.clone(), flags));
    }
}
