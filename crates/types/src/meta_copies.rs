//! Copies of the metadata's rows on data servers: terms, positions in the order of groups, the set that keeps them, and
//! changes of rows on their way. Who counts when is reasoned about in `braid-copyset`.

use crate::ServerId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One start of a metadata server, above all starts before. The nonce is drawn, so that two that begin at once differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MetaTerm {
    pub counter: u64,
    pub nonce: u64,
}

/// A group of transactions: its number and the term whose server committed it. What has the same position is the same group,
/// after the same groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MetaPosition {
    pub term: MetaTerm,
    pub number: u64,
}

impl MetaPosition {
    pub const BYTES: usize = 24;

    /// As it lies on disks: counter and nonce of the term, number; little-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.term.counter, self.term.nonce, self.number];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        MetaPosition { term: MetaTerm { counter: word(0), nonce: word(8) }, number: word(16) }
    }
}

/// A data server as a voter on who leads and which servers keep copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voter {
    pub id: ServerId,
    pub host: String,
    pub addresses: Vec<String>,
}

/// Which data servers keep the rows, and who has a say in that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySet {
    pub term: MetaTerm,
    /// Within the term.
    pub number: u64,
    pub members: Vec<ServerId>,
    /// All data servers.
    pub voters: Vec<Voter>,
}

/// What a data server says of itself as a keeper of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperReport {
    /// It obeys nobody of an older term.
    pub promised: MetaTerm,
    /// The newest set it has recorded.
    pub set: Option<CopySet>,
    /// Its copy, if it is whole.
    pub copy: Option<CopyStanding>,
    /// A copy that comes, and how many pages of its base are here.
    pub forming: Option<(CopyStanding, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyStanding {
    /// The last group it has.
    pub last: MetaPosition,
    /// Everything up to this number is on stable storage.
    pub synced: u64,
    /// Since its process started it had, at some moment, everything that was acknowledged. A member that is current has
    /// everything that is acknowledged; one that is not may have lost what it had not synced.
    pub current: bool,
}

impl fmt::Display for MetaTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04x}", self.counter, self.nonce & 0xffff)
    }
}

impl fmt::Display for MetaPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {} of term {}", self.number, self.term)
    }
}

impl CopySet {
    /// Sets in the order in which they were made.
    pub fn order(&self) -> (MetaTerm, u64) {
        (self.term, self.number)
    }

    pub fn voter(&self, id: ServerId) -> Option<&Voter> {
        self.voters.iter().find(|voter| voter.id == id)
    }
}

/// Changes of rows, in order: of each its table, its key and what is in it now. The format, version 1, is that of messages and
/// of files: table (1 byte), whether there is a row (1), lengths of key (2) and row (4), little-endian, key, row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowChanges(Vec<u8>);

/// One of them; `row` is `None` where it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChange<'a> {
    pub table: u8,
    pub key: &'a [u8],
    pub row: Option<&'a [u8]>,
}

/// These bytes are no changes of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoChanges;

const HEAD_BYTES: usize = 8;

impl RowChanges {
    /// Keys have at most 511 bytes and rows less than 4 GiB in every engine.
    pub fn push(&mut self, change: RowChange<'_>) {
        let row = change.row.unwrap_or_default();
        self.0.extend_from_slice(&[change.table, u8::from(change.row.is_some())]);
        self.0.extend_from_slice(&(change.key.len() as u16).to_le_bytes());
        self.0.extend_from_slice(&(row.len() as u32).to_le_bytes());
        self.0.extend_from_slice(change.key);
        self.0.extend_from_slice(row);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The changes that such bytes hold.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = Result<RowChange<'_>, NoChanges>> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let change = split(rest);
            rest = change.map_or(&[], |(_, after)| after);
            Some(change.map(|(change, _)| change).ok_or(NoChanges))
        })
    }
}

fn split(bytes: &[u8]) -> Option<(RowChange<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let key_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let row_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (row, rest) = rest.split_at_checked(row_len)?;
    let row = match head[1] {
        0 if row.is_empty() => None,
        1 => Some(row),
        _ => return None,
    };
    Some((RowChange { table: head[0], key, row }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_back_and_a_part_of_one_does_not() {
        let change = |key, row| RowChange { table: 3, key, row };
        let list = [change(b"a", Some(&b"row"[..])), change(b"", None), change(b"bc", Some(&[]))];
        let mut changes = RowChanges::default();
        list.iter().for_each(|change| changes.push(*change));
        let bytes = changes.into_bytes();
        assert_eq!(RowChanges::read(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), list);
        assert_eq!(bytes[..12], [3, 1, 1, 0, 3, 0, 0, 0, b'a', b'r', b'o', b'w'], "the format of version 1");
        for cut in [1, 7, 8, 11, bytes.len() - 1] {
            assert_eq!(RowChanges::read(&bytes[..cut]).last(), Some(Err(NoChanges)), "cut at {cut}");
        }
        assert_eq!(RowChanges::read(&[3, 2, 0, 0, 0, 0, 0, 0]).last(), Some(Err(NoChanges)));
    }

    #[test]
    fn a_later_term_is_further_whatever_its_number() {
        let at = |counter, number| MetaPosition { term: MetaTerm { counter, nonce: 0 }, number };
        assert!(at(2, 9) > at(1, 10) && at(2, 10) > at(2, 9));
    }
}
