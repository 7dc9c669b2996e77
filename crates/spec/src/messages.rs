//! What servers say to each other, and the lines of versions that messages and copies are made of.
//!
//! A message that was sent may be heard at any later moment, any number of times, or never: so loss, repetition, delay and another
//! order are all one. What has no message here is read directly, see docs/design/0017-migration-specification.md, *What is left out*.

use std::fmt;

/// (epoch, term, counter), each below 16. The order of numbers is the order of versions.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u16);

impl Version {
    pub fn new(epoch: u8, term: u8, counter: u8) -> Version {
        Version(u16::from(epoch) << 8 | u16::from(term) << 4 | u16::from(counter))
    }

    pub fn epoch(self) -> u8 {
        (self.0 >> 8) as u8
    }

    pub fn term(self) -> u8 {
        (self.0 >> 4 & 15) as u8
    }

    pub fn counter(self) -> u8 {
        (self.0 & 15) as u8
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch(), self.term(), self.counter())
    }
}

/// A write under its version. Write 0 is the opening of an epoch.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    pub version: Version,
    pub write: u8,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.write {
            0 => write!(f, "{:?}", self.version),
            write => write!(f, "{:?}=w{write}", self.version),
        }
    }
}

/// Entries of a copy at most: writes, their repetitions, and openings.
pub const LINE_MAX: usize = 8;

/// The writes that made what a copy holds, oldest first. A reader sees the last.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    len: u8,
    entries: [Entry; LINE_MAX],
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

impl Line {
    pub fn entries(&self) -> &[Entry] {
        &self.entries[..usize::from(self.len)]
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn is_full(&self) -> bool {
        usize::from(self.len) == LINE_MAX
    }

    pub fn last(&self) -> Version {
        self.entries().last().map_or(Version::default(), |entry| entry.version)
    }

    pub fn push(&mut self, entry: Entry) {
        assert!(!self.is_full(), "a configuration with more writes than a line has entries");
        self.entries[usize::from(self.len)] = entry;
        self.len += 1;
    }

    pub fn extend(&mut self, entries: &[Entry]) {
        entries.iter().for_each(|entry| self.push(*entry));
    }

    /// The first so many.
    pub fn first(&self, count: usize) -> Line {
        let mut line = Line::default();
        line.extend(&self.entries()[..count.min(usize::from(self.len))]);
        line
    }

    /// Up to this version, it included.
    pub fn upto(&self, version: Version) -> Line {
        self.first(self.entries().iter().take_while(|entry| entry.version <= version).count())
    }

    pub fn without_first(&self) -> Line {
        let mut line = Line::default();
        line.extend(self.entries().get(1..).unwrap_or_default());
        line
    }

    /// How many entries both begin with.
    pub fn common(&self, other: &Line) -> usize {
        self.entries().iter().zip(other.entries()).take_while(|(a, b)| a == b).count()
    }

    /// One of the two is where the other was, or will be.
    pub fn is_along(&self, other: &Line) -> bool {
        self.common(other) == usize::from(self.len.min(other.len))
    }

    /// Of writes, one bit each.
    pub fn writes(&self) -> u16 {
        self.entries().iter().filter(|entry| entry.write > 0).fold(0, |all, entry| all | 1 << entry.write)
    }
}

/// Between two servers of a chain, about the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    pub from: u8,
    pub to: u8,
    pub epoch: u8,
    pub term: u8,
    pub body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Body {
    /// Member to owner: a writer is beside me.
    Want,
    /// Owner to member: `Tell` and `Blocks` in one, which are heard in two steps: what changed, and then its content.
    Said { line: Line },
    /// Owner to taker: the next term is yours. `told` is all there is; `late` is what the owner refuses.
    Hand { told: Version, late: Late },
    /// The owner of this term to a member.
    Owns,
}

/// Which changes of clients come too late: under which file lease the chunk was written last, and for each client the first change
/// that it still waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Late {
    pub lease: u8,
    pub places: [u8; 2],
}

impl Late {
    pub fn join(&mut self, other: &Late) {
        self.lease = self.lease.max(other.lease);
        self.places.iter_mut().zip(other.places).for_each(|(own, other)| *own = other.max(*own));
    }
}

/// One attempt of a client at one write. It arrives once, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    pub to: u8,
    pub client: u8,
    pub write: u8,
    /// Among the attempts of this client, and all before it are given up.
    pub place: u8,
    pub lease: u8,
    pub epoch: u8,
}
