//! From the bytes of a request to its `Request`.
//!
//! Promises never to panic, whatever the bytes. The layouts are in the order in which each arm reads them.

use crate::abi::{EXTENSION_GROUPS, EXTENSION_SECURITY_MAX, IN_HEADER_BYTES, bit, opcode, setattr};
use crate::attr::Timestamp;
use crate::buffers::{Buffer, Payload};
use crate::fields::{Fields, Malformed};
use crate::request::{
    CopyFileRange, Forget, Lock, LockRequest, Operation, Release, Request, SecurityContext, SetAttr, SetTime, Write,
};
use std::sync::Arc;

/// The fixed part before every request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    nodeid: u64,
    uid: u32,
    gid: u32,
    pid: u32,
    extension_bytes: usize,
}

impl Header {
    pub fn decode(request: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(request);
        Ok(Self {
            len: fields.u32()?,
            opcode: fields.u32()?,
            unique: fields.u64()?,
            nodeid: fields.u64()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            pid: fields.u32()?,
            extension_bytes: usize::from(fields.u16()?) * 8,
        })
    }
}

/// What decoding depends on besides the bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dialect {
    /// SETXATTR has its longer form.
    pub setxattr_ext: bool,
}

/// Takes a request apart; `None` for an opcode this crate does not know.
pub(crate) fn decode<'a>(
    header: &Header,
    request: &'a [u8],
    buffer: Option<&'a Arc<Buffer>>,
    dialect: Dialect,
) -> Result<Option<Request<'a>>, Malformed> {
    if header.len as usize != request.len() {
        return Err(Malformed);
    }
    let body = request.get(IN_HEADER_BYTES..).ok_or(Malformed)?;
    let body_bytes = body.len().checked_sub(header.extension_bytes).ok_or(Malformed)?;
    let (body, extensions) = body.split_at(body_bytes);
    let Some(operation) = operation(header.opcode, Fields::new(body), buffer, dialect)? else {
        return Ok(None);
    };
    let mut request = Request {
        unique: header.unique,
        nodeid: header.nodeid,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        groups: Vec::new(),
        security: Vec::new(),
        operation,
    };
    decode_extensions(extensions, &mut request)?;
    Ok(Some(request))
}

