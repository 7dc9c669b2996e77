use crate::frame::FrameError;
use crate::limits::Limits;
use braid_api::{About, Context, Manner, When};
use braid_types::*;
use std::time::Duration;

/// Bytes of a header, which follows the frame's length.
pub const HEADER_BYTES: usize = 80;
/// Bytes before the body: the length and the header.
pub const PREFIX_BYTES: usize = 4 + HEADER_BYTES;

const EARLY: u8 = 1;
const MARKED: u8 = 2;

/// What a request's flags say of its context. A side that does not know them answers when it is durable, without a mark.
pub(crate) fn flags(context: &Context) -> u8 {
    match context.when {
        When::Durable => 0,
        When::Marked => MARKED,
        When::Early => EARLY | MARKED,
    }
}

fn when(flags: u8) -> When {
    match (flags & EARLY != 0, flags & MARKED != 0) {
        (true, _) => When::Early,
        (false, true) => When::Marked,
        (false, false) => When::Durable,
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first frame in each direction, and only that.
    Hello = 1,
    Request = 2,
    Answer = 3,
    /// An answer whose body is a `braid_api::Error`.
    Error = 4,
    /// The caller of `call` has gone: its answer is not needed.
    Cancel = 5,
    /// Reserved: a request without answer.
    Oneway = 6,
}

/// The fixed part of a frame. `docs/formats/wire.md` has the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: Kind,
    /// Of a request: [`flags`]. Bits it does not know are not looked at.
    pub flags: u8,
    /// Of the side that sent the request; its answer carries the same.
    pub call: u64,
    pub context: Context,
    pub body_len: usize,
    pub payload_len: usize,
}

impl Kind {
    fn read(byte: u8) -> Result<Self, FrameError> {
        Ok(match byte {
            1 => Kind::Hello,
            2 => Kind::Request,
            3 => Kind::Answer,
            4 => Kind::Error,
            5 => Kind::Cancel,
            6 => Kind::Oneway,
            _ => return Err(FrameError::Kind(byte)),
        })
    }
}

/// Milliseconds for the wire, rounded up so that a short deadline does not become "default".
fn millis(deadline: Duration) -> u32 {
    deadline.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u32::MAX)
}

