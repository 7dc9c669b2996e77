use super::*;
use rustix::io::read;
use std::time::Duration;

/// A reply whose answer can be read from a packet socket instead of going to the kernel.
fn reply(opcode: u32) -> (Reply, OwnedFd) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    (Reply::new(Way::Device(Arc::new(ours)), 42, opcode), theirs)
}

/// The error and the body of the only answer; `None` if there was none.
fn answer(socket: &OwnedFd) -> Option<(i32, Vec<u8>)> {
    let mut bytes = [0; 4096];
    let len = read(socket, &mut bytes).ok().filter(|&len| len > 0)?;
    assert_eq!(bytes[0..4], (len as u32).to_ne_bytes());
    assert_eq!(bytes[8..16], 42u64.to_ne_bytes());
    assert_eq!(read(socket, &mut [0; 1]).unwrap_or(0), 0, "answered twice");
    let error = i32::from_ne_bytes(bytes[4..8].try_into().unwrap());
    Some((error, bytes[16..len].to_vec()))
}

#[test]
fn answers_have_the_kernels_sizes() {
    let size = |code: u32, give: &dyn Fn(Reply)| {
        let (reply, socket) = reply(code);
        give(reply);
        let (error, body) = answer(&socket).unwrap();
        assert_eq!(error, 0);
        body.len()
    };
    assert_eq!(size(opcode::CREATE, &|r| r.create(&EntryOut::default(), OpenOut::new(1, 0))), 144);
    assert_eq!(size(opcode::LOOKUP, &|r| r.entry(&EntryOut::absent(Duration::from_secs(1)))), 128);
    assert_eq!(size(opcode::WRITE, &|r| r.write(5)), 8);
    assert_eq!(size(opcode::COPY_FILE_RANGE_64, &|r| r.write(1 << 40)), 8);
    assert_eq!(size(opcode::GETLK, &|r| r.lock(&Lock::default())), 24);
    assert_eq!(size(opcode::IOCTL, &|r| r.ioctl(0, b"abc")), 19);
    assert_eq!(size(opcode::FLUSH, &|r| r.ok()), 0);
}

#[test]
fn vectored_data_is_whole() {
    let (reply, socket) = reply(opcode::READ);
    let pieces: Vec<_> = (0..20).map(|_| IoSlice::new(b"ab")).collect();
    reply.data_vectored(&pieces);
    assert_eq!(answer(&socket), Some((0, b"ab".repeat(20))));
}

#[test]
fn dropped_replies_answer_eio_where_one_waits() {
    for (code, want) in [
        (opcode::READ, Some((-libc::EIO, vec![]))),
        (opcode::FORGET, None),
        (opcode::BATCH_FORGET, None),
        (opcode::INTERRUPT, None),
    ] {
        let (reply, socket) = reply(code);
        drop(reply);
        assert_eq!(answer(&socket), want);
    }
}

#[test]
fn errors_stay_in_the_range_callers_know() {
    for (errno, want) in [(libc::ENOENT, -libc::ENOENT), (0, -libc::EIO), (-2, -libc::EIO), (512, -libc::EIO)] {
        let (reply, socket) = reply(opcode::LOOKUP);
        reply.error(errno);
        assert_eq!(answer(&socket), Some((want, vec![])));
    }
    let (reply, socket) = reply(opcode::FORGET);
    reply.error(libc::EIO);
    assert_eq!(answer(&socket), None);
}
