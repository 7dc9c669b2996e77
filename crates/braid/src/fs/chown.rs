//! `braid fs chown`.

use super::chmod::set;
use super::path::ClusterPath;
use super::session::{Last, Paths, Session};
use super::trees::change_tree;
use anyhow::Result;
use braid_api::SetAttr;
use braid_api::meta::TreeChange;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs chown alice:staff /home/alice\n  braid fs chown -R :1000 /projects")]
pub struct ChownArgs {
    /// USER, USER:GROUP or :GROUP, as names of this machine or numbers.
    owner: Owner,
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// What is in directories too. It is done by the metadata servers, and goes on if the command is interrupted.
    #[arg(short = 'R')]
    recursive: bool,
    /// Change a symbolic link itself.
    #[arg(long)]
    no_dereference: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl std::str::FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let find = |name: &str, file: &str| match name {
            "" => Ok(None),
            name => one_of(name, file).map(Some),
        };
        let owner = Owner { uid: find(user, "/etc/passwd")?, gid: find(group, "/etc/group")? };
        if owner == (Owner { uid: None, gid: None }) { Err("names nobody".to_owned()) } else { Ok(owner) }
    }
}

/// A user of this machine, or a number.
pub fn user_number(text: &str) -> Result<u32, String> {
    one_of(text, "/etc/passwd")
}

pub fn group_number(text: &str) -> Result<u32, String> {
    one_of(text, "/etc/group")
}

fn one_of(name: &str, file: &str) -> Result<u32, String> {
    let number = name.parse().ok().or_else(|| number_of(name, file));
    number.ok_or_else(|| format!("{name:?} is not in {file}"))
}

/// The third field of a line `name:x:number:…`.
pub fn number_of(name: &str, file: &str) -> Option<u32> {
    let table = std::fs::read_to_string(file).ok()?;
    let line = table.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

impl ChownArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            if let Err(e) = self.argument(s, path).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn argument<F: Paths>(&self, s: &Session<F>, path: &ClusterPath) -> Result<()> {
        let change = SetAttr { uid: self.owner.uid, gid: self.owner.gid, kill_privileges: true, ..SetAttr::default() };
        let attr = s.find(path, if self.no_dereference { Last::Keep } else { Last::Follow }).await?;
        if self.recursive && attr.is_dir() {
            let change = TreeChange { uid: change.uid, gid: change.gid, ..TreeChange::default() };
            return change_tree(s, path, attr.id, change).await;
        }
        set(s, path, attr.id, change).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let owner = |text: &str| text.parse::<Owner>();
        assert_eq!(owner("7:8"), Ok(Owner { uid: Some(7), gid: Some(8) }));
        assert_eq!(owner(":8"), Ok(Owner { uid: None, gid: Some(8) }));
        assert_eq!(owner("root"), Ok(Owner { uid: Some(0), gid: None }));
        assert!(owner("nobody-of-this-name").is_err() && owner(":").is_err());
    }
}
