//! A way to change and a way to read, on a file of their own, and what must be in it.

use super::super::mounted::eventually;
use super::super::{Cluster, pages, pattern};
use super::{Change, Instead, Kind, LEN, Read, SMALL};
use rustix::fs::{XattrFlags, setxattr};
use std::any::Any;
use std::fs::{self, File, Metadata, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

/// What a change has open, or mapped.
pub type Kept = Box<dyn Any>;

/// Two mounts, the reader's first.
pub struct Place<'a> {
    pub title: &'static str,
    pub c: &'a Cluster,
    pub at: &'a [PathBuf; 2],
    pub kind: Kind,
    /// How many chunks the server beside the other mount has come to own.
    moves: &'a dyn Fn() -> u64,
    /// Of the reader's mount.
    page: String,
}

impl<'a> Place<'a> {
    pub fn new(
        title: &'static str,
        c: &'a Cluster,
        at: &'a [PathBuf; 2],
        kind: Kind,
        moves: &'a dyn Fn() -> u64,
        page: String,
    ) -> Place<'a> {
        Place { title, c, at, kind, moves, page }
    }

    pub fn metric(&self, name: &str) -> u64 {
        pages::metric(&self.page, name)
    }
}

pub struct Pair<'a> {
    pub place: &'a Place<'a>,
    change: &'a Change,
    read: &'a Read,
    pub instead: Option<Instead>,
    pub name: String,
    pub round: usize,
    /// What the file of this name has.
    pub bytes: Vec<u8>,
    /// What the reader is to see: the same, but for who has a file open that was replaced.
    seen: Vec<u8>,
    /// So that no bytes are those of before.
    salt: u8,
    kept: Option<Kept>,
}

impl<'a> Pair<'a> {
    pub fn new(
        place: &'a Place<'a>,
        change: &'a Change,
        read: &'a Read,
        instead: Option<Instead>,
        name: &str,
    ) -> Pair<'a> {
        let mut pair = Pair {
            place,
            change,
            read,
            instead,
            name: name.to_owned(),
            round: 0,
            bytes: Vec::new(),
            seen: Vec::new(),
            salt: 0,
            kept: None,
        };
        pair.bytes = pair.fresh(change.len);
        fs::write(if place.kind == Kind::Moved { pair.here() } else { pair.there() }, &pair.bytes).unwrap();
        match place.kind {
            Kind::Any | Kind::Messages => {}
            Kind::Marked => setxattr(pair.there(), "user.braid.shared", b"1", XattrFlags::empty()).unwrap(),
            Kind::Moved => pair.moves(),
        }
        pair
    }

    /// Is written until the server there owns it.
    fn moves(&mut self) {
        let (moved, file) = ((self.place.moves)(), self.open_there(0));
        eventually("a move", Duration::from_secs(30), || {
            let bytes = self.fresh(self.bytes.len());
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_data().unwrap();
            self.bytes = bytes;
            (self.place.moves)() > moved
        });
    }

    pub fn here(&self) -> PathBuf {
        self.place.at[0].join(&self.name)
    }

    pub fn there(&self) -> PathBuf {
        self.place.at[1].join(&self.name)
    }

    /// For reading, by the reader's mount.
    pub fn open_here(&self, flags: i32) -> File {
        OpenOptions::new().read(true).custom_flags(flags).open(self.here()).unwrap()
    }

    /// For reading and writing, by the other.
    pub fn open_there(&self, flags: i32) -> File {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.there()).unwrap()
    }

    /// Each byte another one than in all that was made before.
    pub fn fresh(&mut self, len: usize) -> Vec<u8> {
        self.salt = self.salt.wrapping_add(37);
        pattern(len).iter().map(|byte| byte.wrapping_add(self.salt)).collect()
    }

    /// A part whose ends are inside of pages, or every second time the whole file.
    pub fn part(&self) -> Range<usize> {
        match self.round % 2 {
            0 => self.bytes.len() / 3 + 7..self.bytes.len() / 2 + 11,
            _ => 0..self.bytes.len(),
        }
    }

    /// Puts `bytes` into what must be there.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
    }

    /// In which what the reader has open stays so. Where files are replaced each takes it anew.
    pub fn rounds(&mut self) -> Range<usize> {
        self.seen.clone_from(&self.bytes);
        if self.change.replaces { self.round..self.round + 1 } else { 0..self.read.rounds }
    }

    /// Small enough to lie beside its row.
    pub fn is_inline(&self) -> bool {
        self.seen.len() <= SMALL * 2
    }

    /// To ask for all of it, after the second change beyond its end: a kernel asks for the size only then.
    pub fn ask(&self) -> usize {
        if self.round != 2 { self.seen.len() } else { self.seen.len().max(LEN) + 10_000 }
    }

    /// How much there is.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// The other mount changes it.
    pub fn changes(&mut self) {
        self.lets_go();
        let run = self.change.run;
        self.kept = Some(run(self));
        if !self.change.replaces || self.read.by_name {
            self.seen.clone_from(&self.bytes);
        }
        self.round += 1;
    }

    /// The other mount closes it.
    pub fn lets_go(&mut self) {
        self.kept = None;
    }

    /// One read of `asked` bytes at `at` gave these.
    pub fn sees(&self, at: usize, asked: usize, bytes: &[u8]) {
        let end = (at + asked).min(self.seen.len());
        let expected = &self.seen[at.min(end)..end];
        let differs = expected.iter().zip(bytes).position(|(a, b)| a != b);
        let differs = differs.or((expected.len() != bytes.len()).then_some(expected.len().min(bytes.len())));
        let Some(first) = differs else { return };
        panic!(
            "{}, after change {}: the first difference is at {}: {:?} for {:?}; {} bytes for {}",
            self.place.title,
            self.round,
            at + first,
            bytes.get(first),
            expected.get(first),
            bytes.len(),
            expected.len()
        );
    }

    /// And what was there before the change is not what is there now.
    pub fn sees_attributes(&self, is: &Metadata, was: &Metadata) {
        let (place, round) = (self.place.title, self.round);
        assert_eq!(is.len(), self.seen.len() as u64, "{place}, after change {round}: the size");
        let is_other = self.change.replaces && self.read.by_name;
        assert_eq!(is.ino() != was.ino(), is_other, "{place}, after change {round}: which file it is");
        if !self.change.replaces && self.instead != Some(Instead::SizeAlone) {
            assert!(is.modified().unwrap() > was.modified().unwrap(), "{place}, after change {round}: the time");
        }
    }
}
