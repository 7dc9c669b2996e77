//! What is there, compared with what the records allow.

use super::op::Op;
use super::record::{self, Told};
use super::state::{Entry, State};
use super::worker::XATTR;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How much may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The mount lived on: everything that was written is there.
    Everything,
    /// The mount died: bytes that no sync covered may be gone.
    Promised,
    /// The mount and the metadata server died in one moment: of the changes of names and attributes since the worker's last
    /// sync the last may be gone, and of a small file the close.
    Beginning,
}

/// Shown of the calls that made a wrong file what it is.
const HISTORY_MAX: usize = 14;

#[derive(Debug, Default)]
pub struct Verdict {
    pub names: u64,
    pub bytes: u64,
    /// Files that lost writes which nothing had promised.
    pub unsynced_lost: u64,
    pub problems: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, bytes, lost, problems) = (self.names, self.bytes, self.unsynced_lost, self.problems.len());
        write!(f, "names={names} bytes={bytes} unsynced_lost={lost} problems={problems}")
    }
}

enum Found {
    Dir,
    Symlink(String),
    File {
        inode: u64,
        links: u64,
        mode: u32,
        xattr: Option<u64>,
        content: Vec<u8>,
    },
    /// Why it cannot be looked at.
    Unreadable(String),
}

type Tree = BTreeMap<String, Found>;

/// Compares each worker's directory in `dir` with its record in `records`.
pub fn check(dir: &Path, records: &Path, expect: Expect) -> io::Result<Verdict> {
    let mut verdict = Verdict::default();
    let mut names = fs::read_dir(records)?.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let told = record::read(&records.join(&name))?;
        let worker = name.to_string_lossy();
        let mut tree = Tree::new();
        match walk(&dir.join(&name), "", &mut tree) {
            Ok(()) => {}
            // The directory is made before the first call is recorded.
            Err(error) if error.kind() == io::ErrorKind::NotFound && told == Told::default() => continue,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && expect == Expect::Beginning
                    && settled(&told.acknowledged) == 0 =>
            {
                continue;
            }
            Err(error) => verdict.problems.push(format!("{worker}: its directory cannot be read: {error}")),
        }
        let outcomes = outcomes(&told, expect);
        let compared = outcomes.iter().map(|state| Comparison::of(state, &tree, expect));
        let Some(best) = compared.min_by_key(|c| c.problems.len()) else { continue };
        verdict.names += tree.len() as u64;
        verdict.bytes += best.bytes;
        verdict.unsynced_lost += best.unsynced_lost;
        for (problem, file) in best.problems {
            verdict.problems.push(format!("{worker}: {problem}{}", history(&told, file)));
        }
    }
    Ok(verdict)
}

/// How many calls are over for good: those up to the last that waits for everything before it.
fn settled(acknowledged: &[Op]) -> usize {
    let waits =
        |op: &Op| matches!(op, Op::SyncedWrite { .. } | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Truncate { .. });
    acknowledged.iter().rposition(waits).map_or(0, |at| at + 1)
}

/// The states that may be found.
fn outcomes(told: &Told, expect: Expect) -> Vec<State> {
    let calls = &told.acknowledged;
    let from = if expect == Expect::Beginning { settled(calls) } else { calls.len() };
    let mut state = State::default();
    calls[..from].iter().for_each(|op| state.apply(op));
    let mut all = Vec::new();
    for (kept, op) in (from..).zip(&calls[from..]) {
        // Bytes go to the data servers, whatever becomes of names changed before.
        let mut earlier = state.clone();
        calls[kept..].iter().filter(|op| matches!(op, Op::Write { .. })).for_each(|op| earlier.apply(op));
        all.push(earlier);
        state.apply(op);
    }
    match &told.unknown {
        Some(op) => all.extend(state.maybe(op)),
        None => all.push(state),
    }
    all
}

fn walk(dir: &Path, prefix: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        let found = look(&path).unwrap_or_else(|error| Found::Unreadable(error.to_string()));
        let is_dir = matches!(found, Found::Dir);
        if tree.insert(name.clone(), found).is_some() {
            return Err(io::Error::other(format!("{name} is listed twice")));
        }
        if is_dir {
            walk(&path, &format!("{name}/"), tree)?;
        }
    }
    Ok(())
}

fn look(path: &Path) -> io::Result<Found> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() {
        return Ok(Found::Dir);
    }
    if meta.is_symlink() {
        return Ok(Found::Symlink(fs::read_link(path)?.to_string_lossy().into_owned()));
    }
    let mut value = [0; 32];
    let xattr = match rustix::fs::getxattr(path, XATTR, &mut value) {
        Ok(len) => String::from_utf8_lossy(&value[..len]).parse().ok(),
        Err(rustix::io::Errno::NODATA) => None,
        Err(error) => return Err(error.into()),
    };
    let content = fs::read(path)?;
    if content.len() as u64 != meta.len() {
        let (read, shown) = (content.len(), meta.len());
        return Ok(Found::Unreadable(format!("{read} bytes can be read and its length is shown as {shown}")));
    }
    Ok(Found::File { inode: meta.ino(), links: meta.nlink(), mode: meta.mode() & 0o7777, xattr, content })
}

