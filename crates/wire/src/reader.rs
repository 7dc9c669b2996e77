use crate::frame::FrameError;
use crate::header::{Header, PREFIX_BYTES};
use crate::limits::Limits;
use crate::pool::BufferPool;
use bytes::Bytes;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What one read takes at most before it is known what comes: some 170 small requests, while of a 1 MiB payload
/// no more than 3 % arrive here and are copied on.
const BUFFER_BYTES: usize = 32 << 10;
/// Payloads up to here are not worth a pooled buffer.
const PLAIN_BYTES_MAX: usize = 2 << 10;
/// The most that is allocated on a peer's word alone; for more it must have sent as much.
const TRUST_BYTES: usize = 1 << 20;

/// A frame that arrived.
#[derive(Debug)]
pub struct Frame {
    pub header: Header,
    pub body: Bytes,
    pub payload: Bytes,
}

/// Cuts a stream into frames. Payloads go from the stream straight into buffers of the pool.
///
/// Promises: no panic and no unbounded allocation on whatever bytes; the first error is the last result that
/// means anything.
pub struct FrameReader<R> {
    io: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    limits: Limits,
    pool: Arc<BufferPool>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(io: R, limits: Limits, pool: Arc<BufferPool>) -> Self {
        FrameReader { io, buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, limits, pool }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The next frame can be had without waiting.
    pub fn has_frame(&self) -> bool {
        let Some(length) = self.buffer[self.start..self.end].first_chunk::<4>() else { return false };
        self.end - self.start - 4 >= u32::from_le_bytes(*length) as usize
    }

    /// The next frame; `None` if the stream ended after one. Dropping the future loses what it had read.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(header) = self.header().await? else { return Ok(None) };
        let body = self.body(header.body_len).await?;
        let payload = self.payload(header.payload_len).await?;
        Ok(Some(Frame { header, body, payload }))
    }

    async fn header(&mut self) -> Result<Option<Header>, FrameError> {
        loop {
            let buffered = &self.buffer[self.start..self.end];
            if let Some(prefix) = buffered.first_chunk() {
                let header = Header::decode(prefix, &self.limits)?;
                self.start += PREFIX_BYTES;
                return Ok(Some(header));
            }
            if let Some(length) = buffered.first_chunk() {
                Header::check_length(u32::from_le_bytes(*length), &self.limits)?;
            }
            let was_empty = buffered.is_empty();
            if self.fill().await? == 0 {
                return if was_empty { Ok(None) } else { Err(FrameError::Truncated) };
            }
        }
    }

    /// Reads once. Only called with less than a header buffered, so there is always room and little to move.
    async fn fill(&mut self) -> Result<usize, FrameError> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let n = self.io.read(&mut self.buffer[self.end..]).await.map_err(io_error)?;
        self.end += n;
        Ok(n)
    }

    /// Up to `max` buffered bytes.
    fn take_buffered(&mut self, max: usize) -> &[u8] {
        let from = self.start;
        self.start = self.end.min(from + max);
        &self.buffer[from..self.start]
    }

    async fn body(&mut self, len: usize) -> Result<Bytes, FrameError> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let buffered = self.take_buffered(len);
        if buffered.len() == len {
            return Ok(Bytes::copy_from_slice(buffered));
        }
        let mut body = buffered.to_vec();
        while body.len() < len {
            // Grows with what has really arrived, at most fourfold.
            let had = body.len();
            body.resize(len.min((4 * had).max(BUFFER_BYTES)), 0);
            self.io.read_exact(&mut body[had..]).await.map_err(io_error)?;
        }
        Ok(body.into())
    }

    async fn payload(&mut self, len: usize) -> Result<Bytes, FrameError> {
        if len <= PLAIN_BYTES_MAX {
            return self.body(len).await;
        }
        let mut buffer = self.pool.take(len.min(TRUST_BYTES));
        let buffered = self.take_buffered(len);
        let mut filled = buffered.len();
        // The buffer has room for it: BUFFER_BYTES is less than TRUST_BYTES.
        buffer.room()[..filled].copy_from_slice(buffered);
        loop {
            let target = len.min(buffer.capacity());
            self.io.read_exact(&mut buffer.room()[filled..target]).await.map_err(io_error)?;
            buffer.set_len(target);
            filled = target;
            if filled == len {
                return Ok(buffer.freeze());
            }
            let mut larger = self.pool.take(len.min(4 * filled));
            larger.room()[..filled].copy_from_slice(buffer.as_ref());
            buffer = larger;
        }
    }
}

fn io_error(error: std::io::Error) -> FrameError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => FrameError::Truncated,
        _ => FrameError::Io(error.to_string()),
    }
}
