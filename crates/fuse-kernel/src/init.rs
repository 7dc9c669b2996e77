//! The first exchange of a session: which protocol the kernel speaks and which of its features are used.
//!
//! `Config` says what is wanted; what the kernel offers of it is used. `Negotiated` says what came of it.

use crate::abi::{IN_HEADER_BYTES, MAJOR, MINOR_MAX, MINOR_MIN, opcode};
use crate::decode::Header;
use crate::fields::{Fields, Malformed, Record};
use std::io;
use std::ops::BitOr;

/// Features of the protocol, by the kernel's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InitFlags(u64);

impl InitFlags {
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// fcntl locks come as GETLK, SETLK and SETLKW instead of being local to the kernel.
    pub const POSIX_LOCKS: Self = Self(1 << 1);
    pub const ATOMIC_O_TRUNC: Self = Self(1 << 3);
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The umask comes with each create instead of being applied before; POSIX_ACL needs it.
    pub const DONT_MASK: Self = Self(1 << 6);
    pub const FLOCK_LOCKS: Self = Self(1 << 10);
    /// The kernel drops a file's pages when its size or mtime turns out to have changed.
    pub const AUTO_INVAL_DATA: Self = Self(1 << 12);
    pub const DO_READDIRPLUS: Self = Self(1 << 13);
    pub const READDIRPLUS_AUTO: Self = Self(1 << 14);
    pub const ASYNC_DIO: Self = Self(1 << 15);
    pub const WRITEBACK_CACHE: Self = Self(1 << 16);
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    pub const HANDLE_KILLPRIV: Self = Self(1 << 19);
    /// ACLs are the extended attributes `system.posix_acl_*` and the kernel enforces them (implies default_permissions).
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// Reading the device after an abort gives ECONNABORTED, after an unmount ENODEV.
    pub const ABORT_ERROR: Self = Self(1 << 21);
    pub const MAX_PAGES: Self = Self(1 << 22);
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// The kernel drops pages only when told to.
    pub const EXPLICIT_INVAL_DATA: Self = Self(1 << 25);
    pub const HANDLE_KILLPRIV_V2: Self = Self(1 << 28);
    pub const SETXATTR_EXT: Self = Self(1 << 29);
    pub const INIT_EXT: Self = Self(1 << 30);
    /// Security labels come with each create.
    pub const SECURITY_CTX: Self = Self(1 << 32);
    /// A create says whether the caller is in the parent directory's group.
    pub const CREATE_SUPP_GROUP: Self = Self(1 << 34);
    pub const HAS_EXPIRE_ONLY: Self = Self(1 << 35);
    /// Shared mappings of files opened with DIRECT_IO.
    pub const DIRECT_IO_ALLOW_MMAP: Self = Self(1 << 36);
    /// Opens may name a file of this machine that the kernel then reads and writes itself. Not with WRITEBACK_CACHE.
    pub const PASSTHROUGH: Self = Self(1 << 37);
    /// Requests come by io_uring, where root has switched that on (`/sys/module/fuse/parameters/enable_uring`).
    pub const OVER_IO_URING: Self = Self(1 << 41);

    pub const NONE: Self = Self(0);

    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for InitFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What is wanted of the kernel.
#[derive(Debug, Clone)]
pub struct Config {
    /// Largest payload of a WRITE, and with MAX_PAGES of a READ too.
    pub max_write: u32,
    pub max_readahead: u32,
    /// How many requests nobody waits for (read-ahead, write-back, FORGET) may be under way.
    pub max_background: u16,
    /// From how many of them on the kernel calls the device congested.
    pub congestion_threshold: u16,
    /// Nanoseconds between two different times.
    pub time_gran: u32,
    pub want: InitFlags,
    /// With PASSTHROUGH: how many file systems may lie below, 1 or 2.
    pub max_stack_depth: u32,
    /// Read-ahead of the mount, set after INIT because the kernel can only lower it there. `None` keeps its 128 KiB.
    pub read_ahead_kb: Option<u32>,
    /// What the file system keeps of payloads at most. Buffers beyond that, and beyond 64, are given up when they come back.
    pub kept_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        use InitFlags as F;
        Self {
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            time_gran: 1,
            // Not READDIRPLUS_AUTO: then all but a first page comes without attributes, as programs list before they look, and
            // each name costs a request and a message. 20,000 names listed and looked at: 2.5 s with it, 0.22 s without;
            // listed alone 0.05 s and 0.2 s.
            want: F::ASYNC_READ
                | F::ATOMIC_O_TRUNC
                | F::EXPORT_SUPPORT
                | F::BIG_WRITES
                | F::DONT_MASK
                | F::DO_READDIRPLUS
                | F::ASYNC_DIO
                | F::PARALLEL_DIROPS
                | F::POSIX_ACL
                | F::ABORT_ERROR
                | F::MAX_PAGES
                | F::CACHE_SYMLINKS
                | F::SETXATTR_EXT
                | F::INIT_EXT
                | F::CREATE_SUPP_GROUP
                | F::HAS_EXPIRE_ONLY,
            max_stack_depth: 1,
            read_ahead_kb: Some(1024),
            kept_bytes: 64 << 20,
        }
    }
}

impl Config {
    pub fn with(mut self, flags: InitFlags) -> Self {
        self.want = self.want | flags;
        self
    }

