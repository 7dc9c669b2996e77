//! `braid fs setfacl` and `getfacl`: access lists, also of whole trees.

use super::chown::number_of;
use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief};
use super::trees::change_tree;
use anyhow::{Result, anyhow};
use braid_api::meta::TreeChange;
use braid_api::{Code, SetAttr, XattrMode};
use braid_posix::acl::{ACCESS, Acl, DEFAULT, Who};
use braid_posix::acl_edit::{self, Rights};
use braid_types::{AclChange, AclEdit, Attr, InodeId};
use bytes::Bytes;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  braid fs setfacl -m u:alice:rwx,g:staff:rX /projects
  braid fs setfacl -R -m u:alice:rX,d:u:alice:rX /projects
  braid fs setfacl -R -b /projects")]
pub struct SetfaclArgs {
    /// Set entries: [d:]u:USER:rwx, g:GROUP:rX, m::rwx, o::-, with commas between; d: is of a directory's default list.
    #[arg(short = 'm', long, value_name = "ENTRIES")]
    modify: Vec<String>,
    /// Remove entries: [d:]u:USER, g:GROUP, m. Before others are set.
    #[arg(short = 'x', long, value_name = "ENTRIES")]
    remove: Vec<String>,
    /// Remove all that the mode does not say.
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove default lists.
    #[arg(short = 'k', long)]
    remove_default: bool,
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// What is in directories too. It is done by the metadata servers, and goes on if the command is interrupted.
    #[arg(short = 'R')]
    recursive: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs getfacl /projects")]
pub struct GetfaclArgs {
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
}

impl SetfaclArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let change = self.change()?;
        for path in &self.paths {
            if let Err(e) = self.argument(s, path, &change).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    fn change(&self) -> Result<AclChange> {
        let number = |is_user: bool, name: &str| number_of(name, if is_user { "/etc/passwd" } else { "/etc/group" });
        let mut edits: Vec<AclEdit> = Vec::new();
        for (texts, removes) in [(&self.remove, true), (&self.modify, false)] {
            for text in texts {
                edits.extend(AclChange::parse(text, removes, number).map_err(|e| anyhow!("{e}"))?);
            }
        }
        let change = AclChange { clear: self.remove_all, clear_default: self.remove_all || self.remove_default, edits };
        match change == AclChange::default() {
            true => Err(anyhow!("nothing is to be changed: give -m, -x, -b or -k")),
            false => Ok(change),
        }
    }

    async fn argument<F: Paths>(&self, s: &Session<F>, path: &ClusterPath, change: &AclChange) -> Result<()> {
        let attr = s.find(path, Last::Follow).await?;
        if !attr.is_dir() && !self.recursive && change.edits.iter().any(|edit| edit.default) {
            return Err(anyhow!("{path}: only directories have default lists"));
        }
        if self.recursive && attr.is_dir() {
            let change = TreeChange { acl: Some(change.clone()), ..TreeChange::default() };
            return change_tree(s, path, attr.id, change).await;
        }
        one(s, &attr, change).await.map_err(|e| anyhow!("{path}: {e}"))
    }
}

/// Of what was named itself, list by list, as setfacl(1) does it on a mount.
async fn one<F: Paths>(s: &Session<F>, attr: &Attr, change: &AclChange) -> Result<()> {
    let before = rights(s, attr).await?;
    let after = acl_edit::edit(&before, change, attr.is_dir())?;
    let put = async |name: &[u8], list: &Option<Acl>| match list {
        Some(list) => {
            let value = Bytes::from(list.to_bytes());
            s.fs.set_xattr(&s.caller, attr.id, name, value, XattrMode::Any).await
        }
        None => s.fs.remove_xattr(&s.caller, attr.id, name).await,
    };
    if after.access != before.access {
        put(ACCESS, &after.access).await.map_err(|e| anyhow!("{}", brief(&e)))?;
    }
    // With a list the mode has followed.
    if after.mode != before.mode && after.access.is_none() {
        let mode = SetAttr { mode: Some(after.mode), ..SetAttr::default() };
        s.fs.set_attr(&s.caller, attr.id, None, mode).await.map_err(|e| anyhow!("{}", brief(&e)))?;
    }
    if after.default != before.default {
        put(DEFAULT, &after.default).await.map_err(|e| anyhow!("{}", brief(&e)))?;
    }
    Ok(())
}

async fn rights<F: Paths>(s: &Session<F>, attr: &Attr) -> Result<Rights> {
    let access = list(s, attr.id, ACCESS).await?;
    let default = if attr.is_dir() { list(s, attr.id, DEFAULT).await? } else { None };
    Ok(Rights { mode: attr.mode, access, default })
}

async fn list<F: Paths>(s: &Session<F>, id: InodeId, name: &[u8]) -> Result<Option<Acl>> {
    match s.fs.get_xattr(&s.caller, id, name).await {
        Ok(bytes) => Ok(Acl::parse(&bytes)?),
        Err(error) if error.code == Code::NoXattr => Ok(None),
        Err(error) => Err(anyhow!("{}", brief(&error))),
    }
}

impl GetfaclArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            let shown = async {
                let attr = s.find(path, Last::Follow).await?;
                let rights = rights(s, &attr).await.map_err(|e| anyhow!("{path}: {e}"))?;
                print!("{}", shown(path, &attr, &rights));
                anyhow::Ok(())
            };
            if let Err(e) = shown.await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }
}

/// As getfacl(1) shows it, with numbers.
fn shown(path: &ClusterPath, attr: &Attr, rights: &Rights) -> String {
    let mut text = format!("# file: {path}\n# owner: {}\n# group: {}\n", attr.uid, attr.gid);
    match &rights.access {
        Some(list) => text.push_str(&lines(list, "")),
        None => {
            let bits = |shift: u32| word((rights.mode.0 >> shift) as u16 & 7);
            text.push_str(&format!("user::{}\ngroup::{}\nother::{}\n", bits(6), bits(3), bits(0)));
        }
    }
    if let Some(list) = &rights.default {
        text.push_str(&lines(list, "default:"));
    }
    text.push('\n');
    text
}

fn lines(list: &Acl, before: &str) -> String {
    let line = |entry: &braid_posix::acl::Entry| {
        let who = match entry.who {
            Who::Owner => "user:".to_owned(),
            Who::User(id) => format!("user:{id}"),
            Who::OwningGroup => "group:".to_owned(),
            Who::Group(id) => format!("group:{id}"),
            Who::Mask => "mask:".to_owned(),
            Who::Others => "other:".to_owned(),
        };
        format!("{before}{who}:{}\n", word(entry.allowed))
    };
    list.entries().iter().map(line).collect()
}

fn word(allowed: u16) -> String {
    [(4, 'r'), (2, 'w'), (1, 'x')].map(|(bit, letter)| if allowed & bit != 0 { letter } else { '-' }).iter().collect()
}
