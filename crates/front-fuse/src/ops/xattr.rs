use crate::caller::caller;
use crate::door::Door;
use crate::privileges::CAPABILITY;
use braid_api::{Code, FileSystem, SetAttr, XattrMode};
use braid_fuse_kernel::{Reply, Request};
use braid_types::{InodeId, Mode};
use bytes::Bytes;

/// The longest list of names Linux passes.
const LIST_BYTES_MAX: usize = 64 << 10;

/// The value, or its length if the caller only asked for that.
fn tell_value(reply: Reply, value: &[u8], size: u32) {
    match size as usize {
        0 => reply.xattr_size(value.len() as u32),
        room if value.len() > room => reply.error(libc::ERANGE),
        _ => reply.data(value),
    }
}

impl<F: FileSystem> Door<F> {
    pub fn get_xattr(&self, request: &Request<'_>, reply: Reply, id: InodeId, name: &[u8], size: u32) {
        let (fs, cx, name) = (self.fs.clone(), caller(request), Bytes::copy_from_slice(name));
        let call = async move { fs.get_xattr(&cx, id, &name).await };
        self.answer(reply, call, move |reply, value| tell_value(reply, &value, size));
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the kernel's request")]
    pub fn set_xattr(
        &self,
        request: &Request<'_>,
        reply: Reply,
        id: InodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        acl_kill_sgid: bool,
    ) {
        let (fs, cx, name) = (self.fs.clone(), caller(request), Bytes::copy_from_slice(name));
        let value = Bytes::copy_from_slice(value);
        if name == CAPABILITY {
            self.privileges.capabilities_set();
        }
        let mode = match flags as i32 {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return self.refuse(reply, &Code::Invalid.into()),
        };
        let call = async move {
            fs.set_xattr(&cx, id, &name, value, mode).await?;
            // Somebody outside the file's group changed its access list: as with chmod, setgid goes.
            if acl_kill_sgid {
                let mode = fs.get_attr(&cx, id, None).await?.attr.mode;
                if mode.has(Mode::SETGID) {
                    let mode = Some(Mode(mode.0 & !Mode::SETGID));
                    fs.set_attr(&cx, id, None, SetAttr { mode, ..SetAttr::default() }).await?;
                }
            }
            Ok(())
        };
        self.answer(reply, call, |reply, ()| reply.ok());
    }

    pub fn list_xattr(&self, request: &Request<'_>, reply: Reply, id: InodeId, size: u32) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let call = async move { fs.list_xattr(&cx, id).await };
        self.answer(reply, call, move |reply, names| {
            let list: Vec<u8> = names.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
            if list.len() > LIST_BYTES_MAX { reply.error(libc::E2BIG) } else { tell_value(reply, &list, size) }
        });
    }

    pub fn remove_xattr(&self, request: &Request<'_>, reply: Reply, id: InodeId, name: &[u8]) {
        let (fs, cx, name) = (self.fs.clone(), caller(request), Bytes::copy_from_slice(name));
        self.answer(reply, async move { fs.remove_xattr(&cx, id, &name).await }, |reply, ()| reply.ok());
    }
}
