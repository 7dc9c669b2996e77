//! What a directory may hold after a crash, from what was acknowledged (`docs/semantics.md`).
//!
//! Changes of names, modes, attributes and lengths are kept once acknowledged. Of a file's bytes, what the last completed
//! sync covered is kept; later writes may be found whole, in part or not at all, so a byte may be any that the file had
//! there since. Closing a small file, whose bytes lie beside its row, is a sync of it.

use super::bytes::bytes;
use super::op::Op;
use std::collections::BTreeMap;

/// Files that were never longer lie inline, and their bytes are kept at `close` (the default policy's `inline`).
pub const INLINE_BYTES: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Dir,
    File(u64),
    Symlink(String),
}

#[derive(Clone, Debug)]
pub struct FileState {
    /// Contents since the last sync, that one first; never empty.
    versions: Vec<Vec<u8>>,
    longest: usize,
    pub mode: u32,
    pub xattr: Option<u64>,
}

/// The mode of new files, and of directories always.
pub const FILE_MODE: u32 = 0o644;

impl Default for FileState {
    fn default() -> Self {
        Self { versions: vec![Vec::new()], longest: 0, mode: FILE_MODE, xattr: None }
    }
}

impl FileState {
    pub fn latest(&self) -> &[u8] {
        self.versions.last().map_or(&[], Vec::as_slice)
    }

    /// How many contents may be found, in any mixture.
    pub fn versions(&self) -> usize {
        self.versions.len()
    }

    fn synced(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut content = self.latest().to_vec();
        overlay(&mut content, offset, data);
        self.longest = self.longest.max(content.len());
        self.versions.push(content);
    }

    fn write_synced(&mut self, offset: u64, data: &[u8]) {
        self.versions.iter_mut().for_each(|content| overlay(content, offset, data));
        self.longest = self.longest.max(self.latest().len());
    }

    fn truncate(&mut self, len: u64) {
        self.versions.iter_mut().for_each(|content| content.resize(len as usize, 0));
        self.longest = self.longest.max(len as usize);
    }

    /// Where `found` is not what it may be.
    pub fn wrong_at(&self, found: &[u8]) -> Option<Wrong> {
        if found == self.latest() {
            return None;
        }
        let lengths = self.versions.iter().map(Vec::len);
        let (shortest, longest) = (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0));
        if !(shortest..=longest).contains(&found.len()) {
            return Some(Wrong::Length { found: found.len(), shortest, longest });
        }
        let at = |content: &[u8], i: usize| content.get(i).copied().unwrap_or(0);
        let offset = (0..found.len()).find(|&i| self.versions.iter().all(|v| at(v, i) != found[i]))?;
        let bytes = (offset..found.len()).filter(|&i| self.versions.iter().all(|v| at(v, i) != found[i])).count();
        let zeros = found[offset..].iter().take_while(|b| **b == 0).count();
        Some(Wrong::Bytes { offset, bytes, zeros, of: found.len() })
    }
}

fn overlay(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (begin, end) = (offset as usize, offset as usize + data.len());
    content.resize(content.len().max(end), 0);
    content[begin..end].copy_from_slice(data);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    Length {
        found: usize,
        shortest: usize,
        longest: usize,
    },
    /// `bytes` are wrong from `offset` on; from there `zeros` are zero.
    Bytes {
        offset: usize,
        bytes: usize,
        zeros: usize,
        of: usize,
    },
}

#[derive(Clone, Debug, Default)]
pub struct State {
    pub names: BTreeMap<String, Entry>,
    pub files: BTreeMap<u64, FileState>,
}

