//! `cargo run -p braid-data-server --example reports [CHUNKS]`: a full report of a data server by hashes against a list of every id. A real store
//! in a directory of its own, bytes as the wire has them, without frames.

use braid_api::data::{GetReport, ListChunks};
use braid_api::{Context, DataNode};
use braid_data_server::{DataServer, DataServerConfig};
use braid_data_store::{ChunkStore, DiskStore, StoreIdentity, StoreOptions};
use braid_env::Env;
use braid_report::{Compared, Expected, Mixer, Named, View};
use braid_types::*;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIXER: Mixer = Mixer { key: 4711 };

type Server = Arc<DataServer>;
type Rows = Vec<(ContainerId, ChunkId)>;

struct Spent {
    bytes: usize,
    questions: usize,
    time: Duration,
}

async fn ask(server: &Server, ask: &ReportAsk, spent: &mut Spent) -> Result<ReportPart, String> {
    let cx = Context { deadline: Duration::from_secs(600), ..Context::default() };
    let message = GetReport { key: MIXER.key, ask: ask.clone() };
    spent.bytes += postcard::to_allocvec(&message).map_err(|e| e.to_string())?.len();
    let (part, _) = server.call(cx, message, Bytes::new()).await.map_err(|e| e.to_string())?;
    spent.bytes += postcard::to_allocvec(&part).map_err(|e| e.to_string())?.len();
    spent.questions += 1;
    Ok(part)
}

fn view(rows: &Rows, wanted: BTreeSet<ContainerId>) -> View {
    let mut view = View::new(MIXER, wanted, BTreeSet::new());
    for (container, chunk) in rows {
        let named = Named { inode: InodeId(chunk.0), index: ChunkIndex(0), stable: true };
        view.names(*container, *chunk, named);
    }
    view
}

/// As the metadata server does it.
async fn by_hash(server: &Server, rows: &Rows) -> Result<(Compared, Spent), String> {
    let strange = |_| "a strange answer".to_owned();
    let begun = Instant::now();
    let mut spent = Spent { bytes: 0, questions: 0, time: Duration::ZERO };
    let all = ask(server, &ReportAsk::All, &mut spent).await?;
    let first = view(rows, BTreeSet::new());
    let expected = Expected::of(&first, MIXER, first.containers());
    let mut found = Compared::default();
    if !expected.fits(&all).map_err(strange)? {
        let part = ask(server, &expected.ask_shelves(), &mut spent).await?;
        let shelves = expected.shelves(&part).map_err(strange)?;
        let part = ask(server, &expected.ask_containers(&shelves), &mut spent).await?;
        let differ = expected.containers(&shelves, &part).map_err(strange)?;
        let second = view(rows, differ.iter().map(|(id, _)| *id).collect());
        for some in differ.chunks(64) {
            let buckets = Expected::ask_buckets(some);
            let part = ask(server, &buckets, &mut spent).await?;
            let ids = Expected::ask_ids(&second, MIXER, &buckets, &part).map_err(strange)?;
            let part = ask(server, &ids, &mut spent).await?;
            let compared = Expected::compare(&second, MIXER, &ids, &part).map_err(strange)?;
            found.lost.extend(compared.lost);
            found.extra.extend(compared.extra);
        }
    }
    spent.time = begun.elapsed();
    Ok((found, spent))
}

/// Every id, as fsck asks for them: with what each chunk is. And what the ids alone would take.
async fn by_list(server: &Server) -> Result<(usize, Spent), String> {
    let begun = Instant::now();
    let mut spent = Spent { bytes: 0, questions: 0, time: Duration::ZERO };
    let (mut after, mut count) = (ChunkId(0), 0);
    loop {
        let cx = Context { deadline: Duration::from_secs(600), ..Context::default() };
        let (page, _) =
            server.call(cx, ListChunks { after, limit: 1024 }, Bytes::new()).await.map_err(|e| e.to_string())?;
        spent.bytes += postcard::to_allocvec(&page).map_err(|e| e.to_string())?.len();
        spent.questions += 1;
        count += page.chunks.len();
        match page.last() {
            Some(last) if page.more => after = last,
            _ => break,
        }
    }
    spent.time = begun.elapsed();
    Ok((count, spent))
}

fn say(what: &str, found: &str, spent: &Spent) {
    println!("| {what} | {found} | {} | {} | {:.3} s |", spent.questions, spent.bytes, spent.time.as_secs_f64());
}

#[tokio::main]
async fn main() -> Result<(), String> {
    let chunks: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    for a_container in [256, 8] {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let env = Env::os();
        let identity = StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(1) };
        let at = dir.path().join("store");
        let made = DiskStore::create(env.disk.clone(), &at, identity, StoreOptions::default());
        let store = Arc::new(made.map_err(|e| e.to_string())?);
        let rows: Rows = (0..chunks).map(|i| (ContainerId(1 + i / a_container), ChunkId(1 + i))).collect();
        for (container, chunk) in &rows {
            store.create(*chunk, *container, 64 << 20).map_err(|e| e.to_string())?;
        }
        let config =
            DataServerConfig { sync_every: Duration::ZERO, scrub_bytes_per_s: 0, ..DataServerConfig::default() };
        let server = DataServer::start(env, store.clone(), identity, config);
        println!(
            "\n{chunks} chunks, {a_container} a container\n\n| | found | questions | bytes | time |\n| --- | --- | ---: | ---: | ---: |"
        );
        let shown = |found: &Compared| format!("{} lost, {} extra", found.lost.len(), found.extra.len());
        let (found, spent) = by_hash(&server, &rows).await?;
        say("the first after a start, equal", &shown(&found), &spent);
        let (found, spent) = by_hash(&server, &rows).await?;
        say("equal", &shown(&found), &spent);
        store.delete(&[ChunkId(chunks / 2)]).map_err(|e| e.to_string())?;
        let (found, spent) = by_hash(&server, &rows).await?;
        say("1 differs", &shown(&found), &spent);
        let others: Vec<ChunkId> = (1..100).map(|i| ChunkId(i * (chunks / 100) + 1)).collect();
        store.delete(&others).map_err(|e| e.to_string())?;
        let (found, spent) = by_hash(&server, &rows).await?;
        say("100 differ", &shown(&found), &spent);
        let (count, spent) = by_list(&server).await?;
        say("every chunk listed (ListChunks)", &format!("{count} chunks"), &spent);
        let ids: Vec<ChunkId> = store.list(ChunkId(0), usize::MAX);
        println!("| the ids alone, 8 bytes each | {} chunks | | {} | |", ids.len(), ids.len() * 8);
    }
    Ok(())
}
