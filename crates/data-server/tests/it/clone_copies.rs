//! Chunks with copies that begin as others are: every member has them, and hardly a byte was sent.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::*;
use crate::support::{code, cx, cx_of};
use braid_api::data::*;
use braid_api::{Code, Context, DataNode};
use braid_env::{Disk, Random};
use braid_types::*;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const FROM: u64 = 5;
const TO: u64 = 6;
const MIB: usize = 1 << 20;
/// Of the chunk that is made from: five extents, and a part of a block.
const LEN: usize = 5 * MIB + 1_000;

fn clone_of(from: u64, chunk: u64) -> CloneCopies {
    let clone = CloneChunk {
        chunk: ChunkId(chunk),
        from: ChunkId(from),
        container: C,
        chunk_bytes: CHUNK_BYTES,
        inode: InodeId(chunk << 12),
        index: ChunkIndex(0),
        cuts: Vec::new(),
    };
    CloneCopies { clone, durability: Durability::Fsync }
}

/// With a hole in it.
fn content() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..LEN).map(|at| (at / 4096) as u8 | 1).collect();
    bytes[2 * MIB + 8192..2 * MIB + 40_960].fill(0);
    bytes
}

async fn with_base(cluster: &Arc<Cluster>) -> Client {
    let mut client = Client::new(cluster);
    let bytes = Bytes::from(content());
    for at in (0..LEN).step_by(MIB) {
        client.write(FROM, at as u64, bytes.slice(at..LEN.min(at + MIB))).await;
    }
    let punch = PunchCopies {
        chunk: ChunkId(FROM),
        container: C,
        range: ByteRange::new(2 * MIB as u64 + 8192, 2 * MIB as u64 + 40_960),
        cuts: Vec::new(),
        held: Held::Exclusive,
        durability: Durability::Fsync,
    };
    client.ask(punch, Bytes::new()).await.unwrap();
    client.ask(wait_of(FROM, WaitFor::Settle), Bytes::new()).await.unwrap();
    client
}

async fn at_all(cluster: &Cluster, client: &Client, chunk: u64, expected: &[u8]) {
    cluster.settled(chunk).await;
    let members = cluster.row.lock().members().to_vec();
    assert_eq!(members.len(), 3);
    for member in members {
        let read = client.read_at(member.0, chunk, 0, 6 * MIB as u32).await.unwrap();
        assert!(read[..LEN] == *expected && read[LEN..].iter().all(|byte| *byte == 0), "chunk {chunk} at {member}");
    }
}