    pub fn without(mut self, flags: InitFlags) -> Self {
        self.want = self.want.without(flags);
        self
    }
}

/// What the session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// The minor version both speak.
    pub minor: u32,
    pub flags: InitFlags,
    pub max_write: u32,
    pub max_readahead: u32,
    /// How many threads take the same requests: all that there are, or those of one processor.
    pub threads: usize,
}

/// What the kernel's INIT asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Accept(Negotiated),
    /// A kernel of a later major version: answer with ours alone, it will ask again.
    Newer,
    /// Answer EPROTO and give up.
    Refuse(String),
}

pub(crate) fn negotiate(header: &Header, request: &[u8], config: &Config) -> Result<Offer, Malformed> {
    if header.opcode != opcode::INIT {
        return Ok(Offer::Refuse(format!("the kernel began with request {} instead of INIT", header.opcode)));
    }
    let mut fields = Fields::new(request.get(IN_HEADER_BYTES..).ok_or(Malformed)?);
    let (major, minor) = (fields.u32()?, fields.u32()?);
    if major > MAJOR {
        return Ok(Offer::Newer);
    }
    if major < MAJOR || minor < MINOR_MIN {
        return Ok(Offer::Refuse(format!(
            "the kernel speaks FUSE {major}.{minor}, at least {MAJOR}.{MINOR_MIN} (Linux 5.4) is needed"
        )));
    }
    let (max_readahead, low) = (fields.u32()?, u64::from(fields.u32()?));
    let mut offered = InitFlags(low);
    if offered.contains(InitFlags::INIT_EXT) {
        offered.0 |= u64::from(fields.u32()?) << 32;
    }
    let mut flags = offered.common(config.want);
    if flags.contains(InitFlags::WRITEBACK_CACHE) {
        flags = flags.without(InitFlags::PASSTHROUGH);
    }
    if !flags.contains(InitFlags::INIT_EXT) {
        flags.0 &= 0xffff_ffff;
    }
    Ok(Offer::Accept(Negotiated {
        minor: minor.min(MINOR_MAX),
        flags,
        max_write: config.max_write.max(4096),
        max_readahead: max_readahead.min(config.max_readahead),
        threads: 1,
    }))
}

/// The answer that accepts.
pub(crate) fn encode(negotiated: &Negotiated, config: &Config) -> Record {
    let mut out = Record::new();
    out.u32(MAJOR);
    out.u32(negotiated.minor);
    out.u32(negotiated.max_readahead);
    out.u32(negotiated.flags.0 as u32);
    out.u16(config.max_background);
    out.u16(config.congestion_threshold);
    out.u32(negotiated.max_write);
    out.u32(config.time_gran);
    out.u16(negotiated.max_write.div_ceil(4096).min(u32::from(u16::MAX)) as u16);
    out.u16(0); // map_alignment
    out.u32((negotiated.flags.0 >> 32) as u32);
    let passthrough = negotiated.flags.contains(InitFlags::PASSTHROUGH);
    out.u32(if passthrough { config.max_stack_depth } else { 0 });
    out.zeros(24); // request_timeout (none) and reserved words
    out
}

/// The answer to a later major version.
pub(crate) fn encode_major() -> Record {
    let mut out = Record::new();
    out.u32(MAJOR);
    out.u32(MINOR_MAX);
    out
}

pub(crate) fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(major: u32, minor: u32, flags: u64) -> Offer {
        let mut request = vec![0; IN_HEADER_BYTES];
        request[4..8].copy_from_slice(&opcode::INIT.to_ne_bytes());
        for word in [major, minor, 1 << 17, flags as u32, (flags >> 32) as u32] {
            request.extend(word.to_ne_bytes());
        }
        let header = Header::decode(&request).unwrap();
        negotiate(&header, &request, &Config::default().with(InitFlags::PASSTHROUGH)).unwrap()
    }

    #[test]
    fn uses_what_is_wanted_and_offered() {
        let offered = InitFlags::ASYNC_READ | InitFlags::WRITEBACK_CACHE | InitFlags::INIT_EXT | InitFlags::PASSTHROUGH;
        let Offer::Accept(got) = init(7, 99, offered.0) else { panic!("refused") };
        assert_eq!(got.flags, InitFlags::ASYNC_READ | InitFlags::INIT_EXT | InitFlags::PASSTHROUGH);
        assert_eq!((got.minor, got.max_write, got.max_readahead), (MINOR_MAX, 1 << 20, 1 << 17));
        let answer = encode(&got, &Config::default());
        assert_eq!(answer.as_slice().len(), 64);
        assert_eq!(answer.as_slice()[28..30], 256u16.to_ne_bytes());
        assert_eq!(answer.as_slice()[36..40], 1u32.to_ne_bytes());
    }

    #[test]
    fn the_upper_flags_count_only_with_init_ext() {
        let Offer::Accept(got) = init(7, 40, InitFlags::PASSTHROUGH.0) else { panic!("refused") };
        assert_eq!(got.flags, InitFlags::NONE);
    }

    #[test]
    fn old_kernels_are_refused_and_new_majors_asked_again() {
        assert!(matches!(init(7, 30, 0), Offer::Refuse(reason) if reason.contains("7.30")));
        assert!(matches!(init(6, 99, 0), Offer::Refuse(_)));
        assert_eq!(init(8, 0, 0), Offer::Newer);
    }
}
