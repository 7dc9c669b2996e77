//! What is on its way to a server when it comes to own the chunk.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::*;
use braid_api::data::*;
use braid_api::{Code, Context, DataNode};
use braid_types::*;
use bytes::Bytes;
use std::time::Duration;

const SOME: u64 = 5;

/// A change of a session, under a lease, at its place among the changes; all before are given up.
fn of(session: u64, lease: u64, place: u64) -> Context {
    let token = Token { session: SessionId(session), lease_gen: LeaseGen(lease), ..Token::default() };
    Context { token, request: RequestId(place), behind: 0, deadline: Duration::from_secs(5), ..Context::default() }
}

async fn put(cluster: &Cluster, at: u64, cx: Context, byte: u8) -> Result<(), Code> {
    let server = cluster.server(at).unwrap();
    let written = server.call(cx, write_of(SOME, 0), Bytes::from(vec![byte; 4096])).await;
    written.map(drop).map_err(|error| error.code)
}

async fn word(cluster: &Cluster, at: u64, cx: Context) {
    let want = WantChunk { chunk: ChunkId(SOME), container: C };
    cluster.server(at).unwrap().call(cx, want, Bytes::new()).await.unwrap();
}

async fn owned_by(cluster: &Cluster, id: u64) {
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if cluster.copy(id, SOME).await.is_some_and(|copy| copy.owner == ServerId(id) && copy.is_open) {
            return;
        }
    }
    panic!("data server {id} does not own the chunk: {:?}", cluster.copy(id, SOME).await);
}

async fn reads(cluster: &Cluster, at: u64) -> u8 {
    let server = cluster.server(at).unwrap();
    server.call(of(9, 0, 0), read_of(SOME, 0, 1), Bytes::new()).await.unwrap().1[0]
}

async fn ready(seed: u64) -> std::sync::Arc<Cluster> {
    let cluster = Cluster::new(seed, 3, 3, 2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster
}

/// A write was sent to the server beside, which did not own the chunk, and held up; sent again to the owner, and written over there. It
/// arrives when the server beside owns the chunk.
#[tokio::test(start_paused = true)]
async fn a_change_that_was_given_up_before_ownership_moved_is_refused_by_the_next_owner() {
    let cluster = ready(301).await;
    // Place 1 is on its way to server 2.
    assert_eq!([put(&cluster, 1, of(5, 7, 2), 2).await, put(&cluster, 1, of(5, 7, 3), 3).await], [Ok(()); 2]);
    cluster.settled(SOME).await;
    word(&cluster, 2, of(5, 7, 3)).await;
    owned_by(&cluster, 2).await;
    assert_eq!(put(&cluster, 2, of(5, 7, 1), 1).await, Err(Code::Overtaken));
    assert_eq!(reads(&cluster, 2).await, 3);
    assert_eq!(put(&cluster, 2, of(5, 7, 4), 4).await, Ok(()), "its next");
}

/// As before, but the word is older than what is late: the server beside asked for the chunk, was not heard, and asked again.
#[tokio::test(start_paused = true)]
async fn what_the_owner_refuses_as_late_the_next_owner_refuses_too() {
    for (seed, session, lease) in [(302, 5, 7), (303, 6, 8)] {
        let cluster = ready(seed).await;
        assert_eq!(put(&cluster, 1, of(5, 7, 1), 1).await, Ok(()));
        cluster.settled(SOME).await;
        cluster.cut.lock().insert((1, 2));
        word(&cluster, 2, of(5, 7, 1)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        // Place 2 is on its way to server 2. It was given up, and then either the same session or the next holder of the lease went on.
        assert_eq!(put(&cluster, 1, of(session, lease, 3), 3).await, Ok(()));
        cluster.cut.lock().clear();
        owned_by(&cluster, 2).await;
        let refused = if session == 5 { Code::Overtaken } else { Code::StaleLease };
        assert_eq!(put(&cluster, 2, of(5, 7, 2), 2).await, Err(refused), "session {session} went on");
        assert_eq!(reads(&cluster, 2).await, 3);
    }
}
