use crate::header::{Header, Kind, PREFIX_BYTES, check, flags};
use crate::limits::Limits;
use braid_api::{Code, Context, Error};
use bytes::Bytes;

/// Why a stream of bytes is no stream of frames. The connection it came from is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a {part} of {claimed} bytes; at most {max} are allowed")]
    TooLong { part: &'static str, claimed: usize, max: usize },
    #[error("a frame of {0} bytes, shorter than its header")]
    TooShort(usize),
    #[error("a body of {body} bytes in a frame with {rest} after its header")]
    BodyOutside { body: usize, rest: usize },
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    #[error("a frame of kind {0:?} where none may stand")]
    Misplaced(Kind),
    #[error("call {0} was begun twice")]
    CallReused(u64),
    #[error("the peer closes the connection: {0}")]
    Refused(String),
    #[error("the stream ended inside a frame")]
    Truncated,
    #[error("{0}")]
    Io(String),
}

impl FrameError {
    pub(crate) fn into_error(self, peer: &str) -> Error {
        let code = match self {
            FrameError::TooLong { .. } => Code::FrameTooLong,
            FrameError::Truncated | FrameError::Io(_) => Code::Disconnected,
            _ => Code::BadMessage,
        };
        Error::new(code, peer, self)
    }
}

/// A frame that is being written: room for length and header, then the body; the payload stays apart.
#[derive(Debug)]
pub(crate) struct Draft {
    head: Vec<u8>,
    payload: Bytes,
}

/// A frame on its way out.
#[derive(Debug)]
pub(crate) struct OutFrame {
    pub head: Vec<u8>,
    pub payload: Bytes,
}

impl Draft {
    /// Runs `write` on a buffer to which it appends the body.
    pub fn new<E>(payload: Bytes, write: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, E>) -> Result<Self, E> {
        // A typical message has less than 100 bytes, so that one allocation does.
        let mut head = Vec::with_capacity(PREFIX_BYTES + 108);
        head.resize(PREFIX_BYTES, 0);
        Ok(Draft { head: write(head)?, payload })
    }

    pub fn body(&self) -> &[u8] {
        &self.head[PREFIX_BYTES..]
    }

    pub fn finish(self, kind: Kind, call: u64, context: Context, limits: &Limits) -> Result<OutFrame, FrameError> {
        let Draft { mut head, payload } = self;
        let (body_len, payload_len) = (head.len() - PREFIX_BYTES, payload.len());
        check("body", body_len, limits.body_bytes_max)?;
        check("payload", payload_len, limits.payload_bytes_max)?;
        let flags = flags(&context);
        let header = Header { kind, flags, call, context, body_len, payload_len };
        head[..PREFIX_BYTES].copy_from_slice(&header.encode());
        Ok(OutFrame { head, payload })
    }
}

impl OutFrame {
    /// A frame without body and payload.
    pub fn bare(kind: Kind, call: u64) -> Self {
        let context = Context::default();
        let header = Header { kind, flags: 0, call, context, body_len: 0, payload_len: 0 };
        OutFrame { head: header.encode().to_vec(), payload: Bytes::new() }
    }

    /// An error as the answer to `call`.
    pub fn error(call: u64, error: &Error, limits: &Limits) -> Self {
        let write = |head| postcard::to_extend(error, head);
        let frame = Draft::new(Bytes::new(), write).map(|d| d.finish(Kind::Error, call, Context::default(), limits));
        match frame {
            Ok(Ok(frame)) => frame,
            // An error is two strings and a number; only a monstrous text gets here, and the code is what counts.
            _ => {
                let code = u16::from(error.code);
                let short = postcard::to_extend(&(code, Option::<()>::None), Vec::new()).unwrap_or_default();
                let header = Header {
                    kind: Kind::Error,
                    flags: 0,
                    call,
                    context: Context::default(),
                    body_len: short.len(),
                    payload_len: 0,
                };
                OutFrame { head: [header.encode().as_slice(), &short].concat(), payload: Bytes::new() }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}