fn sent(cluster: &Cluster) -> u64 {
    cluster.content_bytes.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_at_every_member_and_no_byte_of_it_was_sent() {
    let cluster = Cluster::new(80, 3, 3, 2);
    let mut client = with_base(&cluster).await;
    let before = content();
    at_all(&cluster, &client, FROM, &before).await;
    let (bytes, begun) = (sent(&cluster), tokio::time::Instant::now());
    let made = client.ask(clone_of(FROM, TO), Bytes::new()).await.unwrap().0;
    assert!(made.kept >= made.version && begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    assert!(cluster.copy(2, TO).await.unwrap().told >= made.version);
    at_all(&cluster, &client, TO, &before).await;
    assert_eq!(sent(&cluster), bytes);
    let stat = StatCopy {
        chunk: ChunkId(TO),
        container: C,
        extents_in: ByteRange::new(0, 3 << 20),
        cuts: Vec::new(),
        at_least: made.version,
    };
    let stat = client.ask(stat, Bytes::new()).await.unwrap().0;
    assert_eq!((stat.len, stat.inode), (LEN as u64, InodeId(TO << 12)));
    assert_eq!(stat.extents[0], ByteRange::new(0, 2 * MIB as u64 + 8192));

    // What is written to it goes as ever, alone, and nothing to the other.
    client.write(TO, 4_000, Bytes::from_static(&[0; 200])).await;
    client.fsync(TO).await;
    let mut after = before.clone();
    after[4_000..4_200].fill(0);
    at_all(&cluster, &client, TO, &after).await;
    at_all(&cluster, &client, FROM, &before).await;
    assert!(sent(&cluster) - bytes <= 4 * 8192, "two blocks to two members: {}", sent(&cluster) - bytes);
    let again = client.ask(clone_of(FROM, TO), Bytes::new()).await.unwrap().0;
    assert!(again.kept >= made.version);
    at_all(&cluster, &client, TO, &after).await;

    // A clone of the clone, and the first one goes.
    client.ask(wait_of(TO, WaitFor::Settle), Bytes::new()).await.unwrap();
    client.ask(clone_of(TO, 7), Bytes::new()).await.unwrap();
    for chunk in [FROM, TO] {
        for id in 1..=3 {
            let delete = DeleteChunks { chunks: vec![ChunkId(chunk)] };
            cluster.server(id).unwrap().call(Context::default(), delete, Bytes::new()).await.unwrap();
        }
        at_all(&cluster, &client, 7, &after).await;
    }
    let refused = cluster.server(1).unwrap().call(cx_of_epoch(&cluster), clone_of(FROM, 8), Bytes::new()).await;
    assert_eq!(code(refused), Code::ChunkUnknown);
}

fn cx_of_epoch(cluster: &Cluster) -> Context {
    let cx = cx();
    Context { token: Token { chain_epoch: cluster.row.lock().epoch(), ..cx.token }, ..cx }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_have_the_other_chunk_yet_gets_bytes() {
    let cluster = Cluster::new(81, 3, 3, 2);
    cluster.link_bytes_per_s.store(4 << 20, SeqCst);
    let client = with_base(&cluster).await;
    let lacking = cluster.copy(3, FROM).await.unwrap();
    assert!(lacking.invalid_blocks > 0, "{lacking:?}");
    let bytes = sent(&cluster);
    client.ask(clone_of(FROM, TO), Bytes::new()).await.unwrap();
    at_all(&cluster, &client, TO, &content()).await;
    assert!(sent(&cluster) > bytes + LEN as u64 / 2);
    at_all(&cluster, &client, FROM, &content()).await;
}

#[tokio::test(start_paused = true)]
async fn members_that_were_away_or_lost_their_power_have_it_too() {
    for seed in 82..88 {
        let cluster = Cluster::new(seed, 3, 3, 2);
        let mut client = with_base(&cluster).await;
        cluster.settled(FROM).await;
        let away = 1 + seed % 3;
        // Away while it is made, or lost at once afterwards.
        if seed < 85 {
            cluster.kill(away, Some(seed));
        }
        client.ask(clone_of(FROM, TO), Bytes::new()).await.unwrap();
        if seed >= 85 {
            cluster.kill(away, Some(seed));
        }
        client.write(TO, 100, Bytes::from_static(b"after")).await;
        client.fsync(TO).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        cluster.start(away);
        let mut after = content();
        after[100..105].copy_from_slice(b"after");
        at_all(&cluster, &client, TO, &after).await;
        at_all(&cluster, &client, FROM, &content()).await;
        // In the new epoch it is made from again.
        client.ask(clone_of(FROM, 7), Bytes::new()).await.unwrap();
        at_all(&cluster, &client, 7, &content()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_without_room_is_refused_at_once() {
    let cluster = Cluster::new(90, 3, 3, 2);
    let client = with_base(&cluster).await;
    cluster.settled(FROM).await;
    {
        let machines = cluster.machines.lock();
        let disk = &machines[0].world.disk;
        disk.set_capacity(Some(1 << 40));
        let space = disk.space(Path::new("/store")).unwrap();
        disk.set_capacity(Some(space.total - space.free + (2 << 20)));
    }
    let owner = cluster.server(1).unwrap();
    owner.call(Context::default(), GetDataStatus {}, Bytes::new()).await.unwrap();
    let refused = owner.call(cx_of_epoch(&cluster), clone_of(FROM, TO), Bytes::new()).await;
    assert_eq!(code(refused), Code::DiskFull);
    assert!(cluster.copy(1, TO).await.is_none());
    cluster.machines.lock()[0].world.disk.set_capacity(None);
    owner.call(Context::default(), GetDataStatus {}, Bytes::new()).await.unwrap();
    client.ask(clone_of(FROM, TO), Bytes::new()).await.unwrap();
    at_all(&cluster, &client, TO, &content()).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_cut_since_is_in_no_copy_and_a_snapshot_reads_it_still() {
    let cluster = Cluster::new(91, 3, 3, 2);
    let mut client = with_base(&cluster).await;
    (client.trunc_gen, client.cuts) = (2, vec![(TruncGen(2), 3 * MIB as u64 + 100)]);
    let message = clone_of(FROM, TO);
    let message = CloneCopies { clone: CloneChunk { cuts: client.cuts.clone(), ..message.clone }, ..message };
    client.ask(message, Bytes::new()).await.unwrap();
    let mut after = content();
    after[3 * MIB + 100..].fill(0);
    at_all(&cluster, &client, TO, &after).await;
    client.write(TO, 4 * MIB as u64, Bytes::from_static(b"x")).await;
    client.fsync(TO).await;
    after[4 * MIB] = b'x';
    at_all(&cluster, &client, TO, &after).await;

    let of_snapshot = |trunc_gen| {
        let cx = cx_of(1, 1, trunc_gen);
        Context { token: Token { snapshot: 3, ..cx.token }, ..cx }
    };
    for id in 1..=3 {
        let server = cluster.server(id).unwrap();
        let read = server.call(of_snapshot(1), read_of(TO, 0, 10), Bytes::new()).await.unwrap().1;
        assert!(read[..] == after[..10]);
        assert_eq!(code(server.call(cx_of(1, 1, 1), read_of(TO, 0, 10), Bytes::new()).await), Code::StaleTruncGen);
        let written = server.call(of_snapshot(2), write_of(TO, 0), Bytes::from_static(b"x")).await;
        assert_eq!(code(written), Code::ReadOnly);
    }
}

/// What is said to be the same and what is sent travel apart, and the other chunk may go while the last member still reads it.
#[tokio::test(start_paused = true)]
async fn what_is_written_right_behind_a_clone_is_in_every_copy() {
    for seed in 200..212 {
        let cluster = Cluster::new(seed, 3, 3, 2);
        let mut client = with_base(&cluster).await;
        if seed % 2 == 0 {
            cluster.settled(FROM).await;
        }
        let (mut from, mut expected) = (FROM, content());
        for chunk in 10..14 {
            client.ask(clone_of(from, chunk), Bytes::new()).await.unwrap();
            for n in 0..12u8 {
                let at = cluster.random.below(LEN as u64 - 9_000) as usize;
                let bytes = vec![n; 1 + cluster.random.below(8_999) as usize];
                expected[at..at + bytes.len()].copy_from_slice(&bytes);
                client.write(chunk, at as u64, bytes.into()).await;
            }
            if cluster.random.below(2) == 0 {
                for id in 1..=3 {
                    let delete = DeleteChunks { chunks: vec![ChunkId(from)] };
                    cluster.server(id).unwrap().call(Context::default(), delete, Bytes::new()).await.unwrap();
                }
            }
            client.fsync(chunk).await;
            if cluster.random.below(2) == 0 {
                cluster.settled(chunk).await;
            }
            client.ask(wait_of(chunk, WaitFor::Settle), Bytes::new()).await.unwrap();
            from = chunk;
        }
        at_all(&cluster, &client, from, &expected).await;
    }
}
