//! What lies below a directory, and where to begin for a pattern of paths.

use super::files::NameRow;
use crate::QueryError;
use crate::pages::Pages;
use crate::source::Source;
use braid_meta_namespace::rows::keys;
use braid_types::{FileKind, InodeId};

/// Deeper than any path can be said: in a tree that is damaged a directory may lie below itself.
const DEPTH_MAX: usize = 4096;

/// Goes down first. Of each directory on the way there is one short page, so memory is bounded by the depth.
pub struct Walk {
    open: Vec<Pages>,
    /// Directories still to begin with.
    starts: Vec<InodeId>,
    /// How the first name below each of these begins.
    first: Prefix,
}

/// The beginning of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Prefix {
    bytes: Vec<u8>,
    ignores_case: bool,
}

impl Prefix {
    fn fits(&self, name: &[u8]) -> bool {
        let Some(begin) = name.get(..self.bytes.len()) else { return false };
        if self.ignores_case { begin.eq_ignore_ascii_case(&self.bytes) } else { begin == self.bytes }
    }
}

impl Walk {
    pub fn below(dir: Option<InodeId>) -> Walk {
        Walk { open: Vec::new(), starts: dir.into_iter().collect(), first: Prefix::default() }
    }

    pub fn next(&mut self, source: &mut Source) -> Result<Option<NameRow>, QueryError> {
        loop {
            let depth = self.open.len();
            let Some(pages) = self.open.last_mut() else {
                let Some(dir) = self.starts.pop() else { return Ok(None) };
                self.open.push(Pages::short(keys::entries(dir)));
                continue;
            };
            let Some((key, row)) = pages.next(source)? else {
                self.open.pop();
                continue;
            };
            if depth == 1 && !self.first.fits(key.rest()) {
                continue;
            }
            let row = NameRow::decode(&key, &row)?;
            if row.entry.kind() == FileKind::Directory && depth < DEPTH_MAX {
                self.open.push(Pages::short(keys::entries(row.entry.id())));
            }
            return Ok(Some(row));
        }
    }
}

/// What every path has that fits a pattern: a directory, and how the next name begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Pattern {
    dirs: Vec<Vec<u8>>,
    first: Prefix,
}

impl Pattern {
    /// `None` if it says nothing of where to begin. `like`: of LIKE, to which capital and small letters of ASCII are the same.
    pub fn new(text: &[u8], like: bool) -> Option<Pattern> {
        let wild: &[u8] = if like { b"%_" } else { b"*?[" };
        let literal = text.split(|byte| wild.contains(byte)).next()?;
        let mut dirs: Vec<Vec<u8>> =
            literal.strip_prefix(b"/")?.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
        let bytes = dirs.pop()?;
        let says_something = !dirs.is_empty() || !bytes.is_empty();
        says_something.then_some(Pattern { dirs, first: Prefix { bytes, ignores_case: like } })
    }

    pub fn walk(self, source: &mut Source) -> Result<Walk, QueryError> {
        let mut starts = vec![InodeId::ROOT];
        for name in self.dirs {
            let wanted = Prefix { bytes: name, ..self.first };
            let mut found = Vec::new();
            for dir in starts {
                if wanted.ignores_case {
                    let mut pages = Pages::short(keys::entries(dir));
                    while let Some((key, row)) = pages.next(source)? {
                        if key.rest().len() == wanted.bytes.len() && wanted.fits(key.rest()) {
                            found.push(NameRow::decode(&key, &row)?.entry);
                        }
                    }
                } else {
                    found.extend(source.entry(dir, &wanted.bytes)?);
                }
            }
            starts = found.iter().filter(|entry| entry.kind() == FileKind::Directory).map(|entry| entry.id()).collect();
        }
        Ok(Walk { open: Vec::new(), starts, first: self.first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str, like: bool) -> Option<(Vec<String>, String)> {
        let text_of = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let found = Pattern::new(text.as_bytes(), like)?;
        Some((found.dirs.into_iter().map(text_of).collect(), text_of(found.first.bytes)))
    }

    #[test]
    fn a_pattern_says_where_to_begin() {
        let of =
            |dirs: &[&str], first: &str| Some((dirs.iter().map(|dir| (*dir).to_owned()).collect(), first.to_owned()));
        assert_eq!(pattern("/a/b/*.rs", false), of(&["a", "b"], ""));
        assert_eq!(pattern("/a/b*", false), of(&["a"], "b"));
        assert_eq!(pattern("/a%", false), of(&[], "a%"));
        assert_eq!(pattern("/a%", true), of(&[], "a"));
        assert_eq!(pattern("/a/[bc]/d", false), of(&["a"], ""));
        for nothing in ["/*", "*", "a/b*", ""] {
            assert_eq!(pattern(nothing, false), None, "{nothing}");
        }
    }

    #[test]
    fn a_prefix_fits_with_or_without_regard_to_case() {
        let prefix = |ignores_case| Prefix { bytes: b"Ab".to_vec(), ignores_case };
        assert!(prefix(false).fits(b"Abc") && !prefix(false).fits(b"abc") && !prefix(false).fits(b"A"));
        assert!(prefix(true).fits(b"aBc") && !prefix(true).fits(b"xb"));
    }
}
