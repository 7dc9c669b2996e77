//! `braid admin`: look at a cluster, check and repair it.
//!
//! One file a command. None of them opens a session: what they ask leaves no trace in the cluster.

mod containers;
mod fsck;
mod fsck_command;
mod metadata;
mod scrub;
mod scrub_command;
mod servers;
mod sessions;
mod status;
mod why;

use crate::cli::ClusterArgs;
use crate::{connect, output};
use anyhow::{Result, bail};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::{Context, Namespace};
use braid_env::Env;
use braid_wire::{RemoteNamespace, Role, WirePeers};
use clap::{Args, Subcommand};
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
    /// What waits, for what, and since when.
    Why(why::WhyArgs),
    /// Check that rows and chunks agree, and repair what does not.
    Fsck(fsck_command::FsckArgs),
    /// The metadata's copies on data servers.
    #[command(after_help = "Example:\n  braid admin metadata recover --data tcp:10.0.0.2:7401")]
    Metadata(metadata::MetadataArgs),
    /// Verify every checksum at every data server.
    Scrub(scrub_command::ScrubArgs),
}

/// The ways into the cluster.
pub struct Cluster {
    pub env: Env,
    pub namespace: RemoteNamespace,
    pub peers: WirePeers,
    /// Addresses of the metadata servers, for messages.
    pub metadata: String,
}

/// A server that does not answer is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Cluster {
    /// A question to the metadata server. The answer fits the question, or it is an error.
    pub async fn ask(&self, query: AdminQuery) -> Result<AdminAnswer> {
        let cx = Context { deadline: PATIENCE, ..Context::default() };
        self.namespace
            .call(cx, query)
            .await
            .map_err(|e| anyhow::anyhow!("the metadata server at {} does not answer: {e}", self.metadata))
    }

    /// Somebody is there; what takes long is asked afterwards.
    pub async fn reach(&self) -> Result<()> {
        self.ask(AdminQuery::Status).await.map(drop)
    }

    pub async fn servers(&self) -> Result<Vec<braid_api::meta::ServerInfo>> {
        Ok(fsck::ask::Ask::new(&self.namespace).servers().await?)
    }
}

/// An answer of another kind than was asked for.
fn strange<T>() -> Result<T> {
    bail!("the metadata server answered something else; is it of another version?")
}

impl AdminArgs {
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
                metadata: config.cluster.metadata.join(", "),
            };
            match self.command {
                Command::Status(args) => args.run(&cluster, &self.cluster).await,
                Command::Servers(args) => args.run(&cluster).await,
                Command::Sessions(args) => args.run(&cluster).await,
                Command::Containers(args) => args.run(&cluster).await,
                Command::Why(args) => args.run(&cluster, &self.cluster).await,
                Command::Fsck(args) => args.run(&cluster).await,
                Command::Metadata(args) => args.run(&endpoint, &config).await,
                Command::Scrub(args) => args.run(&cluster).await,
            }
        });
        runtime.shutdown_background();
        result
    }
}
