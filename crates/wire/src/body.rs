use crate::frame::Draft;
use braid_api::data::DataRequest;
use braid_api::meta::MetaRequest;
use braid_api::{Code, Error, Result};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a request's body is written from. Written anew for each attempt, straight into the frame.
pub trait Body: Sync {
    /// Appends the body. Its first bytes are the number of the message as a varint, as postcard writes an enum.
    fn write(&self, frame: Vec<u8>) -> Result<Vec<u8>>;
}

/// A body that is written already.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a>(pub &'a [u8]);

impl Body for Raw<'_> {
    fn write(&self, mut frame: Vec<u8>) -> Result<Vec<u8>> {
        frame.extend_from_slice(self.0);
        Ok(frame)
    }
}

impl Body for MetaRequest {
    fn write(&self, frame: Vec<u8>) -> Result<Vec<u8>> {
        encode(self, frame)
    }
}

impl Body for DataRequest {
    fn write(&self, frame: Vec<u8>) -> Result<Vec<u8>> {
        encode(self, frame)
    }
}

pub(crate) fn encode(message: &impl Serialize, frame: Vec<u8>) -> Result<Vec<u8>> {
    postcard::to_extend(message, frame).map_err(|e| Error::new(Code::Internal, "message", e))
}

/// Reads a body. Bytes after it are of a newer version and not looked at.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    postcard::from_bytes(body).map_err(|e| Error::new(Code::BadMessage, "body", e))
}

/// The answer of a [`crate::Service`], written straight into its frame.
#[derive(Debug)]
pub struct Reply(pub(crate) Draft);

impl Reply {
    pub fn new(message: &impl Serialize, payload: Bytes) -> Result<Self> {
        Ok(Reply(Draft::new(payload, |frame| encode(message, frame))?))
    }

    pub fn raw(body: &[u8], payload: Bytes) -> Self {
        let write = |mut frame: Vec<u8>| {
            frame.extend_from_slice(body);
            Ok::<_, std::convert::Infallible>(frame)
        };
        match Draft::new(payload, write) {
            Ok(draft) => Reply(draft),
            Err(never) => match never {},
        }
    }
}

/// The number of the message a body begins with: a varint of at most 32 bits. Bodies that have none get the last
/// number there is, which no message has.
pub(crate) fn message_number(body: &[u8]) -> usize {
    let mut number = 0u64;
    for (i, byte) in body.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return number as usize;
        }
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_api::data::*;

    #[test]
    fn a_message_is_known_by_its_first_bytes() {
        let message = DataRequest::GetDataStatus(GetDataStatus {});
        let body = message.write(Vec::new()).unwrap();
        assert_eq!(DataRequest::NAMES[message_number(&body)], "GetDataStatus");
        assert_eq!(message_number(&[0x80, 0x01]), 128);
        for broken in [&[][..], &[0xff], &[0xff; 9]] {
            assert_eq!(message_number(broken), usize::MAX);
        }
    }
}
