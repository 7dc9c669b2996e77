//! Descriptors over a Unix socket (`SCM_RIGHTS`).
//!
//! Who asks sends the ticket, 8 bytes; the answer is one byte, how many files there are, and with it their descriptors.

use super::disk::OsFile;
use crate::{BoxFuture, DiskFile, FILES_OF_A_TICKET_MAX, Tickets};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};

/// Who connected and says nothing is not waited for longer.
const ASKS_WITHIN: Duration = Duration::from_secs(5);
/// After a failure of accept (no descriptor left, say), so that it is no busy loop.
const PAUSE: Duration = Duration::from_millis(50);

/// The socket goes with the one who hands out.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn hand_out(listener: UnixListener, path: PathBuf, from: Arc<dyn Tickets>) -> io::Result<BoxFuture<'static, ()>> {
    let socket = Socket(path);
    Ok(Box::pin(async move {
        let _socket = socket;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let from = from.clone();
            tokio::spawn(async move {
                if let Ok(Err(error)) = tokio::time::timeout(ASKS_WITHIN, answer(stream, &*from)).await {
                    tracing::debug!(%error, "files could not be handed out");
                }
            });
        }
    }))
}

async fn answer(mut stream: UnixStream, from: &dyn Tickets) -> io::Result<()> {
    let ticket = stream.read_u64_le().await?;
    let files = from.redeem(ticket);
    let descriptors: Vec<BorrowedFd<'_>> = files.iter().filter_map(|file| file.descriptor()).collect();
    let is_whole = descriptors.len() == files.len() && files.len() <= FILES_OF_A_TICKET_MAX;
    let descriptors = if is_whole { &descriptors[..] } else { &[] };
    let count = [descriptors.len() as u8];
    let send = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_OF_A_TICKET_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(sendmsg(&stream, &[IoSlice::new(&count)], &mut ancillary, SendFlags::NOSIGNAL)?)
    };
    stream.async_io(Interest::WRITABLE, send).await.map(drop)
}

pub async fn take(mut stream: UnixStream, ticket: u64) -> io::Result<Vec<Arc<dyn DiskFile>>> {
    stream.write_u64_le(ticket).await?;
    let receive = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_OF_A_TICKET_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut count = [0];
        let got = recvmsg(&stream, &mut [IoSliceMut::new(&mut count)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        Ok((got.bytes, usize::from(count[0]), rights.flatten().collect::<Vec<OwnedFd>>()))
    };
    let (bytes, count, descriptors) = stream.async_io(Interest::READABLE, receive).await?;
    match (bytes, count) {
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, 0) => Err(io::ErrorKind::NotFound.into()),
        // The kernel gave fewer than were sent: this process has no room for them.
        _ if descriptors.len() != count => Err(rustix::io::Errno::MFILE.into()),
        _ => Ok(descriptors
            .into_iter()
            .map(|descriptor| Arc::new(OsFile::of(descriptor)) as Arc<dyn DiskFile>)
            .collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OsDisk, OsTransport};
    use crate::{Board, BoardView, Disk, DiskFile, Monotonic, OpenMode, Tickets, Transport};
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    /// Ticket 7: a file and a board; ticket 8: one file too many; ticket 9: a file that is none of the system's.
    struct Some(Vec<Arc<dyn DiskFile>>);

    impl Tickets for Some {
        fn redeem(&self, ticket: u64) -> Vec<Arc<dyn DiskFile>> {
            match ticket {
                7 => self.0.clone(),
                8 => vec![self.0[0].clone(); 5],
                9 => vec![self.0[0].clone(), Arc::new(Elsewhere)],
                _ => Vec::new(),
            }
        }
    }

    /// It has no descriptor.
    struct Elsewhere;

    impl DiskFile for Elsewhere {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn read_cached_at(&self, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
            Ok(None)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn punch_hole(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn occupied(&self) -> io::Result<u64> {
            Ok(0)
        }
    }

    #[tokio::test]
    async fn who_has_a_ticket_gets_the_files_and_sees_what_becomes_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let (path, socket) = (dir.path().join("f"), dir.path().join("socket"));
        let file = OsDisk.open(&path, OpenMode::CreateNew).unwrap();
        let reads = OsDisk.open(&path, OpenMode::ReadOnly).unwrap();
        let board = Board::new(&OsDisk, 1).unwrap();
        let from = Arc::new(Some(vec![reads, board.to_hand_out()]));
        let serving = tokio::spawn(OsTransport.hand_out(&socket, from).await.unwrap());

        let taken = OsTransport.take(&socket, 7).await.unwrap();
        let view = BoardView::of(taken[1].clone());
        file.write_at(b"later", 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut bytes = [0; 5];
        assert_eq!((taken.len(), taken[0].read_at(&mut bytes, 0).unwrap(), &bytes), (2, 5, b"later"));
        assert!(taken[0].write_at(b"x", 0).is_err());
        let now = || Monotonic(Duration::from_secs(1));
        assert!(!view.says(0, 3, now));
        board.set(0, 3).unwrap();
        board.extend(Monotonic(Duration::from_secs(2))).unwrap();
        assert!(view.says(0, 3, now));

        for ticket in [0, 8, 9] {
            let refused = OsTransport.take(&socket, ticket).await.err().unwrap();
            assert_eq!(refused.kind(), io::ErrorKind::NotFound, "ticket {ticket}");
        }
        // Who says nothing is in nobody's way.
        let _silent = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        assert_eq!(OsTransport.take(&socket, 7).await.unwrap().len(), 2);
        serving.abort();
        let _ = serving.await;
        assert!(!socket.exists() && OsTransport.take(&socket, 7).await.is_err());
    }

    #[tokio::test]
    async fn where_nobody_hands_out_that_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(OsTransport.take(&dir.path().join("none"), 7).await.is_err());
    }
}
