//! Several data servers with copies of the same chunks, through the loss of any of them.
#![allow(clippy::unwrap_used)]

use crate::support::cluster::*;
use braid_api::data::*;
use braid_api::{Code, Context, DataNode};
use braid_env::Random;
use braid_types::*;
use bytes::Bytes;
use std::time::Duration;

const SOME: u64 = 5;

/// The members answer calls and nothing is being changed.
async fn ready(cluster: &Cluster) {
    while !cluster.is_settled() || cluster.server(1).is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn bytes(value: u8, len: usize) -> Bytes {
    Bytes::from(vec![value; len])
}

#[tokio::test(start_paused = true)]
async fn a_write_comes_to_every_copy_and_an_fsync_is_on_two_disks() {
    let cluster = Cluster::new(1, 3, 3, 2);
    let mut client = Client::new(&cluster);
    let written = client.write(SOME, 10, bytes(7, 10_000)).await;
    assert_eq!(written.version.chain_epoch, ChainEpoch(1));
    client.fsync(SOME).await;
    let mut stable = 0;
    for id in 1..=3 {
        stable += usize::from(cluster.copy(id, SOME).await.is_some_and(|copy| copy.stable >= written.version));
    }
    assert!(stable >= 2, "{stable} of 3 disks");
    cluster.settled(SOME).await;
    for id in 1..=3 {
        let read = client.read_at(id, SOME, 0, 12_000).await.unwrap();
        assert!(read[..10].iter().all(|b| *b == 0) && read[10..10_010].iter().all(|b| *b == 7));
        assert!(read[10_010..].iter().all(|b| *b == 0));
        let stat = StatCopy {
            chunk: ChunkId(SOME),
            container: C,
            extents_in: ByteRange::new(0, 1 << 20),
            cuts: Vec::new(),
            at_least: written.version,
        };
        let server = cluster.server(id).unwrap();
        let stat = server.call(crate::support::cx(), stat, Bytes::new()).await.unwrap().0;
        assert_eq!((stat.len, stat.inode), (10_010, InodeId(SOME << 12)), "its length is the owner's");
    }
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_write_waits_for_nobody_and_the_others_hear_of_it_soon() {
    let cluster = Cluster::new(2, 3, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 4096)).await;
    client.fsync(SOME).await;
    (2..=3).for_each(|id| cluster.cut_off(id, true));
    let begun = tokio::time::Instant::now();
    let written = client.write(SOME, 4096, bytes(2, 4096)).await;
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    assert!(written.kept < written.version, "only the owner has it: its client must keep it");
    (2..=3).for_each(|id| cluster.cut_off(id, false));
    tokio::time::sleep(Duration::from_millis(700)).await;
    for id in 2..=3 {
        assert!(cluster.copy(id, SOME).await.unwrap().complete >= written.version, "data server {id}");
    }
}

#[tokio::test(start_paused = true)]
async fn under_a_shared_lease_no_copy_serves_what_was_before_an_answered_write() {
    let cluster = Cluster::new(3, 3, 3, 2);
    ready(&cluster).await;
    let client = Client::new(&cluster);
    let owner = cluster.server(1).unwrap();
    for n in 1..60u8 {
        let message = shared_write_of(SOME, 0);
        let written = owner.call(crate::support::cx(), message, bytes(n, 8192)).await.unwrap().0;
        let mut served = 0;
        for id in 1..=3 {
            match client.read_at(id, SOME, 0, 8192).await {
                Ok(read) => {
                    assert!(read.iter().all(|b| *b == n), "data server {id} serves {} after {n}", read[0]);
                    served += 1;
                }
                Err(error) => assert_eq!(error.code, Code::NotOwner, "{error}"),
            }
        }
        assert!(served >= 2 && written.kept >= written.version, "two have it: {served}");
    }
}

/// Announcements and content travel apart and overtake each other: neither waits for the repetition, which comes after 300 ms.
#[tokio::test(start_paused = true)]
async fn no_write_waits_because_messages_between_servers_overtake_each_other() {
    for seed in 60..68 {
        let cluster = Cluster::new(seed, 3, 3, 2);
        ready(&cluster).await;
        let owner = cluster.server(1).unwrap();
        for step in 0..40u64 {
            let begun = tokio::time::Instant::now();
            let write = |at: u64| {
                let (owner, message) = (owner.clone(), shared_write_of(SOME, at));
                tokio::spawn(async move { owner.call(crate::support::cx(), message, bytes(step as u8, 4096)).await })
            };
            let writes: Vec<_> = (0..8).map(|n| write((step * 7919 + n * 13) % 500 * 4096)).collect();
            for written in writes {
                written.await.unwrap().unwrap();
            }
            let took = begun.elapsed();
            assert!(took < Duration::from_millis(100), "seed {seed}, step {step}: {took:?}");
        }
    }
}

/// The heart of it: whichever server loses its power, what fsync answered for is there, on the servers that are left
/// and, when it is back, on that one too, which copies no more than what changed.
#[tokio::test(start_paused = true)]
async fn what_an_fsync_answered_for_survives_the_power_of_any_server() {
    for (seed, lost) in (10..16).flat_map(|seed| (1..=3).map(move |lost| (seed, lost))) {
        let cluster = Cluster::new(seed, 3, 3, 2);
        ready(&cluster).await;
        let mut client = Client::new(&cluster);
        for part in 0..5 {
            client.write(SOME, part << 20, bytes(1, 1 << 20)).await;
        }
        client.fsync(SOME).await;
        cluster.settled(SOME).await;
        // A moment of rest, after which the activity log is empty.
        tokio::time::sleep(Duration::from_secs(5)).await;
        client.write(SOME, 100_000, bytes(2, 50_000)).await;
        client.fsync(SOME).await;
        cluster.kill(lost, Some(seed));
        let mut expected = vec![1; 5 << 20];
        expected[100_000..150_000].fill(2);
        // A client that knows nothing: all it has is on the servers.
        let reader = Client::new(&cluster);
        let len = expected.len() as u32;
        assert!(reader.read(SOME, 0, len).await.unwrap() == expected, "seed {seed}, {lost} was lost");
        tokio::time::sleep(Duration::from_secs(15)).await;
        let before = cluster.content_bytes.load(std::sync::atomic::Ordering::SeqCst);
        cluster.start(lost);
        cluster.settled(SOME).await;
        let copied = cluster.content_bytes.load(std::sync::atomic::Ordering::SeqCst) - before;
        // The log has extents of 1 MiB; each member may take one from the owner.
        assert!(copied <= 3 << 20, "seed {seed}, {lost}: {copied} bytes were copied for 50,000 that changed");
        for id in 1..=3 {
            let found = reader.read_at(id, SOME, 0, len).await.unwrap();
            assert!(found == expected, "seed {seed}, {lost} was lost: data server {id} differs");
        }
    }
}

/// A link slower than its writer: what is asked for again because it has not come yet is not sent again.
#[tokio::test(start_paused = true)]
async fn over_a_slow_link_each_byte_goes_once_to_each_copy() {
    for seed in 30..34 {
        let cluster = Cluster::new(seed, 3, 3, 2);
        ready(&cluster).await;
        let mut client = Client::new(&cluster);
        // Each copy of 8 MiB takes 1 s, one after the other: many times what a member waits before it asks again (0.3 s).
        cluster.link_bytes_per_s.store(8 << 20, std::sync::atomic::Ordering::SeqCst);
        for part in 0..8 {
            client.write(SOME, part << 20, bytes(1, 1 << 20)).await;
        }
        client.fsync(SOME).await;
        cluster.settled(SOME).await;
        let copied = cluster.content_bytes.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(copied, 16 << 20, "seed {seed}: for two copies of 8 MiB");
    }
}

/// What `admin status` and a script that waits for full redundancy rest on.
#[tokio::test(start_paused = true)]
async fn copies_that_are_missing_are_counted_until_all_are_whole() {
    let cluster = Cluster::new(20, 3, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 4096)).await;
    client.fsync(SOME).await;
    let lacking = async |id: u64| {
        let server = cluster.server(id).unwrap();
        let status = server.call(crate::support::cx(), GetDataStatus {}, Bytes::new()).await.unwrap().0;
        (status.chunks_lacking, status.copies_lacking, status.bytes_lacking)
    };
    cluster.settled(SOME).await;
    assert_eq!((lacking(1).await, lacking(3).await), ((0, 0, 0), (0, 0, 0)));
    assert_eq!(cluster.live_copies(), (3, 3));
    cluster.kill(3, None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.live_copies(), (2, 3), "there is no third server");
    for part in 0..8 {
        client.write(SOME, part << 20, bytes(2, 1 << 20)).await;
    }
    client.fsync(SOME).await;
    cluster.start(3);
    // An epoch begins with members that have not said anything yet: they count as missing until they have.
    let (mut at_owner, mut at_member) = (false, 0);
    for _ in 0..20_000 {
        for id in [1, 2] {
            let (chunks, copies, _) = lacking(id).await;
            at_owner |= (chunks, copies) == (1, 1);
        }
        at_member = at_member.max(lacking(3).await.2);
        if at_owner && at_member > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(at_owner, "one copy of one chunk");
    assert!(at_member >= 4 << 20, "it is to get what was written while it was away: {at_member} bytes");
    cluster.settled(SOME).await;
    for id in 1..=3 {
        assert_eq!(lacking(id).await, (0, 0, 0), "data server {id}");
    }
    assert_eq!(cluster.live_copies(), (3, 3));
}

/// Every machine loses its power in the same moment. What was written after the fsync is old or new, and the same at all.
async fn all_at_once(seed: u64, skip_syncs: bool) -> Result<(), String> {
    let cluster = Cluster::new(seed, 3, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 200_000)).await;
    (0..3).for_each(|n| cluster.machines.lock()[n].world.disk.skip_syncs(skip_syncs));
    client.write(SOME, 50_000, bytes(2, 60_000)).await;
    client.fsync(SOME).await;
    let late = !seed.is_multiple_of(3);
    if late {
        client.write(SOME, 100_000, bytes(3, 40_000)).await;
        tokio::time::sleep(Duration::from_millis(cluster.random.below(900))).await;
    }
    (1..=3).for_each(|id| cluster.kill(id, Some(seed + id)));
    (0..3).for_each(|n| cluster.machines.lock()[n].world.disk.skip_syncs(false));
    (1..=3).for_each(|id| cluster.start(id));
    let reader = Client::new(&cluster);
    let found = reader.read(SOME, 0, 200_000).await.map_err(|e| e.to_string())?;
    for (at, byte) in found.iter().enumerate() {
        let synced = if (50_000..110_000).contains(&at) { 2 } else { 1 };
        let may_be_late = late && (100_000..140_000).contains(&at) && *byte == 3;
        if *byte != synced && !may_be_late {
            return Err(format!("seed {seed}: {byte} at {at}"));
        }
    }
    cluster.settled(SOME).await;
    for id in 1..=3 {
        if reader.read_at(id, SOME, 0, 200_000).await.unwrap() != found {
            return Err(format!("seed {seed}: data server {id} differs"));
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_an_fsync_answered_for_survives_the_power_of_all_servers_at_once() {
    for seed in 200..240 {
        all_at_once(seed, false).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn disks_that_lie_about_syncs_are_found() {
    for seed in 200..220 {
        if all_at_once(seed, true).await.is_err() {
            return;
        }
    }
    panic!("the test above would find no missing sync");
}

#[tokio::test(start_paused = true)]
async fn a_spare_takes_the_place_of_a_server_that_does_not_come_back() {
    let cluster = Cluster::new(20, 4, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(9, 500_000)).await;
    client.fsync(SOME).await;
    cluster.kill(1, Some(1));
    cluster.settled(SOME).await;
    assert!(cluster.row.lock().members().contains(&ServerId(4)));
    assert!(client.read_at(4, SOME, 0, 500_000).await.unwrap() == bytes(9, 500_000), "the newcomer has all of it");
    let epoch = cluster.row.lock().epoch();
    assert_eq!(epoch, cluster.copy(4, SOME).await.unwrap().epoch);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_cut_off_is_replaced_and_serves_nothing_old() {
    let cluster = Cluster::new(21, 4, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 9000)).await;
    client.fsync(SOME).await;
    cluster.settled(SOME).await;
    cluster.cut_off(3, true);
    // This one waits for every member, or for the epoch without it.
    let message = shared_write_of(SOME, 0);
    let mut answered = None;
    for _ in 0..200 {
        let owner = (1..=2).find_map(|id| cluster.server(id).filter(|_| !cluster.is_cut(id, 0)));
        match owner.unwrap().call(crate::support::cx(), message.clone(), bytes(2, 9000)).await {
            Ok((answer, _)) => {
                answered = Some(answer);
                break;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    assert!(answered.is_some());
    let old = client.read_at(3, SOME, 0, 9000).await;
    assert!(old.is_err(), "its lease is over: {:?}", old.map(|bytes| bytes[0]));
    cluster.settled(SOME).await;
    assert!(!cluster.row.lock().members().contains(&ServerId(3)));
    for id in [1, 2, 4] {
        assert!(client.read_at(id, SOME, 0, 9000).await.unwrap() == bytes(2, 9000), "data server {id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_answered_names_whom_it_waits_for() {
    let cluster = Cluster::new(22, 3, 3, 2);
    ready(&cluster).await;
    let owner = cluster.server(1).unwrap();
    owner.call(crate::support::cx(), write_of(SOME, 0), bytes(1, 100)).await.unwrap();
    // From each other, not from the leader: nothing is removed, because nobody could take their place in time.
    cluster.cut.lock().extend([(1, 2), (1, 3)]);
    let cx = Context { deadline: Duration::from_millis(1500), ..crate::support::cx() };
    let error = owner.call(cx, wait_of(SOME, WaitFor::Fsync), Bytes::new()).await.unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded);
    assert!(error.to_string().contains("1 of data servers 2, 3 to have them on stable storage"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_was_truncated_does_not_come_back_with_another_owner() {
    for seed in 30..40 {
        let cluster = Cluster::new(seed, 3, 3, 2);
        ready(&cluster).await;
        let mut client = Client::new(&cluster);
        client.write(SOME, 0, bytes(1, 40_000)).await;
        client.cut(SOME, 5_000).await;
        client.write(SOME, 30_000, bytes(2, 1_000)).await;
        client.fsync(SOME).await;
        cluster.kill(1, Some(seed));
        let mut expected = vec![0; 40_000];
        expected[..5_000].fill(1);
        expected[30_000..31_000].fill(2);
        assert!(client.read(SOME, 0, 40_000).await.unwrap() == expected, "seed {seed}");
        cluster.start(1);
        cluster.settled(SOME).await;
        for id in 1..=3 {
            assert!(client.read_at(id, SOME, 0, 40_000).await.unwrap() == expected, "seed {seed}, data server {id}");
        }
        let before = Client::new(&cluster).read_at(1, SOME, 0, 10).await.unwrap_err();
        assert!([Code::StaleTruncGen, Code::NotOwner].contains(&before.code), "{before}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_chunk_is_gone_everywhere_and_stays_so() {
    let cluster = Cluster::new(41, 3, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 40_000)).await;
    client.fsync(SOME).await;
    client.write(SOME, 0, bytes(2, 40_000)).await;
    for id in [2, 1, 3] {
        let server = cluster.server(id).unwrap();
        let delete = DeleteChunks { chunks: vec![ChunkId(SOME)] };
        server.call(Context::default(), delete, Bytes::new()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for id in 1..=3 {
        let server = cluster.server(id).unwrap();
        assert!(cluster.copy(id, SOME).await.is_none(), "data server {id} knows it again");
        let list = server.call(Context::default(), ListChunks { after: ChunkId(0), limit: 9 }, Bytes::new()).await;
        assert!(list.unwrap().0.chunks.is_empty(), "data server {id} has it again");
        let late = server.call(crate::support::cx(), write_of(SOME, 0), bytes(3, 10)).await.unwrap_err();
        assert_eq!(late.code, Code::ChunkUnknown);
    }
    cluster.kill(2, Some(3));
    cluster.start(2);
    cluster.kill(1, Some(4));
    cluster.start(1);
    let other = SOME + 1;
    client.write(other, 0, bytes(4, 10)).await;
    client.fsync(other).await;
    cluster.settled(other).await;
    assert!(cluster.copy(2, SOME).await.is_none());
    // Who asks how long it is, as a metadata server does for a lost client, does not bring it back: no server remembers any
    // more that it was deleted.
    Client::new(&cluster).fsync(SOME).await;
    for id in 1..=3 {
        assert!(cluster.copy(id, SOME).await.is_none(), "data server {id} knows it again");
    }
}

/// As `fsck` does with what a server has that was removed from the chain: when it is needed again, it takes part.
#[tokio::test(start_paused = true)]
async fn a_copy_that_was_deleted_as_a_stray_comes_back_with_its_server() {
    let cluster = Cluster::new(42, 4, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 40_000)).await;
    client.fsync(SOME).await;
    cluster.kill(1, Some(1));
    cluster.settled(SOME).await;
    cluster.start(1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!cluster.row.lock().members().contains(&ServerId(1)));
    let delete = DeleteChunks { chunks: vec![ChunkId(SOME)] };
    cluster.server(1).unwrap().call(Context::default(), delete, Bytes::new()).await.unwrap();
    cluster.kill(4, Some(2));
    cluster.settled(SOME).await;
    assert!(cluster.row.lock().members().contains(&ServerId(1)));
    assert!(client.read_at(1, SOME, 0, 40_000).await.unwrap() == bytes(1, 40_000));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_ends_its_servers_part_and_the_others_go_on() {
    let cluster = Cluster::new(50, 4, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 9000)).await;
    client.fsync(SOME).await;
    cluster.machines.lock()[0].world.disk.fail_next_sync(braid_env::simdisk::SyncFault::Error);
    client.write(SOME, 0, bytes(2, 9000)).await;
    client.fsync(SOME).await;
    cluster.settled(SOME).await;
    let refused =
        cluster.server(1).unwrap().call(crate::support::cx(), write_of(SOME, 0), bytes(3, 10)).await.unwrap_err();
    assert!([Code::NotServing, Code::StaleEpoch].contains(&refused.code), "{refused}");
    assert!(!cluster.row.lock().members().contains(&ServerId(1)));
    assert!(client.read(SOME, 0, 9000).await.unwrap() == bytes(2, 9000));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_finds_no_room_is_refused_and_the_copies_stay_equal() {
    let cluster = Cluster::new(51, 3, 3, 2);
    ready(&cluster).await;
    let mut client = Client::new(&cluster);
    client.write(SOME, 0, bytes(1, 9000)).await;
    client.fsync(SOME).await;
    cluster.machines.lock()[0].world.disk.set_capacity(Some(64 << 10));
    tokio::time::sleep(Duration::from_secs(6)).await;
    let owner = cluster.server(1).unwrap();
    let error = owner.call(crate::support::cx(), write_of(SOME, 0), bytes(2, 512 << 10)).await.unwrap_err();
    assert_eq!(error.code, Code::DiskFull, "{error}");
    cluster.machines.lock()[0].world.disk.set_capacity(None);
    client.write(SOME, 0, bytes(3, 5000)).await;
    client.fsync(SOME).await;
    cluster.settled(SOME).await;
    let first = client.read_at(1, SOME, 0, 600 << 10).await.unwrap();
    assert!(first[..5000].iter().all(|b| *b == 3) && first[5000..9000].iter().all(|b| *b == 1));
    for id in 2..=3 {
        assert!(client.read_at(id, SOME, 0, 600 << 10).await.unwrap() == first, "data server {id}");
    }
}

/// Random writes, holes, truncations and fsyncs while servers lose their power, are killed or cut off. The client never
/// dies, so that not a byte may be missing in the end.
#[tokio::test(start_paused = true)]
async fn a_client_that_lives_loses_nothing_through_many_faults() {
    let (mut take_overs, mut repeated) = (0, 0);
    let count = std::env::var("COPIES_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    for seed in 100..100 + count {
        let cluster = Cluster::new(seed, 4, 3, 2);
        let mut client = Client::new(&cluster);
        let mut model = vec![0u8; 300_000];
        for step in 0..60u64 {
            let at = cluster.random.below(280_000);
            match cluster.random.below(12) {
                0..7 => {
                    let len = 1 + cluster.random.below(20_000) as usize;
                    let len = len.min(model.len() - at as usize);
                    let value = 1 + step as u8;
                    model[at as usize..at as usize + len].fill(value);
                    client.write(SOME, at, bytes(value, len)).await;
                }
                7 => client.fsync(SOME).await,
                8 if step > 3 => {
                    model[at as usize..].fill(0);
                    client.cut(SOME, at).await;
                }
                9 | 10 => {
                    let id = 1 + cluster.random.below(4);
                    // One at a time: two lost disks are more than min_copies = 2 promises.
                    let all = (1..=4).all(|id| cluster.server(id).is_some() && !cluster.is_cut(id, 0));
                    if all && cluster.is_settled() {
                        match cluster.random.below(3) {
                            0 => cluster.cut_off(id, true),
                            1 => cluster.kill(id, Some(seed + step)),
                            _ => cluster.kill(id, None),
                        }
                    } else {
                        (1..=4).for_each(|id| {
                            cluster.cut_off(id, false);
                            if cluster.server(id).is_none() {
                                cluster.start(id);
                            }
                        });
                    }
                }
                _ => tokio::time::sleep(Duration::from_millis(cluster.random.below(3_000))).await,
            }
        }
        (1..=4).for_each(|id| {
            cluster.cut_off(id, false);
            if cluster.server(id).is_none() {
                cluster.start(id);
            }
        });
        client.write(SOME, 0, bytes(255, 1)).await;
        model[0] = 255;
        client.fsync(SOME).await;
        cluster.settled(SOME).await;
        let row = cluster.row.lock().clone();
        for member in row.members() {
            // Its lease may be on its way.
            let mut found = client.read_at(member.0, SOME, 0, model.len() as u32).await;
            for _ in 0..20 {
                if found.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    found = client.read_at(member.0, SOME, 0, model.len() as u32).await;
                }
            }
            let found = found.unwrap();
            let differs = found.iter().zip(&model).position(|(a, b)| a != b);
            assert_eq!(differs, None, "seed {seed}, data server {member}: {row:?}");
        }
        take_overs += row.epoch().0 - 1;
        repeated += client.repeated;
    }
    assert!(take_overs > 50 && repeated > 20, "{take_overs} take-overs, {repeated} writes repeated: this shows little");
}
