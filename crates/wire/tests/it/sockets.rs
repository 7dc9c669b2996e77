//! The stubs over real sockets, with several threads.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what helps it")]

use crate::support::{CLUSTER, endpoint};
use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{Code, Context, DataNode, Error, Namespace, Result};
use braid_env::{Address, Env};
use braid_types::*;
use braid_wire::*;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

struct Names;

impl Namespace for Names {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        match request {
            MetaRequest::GetPlace(place) if place.id == InodeId::ROOT => {
                Ok(MetaAnswer::GetPlace(Place { parent: InodeId::ROOT, name: None }))
            }
            MetaRequest::GetPlace(place) => Err(Error::new(Code::NotFound, place.id, cx.token.session)),
            // The wrong kind of answer.
            _ => Ok(MetaAnswer::CloseSession(())),
        }
    }
}

struct Chunks;

impl DataNode for Chunks {
    async fn execute(&self, _: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        match request {
            DataRequest::WriteChunk(write) => {
                let version = Version { counter: payload.iter().map(|&b| u64::from(b)).sum(), ..Version::default() };
                let answer = WriteAnswer { version, incarnation: 1, sequence: write.offset, stable: 0 };
                Ok((DataAnswer::WriteChunk(answer), Bytes::new()))
            }
            DataRequest::ReadChunk(read) => {
                tokio::task::yield_now().await;
                let bytes = vec![read.offset as u8; read.len as usize];
                Ok((DataAnswer::ReadChunk(ReadAnswer { version: Version::default() }), bytes.into()))
            }
            _ => Err(Code::NotSupported.into()),
        }
    }
}

fn on(addresses: &[&str], test: impl AsyncFn(Env, Address)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for address in addresses {
        runtime.block_on(test(braid_env::os::env(), address.parse().unwrap()));
    }
}

fn both(test: impl AsyncFn(Env, Address)) {
    let dir = tempfile::tempdir().unwrap();
    on(&["tcp:127.0.0.1:0", &format!("unix:{}/socket", dir.path().display())], test);
}

async fn start<S: Service>(env: &Env, role: Role, at: &Address, service: S) -> Address {
    let listener = env.transport.listen(at).await.unwrap();
    let (local, stats) = (listener.local(), WireStats::new(S::NAMES));
    let server = endpoint(env, role, 2, Limits::default());
    env.spawn("server", serve(server, listener, Arc::new(service), stats, std::future::pending()));
    local
}

#[test]
fn a_namespace_far_away_answers_as_a_near_one() {
    both(async |env, at| {
        let local = start(&env, Role::Metadata, &at, NamespaceService(Arc::new(Names))).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let addresses = vec!["tcp:127.0.0.1:1".parse().unwrap(), local.clone()];
        let remote = Remote::new(&client, Role::Metadata, ServerId(2), MetaRequest::NAMES, addresses);
        let far = RemoteNamespace(remote.clone());
        let cx = Context { token: Token { session: SessionId(4), ..Token::default() }, ..Context::default() };
        assert_eq!(far.call(cx, GetPlace { id: InodeId::ROOT }).await.unwrap().parent, InodeId::ROOT);
        let error = far.call(cx, GetPlace { id: InodeId(9) }).await.unwrap_err();
        assert_eq!(error, Error::new(Code::NotFound, 9, 4));
        assert_eq!(far.call(cx, GetServers {}).await.unwrap_err().code, Code::BadMessage);
        let garbage = remote.call(cx, &Raw(&[0xff; 20]), Bytes::new()).await.unwrap_err();
        assert_eq!(garbage.code, Code::BadMessage);
        assert_eq!(remote.stats().sent["GetPlace"], 2);
        assert_eq!(remote.peer().unwrap().cluster, CLUSTER);
    });
}

/// A peer that is not ours, or is damaged, may put any bytes where a name belongs.
#[test]
fn a_name_that_cannot_be_spoils_one_message() {
    both(async |env, at| {
        let local = start(&env, Role::Metadata, &at, NamespaceService(Arc::new(Names))).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = Remote::new(&client, Role::Metadata, ServerId(2), MetaRequest::NAMES, vec![local]);
        let lookup = |name: &[u8]| {
            let good = MetaRequest::Lookup(Lookup { parent: InodeId::ROOT, name: Name::new(b"NAME").unwrap() });
            let body = good.write(Vec::new()).unwrap();
            let from = body.windows(4).position(|bytes| bytes == b"NAME").unwrap();
            // The length stands before the bytes, as a varint.
            let mut length = vec![name.len() as u8];
            if name.len() > 127 {
                length = vec![name.len() as u8 | 0x80, (name.len() >> 7) as u8];
            }
            [&body[..from - 1], &length, name, &body[from + 4..]].concat()
        };
        for name in [&b"a/b"[..], b"a\0b", b"", b"..", &[b'x'; 256]] {
            let error = remote.call(Context::default(), &Raw(&lookup(name)), Bytes::new()).await.unwrap_err();
            assert_eq!(error.code, Code::BadMessage, "{error}");
        }
        // The server takes what is right, over the same connection.
        assert!(remote.call(Context::default(), &Raw(&lookup(b"right")), Bytes::new()).await.is_ok());
        assert_eq!(remote.stats().connects, 1);
    });
}

