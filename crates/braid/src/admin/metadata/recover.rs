//! `braid admin metadata recover`: the metadata's machine is lost, another one takes its place.

use crate::config::{Config, parse_addresses};
use crate::output::bytes;
use crate::roles;
use anyhow::{Context, Result, bail};
use braid_api::data::{DataRequest, GetDataStatus};
use braid_api::{AnyPeers, Context as CallContext, DataNode};
use braid_env::Env;
use braid_meta_engine::Copied;
use braid_meta_engine_embedded::EmbeddedEngine;
use braid_meta_server::{CopyLimits, recover};
use braid_types::{ServerId, Voter};
use braid_wire::{Endpoint, Remote, RemoteDataNode, Role, WirePeers};
use bytes::Bytes;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "\
Needs a majority of all data servers; waits until the old metadata server can answer nobody any more. Then start one here
with `braid serve metadata`.
Example:
  braid admin metadata recover --data tcp:10.0.0.2:7401 --data tcp:10.0.0.3:7401 --set metadata.dir=/new/metadata")]
pub struct RecoverArgs {
    /// Address of a data server; one that knows the others is enough if they have not moved.
    #[arg(long = "data", value_name = "ADDRESS", required = true)]
    data: Vec<String>,
    /// Go on from what there is, although members that do not answer may have more: they are lost for good.
    #[arg(long)]
    accept_loss: bool,
    /// How long to try to reach enough data servers, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    patience: u64,
    /// An object.
    #[arg(long)]
    json: bool,
}

const FIRST_ASK: Duration = Duration::from_secs(3);

/// Data servers by their addresses: who is there says which one it is.
async fn known(endpoint: &Endpoint, addresses: &[String]) -> Result<Vec<Voter>> {
    let mut known = Vec::new();
    for address in addresses {
        let parsed =
            parse_addresses(std::slice::from_ref(address)).map_err(|e| anyhow::anyhow!("--data {address}: {e}"))?;
        let node = RemoteDataNode(Remote::new(endpoint, Role::Data, ServerId(0), DataRequest::NAMES, parsed));
        let cx = CallContext { deadline: FIRST_ASK, ..CallContext::default() };
        match node.call(cx, GetDataStatus {}, Bytes::new()).await {
            Ok((status, _)) => {
                known.push(Voter { id: status.id, host: String::new(), addresses: vec![address.clone()] });
            }
            Err(error) => eprintln!("warning: {error}"),
        }
    }
    if known.is_empty() {
        bail!("none of the data servers given with --data answers");
    }
    Ok(known)
}

impl RecoverArgs {
    pub async fn run(self, endpoint: &Endpoint, config: &Config) -> Result<ExitCode> {
        let dir = &config.metadata.dir;
        roles::place::for_metadata(dir)?;
        if dir.join("data.mdb").exists() {
            bail!("{} holds metadata already: move it away, or set metadata.dir to an empty directory", dir.display());
        }
        let known = known(endpoint, &self.data).await?;
        // Under another name until everything is there and the old server is left behind.
        let mut part = OsString::from(dir.as_os_str());
        part.push(".recovering");
        let part = PathBuf::from(part);
        if part.exists() {
            std::fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
        }
        let (options, at) = (config.metadata.engine(), part.clone());
        let make = move || Ok(Arc::new(EmbeddedEngine::open(&at, options)?) as Arc<dyn Copied>);
        let (env, peers) = (Env::os(), AnyPeers::new(WirePeers::new(endpoint)));
        let patience = Duration::from_secs(self.patience);
        let limits = CopyLimits::default();
        let done = recover(&env, make, &peers, known, self.accept_loss, patience, limits).await?;
        match std::fs::remove_dir(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} is not empty", dir.display()));
            }
            _ => {}
        }
        std::fs::rename(&part, dir)
            .with_context(|| format!("cannot rename {} to {}", part.display(), dir.display()))?;
        if self.json {
            let text = serde_json::json!({
                "from": done.from.0,
                "group": done.at.number,
                "term": done.term.to_string(),
                "bytes": done.bytes,
                "complete": done.is_complete,
            });
            println!("{text:#}");
        } else {
            println!(
                "the metadata is in {}: {} from data server {}, {}",
                dir.display(),
                bytes(done.bytes),
                done.from,
                done.at
            );
            if !done.is_complete {
                println!("warning: what members that did not answer had beyond that is lost");
            }
            println!("start it: braid serve metadata");
        }
        Ok(ExitCode::SUCCESS)
    }
}
