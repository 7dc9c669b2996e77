use super::*;

struct Build(Vec<u8>);

impl Build {
    fn new(code: u32) -> Self {
        let mut bytes = vec![0; IN_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&code.to_ne_bytes());
        bytes[8..16].copy_from_slice(&77u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&5u64.to_ne_bytes());
        Self(bytes)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn extensions(mut self, words: u16) -> Self {
        self.0[36..38].copy_from_slice(&words.to_ne_bytes());
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

fn take_apart(bytes: &[u8]) -> Result<Option<Request<'_>>, Malformed> {
    decode(&Header::decode(bytes)?, bytes, None, Dialect { setxattr_ext: true })
}

fn operation_of(bytes: &[u8]) -> Operation<'_> {
    take_apart(bytes).unwrap().unwrap().operation
}

#[test]
fn names_and_payloads_are_found() {
    let bytes = Build::new(opcode::RENAME2).u64(9).u32(2).u32(0).raw(b"old\0new\0").finish();
    let Operation::Rename { name: b"old", new_parent: 9, new_name: b"new", flags: 2 } = operation_of(&bytes) else {
        panic!("{:?}", operation_of(&bytes))
    };
    let bytes = Build::new(opcode::WRITE).u64(3).u64(4096).u32(5).u32(2).u64(11).u32(1).u32(0).raw(b"hello").finish();
    let Operation::Write(write) = operation_of(&bytes) else { panic!("not a write") };
    assert_eq!((write.fh, write.offset, write.data.as_slice()), (3, 4096, &b"hello"[..]));
    assert_eq!((write.lock_owner, write.from_cache), (Some(11), false));
    assert_eq!(write.data.to_bytes(), "hello");
}

#[test]
fn setattr_says_only_what_is_valid() {
    let valid = setattr::SIZE | setattr::MTIME | setattr::MTIME_NOW | setattr::ATIME | setattr::GID;
    let bytes = Build::new(opcode::SETATTR)
        .u32(valid)
        .u32(0)
        .u64(1)
        .u64(4711)
        .u64(0)
        .u64(-5i64 as u64)
        .u64(1)
        .u64(1)
        .u32(6)
        .u32(0)
        .u32(0)
        .u32(0o600)
        .u32(0)
        .u32(1)
        .u32(100)
        .u32(0)
        .finish();
    let Operation::Setattr(got) = operation_of(&bytes) else { panic!("not a setattr") };
    let atime = Some(SetTime::At(Timestamp { secs: -5, nsecs: 6 }));
    let want = SetAttr { size: Some(4711), gid: Some(100), atime, mtime: Some(SetTime::Now), ..SetAttr::default() };
    assert_eq!(got, want);
}

#[test]
fn extensions_give_groups_and_labels() {
    let bytes = Build::new(opcode::MKDIR).u32(0o755).u32(0o22).raw(b"dir\0");
    let bytes = bytes.u32(16).u32(EXTENSION_GROUPS).u32(1).u32(1000); // groups
    let bytes = bytes.u32(8 + 8 + 8).u32(1).u32(3).u32(0).raw(b"a.b\0xyz\0"); // one label
    let bytes = bytes.extensions(5).finish();
    let request = take_apart(&bytes).unwrap().unwrap();
    assert_eq!(request.groups, [1000]);
    assert_eq!(request.security, [SecurityContext { name: b"a.b", value: b"xyz" }]);
    assert!(matches!(request.operation, Operation::Mkdir { name: b"dir", mode: 0o755, umask: 0o22 }));
    assert_eq!((request.unique, request.nodeid), (77, 5));
}

#[test]
fn both_forms_of_setxattr() {
    let short = Build::new(opcode::SETXATTR).u32(2).u32(1).raw(b"user.a\0ok").finish();
    let header = Header::decode(&short).unwrap();
    let got = decode(&header, &short, None, Dialect::default()).unwrap().unwrap().operation;
    assert!(matches!(got, Operation::Setxattr { name: b"user.a", value: b"ok", flags: 1, acl_kill_sgid: false }));
    let long = Build::new(opcode::SETXATTR).u32(2).u32(0).u32(1).u32(0).raw(b"user.a\0ok").finish();
    let got = operation_of(&long);
    assert!(matches!(got, Operation::Setxattr { name: b"user.a", value: b"ok", acl_kill_sgid: true, .. }));
}

#[test]
fn lies_are_malformed() {
    let count = Build::new(opcode::BATCH_FORGET).u32(u32::MAX).u32(0).u64(1).u64(1).finish();
    assert_eq!(take_apart(&count).unwrap_err(), Malformed);
    let unended = Build::new(opcode::LOOKUP).raw(b"no end").finish();
    assert_eq!(take_apart(&unended).unwrap_err(), Malformed);
    let empty = Build::new(opcode::UNLINK).raw(b"\0").finish();
    assert_eq!(take_apart(&empty).unwrap_err(), Malformed);
    let extended = Build::new(opcode::MKDIR).u32(0).u32(0).raw(b"d\0").extensions(9).finish();
    assert_eq!(take_apart(&extended).unwrap_err(), Malformed);
    let mut short = Build::new(opcode::STATFS).finish();
    short.push(0);
    assert_eq!(take_apart(&short).unwrap_err(), Malformed);
    assert!(take_apart(&Build::new(9999).finish()).unwrap().is_none());
}

/// xorshift64*: a different but repeatable stream for each seed.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[test]
fn garbage_never_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut understood = 0;
    for round in 0..200_000u32 {
        let len = (next(&mut state) % 200) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| (next(&mut state) >> 56) as u8).collect();
        if round % 2 == 0 {
            // Small numbers reach further into the decoder than large ones.
            bytes.iter_mut().for_each(|byte| *byte &= 0x81);
        }
        if len >= IN_HEADER_BYTES {
            bytes[0..4].copy_from_slice(&(len as u32).to_ne_bytes());
            bytes[4..8].copy_from_slice(&(round % 60).to_ne_bytes());
            bytes[36..38].copy_from_slice(&((next(&mut state) % 4) as u16).to_ne_bytes());
        }
        understood += u32::from(matches!(take_apart(&bytes), Ok(Some(_))));
    }
    assert!(understood > 10_000, "only {understood} were well formed");
}
