//! `braid fs chmod`.

use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief};
use anyhow::{Result, anyhow};
use braid_api::SetAttr;
use braid_types::{Attr, FileKind, InodeId, MODE_MASK, Mode};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs chmod 640 /etc/secret\n  braid fs chmod -R g+rX /projects")]
pub struct ChmodArgs {
    /// Octal, or as in g+w,o-rwx,a=rX.
    mode: Change,
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// What is in directories too.
    #[arg(short = 'R')]
    recursive: bool,
}

impl ChmodArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            if let Err(e) = self.argument(s, path).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn argument<F: Paths>(&self, s: &Session<F>, path: &ClusterPath) -> Result<()> {
        let attr = s.find(path, Last::Follow).await?;
        self.one(s, path, &attr).await?;
        if self.recursive && attr.is_dir() {
            let mut walk = s.walk(path, attr.id).await?;
            while let Some(met) = walk.next().await {
                // A link has no mode of its own.
                if met.attr.kind != FileKind::Symlink
                    && let Err(e) = self.one(s, &met.path, &met.attr).await
                {
                    s.note(&e);
                }
            }
        }
        Ok(())
    }

    async fn one<F: Paths>(&self, s: &Session<F>, path: &ClusterPath, attr: &Attr) -> Result<()> {
        let mode = Some(self.mode.apply(attr));
        set(s, path, attr.id, SetAttr { mode, ..SetAttr::default() }).await
    }
}

pub async fn set<F: Paths>(s: &Session<F>, path: &ClusterPath, id: InodeId, change: SetAttr) -> Result<()> {
    s.fs.set_attr(&s.caller, id, None, change).await.map(drop).map_err(|e| anyhow!("{path}: {}", brief(&e)))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Octal(u32),
    Clauses(Vec<Clause>),
}

/// `ug+rw`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    /// Bits of those named: user, group, others, with their special bit.
    who: u32,
    how: char,
    what: String,
}

impl std::str::FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(bits) = u32::from_str_radix(text, 8) {
            return if bits <= MODE_MASK { Ok(Change::Octal(bits)) } else { Err(format!("{text} is more than 7777")) };
        }
        text.split(',')
            .map(clause)
            .collect::<Option<Vec<_>>>()
            .map(Change::Clauses)
            .ok_or_else(|| format!("{text:?} is no mode; use octal digits, or [ugoa][+-=][rwxXst] with commas between"))
    }
}

fn clause(text: &str) -> Option<Clause> {
    let at = text.find(['+', '-', '='])?;
    let (who, rest) = text.split_at(at);
    let how = rest.chars().next()?;
    let what = &rest[1..];
    let mut mask = if who.is_empty() { MODE_MASK } else { 0 };
    for ch in who.chars() {
        mask |= match ch {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => MODE_MASK,
            _ => return None,
        };
    }
    what.chars().all(|ch| "rwxXst".contains(ch)).then(|| Clause { who: mask, how, what: what.to_owned() })
}

impl Change {
    fn apply(&self, attr: &Attr) -> Mode {
        match self {
            Change::Octal(bits) => Mode(*bits),
            Change::Clauses(clauses) => Mode(clauses.iter().fold(attr.mode.0, |mode, c| c.apply(mode, attr.is_dir()))),
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        let bits = self.what.chars().fold(0, |bits, ch| {
            bits | match ch {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                // For directories, and for what somebody may execute already.
                'X' if is_dir || mode & 0o111 != 0 => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                _ => 0,
            }
        });
        // The sticky bit belongs to nobody in particular.
        let who = if self.what.contains('t') { self.who | 0o1000 } else { self.who };
        match self.how {
            '+' => mode | (bits & who),
            '-' => mode & !(bits & who),
            // Special bits that are not named stay.
            _ => (mode & !(who & 0o777)) | (bits & who),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_by_chmod() {
        let apply = |text: &str, mode, dir| match text.parse::<Change>().unwrap() {
            Change::Octal(bits) => bits,
            Change::Clauses(clauses) => clauses.iter().fold(mode, |m, c| c.apply(m, dir)),
        };
        assert_eq!(apply("750", 0, false), 0o750);
        assert_eq!(apply("g+w,o-rwx", 0o755, false), 0o770);
        assert_eq!(apply("a=rX", 0o640, false), 0o444);
        assert_eq!(apply("a=rX", 0o640, true), 0o555);
        assert_eq!(apply("u+s", 0o755, false), 0o4755);
        assert_eq!(apply("+t", 0o777, true), 0o1777);
        assert_eq!(apply("g=", 0o777, false), 0o707);
        assert!("77777".parse::<Change>().is_err() && "z+r".parse::<Change>().is_err());
    }
}
