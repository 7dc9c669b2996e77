use crate::{CHUNK_BYTES_DEFAULT, INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, INLINE_SMALL_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a file's bytes are laid over servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// `replica:N`: N whole copies, the primary beside the writer. `plain` is `replica:1`.
    Replica { copies: u8 },
    /// `rain:K+M`: stripes of K data and M parity units.
    Rain { data: u8, parity: u8 },
    /// `memory`: 512 KiB units hashed over the memory of all servers, write-once.
    Memory,
}

/// When a write, and when a close, returns (design.md §5 *Acknowledgement*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Durability {
    /// Only fsync, O_SYNC and O_DSYNC wait for `min_copies` on stable storage.
    #[default]
    Fsync,
    /// Close waits as well.
    Close,
    /// Every write waits.
    Write,
}

/// Where copies are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Medium {
    #[default]
    Disk,
    Memory,
}

/// A directory's choice of layout, redundancy, medium and durability. Written and read as
/// `replica:3,durability=close,inline=4KiB`; only what differs from the default is printed after the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Encoded", into = "Encoded")]
pub struct Policy {
    pub layout: Layout,
    pub durability: Durability,
    pub medium: Medium,
    /// Copies on stable storage that fsync waits for; 0 means min(2, copies).
    pub min_copies: u8,
    /// Largest file kept beside its row; 0 is never.
    pub inline_bytes: u32,
    /// Of these, the largest file kept in the table `inline_small`, which databases have in memory; 0 is none.
    pub inline_small_bytes: u16,
    /// Bytes in a chunk: a power of two from 1 MiB to 1 TiB.
    pub chunk_bytes: u64,
}

/// A policy in rows and messages: as it was before there was `inline_small_bytes`, which is in bits of a varint that were 0.
#[derive(Serialize, Deserialize)]
struct Encoded {
    layout: Layout,
    durability: Durability,
    medium: Medium,
    min_copies: u8,
    /// `inline_bytes`, and from bit 32 on what `inline_small_bytes` lacks to its maximum.
    inline: u64,
    chunk_bytes: u64,
}

impl From<Policy> for Encoded {
    fn from(policy: Policy) -> Encoded {
        let Policy { layout, durability, medium, min_copies, inline_bytes, inline_small_bytes, chunk_bytes } = policy;
        let less = INLINE_SMALL_BYTES_MAX.saturating_sub(inline_small_bytes);
        let inline = u64::from(inline_bytes) | u64::from(less) << 32;
        Encoded { layout, durability, medium, min_copies, inline, chunk_bytes }
    }
}

impl From<Encoded> for Policy {
    fn from(encoded: Encoded) -> Policy {
        let Encoded { layout, durability, medium, min_copies, inline, chunk_bytes } = encoded;
        let inline_small_bytes = INLINE_SMALL_BYTES_MAX.saturating_sub(u16::try_from(inline >> 32).unwrap_or(u16::MAX));
        Policy { layout, durability, medium, min_copies, inline_bytes: inline as u32, inline_small_bytes, chunk_bytes }
    }
}

/// Why a text is not a policy. The message says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("{0:?} is not a layout; use plain, replica:N (1 to 8), rain:K+M (2 to 32 + 1 to 8) or memory")]
    Layout(String),
    #[error("{0:?} is not a setting of a policy; use durability, medium, min_copies, inline, inline_small or chunk")]
    Setting(String),
    #[error("{value:?} does not fit {setting}: {expected}")]
    Value { setting: &'static str, value: String, expected: &'static str },
}

const COPIES_MAX: u8 = 8;
const CHUNK_BYTES_MIN: u64 = 1 << 20;
const CHUNK_BYTES_MAX: u64 = 1 << 40;

impl Policy {
    /// `replica:1`: one copy, files spread over all servers.
    pub const PLAIN: Policy = Policy {
        layout: Layout::Replica { copies: 1 },
        durability: Durability::Fsync,
        medium: Medium::Disk,
        min_copies: 0,
        inline_bytes: INLINE_BYTES_DEFAULT,
        inline_small_bytes: INLINE_SMALL_BYTES_MAX,
        chunk_bytes: CHUNK_BYTES_DEFAULT,
    };

    /// Servers in a chain of this layout.
    pub fn chain_len(&self) -> usize {
        match self.layout {
            Layout::Replica { copies } => copies as usize,
            Layout::Rain { data, parity } => data as usize + parity as usize,
            Layout::Memory => 1,
        }
    }

