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
