//! Reading and writing the fixed records of the protocol, field by field in the machine's byte order.
//!
//! `Fields` never reads past its end: a record that is too short is `Malformed`. `Record` holds the largest fixed answer
//! (STATX, 288 bytes, or CREATE, 144) on the stack.

/// The kernel sent something this crate cannot take apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed FUSE request")]
pub struct Malformed;

/// A cursor over the bytes of a request.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    pub fn skip(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.bytes(bytes).map(drop)
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    /// The bytes up to the next NUL, which is taken and left out. The kernel never sends an empty name.
    pub fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.text()?;
        if name.is_empty() { Err(Malformed) } else { Ok(name) }
    }

    /// As `name`, but may be empty.
    pub fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
        let text = self.bytes(end)?;
        self.skip(1)?;
        Ok(text)
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

const RECORD_BYTES_MAX: usize = 288;

/// A fixed answer under construction.
pub(crate) struct Record {
    bytes: [u8; RECORD_BYTES_MAX],
    len: usize,
}

impl Record {
    pub fn new() -> Self {
        Self { bytes: [0; RECORD_BYTES_MAX], len: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    pub fn i32(&mut self, value: i32) {
        self.put(&value.to_ne_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.put(&value.to_ne_bytes());
    }

    pub fn zeros(&mut self, bytes: usize) {
        self.len += bytes;
        debug_assert!(self.len <= RECORD_BYTES_MAX);
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
