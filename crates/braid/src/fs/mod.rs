//! `braid fs`: work on files without a mount.
//!
//! One file a command. Each opens a session that says what it is, and ends it, also after an error or an interrupt.
//! Promises: a path is resolved in one message, one more for each symbolic link in it; copies need a bounded amount of
//! memory whatever the size of files and directories; an error is one line with the path and the cause, the rest of
//! the arguments is still worked on, and the exit code is 1.
//!
//! Left to others: permissions. As long as clients have no identity, these commands may do everything.

mod attributes;
mod cat;
mod chmod;
pub mod chown;
mod df;
mod du;
mod find;
mod get;
mod glob;
mod ln;
mod local;
mod ls;
mod mkdir;
mod mv;
mod path;
mod policy;
pub mod progress;
mod put;
mod quota;
mod rm;
mod seal;
mod session;
mod setfacl;
mod snapshot;
mod stat;
mod summary;
mod trash;
mod trees;
mod walk;

use crate::cli::ClusterArgs;
use crate::{connect, output, say};
use anyhow::{Result, bail};
use braid_client::Client;
use braid_env::Env;
use clap::{Args, Subcommand};
use session::Session;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs ls -l / --cluster ./var")]
pub struct FsArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List directories.
    Ls(ls::LsArgs),
    /// Show what is known of files.
    Stat(stat::StatArgs),
    /// Write files to the standard output.
    Cat(cat::CatArgs),
    /// Copy local files into the cluster.
    Put(put::PutArgs),
    /// Copy files of the cluster to this machine.
    Get(get::GetArgs),
    /// Make directories.
    Mkdir(mkdir::MkdirArgs),
    /// Remove files and directories.
    Rm(rm::RmArgs),
    /// Put files and directories into the trash, look at it, take back what is in it.
    #[command(subcommand)]
    Trash(trash::TrashCommand),
    /// Move or rename.
    Mv(mv::MvArgs),
    /// Make hard or symbolic links.
    Ln(ln::LnArgs),
    /// Change permissions.
    Chmod(chmod::ChmodArgs),
    /// Change owner and group.
    Chown(chown::ChownArgs),
    /// Show access lists.
    Getfacl(setfacl::GetfaclArgs),
    /// Change access lists.
    Setfacl(setfacl::SetfaclArgs),
    /// Keep files from every change.
    Seal(seal::SealArgs),
    /// Let sealed files be changed again.
    Unseal(seal::UnsealArgs),
    /// Sum up what trees occupy.
    Du(du::DuArgs),
    /// Find files by name, kind, size and age.
    Find(find::FindArgs),
    /// Show or change the policy of a directory.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Limit what a directory has, and show it.
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Keep directories as they are now, look at what they were, and take it back.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Sum up what is in directories, by the server.
    Summary(summary::SummaryArgs),
    /// Show the space of the cluster.
    Df(df::DfArgs),
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Ls(_) => "ls",
            Command::Stat(_) => "stat",
            Command::Cat(_) => "cat",
            Command::Put(_) => "put",
            Command::Get(_) => "get",
            Command::Mkdir(_) => "mkdir",
            Command::Rm(_) => "rm",
            Command::Trash(_) => "trash",
            Command::Mv(_) => "mv",
            Command::Ln(_) => "ln",
            Command::Chmod(_) => "chmod",
            Command::Chown(_) => "chown",
            Command::Getfacl(_) => "getfacl",
            Command::Setfacl(_) => "setfacl",
            Command::Seal(_) => "seal",
            Command::Unseal(_) => "unseal",
            Command::Du(_) => "du",
            Command::Find(_) => "find",
            Command::Policy(_) => "policy",
            Command::Quota(_) => "quota",
            Command::Snapshot(_) => "snapshot",
            Command::Summary(_) => "summary",
            Command::Df(_) => "df",
        }
    }

    async fn run(self, s: &Session<Client>) -> Result<ExitCode> {
        match self {
            Command::Ls(args) => args.run(s).await,
            Command::Stat(args) => args.run(s).await,
            Command::Cat(args) => args.run(s).await,
            Command::Put(args) => args.run(s).await,
            Command::Get(args) => args.run(s).await,
            Command::Mkdir(args) => args.run(s).await,
            Command::Rm(args) => args.run(s).await,
            Command::Trash(args) => args.run(s).await,
            Command::Mv(args) => args.run(s).await,
            Command::Ln(args) => args.run(s).await,
            Command::Chmod(args) => args.run(s).await,
            Command::Chown(args) => args.run(s).await,
            Command::Getfacl(args) => args.run(s).await,
            Command::Setfacl(args) => args.run(s).await,
            Command::Seal(args) => args.run(s).await,
            Command::Unseal(args) => args.run(s).await,
            Command::Du(args) => args.run(s).await,
            Command::Find(args) => args.run(s).await,
            Command::Policy(args) => args.run(s).await,
            Command::Quota(args) => args.run(s).await,
            Command::Snapshot(args) => args.run(s).await,
            Command::Summary(args) => args.run(s).await,
            Command::Df(args) => args.run(s).await,
        }
    }
}

impl FsArgs {
    pub fn run(self) -> Result<ExitCode> {
        if let Command::Policy(policy) = &self.command {
            // What this version cannot do is refused before anybody is asked.
            policy.check()?;
        }
        let config = self.cluster.load()?;
        output::start_log("error");
        let runtime = connect::runtime()?;
        let description = format!("fs {} by process {}", self.command.name(), std::process::id());
        let dir = self.cluster.dir();
        let result = runtime.block_on(async {
            let (_endpoint, client) = connect::client(Env::os(), &config, description, false, dir.as_deref()).await?;
            let session = Session::new(client.clone());
            let result = tokio::select! {
                result = self.command.run(&session) => result,
                _ = tokio::signal::ctrl_c() => bail!("interrupted"),
                () = say::unheard() => Ok(ExitCode::SUCCESS),
            };
            // What was written is sent and stable now, or the command has failed.
            match (result, client.shutdown().await) {
                (Ok(_), Err(error)) => Err(anyhow::Error::new(error).context("what was written may be lost")),
                (result, _) => result,
            }
        });
        runtime.shutdown_background();
        match (result, say::lost_exit()) {
            (Ok(_), Some(code)) => Ok(code.into()),
            (result, _) => result,
        }
    }
}