impl State {
    /// After `op` was acknowledged.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Mkdir { name } => _ = self.names.insert(name.clone(), Entry::Dir),
            Op::Rmdir { name } | Op::Unlink { name } => _ = self.names.remove(name),
            Op::Symlink { target, name } => _ = self.names.insert(name.clone(), Entry::Symlink(target.clone())),
            Op::Create { name, file } => {
                self.names.insert(name.clone(), Entry::File(*file));
                self.files.insert(*file, FileState::default());
            }
            Op::Link { from, to } => {
                if let Some(entry) = self.names.get(from).cloned() {
                    self.names.insert(to.clone(), entry);
                }
            }
            Op::Rename { from, to } => self.rename(from, to),
            Op::Open { .. } => {}
            Op::Write { file, offset, len, seed } => {
                self.on_file(*file, |f| f.write(*offset, &bytes(*seed, *len as usize)));
            }
            Op::SyncedWrite { file, offset, len, seed, .. } => {
                self.on_file(*file, |f| f.write_synced(*offset, &bytes(*seed, *len as usize)));
            }
            Op::Fsync { file } | Op::Fdatasync { file } => self.on_file(*file, FileState::synced),
            Op::Truncate { file, len } => self.on_file(*file, |f| f.truncate(*len)),
            Op::Close { file } => self.on_file(*file, |f| {
                if f.longest <= INLINE_BYTES {
                    f.synced();
                }
            }),
            Op::Chmod { name, mode } => self.on_name(name, |f| f.mode = *mode),
            Op::SetXattr { name, value } => self.on_name(name, |f| f.xattr = Some(*value)),
        }
    }

    /// The states that may be found when nobody knows whether `op` took effect, the one without it first.
    pub fn maybe(mut self, op: &Op) -> Vec<State> {
        match op {
            // In part too: what was there before becomes the oldest of the versions.
            Op::SyncedWrite { file, offset, len, seed, .. } => {
                self.on_file(*file, |f| f.write(*offset, &bytes(*seed, *len as usize)));
                vec![self]
            }
            Op::Write { .. } => {
                self.apply(op);
                vec![self]
            }
            Op::Truncate { file, len } => {
                self.on_file(*file, |f| {
                    let mut content = f.latest().to_vec();
                    content.resize(*len as usize, 0);
                    f.versions.push(content);
                });
                vec![self]
            }
            // These only ever narrow what may be found.
            Op::Open { .. } | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Close { .. } => vec![self],
            _ => {
                let mut after = self.clone();
                after.apply(op);
                vec![self, after]
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let Some(entry) = self.names.get(from).cloned() else { return };
        // Two names of one file: rename does nothing (POSIX).
        if matches!(entry, Entry::File(_)) && self.names.get(to) == Some(&entry) {
            return;
        }
        let below = format!("{from}/");
        let moved: Vec<String> = self.names.range(below.clone()..).map(|(name, _)| name.clone()).collect();
        for name in moved.iter().take_while(|name| name.starts_with(&below)) {
            if let Some(entry) = self.names.remove(name) {
                self.names.insert(format!("{to}/{}", &name[below.len()..]), entry);
            }
        }
        self.names.remove(from);
        self.names.insert(to.to_owned(), entry);
    }

    fn on_file(&mut self, file: u64, change: impl FnOnce(&mut FileState)) {
        if let Some(state) = self.files.get_mut(&file) {
            change(state);
        }
    }

    fn on_name(&mut self, name: &str, change: impl FnOnce(&mut FileState)) {
        if let Some(Entry::File(file)) = self.names.get(name) {
            let file = *file;
            self.on_file(file, change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ops: &[Op]) -> State {
        let mut state = State::default();
        ops.iter().for_each(|op| state.apply(op));
        state
    }

    fn written(len: u64, seed: u64) -> Op {
        Op::Write { file: 1, offset: 0, len, seed }
    }

    #[test]
    fn a_synced_byte_is_kept_and_a_later_one_may_be() {
        let create = Op::Create { name: "a".into(), file: 1 };
        let s = state(&[create, written(40_000, 1), Op::Fsync { file: 1 }, written(50_000, 2)]);
        let (old, new) = (bytes(1, 40_000), bytes(2, 50_000));
        let file = &s.files[&1];
        assert_eq!(file.versions(), 2);
        assert_eq!(file.wrong_at(&old), None);
        assert_eq!(file.wrong_at(&new), None);
        let mut torn = old.clone();
        torn[4096..20_000].copy_from_slice(&new[4096..20_000]);
        assert_eq!(file.wrong_at(&torn), None);
        torn.resize(45_000, 0);
        assert_eq!(file.wrong_at(&torn), None, "the length may be there before the bytes");
        let holed = old.iter().enumerate().map(|(i, b)| if i < 4096 { 0 } else { *b }).collect::<Vec<_>>();
        assert!(matches!(file.wrong_at(&holed), Some(Wrong::Bytes { zeros: 4096.., of: 40_000, .. })));
        assert_eq!(
            file.wrong_at(&old[..39_999]),
            Some(Wrong::Length { found: 39_999, shortest: 40_000, longest: 50_000 })
        );
    }

    #[test]
    fn closing_keeps_a_small_file_and_not_a_large_one() {
        for (len, kept) in [(INLINE_BYTES as u64, true), (INLINE_BYTES as u64 + 1, false)] {
            let create = Op::Create { name: "a".into(), file: 1 };
            let s = state(&[create, written(len, 1), Op::Close { file: 1 }]);
            assert_eq!(s.files[&1].wrong_at(&[]).is_some(), kept);
        }
    }

    #[test]
    fn a_truncation_is_kept_and_what_it_cut_never_comes_back() {
        let create = Op::Create { name: "a".into(), file: 1 };
        let truncate = |len| Op::Truncate { file: 1, len };
        let s = state(&[create, written(30_000, 1), Op::Fsync { file: 1 }, truncate(10_000), truncate(20_000)]);
        let mut kept = bytes(1, 10_000);
        kept.resize(20_000, 0);
        assert_eq!(s.files[&1].wrong_at(&kept), None);
        assert!(s.files[&1].wrong_at(&bytes(1, 20_000)).is_some() && s.files[&1].wrong_at(&bytes(1, 30_000)).is_some());
    }

    #[test]
    fn a_directory_moves_with_what_is_in_it_and_an_unknown_rename_has_two_outcomes() {
        let s = state(&[
            Op::Mkdir { name: "d".into() },
            Op::Mkdir { name: "d0".into() },
            Op::Create { name: "d/a".into(), file: 1 },
            Op::Link { from: "d/a".into(), to: "b".into() },
        ]);
        let outcomes = s.maybe(&Op::Rename { from: "d".into(), to: "e".into() });
        let names: Vec<Vec<&str>> = outcomes.iter().map(|s| s.names.keys().map(String::as_str).collect()).collect();
        assert_eq!(names, [["b", "d", "d/a", "d0"], ["b", "d0", "e", "e/a"]]);
        let mut same = outcomes[0].clone();
        same.apply(&Op::Rename { from: "b".into(), to: "d/a".into() });
        assert!(same.names.contains_key("b") && same.names.contains_key("d/a"), "two names of one file stay two");
    }
}
