//! Everything that waits in a mount, told from its programs: what one of them waits for is found by the operation it is done for.

use super::why::Report;
use braid_api::admin::Waiting;
use braid_client::Client;
use braid_front_fuse::WaitingRequests;
use braid_types::SessionId;
use braid_wire::Waits;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Where the parts of a mount say what waits in them.
#[derive(Clone)]
pub struct MountWaits {
    /// Of the kernel, for programs.
    pub requests: WaitingRequests,
    /// What the client tries again, and leases.
    pub client: Arc<Client>,
    /// Messages without an answer: of a server that stands still the client hears nothing for as long as one attempt may take.
    pub messages: Arc<Waits>,
}

impl MountWaits {
    pub fn list(&self) -> Vec<Waiting> {
        let behind = [self.client.waiting(), self.messages.list()].concat();
        merged(self.requests.list(), behind, self.client.session())
    }

    pub fn report(&self, place: &Path, cluster: &[String]) -> Report {
        Report {
            process: std::process::id(),
            place: place.to_owned(),
            session: self.client.session(),
            cluster: cluster.to_vec(),
            waiting: self.list(),
        }
    }
}

/// Each request with what it waits for; then what waits for no request that is known.
fn merged(requests: Vec<Waiting>, behind: Vec<Waiting>, session: SessionId) -> Vec<Waiting> {
    let mut of_trace: BTreeMap<u64, Vec<Waiting>> = BTreeMap::new();
    for waiting in behind {
        of_trace.entry(waiting.trace.0).or_default().push(waiting);
    }
    let with = |request: Waiting| {
        let causes = of_trace.remove(&request.trace.0);
        with_causes(request, causes)
    };
    let mut all: Vec<Waiting> = requests.into_iter().map(with).collect();
    all.extend(of_trace.into_values().flatten());
    for waiting in &mut all {
        waiting.session = Some(session);
    }
    all
}

fn with_causes(request: Waiting, causes: Option<Vec<Waiting>>) -> Waiting {
    let Some(causes) = causes else { return request };
    let mut all = request;
    let mut words = Vec::new();
    let (mut inodes, mut servers) = (BTreeSet::from_iter(all.inodes), BTreeSet::new());
    for cause in causes {
        if !words.contains(&cause.for_what) {
            words.push(cause.for_what);
        }
        inodes.extend(cause.inodes);
        servers.extend(cause.servers);
        all.metadata |= cause.metadata;
        all.container = all.container.or(cause.container);
        all.chunk = all.chunk.or(cause.chunk);
        all.epoch = all.epoch.or(cause.epoch);
    }
    all.for_what = words.join("; ");
    (all.inodes, all.servers) = (inodes.into_iter().collect(), servers.into_iter().collect());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{ChunkId, ContainerId, InodeId, ServerId, TraceId};

    #[test]
    fn a_request_is_told_with_what_is_waited_for_on_its_behalf() {
        let of = |trace, who: &str, for_what: &str| Waiting { trace: TraceId(trace), ..Waiting::new(who, for_what) };
        let fsync = Waiting {
            process: Some(55),
            inodes: vec![InodeId(7)],
            since_ms: 9_000,
            ..of(1, "fsync of inode 7 by process 55", "its answer")
        };
        let other = of(2, "open of inode 8 by process 56", "its answer");
        let message = Waiting {
            servers: vec![ServerId(2)],
            container: Some(ContainerId(9)),
            chunk: Some(ChunkId(12)),
            epoch: Some(4),
            since_ms: 3_000,
            ..of(1, "WaitCopies of session 3", "data server 2: no answer yet")
        };
        let again = of(1, "sync of inode 7", "data server 2: no answer yet");
        let own = of(0, "giving up inode 9", "what was written to be saved");
        let all = merged(vec![fsync, other], vec![own, message, again], SessionId(3));
        let told: Vec<_> = all.iter().map(|w| (w.who.as_str(), w.for_what.as_str())).collect();
        assert_eq!(
            told,
            [
                ("fsync of inode 7 by process 55", "data server 2: no answer yet"),
                ("open of inode 8 by process 56", "its answer"),
                ("giving up inode 9", "what was written to be saved"),
            ]
        );
        let one = &all[0];
        assert_eq!((one.process, one.since_ms, one.session), (Some(55), 9_000, Some(SessionId(3))));
        assert_eq!(
            (&one.servers[..], one.container, one.chunk),
            (&[ServerId(2)][..], Some(ContainerId(9)), Some(ChunkId(12)))
        );
        assert_eq!((one.epoch, one.metadata), (Some(4), false));
    }
}
