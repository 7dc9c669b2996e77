//! Two mounts that have one file open and agree on its bytes at every call (docs/design/0005-leases.md *Files*).

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{Code, FallocateMode, FileSystem, HandleId, OpenFlags, SetAttr, Shown, Watcher};
use braid_client::Client;
use braid_meta_server::MetaConfig;
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const APPEND: OpenFlags = OpenFlags { append: true, ..READ_WRITE };

async fn write(client: &Client, handle: HandleId, offset: u64, bytes: &[u8]) {
    let written = client.write(handle, offset, Bytes::from(bytes.to_vec())).await.unwrap();
    assert_eq!(written as usize, bytes.len());
}

async fn size(client: &Client, id: InodeId) -> u64 {
    client.get_attr(&cx(), id, None).await.unwrap().attr.size
}

async fn truncate(client: &Client, id: InodeId, handle: HandleId, size: u64) {
    let change = SetAttr { size: Some(size), ..SetAttr::default() };
    client.set_attr(&cx(), id, Some(handle), change).await.unwrap();
}

/// Nothing is closed, synced or opened in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completed_write_is_what_the_next_read_of_the_other_mount_sees() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    // Inline, in chunks, and over the border of one.
    for (text, len, at) in [("inline", 100, 0), ("chunk", 20_000, 5_000), ("border", 40_000, CHUNK - 20_000)] {
        let (id, of_a) = create(&a, text).await;
        let of_b = open(&b, id, READ_WRITE).await;
        for round in 0..10 {
            let bytes = pattern(round, len);
            let (writer, reader) = if round % 2 == 0 { ((&a, of_a), (&b, of_b)) } else { ((&b, of_b), (&a, of_a)) };
            write(writer.0, writer.1, at, &bytes).await;
            assert_eq!(size(reader.0, id).await, at + len as u64, "{text} {round}");
            assert_same(&read(reader.0, reader.1, at, len as u32).await, &bytes, format_args!("{text} {round}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_of_two_mounts_at_once_lose_nothing_and_overlap_nowhere() {
    const RECORDS: u64 = 150;
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, handle) = create(&a, "log").await;
    close(&a, handle).await.unwrap();
    let append = |client: Arc<Client>, who: u64| async move {
        let handle = open(&client, id, APPEND).await;
        for n in 0..RECORDS {
            // The offset is what a kernel believes, and old.
            write(&client, handle, 0, format!("{who} {n:>5}\n").as_bytes()).await;
        }
        close(&client, handle).await.unwrap();
    };
    tokio::join!(append(a.clone(), 1), append(b.clone(), 2));
    let handle = open(&b, id, READ).await;
    let bytes = read(&b, handle, 0, 1 << 20).await;
    let text = String::from_utf8(bytes).unwrap();
    for who in 1..=2 {
        let own: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{who} "))).collect();
        let expected: Vec<String> = (0..RECORDS).map(|n| format!("{who} {n:>5}")).collect();
        assert_eq!(own, expected, "in the order in which they were made");
    }
    assert_eq!(text.len() as u64, 2 * RECORDS * 8);
}

/// The holder of a file that is recalled in the middle of a truncate gives it up after it: the truncate waits for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncates_of_two_mounts_at_once_do_not_wait_for_each_other() {
    // Below the time of one attempt, after which a request that waits for itself is asked again.
    const STALL_MAX: Duration = Duration::from_secs(3);
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, of_a) = create(&a, "cut").await;
    let of_b = open(&b, id, READ_WRITE).await;
    let cut = |client: Arc<Client>, handle: HandleId, len: u64| async move {
        let mut longest = Duration::ZERO;
        for _ in 0..60 {
            let began = Instant::now();
            write(&client, handle, 0, &pattern(len, len as usize)).await;
            truncate(&client, id, handle, len / 2).await;
            longest = longest.max(began.elapsed());
        }
        longest
    };
    let (of_a, of_b) = tokio::join!(cut(a.clone(), of_a, 9000), cut(b.clone(), of_b, 7000));
    assert!(of_a.max(of_b) < STALL_MAX, "{of_a:?} and {of_b:?}");
    assert_eq!((a.stats().sessions_lost, b.stats().sessions_lost), (0, 0));
    assert_eq!(size(&a, id).await, size(&b, id).await);
}

