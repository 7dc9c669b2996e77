use crate::frame::OutFrame;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Pieces of one vectored write: two a frame. The kernel takes 1,024, but beyond some tens a longer list saves
/// nothing.
const SLICES_MAX: usize = 64;

pub(crate) type Writer = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// The writing half of a connection with the frames that are being written.
pub(crate) struct Sink {
    io: Writer,
    frames: VecDeque<OutFrame>,
    /// Bytes of the first frame that are written already.
    written: usize,
}

impl Sink {
    pub fn new(io: Writer) -> Self {
        Sink { io, frames: VecDeque::new(), written: 0 }
    }

    /// Takes over all of `queue`.
    pub fn load(&mut self, queue: &mut VecDeque<OutFrame>) {
        if self.frames.is_empty() {
            std::mem::swap(&mut self.frames, queue);
        } else {
            self.frames.append(queue);
        }
    }

    /// The writing half; what was not written is lost.
    pub fn into_inner(self) -> Writer {
        self.io
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Writes once; returns the bytes of frames that are through.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut skip = self.written;
        'frames: for frame in &self.frames {
            for part in [frame.head.as_slice(), &frame.payload] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if skipped == part.len() {
                    continue;
                }
                if count == SLICES_MAX {
                    break 'frames;
                }
                slices[count] = IoSlice::new(&part[skipped..]);
                count += 1;
            }
        }
        match ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count]))? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            n => Poll::Ready(Ok(self.advance(n))),
        }
    }

    fn advance(&mut self, n: usize) -> usize {
        self.written += n;
        let mut through = 0;
        while let Some(first) = self.frames.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            through += first.len();
            self.frames.pop_front();
        }
        through
    }

    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
