//! `braid serve` and `braid mount`: the processes of a cluster.

mod anew;
mod data;
mod handover;
mod metadata;
mod metadata_pages;
mod metadata_sql;
mod metadata_together;
mod mount;
mod mount_pages;
mod mount_waits;
pub mod place;
pub mod predecessor;
mod queries;
pub mod ready;
mod serving;
mod signals;
pub mod why;

pub use mount::{MountArgs, UmountArgs, absolute, braid_mounts, check_mount_point, is_braid_mount};

use crate::cli::ClusterArgs;
use crate::{connect, output};
use anew::End;
use anyhow::Result;
use braid_env::{Address, Env, Listener};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    Metadata,
    Data,
}

#[derive(Args)]
#[command(after_help = "Example:\n  braid serve data --config braid.toml --set data.dir=/disk1/braid")]
pub struct ServeArgs {
    role: RoleName,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Written when the server serves; removed when it stops.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// It has lost what it knew, and begins anew.
    #[arg(long = anew::WORD, hide = true)]
    is_anew: bool,
}

impl ServeArgs {
    pub fn run(self) -> Result<ExitCode> {
        let config = self.cluster.load()?;
        output::start_log(&config.log.level);
        let runtime = connect::runtime()?;
        let ready = ready::ReadyFile::new(self.ready_file);
        let result = match self.role {
            RoleName::Metadata => runtime.block_on(metadata::serve(config, ready, self.is_anew)),
            RoleName::Data => runtime.block_on(data::serve(config, ready)).map(|()| End::Asked),
        };
        // What still runs in the background (a blocked disk) must not hold up the end.
        runtime.shutdown_background();
        match result? {
            End::Asked => Ok(ExitCode::SUCCESS),
            End::Anew(why) => {
                tracing::warn!("{why}: this server begins anew");
                Err(anew::begin())
            }
        }
    }
}

/// Listens at every address; answers the listeners and where they really are.
async fn listen(env: &Env, addresses: &[Address]) -> Result<Vec<Box<dyn Listener>>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = env.transport.listen(address).await.map_err(|e| {
            anyhow::anyhow!("cannot listen at {address}: {e}; is another server running there, or the path missing?")
        })?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn addresses(list: &[String]) -> Result<Vec<Address>> {
    crate::config::parse_addresses(list).map_err(anyhow::Error::msg)
}