fn decode_extensions<'a>(extensions: &'a [u8], request: &mut Request<'a>) -> Result<(), Malformed> {
    let mut fields = Fields::new(extensions);
    while !fields.rest().is_empty() {
        // The size counts these two fields too.
        let (size, kind) = (fields.u32()? as usize, fields.u32()?);
        let mut extension = Fields::new(fields.bytes(size.checked_sub(8).ok_or(Malformed)?)?);
        match kind {
            EXTENSION_GROUPS => {
                for _ in 0..extension.u32()? {
                    request.groups.push(extension.u32()?);
                }
            }
            0..=EXTENSION_SECURITY_MAX => {
                for _ in 0..kind {
                    let value_bytes = extension.u32()? as usize;
                    extension.skip(4)?;
                    let name = extension.name()?;
                    request.security.push(SecurityContext { name, value: extension.bytes(value_bytes)? });
                    // Each is filled up to 8 bytes: its two fields are 8, the name has a NUL.
                    let filler = (name.len() + 1 + value_bytes).wrapping_neg() % 8;
                    extension.skip(filler.min(extension.rest().len()))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[rustfmt::skip]
fn operation<'a>(
    code: u32,
    mut body: Fields<'a>,
    buffer: Option<&'a Arc<Buffer>>,
    dialect: Dialect,
) -> Result<Option<Operation<'a>>, Malformed> {
    use Operation as Op;
    let f = &mut body;
    Ok(Some(match code {
        opcode::LOOKUP => Op::Lookup { name: f.name()? },
        opcode::FORGET => Op::Forget { nlookup: f.u64()? },
        opcode::BATCH_FORGET => Op::BatchForget { forgets: forgets(f)? },
        opcode::GETATTR => {
            let flags = f.u32()?;
            f.skip(4)?;
            Op::Getattr { fh: present(flags, bit::GETATTR_FH, f.u64()?) }
        }
        opcode::SETATTR => Op::Setattr(set_attr(f)?),
        opcode::READLINK => Op::Readlink,
        opcode::SYMLINK => Op::Symlink { name: f.name()?, target: f.text()? },
        opcode::MKNOD => {
            let (mode, rdev, umask) = (f.u32()?, f.u32()?, f.u32()?);
            f.skip(4)?;
            Op::Mknod { name: f.name()?, mode, umask, rdev }
        }
        opcode::MKDIR => {
            let (mode, umask) = (f.u32()?, f.u32()?);
            Op::Mkdir { name: f.name()?, mode, umask }
        }
        opcode::UNLINK => Op::Unlink { name: f.name()? },
        opcode::RMDIR => Op::Rmdir { name: f.name()? },
        opcode::RENAME => {
            let new_parent = f.u64()?;
            Op::Rename { name: f.name()?, new_parent, new_name: f.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let (new_parent, flags) = (f.u64()?, f.u32()?);
            f.skip(4)?;
            Op::Rename { name: f.name()?, new_parent, new_name: f.name()?, flags }
        }
        opcode::LINK => Op::Link { nodeid: f.u64()?, new_name: f.name()? },
        opcode::OPEN => Op::Open { flags: f.u32()?, kill_suidgid: f.u32()? & bit::OPEN_KILL_SUIDGID != 0 },
        opcode::READ => {
            let (fh, offset, size, read_flags, owner, flags) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u64()?, f.u32()?);
            Op::Read { fh, offset, size, flags, lock_owner: present(read_flags, bit::READ_LOCKOWNER, owner) }
        }
        opcode::WRITE => Op::Write(write(f, buffer)?),
        opcode::STATFS => Op::Statfs,
        opcode::RELEASE => Op::Release(release(f)?),
        opcode::FSYNC => Op::Fsync { fh: f.u64()?, data_only: f.u32()? & bit::FSYNC_DATA_ONLY != 0 },
        opcode::SETXATTR => {
            let (size, flags) = (f.u32()? as usize, f.u32()?);
            let ext_flags = if dialect.setxattr_ext { (f.u32()?, f.u32()?).0 } else { 0 };
            let (name, value) = (f.name()?, f.bytes(size)?);
            Op::Setxattr { name, value, flags, acl_kill_sgid: ext_flags & bit::SETXATTR_ACL_KILL_SGID != 0 }
        }
        opcode::GETXATTR => {
            let size = f.u32()?;
            f.skip(4)?;
            Op::Getxattr { name: f.name()?, size }
        }
        opcode::LISTXATTR => Op::Listxattr { size: f.u32()? },
        opcode::REMOVEXATTR => Op::Removexattr { name: f.name()? },
        opcode::FLUSH => {
            let fh = f.u64()?;
            f.skip(8)?;
            Op::Flush { fh, lock_owner: f.u64()? }
        }
        opcode::OPENDIR => Op::Opendir { flags: f.u32()? },
        opcode::READDIR => Op::Readdir { fh: f.u64()?, offset: f.u64()?, size: f.u32()? },
        opcode::READDIRPLUS => Op::Readdirplus { fh: f.u64()?, offset: f.u64()?, size: f.u32()? },
        opcode::RELEASEDIR => Op::Releasedir(release(f)?),
        opcode::FSYNCDIR => Op::Fsyncdir { fh: f.u64()?, data_only: f.u32()? & bit::FSYNC_DATA_ONLY != 0 },
        opcode::GETLK => Op::Getlk(lock_request(f)?),
        opcode::SETLK => Op::Setlk(lock_request(f)?),
        opcode::SETLKW => Op::Setlkw(lock_request(f)?),
        opcode::ACCESS => Op::Access { mask: f.u32()? },
        opcode::CREATE => {
            let (flags, mode, umask, kill) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
            Op::Create { name: f.name()?, flags, mode, umask, kill_suidgid: kill & bit::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::TMPFILE => {
            // A name follows, but only as a filler.
            let (flags, mode, umask, kill) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
            Op::Tmpfile { flags, mode, umask, kill_suidgid: kill & bit::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::INTERRUPT => Op::Interrupt { unique: f.u64()? },
        opcode::BMAP => Op::Bmap { block: f.u64()?, blocksize: f.u32()? },
        opcode::DESTROY => Op::Destroy,
        opcode::IOCTL => {
            let (fh, flags, cmd, arg, in_size, out_size) = (f.u64()?, f.u32()?, f.u32()?, f.u64()?, f.u32()?, f.u32()?);
            Op::Ioctl { fh, flags, cmd, arg, data: f.bytes(in_size as usize)?, out_size }
        }
        opcode::POLL => Op::Poll { fh: f.u64()?, kh: f.u64()?, flags: f.u32()?, events: f.u32()? },
        opcode::FALLOCATE => Op::Fallocate { fh: f.u64()?, offset: f.u64()?, length: f.u64()?, mode: f.u32()? },
        opcode::LSEEK => Op::Lseek { fh: f.u64()?, offset: f.u64()?, whence: f.u32()? },
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => Op::CopyFileRange(CopyFileRange {
            fh_in: f.u64()?, offset_in: f.u64()?,
            nodeid_out: f.u64()?, fh_out: f.u64()?, offset_out: f.u64()?,
            length: f.u64()?, flags: f.u64()?,
        }),
        opcode::STATX => {
            let getattr_flags = f.u32()?;
            f.skip(4)?;
            Op::Statx { fh: present(getattr_flags, bit::GETATTR_FH, f.u64()?), flags: f.u32()?, mask: f.u32()? }
        }
        opcode::SYNCFS => Op::Syncfs,
        _ => return Ok(None),
    }))
}

fn present<T>(flags: u32, bit: u32, value: T) -> Option<T> {
    (flags & bit != 0).then_some(value)
}

fn forgets(f: &mut Fields<'_>) -> Result<Vec<Forget>, Malformed> {
    let count = f.u32()? as usize;
    f.skip(4)?;
    let mut records = Fields::new(f.bytes(count.checked_mul(16).ok_or(Malformed)?)?);
    (0..count).map(|_| Ok(Forget { nodeid: records.u64()?, nlookup: records.u64()? })).collect()
}

fn write<'a>(f: &mut Fields<'a>, buffer: Option<&'a Arc<Buffer>>) -> Result<Write<'a>, Malformed> {
    let (fh, offset, size, write_flags, owner, flags) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u64()?, f.u32()?);
    f.skip(4)?;
    Ok(Write {
        fh,
        offset,
        data: Payload::new(f.bytes(size as usize)?, buffer),
        flags,
        lock_owner: present(write_flags, bit::WRITE_LOCKOWNER, owner),
        from_cache: write_flags & bit::WRITE_CACHE != 0,
        kill_suidgid: write_flags & bit::WRITE_KILL_SUIDGID != 0,
    })
}

fn release(f: &mut Fields<'_>) -> Result<Release, Malformed> {
    let (fh, flags, release_flags, lock_owner) = (f.u64()?, f.u32()?, f.u32()?, f.u64()?);
    Ok(Release {
        fh,
        flags,
        flush: release_flags & bit::RELEASE_FLUSH != 0,
        flock_unlock: release_flags & bit::RELEASE_FLOCK_UNLOCK != 0,
        lock_owner,
    })
}

fn lock_request(f: &mut Fields<'_>) -> Result<LockRequest, Malformed> {
    let (fh, owner) = (f.u64()?, f.u64()?);
    let lock = Lock { start: f.u64()?, end: f.u64()?, kind: f.u32()?, pid: f.u32()? };
    Ok(LockRequest { fh, owner, lock, flock: f.u32()? & bit::LK_FLOCK != 0 })
}

fn set_attr(f: &mut Fields<'_>) -> Result<SetAttr, Malformed> {
    let valid = f.u32()?;
    f.skip(4)?;
    let (fh, size, lock_owner) = (f.u64()?, f.u64()?, f.u64()?);
    let secs = [f.u64()? as i64, f.u64()? as i64, f.u64()? as i64];
    let nsecs = [f.u32()?, f.u32()?, f.u32()?];
    let mode = f.u32()?;
    f.skip(4)?;
    let (uid, gid) = (f.u32()?, f.u32()?);
    let at = |i: usize| Timestamp { secs: secs[i], nsecs: nsecs[i] };
    let time = |set: u32, now: u32, i: usize| {
        (valid & set != 0).then(|| if valid & now != 0 { SetTime::Now } else { SetTime::At(at(i)) })
    };
    Ok(SetAttr {
        fh: present(valid, setattr::FH, fh),
        size: present(valid, setattr::SIZE, size),
        lock_owner: present(valid, setattr::LOCKOWNER, lock_owner),
        atime: time(setattr::ATIME, setattr::ATIME_NOW, 0),
        mtime: time(setattr::MTIME, setattr::MTIME_NOW, 1),
        ctime: present(valid, setattr::CTIME, at(2)),
        mode: present(valid, setattr::MODE, mode),
        uid: present(valid, setattr::UID, uid),
        gid: present(valid, setattr::GID, gid),
        kill_suidgid: valid & setattr::KILL_SUIDGID != 0,
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
