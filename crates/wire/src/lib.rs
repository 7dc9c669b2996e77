//! Messages of `braid-api` between processes: framing, connections, and stubs for both ends.
//!
//! Bottom up: [`Header`] and frames (`docs/formats/wire.md` has the bytes), buffers of a [`BufferPool`] for
//! payloads, the [`hello`](Hello), a multiplexed [`Channel`]; on the serving side [`serve`] with a [`Service`]; on
//! the asking side [`Remote`], which reconnects and repeats, and over it [`RemoteNamespace`] and [`RemoteDataNode`].
//!
//! Promises: nothing a peer sends makes a server panic or allocate what was merely claimed; a body that cannot be
//! read spoils one call, a frame that cannot be read one connection; every call ends by its deadline with an answer
//! or an error that names the peer; payload bytes are never copied between the socket and the caller, but for
//! what arrived together with a header; memory of a connection is bounded by [`Limits`].
//!
//! Left to others: who may ask what (`meta-server`, `data-server`), what a repeated request means (its request id),
//! and secrecy: frames are neither encrypted nor authenticated yet, the hello has room for it.

mod address_book;
mod body;
mod call;
mod channel;
mod connection;
mod endpoint;
mod frame;
mod header;
mod hello;
mod limits;
mod meta_peers;
mod outbox;
mod peers;
mod pool;
mod reader;
mod remote;
mod retry;
mod running;
mod server;
mod service;
mod services;
mod sink;
mod stats;
mod stubs;
mod waits;

pub use body::{Body, Raw, Reply, decode};
pub use channel::Channel;
pub use endpoint::{Endpoint, Identity};
pub use frame::FrameError;
pub use header::{HEADER_BYTES, Header, Kind, PREFIX_BYTES};
pub use hello::{Hello, PROTOCOL_VERSION_MIN, PeerInfo, Role};
pub use limits::{CALL_DEADLINE_DEFAULT, Limits};
pub use meta_peers::WireMetaPeers;
pub use peers::WirePeers;
pub use pool::{Buffer, BufferPool};
pub use reader::{Frame, FrameReader};
pub use remote::Remote;
pub use server::serve;
pub use service::{Request, Service};
pub use services::{DataNodeService, NamespaceService};
pub use stats::{WireSnapshot, WireStats};
pub use stubs::{RemoteDataNode, RemoteNamespace};
pub use waits::{WaitGuard, Waits};
