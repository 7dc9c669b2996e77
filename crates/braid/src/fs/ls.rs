//! `braid fs ls`.

use super::attributes::{AttrJson, print_json};
use super::path::ClusterPath;
use super::session::{Last, Paths, Session};
use crate::output::{self, Table, shown};
use anyhow::Result;
use braid_types::{Attr, FileKind};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs ls /\n  braid fs ls -l /home\n  braid fs ls -R --json /home")]
pub struct LsArgs {
    #[arg(default_value = "/")]
    paths: Vec<ClusterPath>,
    /// Mode, links, owner, size and time too.
    #[arg(short)]
    long: bool,
    /// Directories below too.
    #[arg(short = 'R')]
    recursive: bool,
    /// The directory itself, not what is in it.
    #[arg(short)]
    directory: bool,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

impl LsArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let several = self.paths.len() > 1 || self.recursive;
        for path in &self.paths {
            if let Err(e) = self.one(s, path, several).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn one<F: Paths>(&self, s: &Session<F>, path: &ClusterPath, heading: bool) -> Result<()> {
        let last = if self.long { Last::Keep } else { Last::Follow };
        let attr = s.find(path, last).await?;
        if self.directory || !attr.is_dir() {
            return self.print(s, &[(path.to_string(), path.clone(), attr)]).await;
        }
        let mut dirs = vec![(path.clone(), attr)];
        while let Some((path, attr)) = dirs.pop() {
            if heading && !self.json {
                println!("{path}:");
            }
            let mut below = Vec::new();
            let mut listing = s.list(&path, attr.id).await?;
            loop {
                let page = listing.page().await?;
                if page.is_empty() {
                    break;
                }
                let rows: Vec<_> = page.into_iter().map(|(n, a)| (shown(n.as_bytes()), path.join(&n), a)).collect();
                self.print(s, &rows).await?;
                if self.recursive {
                    below.extend(rows.into_iter().filter(|(_, _, a)| a.is_dir()).map(|(_, p, a)| (p, a)));
                }
            }
            if heading && !self.json {
                println!();
            }
            below.reverse();
            dirs.append(&mut below);
        }
        Ok(())
    }

    /// Names or long lines of one page.
    async fn print<F: Paths>(&self, s: &Session<F>, rows: &[(String, ClusterPath, Attr)]) -> Result<()> {
        // Without a heading: `ls` has none.
        let mut table = Table::new(&["", "", "", "", "", "", ""]);
        for (name, path, attr) in rows {
            let target = match attr.kind {
                FileKind::Symlink if self.long || self.json => s.fs.read_link(&s.caller, attr.id).await.ok(),
                _ => None,
            };
            if self.json {
                let target = target.as_deref().map(shown);
                print_json(&AttrJson { target, ..AttrJson::new(path, attr) })?;
            } else if self.long {
                let arrow = target.map_or(String::new(), |t| format!(" -> {}", shown(&t)));
                table.row([
                    output::mode(attr.kind, attr.mode),
                    attr.nlink.to_string(),
                    attr.uid.to_string(),
                    attr.gid.to_string(),
                    attr.size.to_string(),
                    output::time(attr.mtime),
                    format!("{name}{arrow}"),
                ]);
            } else {
                println!("{name}{}", if attr.is_dir() { "/" } else { "" });
            }
        }
        if self.long && !self.json {
            print!("{}", table.render().trim_start_matches('\n'));
        }
        Ok(())
    }
}
