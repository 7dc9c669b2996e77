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
    /// The mount died with the rest: what no sync covered may be gone.
    Promised,
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
            Err(error) => verdict.problems.push(format!("{worker}: its directory cannot be read: {error}")),
        }
        let mut state = State::default();
        told.acknowledged.iter().for_each(|op| state.apply(op));
        let outcomes = match &told.unknown {
            Some(op) => state.maybe(op),
            None => vec![state],
        };
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
                Expect::Promised => self.unsynced_lost += 1,
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
