//! Copies over links that are slower than what is written.

use super::*;

const DEADLINE: Duration = Duration::from_secs(4);
const MIB: usize = 1 << 20;

async fn written(world: &World, mib: usize) -> (Arc<Client>, braid_api::HandleId) {
    let config = ClientConfig { host: "host1".to_owned(), deadline: DEADLINE, ..ClientConfig::default() };
    let client = world.client_of(0, config).await;
    let (_, handle) = create(&client, "f").await;
    for n in 0..mib {
        let bytes = Bytes::from(vec![n as u8 + 1; MIB]);
        client.write(handle, (n * MIB) as u64, bytes).await.unwrap();
    }
    (client, handle)
}

/// Nothing is answered for many deadlines, and all the time something arrives.
#[tokio::test(start_paused = true)]
async fn an_fsync_whose_bytes_come_on_is_not_given_up() {
    let world = World::new(3, "replica:3,min_copies=2").await;
    world.net.link_bytes_per_s.store(MIB as u64, SeqCst);
    let (client, handle) = written(&world, 24).await;
    let begun = tokio::time::Instant::now();
    client.fsync(handle, false).await.unwrap();
    assert!(begun.elapsed() > 3 * DEADLINE, "it was slow: {:?}", begun.elapsed());
}

/// A link over which nothing goes any more: that is told, and not waited for without end.
#[tokio::test(start_paused = true)]
async fn an_fsync_whose_bytes_stand_still_ends() {
    let world = World::new(3, "replica:3,min_copies=2").await;
    world.net.link_bytes_per_s.store(1, SeqCst);
    let (client, handle) = written(&world, 4).await;
    let begun = tokio::time::Instant::now();
    let error = client.fsync(handle, false).await.unwrap_err();
    assert!(begun.elapsed() < 4 * DEADLINE, "{error}: {:?}", begun.elapsed());
}

/// What is sent again and again and finds no room on a disk is on its way all the time.
#[tokio::test(start_paused = true)]
async fn an_fsync_that_a_full_disk_holds_up_ends() {
    let world = World::new(3, "replica:3,min_copies=3").await;
    world.net.link_bytes_per_s.store(MIB as u64, SeqCst);
    let config = ClientConfig { host: "host1".to_owned(), deadline: DEADLINE, ..ClientConfig::default() };
    let client = world.client_of(0, config).await;
    let (_, handle) = create(&client, "f").await;
    // Where it is to lie was chosen while there was room.
    for n in 0..32 {
        client.write(handle, (n * MIB) as u64, Bytes::from_static(b"x")).await.unwrap();
    }
    client.fsync(handle, false).await.unwrap();
    for full in [2, 3] {
        world.disks[&ServerId(full)].set_capacity(Some(12 * MIB as u64));
    }
    for n in 0..32 {
        client.write(handle, (n * MIB) as u64, Bytes::from(vec![7; MIB])).await.unwrap();
    }
    let begun = tokio::time::Instant::now();
    let error = client.fsync(handle, false).await.unwrap_err();
    assert!(begun.elapsed() < 50 * DEADLINE, "{error}: {:?}", begun.elapsed());
}

/// Whatever ends the wait first, an attempt's time or what the servers say: who is waited for is named.
#[tokio::test(start_paused = true)]
async fn a_wait_for_copies_that_ends_names_their_servers() {
    for attempt_ms in [1_000, 10_000] {
        let world = World::new(2, "replica:2").await;
        let attempt = Duration::from_millis(attempt_ms);
        let config = ClientConfig { host: "host1".to_owned(), deadline: DEADLINE, attempt, ..ClientConfig::default() };
        let client = world.client_of(0, config).await;
        let (_, handle) = create(&client, "f").await;
        client.write(handle, 0, Bytes::from_static(b"before")).await.unwrap();
        client.fsync(handle, false).await.unwrap();
        for id in [1, 2].map(ServerId) {
            world.net.away.lock().insert(id);
            world.net.still.lock().insert(id);
        }
        client.write(handle, 0, Bytes::from_static(b"after")).await.unwrap();
        let error = client.fsync(handle, false).await.unwrap_err().to_string();
        let names = ["data servers 1, 2", "data server 1", "data server 2"];
        assert!(names.iter().any(|name| error.contains(name)), "{error}");
        assert!(error.contains("deadline"), "{error}");
    }
}
