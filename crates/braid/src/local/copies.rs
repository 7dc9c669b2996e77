//! A new cluster is ready when its metadata has the copies that it is to have: small files of directories with several copies
//! lie beside their rows only from then on.

use crate::config::Config;
use crate::connect;
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::{Context, Manner, Namespace};
use braid_env::Env;
use braid_wire::Role;
use std::time::{Duration, Instant};

/// It takes about two seconds: each server gets its vote, then its rows, one after the other, at ticks of 200 ms.
const LIMIT: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// For one question.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until the metadata has its copies, or says that they are on their way.
pub fn wait(config: &Config, data_servers: u32) -> Result<()> {
    let wanted = members(config.metadata.copies, data_servers as usize);
    if wanted == 0 {
        return Ok(());
    }
    let runtime = connect::runtime()?;
    let is_there = runtime.block_on(async {
        let endpoint = connect::endpoint(&Env::os(), Role::Client);
        let namespace = connect::namespace(&endpoint, config);
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            let cx = Context { deadline: PATIENCE, manner: Manner::Once, ..Context::default() };
            if let Ok(AdminAnswer::Status(status)) = namespace.call(cx, AdminQuery::Status).await
                && status.copies.iter().filter(|copy| copy.is_member).count() >= wanted
            {
                return true;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        false
    });
    runtime.shutdown_background();
    if !is_there {
        println!("note: copies of the metadata are still on their way: braid admin status counts them");
    }
    Ok(())
}

/// How many data servers will keep a copy: of two or more, copies begin with the second server.
fn members(wanted: usize, data_servers: usize) -> usize {
    if data_servers < wanted.min(2) { 0 } else { wanted.min(data_servers) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_are_as_many_copies_as_there_are_servers_but_none_on_a_single_one() {
        let members = |wanted| [1, 2, 3, 4].map(|servers| super::members(wanted, servers));
        assert_eq!([0, 1, 2, 3].map(members), [[0, 0, 0, 0], [1, 1, 1, 1], [0, 2, 2, 2], [0, 2, 3, 3]]);
    }
}