    /// Copies that fsync waits for.
    pub fn min_copies(&self) -> usize {
        match (self.min_copies, self.layout) {
            (0, Layout::Replica { copies }) => copies.min(2) as usize,
            (0, _) => 1,
            (n, _) => n as usize,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy::PLAIN
    }
}

/// `4096`, `64KiB`, `1MiB`, `2GiB`, `1TiB`.
fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl FromStr for Layout {
    type Err = PolicyError;
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let bad = || PolicyError::Layout(text.to_owned());
        match text.split_once(':') {
            None if text == "plain" => Ok(Layout::Replica { copies: 1 }),
            None if text == "memory" => Ok(Layout::Memory),
            Some(("replica", n)) => match n.parse::<u8>() {
                Ok(copies @ 1..=COPIES_MAX) => Ok(Layout::Replica { copies }),
                _ => Err(bad()),
            },
            Some(("rain", shape)) => {
                let (k, m) = shape.split_once('+').ok_or_else(bad)?;
                match (k.parse::<u8>(), m.parse::<u8>()) {
                    (Ok(data @ 2..=32), Ok(parity @ 1..=8)) => Ok(Layout::Rain { data, parity }),
                    _ => Err(bad()),
                }
            }
            _ => Err(bad()),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut parts = text.trim().split(',').map(str::trim);
        let mut policy = Policy { layout: parts.next().unwrap_or("").parse()?, ..Policy::PLAIN };
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| PolicyError::Setting(part.to_owned()))?;
            let bad = |setting, expected| PolicyError::Value { setting, value: value.to_owned(), expected };
            match key {
                "durability" => {
                    policy.durability = match value {
                        "fsync" => Durability::Fsync,
                        "close" => Durability::Close,
                        "write" => Durability::Write,
                        _ => return Err(bad("durability", "fsync, close or write")),
                    }
                }
                "medium" => {
                    policy.medium = match value {
                        "disk" => Medium::Disk,
                        "memory" => Medium::Memory,
                        _ => return Err(bad("medium", "disk or memory")),
                    }
                }
                "min_copies" => {
                    policy.min_copies = match value.parse::<u8>() {
                        Ok(n) if n >= 1 && n as usize <= policy.chain_len() => n,
                        _ => return Err(bad("min_copies", "1 up to the number of copies of the layout")),
                    }
                }
                "inline" => {
                    policy.inline_bytes = match parse_bytes(value) {
                        Some(n) if n <= u64::from(INLINE_BYTES_MAX) => n as u32,
                        _ => return Err(bad("inline", "0 to 64KiB")),
                    }
                }
                "inline_small" => {
                    policy.inline_small_bytes = match parse_bytes(value) {
                        Some(n) if n <= u64::from(INLINE_SMALL_BYTES_MAX) => n as u16,
                        _ => return Err(bad("inline_small", "0 to 1KiB")),
                    }
                }
                "chunk" => {
                    policy.chunk_bytes = match parse_bytes(value) {
                        Some(n) if n.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&n) => n,
                        _ => return Err(bad("chunk", "a power of two from 1MiB to 1TiB")),
                    }
                }
                _ => return Err(PolicyError::Setting(key.to_owned())),
            }
        }
        Ok(policy)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Replica { copies: 1 } => write!(f, "plain"),
            Layout::Replica { copies } => write!(f, "replica:{copies}"),
            Layout::Rain { data, parity } => write!(f, "rain:{data}+{parity}"),
            Layout::Memory => write!(f, "memory"),
        }
    }
}

fn show_bytes(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, suffix)) => format!("{}{suffix}", bytes / unit),
        None => bytes.to_string(),
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.layout)?;
        match self.durability {
            Durability::Fsync => {}
            Durability::Close => write!(f, ",durability=close")?,
            Durability::Write => write!(f, ",durability=write")?,
        }
        if self.medium == Medium::Memory {
            write!(f, ",medium=memory")?;
        }
        if self.min_copies != 0 {
            write!(f, ",min_copies={}", self.min_copies)?;
        }
        if self.inline_bytes != INLINE_BYTES_DEFAULT {
            write!(f, ",inline={}", show_bytes(self.inline_bytes.into()))?;
        }
        if self.inline_small_bytes != INLINE_SMALL_BYTES_MAX {
            write!(f, ",inline_small={}", show_bytes(self.inline_small_bytes.into()))?;
        }
        if self.chunk_bytes != CHUNK_BYTES_DEFAULT {
            write!(f, ",chunk={}", show_bytes(self.chunk_bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_reads_back_what_it_prints() {
        for text in [
            "plain",
            "replica:3",
            "rain:4+2",
            "memory",
            "replica:3,durability=close,min_copies=2,inline=4KiB,chunk=1GiB",
            "plain,durability=write,medium=memory,inline=0",
            "plain,inline=64KiB,inline_small=0",
            "replica:2,inline_small=300",
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            let bytes = postcard::to_allocvec(&policy).unwrap();
            assert_eq!(postcard::from_bytes::<Policy>(&bytes).unwrap(), policy, "{text}");
        }
        assert_eq!("replica:1".parse::<Policy>().unwrap().to_string(), "plain");
    }

    /// As they were written before one could say what lies in memory.
    #[test]
    fn policies_of_before_are_read_and_written_as_they_were() {
        let before = (Layout::Replica { copies: 2 }, Durability::Close, Medium::Disk, 1_u8, 4096_u32, 1_u64 << 30);
        let policy: Policy = "replica:2,durability=close,min_copies=1,inline=4KiB,chunk=1GiB".parse().unwrap();
        let bytes = postcard::to_allocvec(&before).unwrap();
        assert_eq!(postcard::from_bytes::<Policy>(&bytes).unwrap(), policy);
        assert_eq!(postcard::to_allocvec(&policy).unwrap(), bytes);
    }

    #[test]
    fn bad_policies_say_what_would_be_right() {
        for (text, hint) in [
            ("", "plain"),
            ("replica:0", "1 to 8"),
            ("replica:9", "1 to 8"),
            ("rain:1+1", "2 to 32"),
            ("raid5", "rain:K+M"),
            ("plain,colour=red", "durability"),
            ("plain,inline=1MiB", "64KiB"),
            ("plain,inline_small=2KiB", "1KiB"),
            ("plain,chunk=3MiB", "power of two"),
            ("plain,min_copies=2", "number of copies"),
            ("plain,inline=99999999999999999999KiB", "64KiB"),
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn min_copies_is_two_where_there_are_two() {
        assert_eq!("replica:3".parse::<Policy>().unwrap().min_copies(), 2);
        assert_eq!(Policy::PLAIN.min_copies(), 1);
    }
}
