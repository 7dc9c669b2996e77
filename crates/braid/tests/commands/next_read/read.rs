//! Ways to read a file, by the first mount. Each is read before the change as it is afterwards, and so that its path is in use.

use super::super::mounted::eventually;
use super::super::posix::Map;
use super::Instead;
use super::pair::Pair;
use rustix::fs::{Advice, MemfdFlags, fadvise, memfd_create};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

const PAGE: usize = 4096;

/// What one call gives.
fn pread(file: &File, ask: usize) -> Vec<u8> {
    let mut bytes = vec![0; ask];
    let read = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(read);
    bytes
}

fn sees_by(p: &Pair<'_>, file: &File) {
    p.sees(0, p.ask(), &pread(file, p.ask()));
}

pub fn held_pages(p: &mut Pair<'_>) {
    let file = p.open_here(0);
    for _ in p.rounds() {
        // The second from the pages of the first.
        sees_by(p, &file);
        sees_by(p, &file);
        p.changes();
        sees_by(p, &file);
    }
}

/// Not from this kernel's pages: the mount reads the files of the data server.
pub fn without_a_message(p: &mut Pair<'_>) {
    let file = p.open_here(0);
    let anew = |p: &Pair<'_>| {
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        sees_by(p, &file);
    };
    for round in p.rounds() {
        let before = p.place.metric("braid_mount_local_reads_total");
        let is_used = || {
            anew(p);
            p.place.metric("braid_mount_local_reads_total") > before
        };
        // What this mount has changed itself it has in its buffer for a second: later rounds may be without.
        match round {
            _ if p.is_inline() => anew(p),
            0 => eventually("a read without a message", Duration::from_secs(20), is_used),
            _ => _ = (0..10).any(|_| is_used()),
        }
        p.changes();
        anew(p);
    }
}

pub fn direct(p: &mut Pair<'_>) {
    let file = p.open_here(libc::O_DIRECT);
    for _ in p.rounds() {
        sees_by(p, &file);
        p.changes();
        sees_by(p, &file);
    }
}

/// What a program would load, by a system call: that gives fewer bytes where a load would end the program (SIGBUS).
fn loaded(map: &Map, len: usize) -> Vec<u8> {
    let memory = memfd_create("loaded", MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: of a mapping of at least this length; the kernel says so if there is nothing behind it.
    let written = unsafe { libc::pwrite(memory.as_raw_fd(), map.at.cast(), len, 0) };
    // SAFETY: nobody else has it.
    let memory = unsafe { File::from_raw_fd(memory.into_raw_fd()) };
    pread(&memory, written.max(0) as usize)
}

/// One mapping for all rounds, of a handle that is closed.
pub fn mapped(p: &mut Pair<'_>) {
    let map = Map::reading(&p.open_here(0), super::LEN * 2).unwrap();
    let sees = |p: &Pair<'_>, known: usize| {
        let all = loaded(&map, super::LEN * 2);
        let known = known.min(p.len());
        p.sees(0, known, &all[..known.min(all.len())]);
        // What was cut is not there, whether the kernel knows where the file ends or not.
        assert!(
            all[p.len().min(all.len())..].iter().all(|byte| *byte == 0),
            "after change {}: bytes beyond the end",
            p.round
        );
    };
    for _ in p.rounds() {
        sees(p, p.len());
        let known = p.len().next_multiple_of(PAGE);
        p.changes();
        if p.instead == Some(Instead::BehindSize) {
            sees(p, known);
            assert_eq!(fs::metadata(p.here()).unwrap().len(), p.len() as u64);
        }
        sees(p, p.len());
    }
}

/// The kernel has read further than the program, when it goes on with its next read.
pub fn sequential(p: &mut Pair<'_>) {
    const PIECE: usize = 16 << 10;
    let mut file = p.open_here(0);
    for _ in p.rounds() {
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        file.rewind().unwrap();
        let mut at = 0;
        while at < p.len() / 4 {
            let mut piece = vec![0; PIECE];
            let read = file.read(&mut piece).unwrap();
            p.sees(at, PIECE, &piece[..read]);
            at += read;
        }
        p.changes();
        let mut rest = vec![0; p.ask()];
        let read = file.read(&mut rest).unwrap();
        p.sees(at, rest.len(), &rest[..read]);
    }
}

pub fn fstat(p: &mut Pair<'_>) {
    let file = p.open_here(0);
    for _ in p.rounds() {
        sees_by(p, &file);
        let was = file.metadata().unwrap();
        p.changes();
        p.sees_attributes(&file.metadata().unwrap(), &was);
    }
}

pub fn stat(p: &mut Pair<'_>) {
    for _ in p.rounds() {
        let was = fs::metadata(p.here()).unwrap();
        p.changes();
        p.sees_attributes(&fs::metadata(p.here()).unwrap(), &was);
    }
}

/// The kernel keeps pages from one open to the next.
pub fn opened_anew(p: &mut Pair<'_>) {
    for _ in p.rounds() {
        sees_by(p, &p.open_here(0));
        p.changes();
        sees_by(p, &p.open_here(0));
    }
}

/// By a process of its own, without a mount; what this mount keeps is in use beside it.
pub fn cat(p: &mut Pair<'_>) {
    let file = p.open_here(0);
    for _ in p.rounds() {
        sees_by(p, &file);
        p.changes();
        p.sees(0, usize::MAX, &p.place.c.bytes(&format!("fs cat /{}", p.name)));
    }
}

/// The kernel reads the data server's file while it is sealed; it is unsealed, and changed.
pub fn sealed(p: &mut Pair<'_>) {
    const OPENS: &str = "braid_mount_passthrough_opens_total";
    let before = p.place.metric(OPENS);
    for _ in p.rounds() {
        p.lets_go();
        // The kernel tells of a close behind it.
        let seal = format!("fs seal /{}", p.name);
        eventually("a seal", Duration::from_secs(10), || p.place.c.run(&seal).code == 0);
        let file = p.open_here(0);
        sees_by(p, &file);
        drop(file);
        p.place.c.says(&format!("fs unseal /{}", p.name));
        p.changes();
        sees_by(p, &p.open_here(0));
    }
    assert!(p.place.metric(OPENS) > before, "nothing was passed through");
}
