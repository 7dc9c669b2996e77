//! The server as others see it: over a Unix socket.
#![allow(clippy::unwrap_used)]

use crate::support::*;
use braid_api::data::*;
use braid_api::{Code, DataNode};
use braid_data_server::DataServer;
use braid_data_store::DiskStore;
use braid_env::{Address, Env};
use braid_types::*;
use braid_wire::*;
use bytes::Bytes;
use std::sync::Arc;

fn endpoint(role: Role, server: u64, incarnation: u64) -> Endpoint {
    let identity = Identity { role, cluster: identity().cluster, server: ServerId(server), incarnation };
    Endpoint::new(Env::os(), identity, Limits::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_reads_and_errors_cross_the_wire() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::os();
    let store = DiskStore::create(env.disk.clone(), &dir.path().join("data"), identity(), Default::default()).unwrap();
    let server = DataServer::start(env.clone(), Arc::new(store), identity(), quiet());
    let at = Address::Unix(dir.path().join("socket"));
    let listener = env.transport.listen(&at).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let service = Arc::new(DataNodeService(server.clone()));
    let stats = WireStats::new(DataRequest::NAMES);
    let near = endpoint(Role::Data, 3, server.incarnation());
    let serving = tokio::spawn(serve(near, listener, service, stats.clone(), async move {
        let _ = stopped.await;
    }));
    let remote = Remote::new(&endpoint(Role::Client, 0, 0), Role::Data, ServerId(3), DataRequest::NAMES, vec![at]);
    let node = Arc::new(RemoteDataNode(remote));

    let large = Bytes::from(vec![7; 300 << 10]);
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..200u64 {
        let (node, bytes) = (node.clone(), if n % 10 == 0 { large.clone() } else { Bytes::from(vec![n as u8; 5000]) });
        calls.spawn(async move { node.call(cx(), write_of(1 + n, 0), bytes).await.unwrap().0.sequence });
    }
    assert_eq!(calls.join_all().await.len(), 200);
    assert_eq!(read(&*node, 1, 0, 300 << 10).await.unwrap(), large);
    assert_eq!(read(&*node, 2, 4990, 20).await.unwrap(), [[1; 10], [0; 10]].concat()[..]);
    let error = read(&*node, 999, 0, 1).await.unwrap_err();
    assert_eq!(error.code, Code::ChunkUnknown);
    assert!(error.to_string().contains("data server 3, chunk 999"), "{error}");
    let answer = ask(&*node, SyncChunks::of((1..=200).map(ChunkId).collect())).await.unwrap();
    assert_eq!(answer.stable, server.store().write_seq());
    let inline = stats.snapshot().inline;
    read(&*node, 2, 0, 4096).await.unwrap();
    assert_eq!(stats.snapshot().inline, inline + 1, "a cached read is answered without a task");
    let _ = stop.send(());
    serving.await.unwrap();
    server.stop().await.unwrap();
}
