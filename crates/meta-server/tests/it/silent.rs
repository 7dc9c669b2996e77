//! Sessions that end while a data server is silent.

use super::chains::{Node, World, open_of, read_of, write_of};
use braid_api::meta::*;
use braid_api::{Code, Context, DataNode, Namespace};
use braid_types::*;
use bytes::Bytes;
use std::time::Duration;

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// What each server answers of the chunk's first byte; those that may answer nothing are left out.
async fn seen(world: &World, info: &ContainerInfo, chunk: ChunkId) -> Vec<u8> {
    let mut seen = Vec::new();
    for server in &info.chain {
        let read = read_of(info, chunk, 1);
        let cx = Context { deadline: Duration::from_millis(100), ..Context::default() };
        if let Ok((_, bytes)) = Node(world.net.clone(), *server).call(cx, read, Bytes::new()).await {
            seen.push(bytes[0]);
        }
    }
    seen
}

/// The owner answers a write, tells nobody, and is cut off; its writer is lost with it. Others read what was before. When the owner comes
/// back before it has a successor, what it was told must not be seen after that.
#[tokio::test(start_paused = true)]
async fn what_a_silent_owner_was_told_by_a_session_that_ended_is_not_seen_later() {
    let world = World::new(3).await;
    let (chunk, info) = world.spare().await;
    assert_eq!(world.write(&info, chunk, 1).await, ServerId(1));
    pass(2_000).await;
    assert_eq!(seen(&world, &info, chunk).await, [1, 1, 1]);

    let meta = world.net.meta.lock().clone().unwrap();
    let open = open_of(3, "is lost");
    let session = meta.call(Context::default(), open).await.unwrap();
    let token = Token { session: session.session, session_epoch: session.epoch, ..Token::default() };
    let of_session = Context { token, deadline: Duration::from_secs(5), ..Context::default() };
    let owner = world.net.servers.lock()[&ServerId(1)].clone();
    let unsynced = write_of(&info, chunk, false);
    // The writer is on its host.
    world.net.away.lock().insert(ServerId(1));
    owner.call(of_session, unsynced.clone(), Bytes::from(vec![2; 10])).await.unwrap();

    // Its lease is over, and the successor's time has not come.
    pass(4_500).await;
    let end = async || meta.call(Context { token, ..Context::default() }, EndSession {}).await;
    assert_eq!(end().await.unwrap_err().code, Code::Unreachable, "it could come back in the same epoch");
    for _ in 0..10 {
        pass(100).await;
        if end().await.is_ok() {
            break;
        }
    }
    assert!(!world.sessions().await.contains(&session.session), "a take-over is all that it waits for");
    let before = seen(&world, &info, chunk).await;
    assert!(before.iter().all(|byte| *byte == 1) && before.len() == 2, "{before:?}");

    world.net.away.lock().clear();
    for _ in 0..100 {
        let seen = seen(&world, &info, chunk).await;
        assert!(seen.iter().all(|byte| *byte == 1), "{seen:?}");
        pass(100).await;
    }
    assert_eq!(seen(&world, &info, chunk).await, [1, 1, 1]);
    let late = owner.call(of_session, unsynced, Bytes::from(vec![3; 10])).await;
    assert_eq!(late.unwrap_err().code, Code::SessionFenced);
}