#[derive(Default)]
struct Comparison {
    bytes: u64,
    unsynced_lost: u64,
    /// With the file it is about.
    problems: Vec<(String, Option<u64>)>,
}

impl Comparison {
    fn of(state: &State, tree: &Tree, expect: Expect) -> Self {
        let mut all = Self::default();
        for name in tree.keys().filter(|name| !state.names.contains_key(*name)) {
            all.problems.push((format!("{name} is there, and should not be"), None));
        }
        let mut inodes = BTreeMap::<u64, BTreeSet<u64>>::new();
        let mut links = BTreeMap::<u64, u64>::new();
        for entry in state.names.values() {
            if let Entry::File(file) = entry {
                *links.entry(*file).or_default() += 1;
            }
        }
        for (name, entry) in &state.names {
            match (entry, tree.get(name)) {
                (Entry::Dir, Some(Found::Dir)) => {}
                (Entry::Symlink(wanted), Some(Found::Symlink(found))) if wanted == found => {}
                (Entry::File(file), Some(found @ Found::File { inode, .. })) => {
                    inodes.entry(*file).or_default().insert(*inode);
                    let links = links.get(file).copied().unwrap_or(0);
                    all.file(state, name, *file, links, found, expect);
                }
                (entry, found) => {
                    let file = if let Entry::File(file) = entry { Some(*file) } else { None };
                    let is = match found {
                        None => "is lost".to_owned(),
                        Some(Found::Unreadable(why)) => format!("cannot be read: {why}"),
                        Some(_) => "is something else".to_owned(),
                    };
                    all.problems.push((format!("{name} {is}"), file));
                }
            }
        }
        for (file, _) in inodes.iter().filter(|(_, inodes)| inodes.len() > 1) {
            all.problems.push((format!("the names of file {file} lead to different files"), Some(*file)));
        }
        all
    }

    fn file(&mut self, state: &State, name: &str, file: u64, wanted_links: u64, found: &Found, expect: Expect) {
        let (Some(wanted), Found::File { links, mode, xattr, content, .. }) = (state.files.get(&file), found) else {
            return;
        };
        self.bytes += content.len() as u64;
        let mut say = |what: String| self.problems.push((format!("{name} (file {file}) {what}"), Some(file)));
        if (*mode, *xattr, *links) != (wanted.mode, wanted.xattr, wanted_links) {
            let (was, had) = (wanted.mode, wanted.xattr);
            say(format!(
                "has mode {mode:o} not {was:o}, xattr {xattr:?} not {had:?}, or {links} links not {wanted_links}"
            ));
        }
        if let Some(wrong) = wanted.wrong_at(content) {
            say(format!("has bytes that nothing explains: {wrong:?}"));
        } else if content != wanted.latest() {
            match expect {
                Expect::Everything => say(format!("lost writes although the mount lived: {} bytes", content.len())),
                Expect::Promised | Expect::Beginning => self.unsynced_lost += 1,
            }
        }
    }
}

fn history(told: &Told, file: Option<u64>) -> String {
    let Some(file) = file else { return String::new() };
    let number = file.to_string();
    let about = |op: &&Op| op.to_string().split(' ').skip(1).take(2).any(|word| word == number);
    let calls: Vec<String> = told.acknowledged.iter().filter(about).map(Op::to_string).collect();
    let shown = &calls[calls.len().saturating_sub(HISTORY_MAX)..];
    let unknown = told.unknown.as_ref().map_or(String::new(), |op| format!("\n    unknown: {op}"));
    format!("\n    {}{unknown}", shown.join("\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_names_that_died_with_mount_and_server_a_beginning_after_the_last_sync_may_be_found() {
        let mkdir = |name: &str| Op::Mkdir { name: name.to_owned() };
        let create = Op::Create { name: "f".to_owned(), file: 1 };
        let acknowledged = vec![mkdir("a"), create, Op::Fsync { file: 1 }, mkdir("b"), mkdir("c")];
        let told = Told { acknowledged, unknown: Some(mkdir("d")) };
        let names = |expect| -> Vec<String> {
            let join = |state: &State| state.names.keys().cloned().collect::<Vec<_>>().join(" ");
            outcomes(&told, expect).iter().map(join).collect()
        };
        assert_eq!(names(Expect::Promised), ["a b c f", "a b c d f"]);
        assert_eq!(names(Expect::Beginning), ["a f", "a b f", "a b c f", "a b c d f"]);
    }

    #[test]
    fn bytes_may_be_newer_than_the_names_that_are_left() {
        let write = Op::Write { file: 1, offset: 0, len: 10, seed: 5 };
        let create = Op::Create { name: "f".to_owned(), file: 1 };
        let acknowledged = vec![create, Op::Fsync { file: 1 }, Op::Mkdir { name: "b".to_owned() }, write];
        let told = Told { acknowledged, unknown: None };
        let found = outcomes(&told, Expect::Beginning);
        assert_eq!(found.len(), 3);
        assert!(found[0].names.len() == 1 && found[0].files[&1].versions() == 2, "without b, with the write or not");
    }
}