#[test]
fn bulk_bytes_arrive_whole_from_many_tasks() {
    both(async |env, at| {
        let local = start(&env, Role::Data, &at, DataNodeService(Arc::new(Chunks))).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = Remote::new(&client, Role::Data, ServerId(2), DataRequest::NAMES, vec![local]);
        let tasks: Vec<_> = (0..8u64)
            .map(|task| {
                let far = RemoteDataNode(remote.clone());
                tokio::spawn(async move {
                    for round in 0..20 {
                        let len = [10, 5_000, 300_000, 1 << 20][(task + round) as usize % 4];
                        let (chunk, container) = (ChunkId(task), ContainerId(1));
                        let (index, inode) = (ChunkIndex(0), InodeId(1));
                        let (cuts, chunk_bytes, sync, make) = (Vec::new(), CHUNK_BYTES_DEFAULT, false, Make::Yes);
                        let write = WriteChunk {
                            chunk,
                            container,
                            offset: round,
                            chunk_bytes,
                            inode,
                            index,
                            cuts,
                            sync,
                            make,
                            kept_beside: false,
                            alone: false,
                            once: None,
                        };
                        let bytes = Bytes::from(vec![task as u8 + 1; len]);
                        let (answer, _) = far.call(Context::default(), write, bytes).await.unwrap();
                        assert_eq!((answer.version.counter, answer.sequence), ((task + 1) * len as u64, round));
                        let cuts = Vec::new();
                        let read = ReadChunk {
                            chunk,
                            container,
                            offset: task,
                            len: len as u32,
                            cuts,
                            kept_beside: false,
                            ordered: false,
                            hold: None,
                        };
                        let (_, bytes) = far.call(Context::default(), read, Bytes::new()).await.unwrap();
                        assert!(bytes.len() == len && bytes.iter().all(|&b| b == task as u8));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(remote.stats().connects, 1);
        assert_eq!((remote.stats().sent["WriteChunk"], remote.stats().received["ReadChunk"]), (160, 160));
    });
}

#[test]
fn a_server_that_restarts_under_load_fails_no_call() {
    both(async |env, at| {
        let service = Arc::new(DataNodeService(Arc::new(Chunks)));
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = Remote::new(&client, Role::Data, ServerId(2), DataRequest::NAMES, vec![]);
        let done = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let (far, done) = (RemoteDataNode(remote.clone()), done.clone());
                tokio::spawn(async move {
                    let mut calls = 0;
                    while !done.load(SeqCst) {
                        let (chunk, container) = (ChunkId(1), ContainerId(1));
                        let read = ReadChunk {
                            chunk,
                            container,
                            offset: 7,
                            len: 10_000,
                            cuts: Vec::new(),
                            kept_beside: false,
                            ordered: false,
                            hold: None,
                        };
                        let (_, bytes) = far.call(Context::default(), read, Bytes::new()).await.unwrap();
                        assert_eq!(bytes, [7; 10_000][..]);
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        for _ in 0..5 {
            // With TCP it is another port each time.
            let listener = env.transport.listen(&at).await.unwrap();
            remote.set_addresses(vec![listener.local()]);
            let server = endpoint(&env, Role::Data, 2, Limits::default());
            let up = env.sleep(Duration::from_millis(60));
            serve(server, listener, service.clone(), WireStats::new(DataRequest::NAMES), up).await;
        }
        let listener = env.transport.listen(&at).await.unwrap();
        remote.set_addresses(vec![listener.local()]);
        done.store(true, SeqCst);
        let server = endpoint(&env, Role::Data, 2, Limits::default());
        let all = async {
            for caller in callers {
                assert!(caller.await.unwrap() > 0);
            }
        };
        serve(server, listener, service, WireStats::new(DataRequest::NAMES), all).await;
        assert!(remote.stats().connects >= 2, "{:?}", remote.stats());
    });
}
