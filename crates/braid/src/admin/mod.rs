//! `braid admin`: look at a cluster, check and repair it.
//!
//! One file a command. None of them opens a session: what they ask leaves no trace in the cluster.

mod add;
mod add_plan;
mod containers;
mod decommission;
mod drain;
mod fsck;
mod fsck_command;
mod lacking;
mod members;
mod metadata;
mod quota;
mod rebalance;
mod scrub;
mod scrub_command;
mod servers;
mod sessions;
mod sql;
mod sql_print;
mod status;
mod status_notes;
mod status_parts;
mod why;

use crate::cli::ClusterArgs;
use crate::config::Config;
use crate::{connect, output};
use anyhow::{Result, bail};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::{GetServers, MetaAnswer, MetaRequest};
use braid_api::{Carries, Code, Context, Manner, Namespace};
use braid_env::Env;
use braid_wire::{RemoteNamespace, Role, WireMetaPeers, WirePeers};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Example:\n  braid admin status --cluster ./var")]
pub struct AdminArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What runs, and is it well; exit code 1 if not.
    Status(status::StatusArgs),
    /// Data servers.
    Servers(servers::ServersArgs),
    /// Clients with their sessions.
    Sessions(sessions::SessionsArgs),
    /// Groups of chunks with their chains of servers.
    Containers(containers::ContainersArgs),
    /// Ask in SQL about files, owners, sizes, chunks and servers: docs/sql-metadata.md.
    Sql(sql::SqlArgs),
    /// What waits, for what, and since when.
    Why(why::WhyArgs),
    /// Check that rows and chunks agree, and repair what does not.
    Fsck(fsck_command::FsckArgs),
    /// All metadata as a whole: recover, back up, restore, migrate to another store.
    #[command(after_help = "Example:\n  braid admin metadata backup /backup/braid.meta")]
    Metadata(metadata::MetadataArgs),
    /// Verify every checksum at every data server.
    Scrub(scrub_command::ScrubArgs),
    /// Start a further data server.
    Add(add::AddArgs),
    /// Empty a data server: what is there goes to others.
    Drain(drain::DrainArgs),
    /// Even out how full data servers are.
    Rebalance(rebalance::RebalanceArgs),
    /// Limit what users and groups have, and show it.
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Take a data server out of the cluster for ever.
    Decommission(decommission::DecommissionArgs),
}

/// The ways into the cluster.
pub struct Cluster {
    pub env: Env,
    pub namespace: RemoteNamespace,
    pub peers: WirePeers,
    /// Where several metadata servers serve at once.
    pub meta_peers: WireMetaPeers,
    pub config: Config,
    /// Where the configuration lies.
    pub dir: Option<PathBuf>,
}

/// A server that does not answer is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(3);

impl Cluster {
    /// A question to the metadata server. The answer fits the question, or it is an error.
    pub async fn ask(&self, query: AdminQuery) -> Result<AdminAnswer> {
        self.call(query, Manner::default()).await
    }

    /// A request to the metadata server; one that is not there is waited for unless `manner` is `Once`.
    async fn call<M>(&self, message: M, manner: Manner) -> Result<M::Answer>
    where
        M: Carries<MetaRequest, MetaAnswer> + Send,
        M::Answer: Send,
    {
        let is_stopped = connect::is_stopped(&self.config, self.dir.as_deref());
        let manner = if is_stopped { Manner::Once } else { manner };
        let cx = Context { deadline: PATIENCE, manner, ..Context::default() };
        let answer = self.namespace.call(cx, message).await;
        answer.map_err(|error| match error.code {
            // It did answer: this cannot be.
            Code::NotFound
            | Code::Invalid
            | Code::Busy
            | Code::Decommissioned
            | Code::NotPermitted
            | Code::Exists
            | Code::Interrupted
            | Code::TooBig
            | Code::NoSpace
            | Code::NotSupported => error.into(),
            _ => connect::unanswered(&self.config, &error, self.dir.as_deref()),
        })
    }

    /// Is there a metadata server now, also one that refuses?
    pub async fn answers(&self) -> bool {
        let cx = Context { deadline: LOOK, manner: Manner::Once, ..Context::default() };
        let answer = self.namespace.call(cx, AdminQuery::Status).await;
        answer.map_or_else(|error| error.code != Code::Unreachable, |_| true)
    }

    /// Somebody is there; what takes long is asked afterwards.
    pub async fn reach(&self) -> Result<()> {
        self.ask(AdminQuery::Status).await.map(drop)
    }

    pub async fn servers(&self) -> Result<Vec<braid_api::meta::ServerInfo>> {
        Ok(self.call(GetServers {}, Manner::default()).await?.servers)
    }
}

/// An answer of another kind than was asked for.
fn strange<T>() -> Result<T> {
    bail!("the metadata server answered something else; is it of another version?")
}

impl AdminArgs {
    /// It has something to end at the server when nobody reads its output.
    pub fn ends_in_order(&self) -> bool {
        matches!(self.command, Command::Sql(_))
    }

    pub fn run(self) -> Result<ExitCode> {
        let config = self.cluster.load()?;
        output::start_log("error");
        let runtime = connect::runtime()?;
        let result = runtime.block_on(async {
            let env = Env::os();
            let endpoint = connect::endpoint(&env, Role::Client);
            let cluster = Cluster {
                env,
                namespace: connect::namespace(&endpoint, &config),
                peers: WirePeers::new(&endpoint),
                meta_peers: WireMetaPeers::new(&endpoint),
                dir: self.cluster.dir(),
                config: config.clone(),
            };
            match self.command {
                Command::Status(args) => args.run(&cluster, &self.cluster).await,
                Command::Servers(args) => args.run(&cluster).await,
                Command::Sessions(args) => args.run(&cluster).await,
                Command::Containers(args) => args.run(&cluster).await,
                Command::Sql(args) => args.run(&cluster).await,
                Command::Why(args) => args.run(&cluster, &self.cluster).await,
                Command::Fsck(args) => args.run(&cluster).await,
                Command::Metadata(args) => args.run(&cluster, &endpoint, &config).await,
                Command::Scrub(args) => args.run(&cluster).await,
                Command::Add(args) => args.run(&cluster).await,
                Command::Drain(args) => args.run(&cluster).await,
                Command::Rebalance(args) => args.run(&cluster).await,
                Command::Quota(args) => args.run(&cluster).await,
                Command::Decommission(args) => args.run(&cluster).await,
            }
        });
        runtime.shutdown_background();
        result
    }
}
