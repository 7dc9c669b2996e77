//! Somebody who makes snapshots of the root directory and lets go of some while clients do whatever they do: their files must be what they are
//! without. Lives in the metadata server's process, as the operator does.

use crate::cluster::Process;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::{Context, Namespace};
use braid_meta_server::MetaServer;
use braid_types::{InodeId, Name};
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;

const PAUSE_MS_MAX: u64 = 900;
const SHOTS_MAX: usize = 5;
const WAIT_MS: u64 = 2000;

/// One life of the metadata server.
pub async fn make_and_let_go(process: Process, server: Arc<MetaServer>) {
    let (mut random, cluster, dir) = (process.stream("snapshots of the root"), &process.cluster, InodeId::ROOT);
    let mut number = 0;
    while !cluster.is_calm() {
        process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
        let asked = server.call(Context::default(), AdminQuery::Snapshots { dir: Some(dir) }).await;
        let Ok(AdminAnswer::Snapshots(shots)) = asked else { continue };
        number += 1;
        let text = format!("r{}-{number}", process.life);
        let name = Name::new(text.as_bytes()).expect("a short name");
        let makes = shots.len() < SHOTS_MAX && (shots.is_empty() || random.random_bool(0.6));
        let (query, what) = match makes {
            true => (AdminQuery::CreateSnapshot { dir, name, wait_ms: WAIT_MS }, "snapshot made"),
            false => {
                let name = shots[random.random_range(0..shots.len())].name.clone();
                (AdminQuery::DropSnapshot { dir, name }, "snapshot let go of")
            }
        };
        cluster.note("snapshots", format_args!("{query:?}"));
        match server.call(Context::default(), query).await {
            Ok(_) => cluster.coverage.count(what),
            Err(error) => cluster.note("snapshots", format_args!("{error}")),
        }
    }
}
