//! `braid fs find`.

use super::attributes::{AttrJson, print_json};
use super::glob;
use super::path::ClusterPath;
use super::session::{Last, Paths, Session};
use anyhow::Result;
use braid_types::{Attr, FileKind, Name, Timestamp};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs find /logs --name '*.gz' --size +100MiB\n  \
                        braid fs find / --type d --newer /marker --json")]
pub struct FindArgs {
    #[arg(default_value = "/")]
    paths: Vec<ClusterPath>,
    /// A pattern for the last name: * ? [a-z].
    #[arg(long, value_name = "GLOB")]
    name: Option<std::ffi::OsString>,
    /// f, d, l, p, s, c or b.
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<Kind>,
    /// More than (+N), less than (-N) or exactly N bytes; KiB, MiB, GiB and TiB are understood.
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    size: Option<Size>,
    /// Modified later than this file of the cluster.
    #[arg(long, value_name = "PATH")]
    newer: Option<ClusterPath>,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind(FileKind);

impl std::str::FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Kind(match text {
            "f" | "file" => FileKind::File,
            "d" | "directory" => FileKind::Directory,
            "l" | "symlink" => FileKind::Symlink,
            "p" | "fifo" => FileKind::Fifo,
            "s" | "socket" => FileKind::Socket,
            "c" => FileKind::CharDevice,
            "b" => FileKind::BlockDevice,
            _ => return Err(format!("{text:?} is no kind; use f, d, l, p, s, c or b")),
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    More(u64),
    Less(u64),
    Exactly(u64),
}

impl std::str::FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| bytes(text).ok_or_else(|| format!("{text:?} is no size; use 4096, 64KiB, 2GiB"));
        match text.as_bytes().first() {
            Some(b'+') => number(&text[1..]).map(Size::More),
            Some(b'-') => number(&text[1..]).map(Size::Less),
            _ => number(text).map(Size::Exactly),
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let units = ["", "KiB", "MiB", "GiB", "TiB"];
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let power = units.iter().position(|u| *u == unit)?;
    number.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

impl Size {
    fn fits(self, size: u64) -> bool {
        match self {
            Size::More(n) => size > n,
            Size::Less(n) => size < n,
            Size::Exactly(n) => size == n,
        }
    }
}

impl FindArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let newer = match &self.newer {
            Some(path) => Some(s.find(path, Last::Follow).await?.mtime),
            None => None,
        };
        for path in &self.paths {
            if let Err(e) = self.one(s, path, newer).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn one<F: Paths>(&self, s: &Session<F>, path: &ClusterPath, newer: Option<Timestamp>) -> Result<()> {
        let top = s.find(path, Last::Keep).await?;
        self.show(path, path.split().map(|(_, name)| name).as_ref(), &top, newer)?;
        if top.is_dir() {
            let mut walk = s.walk(path, top.id).await?;
            while let Some(met) = walk.next().await {
                self.show(&met.path, Some(&met.name), &met.attr, newer)?;
            }
        }
        Ok(())
    }

    fn show(&self, path: &ClusterPath, name: Option<&Name>, attr: &Attr, newer: Option<Timestamp>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let name = name.map_or(&b"/"[..], Name::as_bytes);
        let fits = self.name.as_ref().is_none_or(|pattern| glob::matches(pattern.as_bytes(), name))
            && self.kind.is_none_or(|kind| kind.0 == attr.kind)
            && self.size.is_none_or(|size| size.fits(attr.size))
            && newer.is_none_or(|mark| attr.mtime > mark);
        match (fits, self.json) {
            (false, _) => Ok(()),
            (true, true) => print_json(&AttrJson::new(path, attr)),
            (true, false) => {
                // As bytes, so that other programs find the file.
                crate::say::out_bytes(&[path.as_os().as_bytes(), b"\n"]);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_direction() {
        assert_eq!("+1KiB".parse(), Ok(Size::More(1024)));
        assert_eq!("-5".parse(), Ok(Size::Less(5)));
        assert_eq!("0".parse(), Ok(Size::Exactly(0)));
        assert!("5 apples".parse::<Size>().is_err());
        assert!(Size::More(1).fits(2) && !Size::More(2).fits(2) && Size::Less(3).fits(2));
    }
}
