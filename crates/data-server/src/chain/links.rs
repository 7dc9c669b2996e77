//! Ways to the other data servers and to the leader.

use super::on_way::Arrival;
use super::room::{Room, Waiting, Way};
use super::window::GIVEN_UP;
use braid_api::copies::ServerSays;
use braid_api::data::PeerSays;
use braid_api::meta::{GetServers, Namespace, ServerInfo};
use braid_api::{Context, DataNode, DataPeers};
use braid_env::{Env, Monotonic};
use braid_types::ServerId;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Carries messages that may be lost, repeated and late. Never waits: a word that cannot be sent soon is dropped, for it is said again by
/// who needs an answer; content is given to it when there is room.
pub trait ChainLinks: Send + Sync + 'static {
    /// `arrival` goes when the message has been taken, or has been dropped or lost, and with it the room for its payload.
    fn to_peer(&self, to: ServerId, message: PeerSays, payload: Bytes, room: Room, arrival: Arrival);

    /// Room for a payload of at most so many bytes.
    fn room(&self, _to: ServerId, _bytes: usize) -> Waiting {
        Room::for_all()
    }

    /// It has taken content a moment ago.
    fn takes(&self, _to: ServerId) -> bool {
        true
    }

    /// Content on its way there of which nothing has been heard for so long counts as lost.
    fn given_up_after(&self, _to: ServerId) -> Duration {
        GIVEN_UP
    }

    /// A `braid_chain::ToLeader`, from this incarnation.
    fn to_leader(&self, incarnation: u64, message: Vec<u8>);
}

/// Small messages are repeated after 300 ms: what takes longer than this was lost.
const WORD_DEADLINE: Duration = Duration::from_secs(1);
/// A megabyte of content over a slow network, with others in front of it ([`super::window`]).
const CONTENT_DEADLINE: Duration = Duration::from_secs(10);
/// On their way to one server at once; beyond that they are dropped.
const WORDS_MAX: usize = 1024;
/// Addresses are asked for anew this often at most.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Known ones are taken for good so long.
const ADDRESS_AGE: Duration = Duration::from_secs(10);

/// Links over the protocol: `words` and `content` are connections of their own, so that no acknowledgement waits behind bulk
/// data, and so should be the one to the leader.
pub struct WireLinks<P, N> {
    env: Env,
    id: ServerId,
    words: P,
    content: P,
    leader: Arc<N>,
    /// Lock order: nothing is taken under it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    servers: BTreeMap<ServerId, ServerInfo>,
    asked: Option<Monotonic>,
    words: BTreeMap<ServerId, usize>,
    content: BTreeMap<ServerId, Arc<Way>>,
    /// Of messages to the leader.
    number: u64,
}

impl<P: DataPeers, N: Namespace> WireLinks<P, N> {
    pub fn new(env: Env, id: ServerId, words: P, content: P, leader: Arc<N>) -> Arc<Self> {
        Arc::new(WireLinks { env, id, words, content, leader, state: Mutex::default() })
    }

    /// Where the server is, if that is known; asks for it now and then.
    fn find(self: &Arc<Self>, server: ServerId) -> Option<ServerInfo> {
        let now = self.env.clock.now();
        let mut state = self.state.lock();
        let found = state.servers.get(&server).cloned();
        let pause = if found.is_some() { ADDRESS_AGE } else { ASK_PAUSE };
        if state.asked.is_none_or(|asked| now.since(asked) >= pause) {
            state.asked = Some(now);
            let this = self.clone();
            self.env.spawn("addresses of data servers", async move {
                let cx = Context { deadline: ADDRESS_AGE / 2, ..Context::default() };
                match this.leader.call(cx, GetServers {}).await {
                    Ok(known) => {
                        this.state.lock().servers = known.servers.into_iter().map(|info| (info.id, info)).collect();
                    }
                    Err(error) => tracing::debug!("data server {}: no addresses: {error}", this.id),
                }
            });
        }
        found
    }

    /// Counts a word; false if too many are on their way.
    fn word_enters(&self, to: ServerId) -> bool {
        let mut state = self.state.lock();
        let count = state.words.entry(to).or_default();
        let fits = *count < WORDS_MAX;
        *count += usize::from(fits);
        fits
    }

    fn way(&self, to: ServerId) -> Arc<Way> {
        self.state.lock().content.entry(to).or_default().clone()
    }

    fn word_leaves(&self, to: ServerId) {
        self.state.lock().words.entry(to).and_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The links as a data server holds them.
pub struct SharedLinks<P, N>(pub Arc<WireLinks<P, N>>);

impl<P: DataPeers, N: Namespace> ChainLinks for SharedLinks<P, N> {
    fn to_peer(&self, to: ServerId, message: PeerSays, payload: Bytes, room: Room, arrival: Arrival) {
        let (links, bytes, room) = (self.0.clone(), payload.len(), room.of(payload.len()));
        let Some(info) = links.find(to).filter(|_| bytes > 0 || links.word_enters(to)) else {
            return tracing::debug!(
                "data server {}: a word to {to} is dropped: it has no address, or too many",
                links.id
            );
        };
        let env = links.env.clone();
        env.spawn("a word to a data server", async move {
            let (peers, deadline) =
                if bytes > 0 { (&links.content, CONTENT_DEADLINE) } else { (&links.words, WORD_DEADLINE) };
            let sent = links.env.clock.now();
            let said = peers.node(&info).call(Context { deadline, ..Context::default() }, message, payload).await;
            if let Err(error) = &said {
                tracing::debug!("data server {} to {to}: {error}", links.id);
            }
            match bytes {
                0 => links.word_leaves(to),
                _ => room.ends(sent, links.env.clock.now(), said.is_ok()),
            }
            drop(arrival);
        });
    }

    fn room(&self, to: ServerId, bytes: usize) -> Waiting {
        self.0.way(to).ask(bytes)
    }

    fn takes(&self, to: ServerId) -> bool {
        self.0.way(to).takes(self.0.env.clock.now(), CONTENT_DEADLINE)
    }

    fn given_up_after(&self, to: ServerId) -> Duration {
        self.0.way(to).given_up_after()
    }

    fn to_leader(&self, incarnation: u64, message: Vec<u8>) {
        let links = self.0.clone();
        let number = {
            let mut state = links.state.lock();
            state.number += 1;
            state.number
        };
        if !links.word_enters(ServerId(0)) {
            return;
        }
        let pieces = ServerSays::split(links.id, incarnation, number, &message);
        if pieces.is_empty() {
            tracing::error!("data server {}: {} bytes are too much to say to the leader", links.id, message.len());
        }
        let env = links.env.clone();
        env.spawn("a word to the leader", async move {
            for piece in pieces {
                let cx = Context { deadline: WORD_DEADLINE, ..Context::default() };
                if let Err(error) = links.leader.call(cx, piece).await {
                    tracing::debug!("data server {} to the leader: {error}", links.id);
                    break;
                }
            }
            links.word_leaves(ServerId(0));
        });
    }
}
