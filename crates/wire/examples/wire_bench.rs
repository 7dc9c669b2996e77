//! How fast the wire is on this machine: small calls and bulk payloads over TCP and Unix sockets, client and
//! server in one process on the same cores, as in measurements of other transports.
//!
//! `cargo run --release -p braid-wire --example wire_bench [seconds a cell]`

use braid_api::{Context, Result};
use braid_env::{Address, Env};
use braid_types::{ClusterId, ServerId};
use braid_wire::*;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const NAMES: &[&str] = &["Echo", "Sink", "Source", "Later"];

struct Bench(Bytes);

impl Service for Bench {
    const NAMES: &'static [&'static str] = NAMES;

    async fn handle(self: Arc<Self>, _: Arc<PeerInfo>, request: Request) -> Result<Reply> {
        match request.body.first() {
            Some(0) => Ok(Reply::raw(&request.body, Bytes::new())),
            Some(2) => Ok(Reply::raw(&[2], self.0.clone())),
            Some(3) => {
                tokio::task::yield_now().await;
                Ok(Reply::raw(&request.body, Bytes::new()))
            }
            _ => Ok(Reply::raw(&[1], Bytes::new())),
        }
    }
}

struct Cell {
    name: &'static str,
    connections: usize,
    in_flight: usize,
    body: Vec<u8>,
    payload: Bytes,
}

fn endpoint(env: &Env, role: Role) -> Endpoint {
    let identity = Identity { role, cluster: ClusterId([1; 16]), server: ServerId(0), incarnation: 1 };
    Endpoint::new(env.clone(), identity, Limits::default())
}

async fn run(env: &Env, at: &Address, cell: &Cell, seconds: f64) -> (f64, f64) {
    let stop = Arc::new(AtomicBool::new(false));
    let (calls, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let client = endpoint(env, Role::Client);
    let mut tasks = Vec::new();
    for _ in 0..cell.connections {
        let remote = Remote::new(&client, Role::Data, ServerId(0), NAMES, vec![at.clone()]);
        for _ in 0..cell.in_flight {
            let (remote, stop, calls, bytes) = (remote.clone(), stop.clone(), calls.clone(), bytes.clone());
            let (body, payload) = (cell.body.clone(), cell.payload.clone());
            tasks.push(tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    let answer = remote.call(Context::default(), &Raw(&body), payload.clone()).await;
                    let (_, answered) = answer.expect("the server answers");
                    calls.fetch_add(1, Relaxed);
                    bytes.fetch_add((payload.len() + answered.len()) as u64, Relaxed);
                }
            }));
        }
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (from, began) = ((calls.load(Relaxed), bytes.load(Relaxed)), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let (to, took) = ((calls.load(Relaxed), bytes.load(Relaxed)), began.elapsed().as_secs_f64());
    stop.store(true, Relaxed);
    for task in tasks {
        task.await.expect("no call fails");
    }
    ((to.0 - from.0) as f64 / took, (to.1 - from.1) as f64 / took / 1e9)
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let env = braid_env::os::env();
        let dir = tempfile::tempdir().expect("a directory");
        let small = |number: u8| [&[number][..], &[7; 99]].concat();
        let mib = Bytes::from(vec![5u8; 1 << 20]);
        let none = Bytes::new;
        #[rustfmt::skip]
        let cells = [
            Cell { name: "100 B, 1 x 1", connections: 1, in_flight: 1, body: small(0), payload: none() },
            Cell { name: "100 B, 1 x 32", connections: 1, in_flight: 32, body: small(0), payload: none() },
            Cell { name: "100 B, 8 x 4", connections: 8, in_flight: 4, body: small(0), payload: none() },
            Cell { name: "100 B, 1 x 32, task a request", connections: 1, in_flight: 32, body: small(3), payload: none() },
            Cell { name: "1 MiB to the server, 1 x 1", connections: 1, in_flight: 1, body: vec![1], payload: mib.clone() },
            Cell { name: "1 MiB to the server, 1 x 4", connections: 1, in_flight: 4, body: vec![1], payload: mib.clone() },
            Cell { name: "1 MiB from the server, 1 x 1", connections: 1, in_flight: 1, body: vec![2], payload: none() },
            Cell { name: "1 MiB from the server, 1 x 4", connections: 1, in_flight: 4, body: vec![2], payload: none() },
        ];
        for at in [Address::Tcp("127.0.0.1:0".into()), Address::Unix(dir.path().join("wire"))] {
            let listener = env.transport.listen(&at).await.expect("to listen");
            let local = listener.local();
            let (service, stats) = (Arc::new(Bench(mib.clone())), WireStats::new(NAMES));
            tokio::spawn(serve(endpoint(&env, Role::Data), listener, service, stats, std::future::pending()));
            for cell in &cells {
                let (calls, gigabytes) = run(&env, &local, cell, seconds).await;
                let kind = if matches!(at, Address::Unix(_)) { "unix" } else { "tcp" };
                println!("{kind:5} {:32} {calls:>10.0} calls/s {gigabytes:>7.2} GB/s", cell.name);
            }
        }
    });
}
