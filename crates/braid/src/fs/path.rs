//! Paths of the cluster: `/a/b`, as bytes.

use crate::output::shown;
use braid_types::{Name, NameError};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Down(Name),
    /// `..`: where the path stands by then, so that it means the same as on a mount.
    Up,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPath {
    bytes: Vec<u8>,
    pub steps: Vec<Step>,
    /// Ends with a slash or a dot: must be a directory.
    pub dir_only: bool,
}

/// Steps of a path or of a link's target, and whether it must end at a directory.
pub fn parse(bytes: &[u8]) -> Result<(Vec<Step>, bool), NameError> {
    let mut steps = Vec::new();
    let mut dir_only = false;
    for part in bytes.split(|&b| b == b'/') {
        dir_only = matches!(part, b"" | b"." | b"..");
        match part {
            b"" | b"." => {}
            b".." => steps.push(Step::Up),
            name => steps.push(Step::Down(Name::new(name)?)),
        }
    }
    Ok((steps, dir_only))
}

impl ClusterPath {
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        if bytes.first() != Some(&b'/') {
            return Err("paths of the cluster begin with /".to_owned());
        }
        let (steps, dir_only) = parse(bytes).map_err(|e| e.to_string())?;
        Ok(ClusterPath { bytes: bytes.to_vec(), steps, dir_only })
    }

    pub fn join(&self, name: &Name) -> ClusterPath {
        let mut bytes = self.bytes.clone();
        if bytes.last() != Some(&b'/') {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name.as_bytes());
        let mut steps = self.steps.clone();
        steps.push(Step::Down(name.clone()));
        ClusterPath { bytes, steps, dir_only: false }
    }

    /// Directory and last name; `None` for `/` and for a path that ends with `..`.
    pub fn split(&self) -> Option<(ClusterPath, Name)> {
        let (last, rest) = self.steps.split_last()?;
        let Step::Down(name) = last else { return None };
        let end = self.bytes.len() - self.bytes.iter().rev().take_while(|&&b| b == b'/').count();
        let start = self.bytes[..end].iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
        let bytes = self.bytes[..start].to_vec();
        Some((ClusterPath { bytes, steps: rest.to_vec(), dir_only: true }, name.clone()))
    }

    pub fn as_os(&self) -> &OsStr {
        OsStr::from_bytes(&self.bytes)
    }
}

impl fmt::Display for ClusterPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.bytes))
    }
}

/// For clap: a path that need not be UTF-8.
#[derive(Clone)]
pub struct ClusterPathParser;

impl clap::builder::TypedValueParser for ClusterPathParser {
    type Value = ClusterPath;

    fn parse_ref(&self, cmd: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<ClusterPath, clap::Error> {
        ClusterPath::new(value.as_bytes()).map_err(|why| {
            let text = format!("{}: {why}\n", shown(value.as_bytes()));
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, text).with_cmd(cmd)
        })
    }
}

impl clap::builder::ValueParserFactory for ClusterPath {
    type Parser = ClusterPathParser;
    fn value_parser() -> ClusterPathParser {
        ClusterPathParser
    }
}

/// A cluster name as this machine's.
pub fn os_name(name: &Name) -> OsString {
    OsString::from_vec(name.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ClusterPath {
        ClusterPath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn paths_are_taken_apart() {
        let down = |text: &str| Step::Down(text.parse().unwrap());
        assert_eq!(path("//a/./b/../c").steps, [down("a"), down("b"), Step::Up, down("c")]);
        assert!(path("/a/").dir_only && path("/").dir_only && !path("/a/b").dir_only);
        assert_eq!(path("/").join(&"x".parse().unwrap()).to_string(), "/x");
        let (dir, name) = path("/a/b//").split().unwrap();
        assert_eq!((dir.to_string().as_str(), name.to_string().as_str()), ("/a/", "b"));
        assert_eq!(path("/a/..").split(), None);
        assert_eq!(path("/").split(), None);
    }

    #[test]
    fn bad_paths_are_refused() {
        assert!(ClusterPath::new(b"a/b").unwrap_err().contains("begin with /"));
        assert!(ClusterPath::new(&[b"/".as_slice(), &[b'x'; 256]].concat()).is_err());
    }
}
