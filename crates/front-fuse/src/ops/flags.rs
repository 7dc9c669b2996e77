//! The flags that `lsattr` and `chattr` read and write: of them there is one, immutable, which says that a file is sealed. The kernel
//! asks for them with IOCTL, after it has checked that the caller may change them (CAP_LINUX_IMMUTABLE).

use crate::caller::caller;
use crate::door::Door;
use braid_api::{Code, FileSystem};
use braid_fuse_kernel::{Reply, Request};
use braid_types::InodeId;
use std::time::Duration;

// `_IOR('f', 1, long)`, `_IOW('f', 2, long)`, `_IOR('X', 31, struct fsxattr)` and `_IOW('X', 32, struct fsxattr)`. The kernel passes an
// `int` of the first two, whatever their numbers say.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;
/// Bytes of a `struct fsxattr`; the flags are its first four.
const XATTR_BYTES: usize = 28;
const IMMUTABLE: u32 = 0x10;
const XATTR_IMMUTABLE: u32 = 0x8;
/// How long `chattr -i` waits for handles that read without asking: a kernel that has closed them says so at once.
const WAIT: Duration = Duration::from_secs(5);

/// The flags to be set: exactly the one there is, or none.
fn asked(data: &[u8], bytes: usize, immutable: u32) -> Option<bool> {
    let (flags, rest) = data.get(..bytes)?.split_first_chunk()?;
    match u32::from_ne_bytes(*flags) {
        _ if rest.iter().any(|byte| *byte != 0) => None,
        0 => Some(false),
        flags if flags == immutable => Some(true),
        _ => None,
    }
}

impl<F: FileSystem> Door<F> {
    pub fn ioctl(&self, request: &Request<'_>, reply: Reply, id: InodeId, command: u32, data: &[u8]) {
        match command {
            GET_FLAGS => self.get_flags(request, reply, id, IMMUTABLE, 4),
            GET_XATTR => self.get_flags(request, reply, id, XATTR_IMMUTABLE, XATTR_BYTES),
            SET_FLAGS => self.set_flags(request, reply, id, asked(data, 4, IMMUTABLE)),
            SET_XATTR => self.set_flags(request, reply, id, asked(data, XATTR_BYTES, XATTR_IMMUTABLE)),
            // No other has a meaning here.
            _ => reply.error(libc::ENOTTY),
        }
    }

    fn get_flags(&self, request: &Request<'_>, reply: Reply, id: InodeId, immutable: u32, bytes: usize) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let call = async move { fs.get_attr(&cx, id, None).await };
        self.answer(reply, call, move |reply, found| {
            let flags = if found.attr.sealed { immutable } else { 0 };
            let mut data = flags.to_ne_bytes().to_vec();
            data.resize(bytes, 0);
            reply.ioctl(0, &data);
        });
    }

    fn set_flags(&self, request: &Request<'_>, reply: Reply, id: InodeId, sealed: Option<bool>) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let call = async move {
            let sealed = sealed.ok_or(Code::NotSupported)?;
            let attr = fs.get_attr(&cx, id, None).await?.attr;
            match attr.is_file() {
                true if attr.sealed == sealed => Ok(()),
                true => fs.set_sealed(&cx, id, sealed, WAIT).await.map(drop),
                // Only files are sealed.
                false if sealed => Err(Code::NotSupported.into()),
                false => Ok(()),
            }
        };
        self.answer(reply, call, |reply, ()| reply.ioctl(0, &[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flag_that_there_is_can_be_set() {
        let flags = |flags: u32| asked(&flags.to_ne_bytes(), 4, IMMUTABLE);
        assert_eq!([flags(0), flags(0x10), flags(0x30), flags(0x20)], [Some(false), Some(true), None, None]);
        assert_eq!(asked(&[0; 3], 4, IMMUTABLE), None, "cut off");
        let mut xattr = [0; XATTR_BYTES];
        xattr[..4].copy_from_slice(&XATTR_IMMUTABLE.to_ne_bytes());
        assert_eq!(asked(&xattr, XATTR_BYTES, XATTR_IMMUTABLE), Some(true));
        xattr[12] = 1;
        assert_eq!(asked(&xattr, XATTR_BYTES, XATTR_IMMUTABLE), None, "a project");
    }
}