/// Reads or writes fields one after the other.
struct Cursor<'a>(&'a [u8; PREFIX_BYTES], usize);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.0[self.1..self.1 + N]);
        self.1 += N;
        field
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl Header {
    /// The bytes before the body. Lengths are those of the fields, which the caller has checked against limits.
    pub fn encode(&self) -> [u8; PREFIX_BYTES] {
        let mut out = [0; PREFIX_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        let (cx, token) = (&self.context, &self.context.token);
        let length = (HEADER_BYTES + self.body_len + self.payload_len) as u32;
        put(&length.to_le_bytes());
        put(&[self.kind as u8, self.flags]);
        put(&cx.behind.to_le_bytes());
        put(&(self.body_len as u32).to_le_bytes());
        put(&self.call.to_le_bytes());
        put(&cx.trace.0.to_le_bytes());
        put(&cx.request.0.to_le_bytes());
        put(&millis(cx.deadline).to_le_bytes());
        put(&token.session_epoch.0.to_le_bytes());
        put(&token.session.0.to_le_bytes());
        put(&token.lease_gen.0.to_le_bytes());
        put(&token.layout_gen.0.to_le_bytes());
        put(&token.trunc_gen.0.to_le_bytes());
        put(&token.chain_epoch.0.to_le_bytes());
        put(&token.owner_term.0.to_le_bytes());
        put(&token.snapshot.to_le_bytes());
        debug_assert_eq!(at, PREFIX_BYTES);
        out
    }

    /// Checks the length alone, as soon as it is there: whoever speaks another protocol is found out at once.
    pub fn check_length(length: u32, limits: &Limits) -> Result<usize, FrameError> {
        let max = HEADER_BYTES + limits.body_bytes_max + limits.payload_bytes_max;
        match length as usize {
            length if length > max => Err(FrameError::TooLong { part: "frame", claimed: length, max }),
            length if length < HEADER_BYTES => Err(FrameError::TooShort(length)),
            length => Ok(length),
        }
    }

    pub fn decode(bytes: &[u8; PREFIX_BYTES], limits: &Limits) -> Result<Header, FrameError> {
        let mut at = Cursor(bytes, 0);
        let rest = Self::check_length(at.u32(), limits)? - HEADER_BYTES;
        let [kind, flags] = at.take();
        let behind = u16::from_le_bytes(at.take());
        let body_len = at.u32() as usize;
        let Some(payload_len) = rest.checked_sub(body_len) else {
            return Err(FrameError::BodyOutside { body: body_len, rest });
        };
        check("body", body_len, limits.body_bytes_max)?;
        check("payload", payload_len, limits.payload_bytes_max)?;
        let call = at.u64();
        let trace = TraceId(at.u64());
        let request = RequestId(at.u64());
        let deadline = Duration::from_millis(at.u32().into());
        let session_epoch = SessionEpoch(at.u32());
        let session = SessionId(at.u64());
        let lease_gen = LeaseGen(at.u64());
        let layout_gen = LayoutGen(at.u32());
        let trunc_gen = TruncGen(at.u32());
        let chain_epoch = ChainEpoch(at.u32());
        let owner_term = OwnerTerm(at.u32());
        let snapshot = at.u64();
        let token =
            Token { session, session_epoch, lease_gen, layout_gen, trunc_gen, chain_epoch, owner_term, snapshot };
        let (when, manner, about) = (when(flags), Manner::default(), About::default());
        let context = Context { token, request, behind, trace, when, deadline, manner, about };
        Ok(Header { kind: Kind::read(kind)?, flags, call, context, body_len, payload_len })
    }
}

/// Refuses a part that is longer than its limit.
pub(crate) fn check(part: &'static str, claimed: usize, max: usize) -> Result<(), FrameError> {
    if claimed > max { Err(FrameError::TooLong { part, claimed, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        let token = Token {
            session: SessionId(0x1112_1314_1516_1718),
            session_epoch: SessionEpoch(2),
            lease_gen: LeaseGen(0x0300_2122_2324_2526),
            layout_gen: LayoutGen(4),
            trunc_gen: TruncGen(5),
            chain_epoch: ChainEpoch(6),
            owner_term: OwnerTerm(7),
            snapshot: 8,
        };
        let deadline = Duration::from_millis(1500);
        let context = Context {
            token,
            request: RequestId(9),
            behind: 0x1413,
            trace: TraceId(10),
            when: When::Durable,
            deadline,
            manner: Manner::default(),
            about: About::default(),
        };
        Header { kind: Kind::Request, flags: 0, call: 11, context, body_len: 12, payload_len: 13 }
    }

    /// The golden bytes of docs/formats/wire.md: they change only with the protocol's version.
    #[test]
    fn the_bytes_are_those_of_the_document() {
        #[rustfmt::skip]
        let expected: [u8; PREFIX_BYTES] = [
            105, 0, 0, 0, // 80 + 12 + 13
            2, 0, 0x13, 0x14, 12, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0,
            10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
            0xdc, 5, 0, 0, 2, 0, 0, 0, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
            0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0, 3, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0,
            7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(sample().encode(), expected);
    }

    #[test]
    fn a_header_reads_back_what_it_writes() {
        let header = Header::decode(&sample().encode(), &Limits::default()).unwrap();
        assert_eq!(header.encode(), sample().encode());
        assert_eq!((header.call, header.body_len, header.payload_len), (11, 12, 13));
        assert_eq!(header.context.token, sample().context.token);
    }

    #[test]
    fn a_request_says_when_it_may_be_answered() {
        for wanted in [When::Durable, When::Marked, When::Early] {
            let context = Context { when: wanted, ..Context::default() };
            let bytes = Header { flags: flags(&context), ..sample() }.encode();
            assert_eq!(Header::decode(&bytes, &Limits::default()).unwrap().context.when, wanted);
        }
    }

    #[test]
    fn a_deadline_below_a_millisecond_does_not_become_the_default() {
        assert_eq!(millis(Duration::from_micros(10)), 1);
        assert_eq!(millis(Duration::MAX), u32::MAX);
    }

    #[test]
    fn lengths_are_checked() {
        let limits = Limits::default();
        let read = |body_len, payload_len| {
            Header::decode(&Header { body_len, payload_len, ..sample() }.encode(), &limits).map(|_| ())
        };
        assert_eq!(read(limits.body_bytes_max, limits.payload_bytes_max), Ok(()));
        let too_long = |e| matches!(e, Err(FrameError::TooLong { .. }));
        assert!(too_long(read(limits.body_bytes_max + 1, 0)));
        assert!(too_long(read(0, limits.payload_bytes_max + 1)));
        let mut bytes = sample().encode();
        bytes[0] = 79;
        assert_eq!(Header::decode(&bytes, &limits).err(), Some(FrameError::TooShort(79)));
        bytes[0] = 81;
        assert_eq!(Header::decode(&bytes, &limits).err(), Some(FrameError::BodyOutside { body: 12, rest: 1 }));
        bytes[4] = 77;
        bytes[0] = 105;
        assert_eq!(Header::decode(&bytes, &limits).err(), Some(FrameError::Kind(77)));
    }
}