/// Each call is made by one of two mounts that keep the file open, and done to a vector of bytes.
async fn agree(seed: u64, steps: usize, restarts: bool) {
    const MOST: u64 = 3 * CHUNK / 2;
    let mut world = World::new(Storage::Memory, SMALL).await;
    let clients = [world.client().await, world.client().await];
    let mut random = StdRng::seed_from_u64(seed);
    let (id, first) = create(&clients[0], "f").await;
    let mut handles = [first, open(&clients[1], id, READ_WRITE).await];
    let (mut expected, mut history): (Vec<u8>, Vec<String>) = (Vec::new(), Vec::new());
    for step in 0..steps {
        if restarts && random.random_range(0..25) == 0 {
            history.push("the metadata server starts again".to_owned());
            world.restart_meta(random.random_range(0..4)).await;
        }
        let who = random.random_range(0..2);
        let (client, handle) = (&clients[who], handles[who]);
        // Mostly near the beginning, so that the file is inline as often as not.
        let most = if random.random_range(0..3) == 0 { MOST } else { 6000 };
        let (at, len) = (random.random_range(0..most), random.random_range(1..most / 2));
        match random.random_range(0..12) {
            0..=3 => {
                let bytes = pattern(seed * 1000 + step as u64, len as usize);
                write(client, handle, at, &bytes).await;
                let end = (at + len) as usize;
                if expected.len() < end {
                    expected.resize(end, 0);
                }
                expected[at as usize..end].copy_from_slice(&bytes);
                history.push(format!("{step}: mount {who} writes {at}+{len}"));
            }
            4..=7 => {
                let got = read(client, handle, at, len as u32).await;
                let end = expected.len().min((at + len) as usize);
                let wanted = expected.get(at as usize..end).unwrap_or_default();
                if got != wanted {
                    let from = history.len().saturating_sub(20);
                    let differs = got.iter().zip(wanted).position(|(x, y)| x != y);
                    panic!(
                        "seed {seed}, step {step}: mount {who} reads {at}+{len}: {} bytes, {} expected, first difference {differs:?}\n{}",
                        got.len(),
                        wanted.len(),
                        history[from..].join("\n")
                    );
                }
                history.push(format!("{step}: mount {who} reads {at}+{len}"));
            }
            8 => {
                truncate(client, id, handle, at).await;
                expected.resize(at as usize, 0);
                history.push(format!("{step}: mount {who} truncates to {at}"));
            }
            9 => {
                client.fallocate(handle, FallocateMode::PunchHole, ByteRange::at(at, len)).await.unwrap();
                let end = expected.len().min((at + len) as usize);
                if let Some(hole) = expected.get_mut(at as usize..end) {
                    hole.fill(0);
                }
                history.push(format!("{step}: mount {who} punches {at}+{len}"));
            }
            10 => {
                close(client, handle).await.unwrap();
                handles[who] = open(client, id, READ_WRITE).await;
                history.push(format!("{step}: mount {who} closes and opens"));
            }
            _ => assert_eq!(size(client, id).await, expected.len() as u64, "seed {seed}\n{}", history.join("\n")),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_mounts_in_turn_do_to_a_file_what_is_done_to_a_vector() {
    for seed in 0..12 {
        agree(seed, 150, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_mounts_agree_on_a_file_while_the_metadata_server_restarts() {
    for seed in 0..4 {
        agree(1000 + seed, 100, true).await;
    }
}

/// The cache above: it drops pages when it is let.
#[derive(Default)]
struct Kernel {
    dropped: Mutex<Vec<Shown>>,
    stuck: AtomicBool,
}

struct Above(Arc<Kernel>);

impl Watcher for Above {
    fn forget(&self, shown: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let kernel = self.0.clone();
        Box::pin(async move {
            let pages = shown.iter().any(|shown| matches!(shown, Shown::Pages(..)));
            while pages && kernel.stuck.load(SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            kernel.dropped.lock().extend(shown);
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_before_the_kernel_of_the_other_mount_has_dropped_its_pages() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let kernel = Arc::new(Kernel::default());
    b.watch(Arc::new(Above(kernel.clone())));
    let (id, of_a) = create(&a, "f").await;
    write(&a, of_a, 0, b"before").await;
    let of_b = open(&b, id, READ).await;
    assert_eq!(read(&b, of_b, 0, 10).await, b"before");
    kernel.stuck.store(true, SeqCst);
    let written = AtomicBool::new(false);
    let writing = async {
        write(&a, of_a, 0, b"after!").await;
        written.store(true, SeqCst);
    };
    let watching = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!written.load(SeqCst), "the kernel still shows what was before");
        // What the kernel asks for meanwhile is served: it may be what its dropping waits for.
        assert_eq!(read(&b, of_b, 0, 10).await, b"before");
        kernel.stuck.store(false, SeqCst);
    };
    tokio::join!(writing, watching);
    let dropped = std::mem::take(&mut *kernel.dropped.lock());
    let pages: Vec<&Shown> = dropped.iter().filter(|shown| matches!(shown, Shown::Pages(..))).collect();
    assert_eq!(pages[0], &Shown::Pages(id, 0, u64::MAX));
    assert!(pages.contains(&&Shown::Pages(id, 0, 10)), "what was served meanwhile once more: {pages:?}");
    assert_eq!(read(&b, of_b, 0, 10).await, b"after!");
}

/// Drops names only after the moment for which a file that was just granted is kept, and nothing else of the mount runs meanwhile.
struct Slow;

impl Watcher for Slow {
    fn forget(&self, shown: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            if shown.iter().any(|shown| matches!(shown, Shown::Entry(..))) {
                // The recall of the file comes with the revocation of the name.
                tokio::time::sleep(Duration::from_millis(1)).await;
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    }
}

/// On one thread, so that the end of the moment is noticed with the name that was dropped, and not by the timer.
#[tokio::test]
async fn a_lease_that_is_kept_a_while_is_given_up_whatever_notices_that_it_is_over() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    a.watch(Arc::new(Slow));
    for round in 0..5 {
        let (beside, kept) = (format!("beside {round}"), format!("kept {round}"));
        let (_, handle) = create(&a, &beside).await;
        close(&a, handle).await.unwrap();
        a.lookup(&cx(), InodeId::ROOT, &name(&beside)).await.unwrap();
        // The holder keeps a file where it is for the same moment, from when it granted it; the answer is older than that when it comes.
        world.answered_late.lock().insert("CreateFile", Duration::from_millis(20));
        let (id, _of_a) = create(&a, &kept).await;
        world.answered_late.lock().clear();
        let started = Instant::now();
        let removing = async { b.unlink(&cx(), InodeId::ROOT, &name(&beside)).await.unwrap() };
        let writing = async {
            let of_b = open(&b, id, READ_WRITE).await;
            write(&b, of_b, 0, b"b").await;
        };
        tokio::join!(writing, removing);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(3), "round {round}: {took:?}");
    }
}

/// The kernel of the opener keeps a page locked while it reads it, and drops no pages meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_being_opened_for_writing_is_not_left_to_be_read_by_others() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let kernel = Arc::new(Kernel::default());
    a.watch(Arc::new(Above(kernel.clone())));
    let (id, made) = create(&a, "f").await;
    write(&a, made, 0, b"before").await;
    a.fsync(made, false).await.unwrap();
    close(&a, made).await.unwrap();
    // All is saved and nobody has it open, so that whoever asks for its size may be told that it will not change.
    world.answered_late.lock().insert("OpenFile", Duration::from_millis(300));
    let asking = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(b.get_attr(&cx(), id, None).await.unwrap().attr.size, 6);
    };
    let (of_a, ()) = tokio::join!(open(&a, id, READ_WRITE), asking);
    world.answered_late.lock().clear();
    world.take_messages();
    write(&a, of_a, 0, b"BEFORE").await;
    let (asked, _) = world.take_messages();
    assert_eq!(asked.get("OpenFile"), None, "who has it open for writing still has it to itself");
    let of_b = open(&b, id, READ_WRITE).await;
    write(&b, of_b, 0, b"after!").await;
    let started = Instant::now();
    let reading = async {
        kernel.stuck.store(true, SeqCst);
        assert!(read(&a, of_a, 0, 10).await.eq_ignore_ascii_case(b"after!"));
        kernel.stuck.store(false, SeqCst);
    };
    let writing = async { write(&b, of_b, 0, b"AFTER!").await };
    tokio::join!(reading, writing);
    assert!(started.elapsed() < Duration::from_secs(5), "stood still for {:?}", started.elapsed());
}

/// Without a name, and for a moment without a handle: the answer to its open is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_being_opened_while_its_last_name_and_handle_go_is_there_for_who_opens_it() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let (id, made) = create(&a, "f").await;
    write(&a, made, 0, b"before").await;
    close(&a, made).await.unwrap();
    let first = open(&a, id, READ_WRITE).await;
    world.answered_late.lock().insert("OpenFile", Duration::from_millis(300));
    let removing = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        a.unlink(&cx(), InodeId::ROOT, &name("f")).await.unwrap();
        close(&a, first).await.unwrap();
    };
    let (second, ()) = tokio::join!(open(&a, id, READ_WRITE), removing);
    world.answered_late.lock().clear();
    assert_eq!(read(&a, second, 0, 10).await, b"before");
    write(&a, second, 6, b" and after").await;
    a.fsync(second, false).await.unwrap();
    let found = a.get_attr(&cx(), id, Some(second)).await.unwrap().attr;
    assert_eq!((found.size, found.nlink), (16, 0));
    assert!(a.list_xattr(&cx(), id).await.unwrap().is_empty());
    assert_eq!(read(&a, second, 0, 20).await, b"before and after");
    close(&a, second).await.unwrap();
    let gone = a.get_attr(&cx(), id, None).await.unwrap_err();
    assert_eq!(gone.code, Code::Stale);
}

/// Leases of a second, so that ends of terms are seen.
fn short() -> MetaConfig {
    MetaConfig {
        session_lease: Duration::from_secs(1),
        session_renew: Duration::from_millis(300),
        server_lease: Duration::from_secs(1),
        heartbeat: Duration::from_millis(300),
        acknowledge: Duration::from_millis(700),
        ..MetaConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_writer_holds_others_up_for_its_term_and_what_it_had_sent_is_there() {
    let world = World::with(Storage::Memory, SMALL, short()).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, of_a) = create(&a, "f").await;
    write(&a, of_a, 0, &pattern(1, 50_000)).await;
    a.flush(of_a).await.unwrap();
    // Without a word.
    drop(a);
    let started = Instant::now();
    let of_b = open(&b, id, READ_WRITE).await;
    assert_same(&read(&b, of_b, 0, 50_000).await, &pattern(1, 50_000), "what was saved");
    let took = started.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
    write(&b, of_b, 0, b"goes on").await;
    let started = Instant::now();
    write(&b, of_b, 0, b"and on").await;
    assert!(started.elapsed() < Duration::from_millis(500), "nobody is in the way any more");
}

/// What two mounts write at once is one or the other, whichever size of file lease passes between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_mounts_write_at_once_both_see_the_same_way() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, of_a) = create(&a, "f").await;
    let of_b = open(&b, id, READ_WRITE).await;
    for round in 0..20 {
        let (x, y) = (vec![b'a' + round; 9000], vec![b'A' + round; 9000]);
        tokio::join!(write(&a, of_a, 0, &x), write(&b, of_b, 0, &y));
        let (seen, also) = (read(&a, of_a, 0, 9000).await, read(&b, of_b, 0, 9000).await);
        assert!(seen == also, "round {round}");
        assert!(seen == x || seen == y, "round {round}: a mixture");
    }
}
