//! Where the sizes in `DataServerConfig` come from: `cargo test --release -p braid-data-server --test it speed --
//! --ignored --nocapture`.
#![allow(clippy::unwrap_used)]

use crate::support::*;
use braid_data_server::{DataServer, DataServerConfig};
use braid_data_store::DiskStore;
use braid_env::Env;
use std::sync::Arc;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, proves nothing"]
async fn on_the_callers_thread_or_handed_over() {
    let dir = tempfile::tempdir().unwrap();
    println!("microseconds a request, one after the other: on the caller's thread, handed to an I/O thread");
    println!("{:>8} {:>16} {:>16}", "bytes", "write", "read");
    for shift in [9, 12, 13, 14, 15, 16, 17, 18, 19] {
        let bytes = vec![7; 1 << shift];
        let mut took = Vec::new();
        for limit in [1 << 20, 0] {
            let env = Env::os();
            let path = dir.path().join(format!("{shift}-{limit}"));
            let store = DiskStore::create(env.disk.clone(), &path, identity(), Default::default()).unwrap();
            let config = DataServerConfig { inline_write_bytes: limit, inline_read_bytes: limit, ..quiet() };
            let server = DataServer::start(env, Arc::new(store), identity(), config);
            let places = CHUNK >> shift;
            let rounds = 20_000u64.min(4_000_000_000 >> shift >> 4);
            for n in 0..places {
                write(&*server, 1, n << shift, &bytes).await.unwrap();
            }
            read(&*server, 1, 0, 1).await.unwrap();
            let begun = Instant::now();
            for n in 0..rounds {
                write(&*server, 1, (n % places) << shift, &bytes).await.unwrap();
            }
            let written = begun.elapsed().as_secs_f64() * 1e6 / rounds as f64;
            let begun = Instant::now();
            for n in 0..rounds {
                read(&*server, 1, (n % places) << shift, 1 << shift).await.unwrap();
            }
            took.push((written, begun.elapsed().as_secs_f64() * 1e6 / rounds as f64));
        }
        let (inline, handed) = (took[0], took[1]);
        println!("{:>8} {:>7.1} {:>8.1} {:>7.1} {:>8.1}", 1 << shift, inline.0, handed.0, inline.1, handed.1);
    }
}
