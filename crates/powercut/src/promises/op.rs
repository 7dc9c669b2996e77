//! The calls of a load, and how they are written in a record: words with spaces between, no word has one inside.

use std::fmt;

/// Names are relative to the worker's directory. `file` is a number that stays with the file through all renames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Mkdir {
        name: String,
    },
    Rmdir {
        name: String,
    },
    /// Made new and open.
    Create {
        name: String,
        file: u64,
    },
    /// An existing file, to be changed in place.
    Open {
        name: String,
        file: u64,
    },
    Write {
        file: u64,
        offset: u64,
        len: u64,
        seed: u64,
    },
    /// A write on a descriptor of its own with `O_DSYNC`.
    SyncedWrite {
        name: String,
        file: u64,
        offset: u64,
        len: u64,
        seed: u64,
    },
    Fsync {
        file: u64,
    },
    Fdatasync {
        file: u64,
    },
    Truncate {
        file: u64,
        len: u64,
    },
    Close {
        file: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        name: String,
    },
    Unlink {
        name: String,
    },
    Chmod {
        name: String,
        mode: u32,
    },
    SetXattr {
        name: String,
        value: u64,
    },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Mkdir { name } => write!(f, "mkdir {name}"),
            Op::Rmdir { name } => write!(f, "rmdir {name}"),
            Op::Create { name, file } => write!(f, "create {name} {file}"),
            Op::Open { name, file } => write!(f, "open {name} {file}"),
            Op::Write { file, offset, len, seed } => write!(f, "write {file} {offset} {len} {seed}"),
            Op::SyncedWrite { name, file, offset, len, seed } => {
                write!(f, "dsync {name} {file} {offset} {len} {seed}")
            }
            Op::Fsync { file } => write!(f, "fsync {file}"),
            Op::Fdatasync { file } => write!(f, "fdatasync {file}"),
            Op::Truncate { file, len } => write!(f, "truncate {file} {len}"),
            Op::Close { file } => write!(f, "close {file}"),
            Op::Rename { from, to } => write!(f, "rename {from} {to}"),
            Op::Link { from, to } => write!(f, "link {from} {to}"),
            Op::Symlink { target, name } => write!(f, "symlink {target} {name}"),
            Op::Unlink { name } => write!(f, "unlink {name}"),
            Op::Chmod { name, mode } => write!(f, "chmod {name} {mode:o}"),
            Op::SetXattr { name, value } => write!(f, "setxattr {name} {value}"),
        }
    }
}

impl Op {
    /// `None` for what [`Display`](fmt::Display) never writes.
    pub fn parse(text: &str) -> Option<Op> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().ok();
        let name = |word: &str| word.to_owned();
        Some(match words[..] {
            ["mkdir", a] => Op::Mkdir { name: name(a) },
            ["rmdir", a] => Op::Rmdir { name: name(a) },
            ["create", a, file] => Op::Create { name: name(a), file: number(file)? },
            ["open", a, file] => Op::Open { name: name(a), file: number(file)? },
            ["write", file, offset, len, seed] => {
                Op::Write { file: number(file)?, offset: number(offset)?, len: number(len)?, seed: number(seed)? }
            }
            ["dsync", a, file, offset, len, seed] => Op::SyncedWrite {
                name: name(a),
                file: number(file)?,
                offset: number(offset)?,
                len: number(len)?,
                seed: number(seed)?,
            },
            ["fsync", file] => Op::Fsync { file: number(file)? },
            ["fdatasync", file] => Op::Fdatasync { file: number(file)? },
            ["truncate", file, len] => Op::Truncate { file: number(file)?, len: number(len)? },
            ["close", file] => Op::Close { file: number(file)? },
            ["rename", from, to] => Op::Rename { from: name(from), to: name(to) },
            ["link", from, to] => Op::Link { from: name(from), to: name(to) },
            ["symlink", target, a] => Op::Symlink { target: name(target), name: name(a) },
            ["unlink", a] => Op::Unlink { name: name(a) },
            ["chmod", a, mode] => Op::Chmod { name: name(a), mode: u32::from_str_radix(mode, 8).ok()? },
            ["setxattr", a, value] => Op::SetXattr { name: name(a), value: number(value)? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let name = || "d1/f2".to_owned();
        let ops = [
            Op::Mkdir { name: name() },
            Op::Rmdir { name: name() },
            Op::Create { name: name(), file: 3 },
            Op::Open { name: name(), file: 3 },
            Op::Write { file: 1, offset: 2, len: 3, seed: u64::MAX },
            Op::SyncedWrite { name: name(), file: 1, offset: 2, len: 3, seed: 4 },
            Op::Fsync { file: 7 },
            Op::Fdatasync { file: 7 },
            Op::Truncate { file: 7, len: 9 },
            Op::Close { file: 7 },
            Op::Rename { from: name(), to: "x".into() },
            Op::Link { from: name(), to: "x".into() },
            Op::Symlink { target: "t".into(), name: name() },
            Op::Unlink { name: name() },
            Op::Chmod { name: name(), mode: 0o640 },
            Op::SetXattr { name: name(), value: 5 },
        ];
        for op in ops {
            assert_eq!(Op::parse(&op.to_string()), Some(op));
        }
        assert_eq!(Op::parse("write 1 2 3"), None);
    }
}
