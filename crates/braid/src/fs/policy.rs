//! `braid fs policy`: which layout and durability a directory gives to what is made in it.

use super::attributes::print_json;
use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief};
use anyhow::{Result, anyhow, bail};
use braid_api::XattrMode;
use braid_types::{Layout, Medium, Policy};
use bytes::Bytes;
use clap::Subcommand;
use std::process::ExitCode;

/// The attribute by which doors, too, see policies.
const ATTRIBUTE: &[u8] = b"user.braid.policy";

#[derive(Subcommand)]
#[command(after_help = "Example:\n  braid fs policy set /projects plain,durability=close")]
pub enum PolicyCommand {
    /// Show the policy in force.
    #[command(after_help = "Example:\n  braid fs policy get /projects")]
    Get {
        #[arg(required = true)]
        paths: Vec<ClusterPath>,
        /// One object a line.
        #[arg(long)]
        json: bool,
    },
    /// Give a directory a policy; what is made below it from now on follows it.
    #[command(after_help = "Example:\n  braid fs policy set /projects plain,durability=close,inline=4KiB")]
    Set { path: ClusterPath, policy: Policy },
    /// Let a directory follow its parent's policy again.
    #[command(after_help = "Example:\n  braid fs policy clear /projects")]
    Clear { path: ClusterPath },
}

impl PolicyCommand {
    /// Refuses what this version does not serve.
    pub fn check(&self) -> Result<()> {
        match self {
            PolicyCommand::Set { policy, .. } => check(policy),
            _ => Ok(()),
        }
    }

    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        match self {
            PolicyCommand::Get { paths, json } => {
                for path in &paths {
                    if let Err(e) = get(s, path, json).await {
                        s.note(&e);
                    }
                }
                return Ok(s.exit_code());
            }
            PolicyCommand::Set { path, policy } => {
                let dir = s.find_dir(&path).await?;
                let value = Bytes::from(policy.to_string());
                let set = s.fs.set_xattr(&s.caller, dir.id, ATTRIBUTE, value, XattrMode::Any).await;
                set.map_err(|e| anyhow!("{path}: {}", brief(&e)))?;
            }
            PolicyCommand::Clear { path } => {
                let dir = s.find_dir(&path).await?;
                let cleared = s.fs.remove_xattr(&s.caller, dir.id, ATTRIBUTE).await;
                cleared.map_err(|e| anyhow!("{path}: {}", brief(&e)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn check(policy: &Policy) -> Result<()> {
    match policy.layout {
        Layout::Replica { copies } if copies > 1 && policy.min_copies() < 2 => {
            bail!("several copies need min_copies of at least 2 in this version")
        }
        Layout::Replica { .. } => {}
        other => bail!("this version serves plain and replica:N; {other} comes with a later one"),
    }
    if policy.medium != Medium::Disk {
        bail!("this version serves the medium disk; memory comes with a later one");
    }
    Ok(())
}

#[derive(serde::Serialize)]
struct Shown {
    path: String,
    policy: String,
}

async fn get<F: Paths>(s: &Session<F>, path: &ClusterPath, json: bool) -> Result<()> {
    let attr = s.find(path, Last::Follow).await?;
    let value = s.fs.get_xattr(&s.caller, attr.id, ATTRIBUTE).await.map_err(|e| anyhow!("{path}: {}", brief(&e)))?;
    let policy = String::from_utf8_lossy(&value).into_owned();
    if json {
        return print_json(&Shown { path: path.to_string(), policy });
    }
    println!("{path}  {policy}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_that_are_not_served_are_refused_in_words() {
        let refuse = |text: &str| check(&text.parse().unwrap()).unwrap_err().to_string();
        for text in ["rain:4+2", "memory"] {
            let said = refuse(text);
            assert!(said.contains("serves plain and replica:N") && said.contains(text), "{said}");
        }
        assert!(refuse("replica:2,min_copies=1").contains("min_copies"));
        assert!(check(&"replica:3".parse().unwrap()).is_ok());
        assert!(refuse("plain,medium=memory").contains("disk"));
        assert!(check(&"replica:1,durability=write".parse().unwrap()).is_ok());
    }
}
