//! What a broken or hostile peer sends: never a panic, never an allocation of what it merely claims, never harm to
//! another connection.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what helps it")]

#[path = "it/support/mod.rs"]
mod support;

use braid_api::{Code, Context, PROTOCOL_VERSION};
use braid_env::Random;
use braid_types::ClusterId;
use braid_wire::*;
use bytes::Bytes;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Notes the largest single allocation of each thread; a test here is one thread.
struct Largest;
thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.set(LARGEST.get().max(layout.size()));
        // SAFETY: as the caller promises us.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

/// One buffer of the pool's 1 MiB class.
const ALLOCATION_MAX: usize = 1 << 20;

async fn read_all(bytes: &[u8]) -> (usize, Option<FrameError>) {
    let mut reader = FrameReader::new(bytes, Limits::default(), BufferPool::new(0));
    for count in 0.. {
        match reader.next().await {
            Ok(Some(frame)) => assert!(frame.body.len() + frame.payload.len() <= bytes.len()),
            Ok(None) => return (count, None),
            Err(error) => return (count, Some(error)),
        }
    }
    unreachable!()
}

fn frame(random: &Seeded) -> Vec<u8> {
    let body_len = random.below(300) as usize;
    let payload_len = if random.below(4) == 0 { random.below(90_000) as usize } else { 0 };
    let context = Context::default();
    let header = Header { kind: Kind::Request, flags: 0, call: random.u64(), context, body_len, payload_len };
    let mut bytes = header.encode().to_vec();
    bytes.resize(PREFIX_BYTES + body_len + payload_len, random.u64() as u8);
    bytes
}

#[test]
fn frames_cut_and_spoilt_at_random_end_in_an_error() {
    run(async {
        let random = Seeded(AtomicU64::new(42));
        for _ in 0..3000 {
            let frames = random.below(4) as usize + 1;
            let mut bytes: Vec<u8> = Vec::new();
            let mut ends = vec![0];
            for _ in 0..frames {
                bytes.extend(frame(&random));
                ends.push(bytes.len());
            }
            assert_eq!(read_all(&bytes).await, (frames, None));
            let cut = random.below(bytes.len() as u64) as usize;
            let (whole, error) = read_all(&bytes[..cut]).await;
            assert_eq!(whole, ends.iter().filter(|&&end| end <= cut).count() - 1);
            assert_eq!(error.is_none(), ends.contains(&cut));
            for _ in 0..random.below(4) + 1 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= random.below(255) as u8 + 1;
            }
            read_all(&bytes).await;
            let noise: Vec<u8> = (0..random.below(400)).map(|_| random.u64() as u8).collect();
            read_all(&noise).await;
            let _ = Hello::decode(&noise, "noise");
        }
        assert!(LARGEST.get() <= ALLOCATION_MAX, "{}", LARGEST.get());
    });
}

#[test]
fn a_claim_alone_allocates_no_more_than_a_buffer() {
    run(async {
        for (body_len, payload_len) in [(1 << 20, 0), (0, 16 << 20), (1 << 20, 16 << 20)] {
            let context = Context::default();
            let header = Header { kind: Kind::Request, flags: 0, call: 1, context, body_len, payload_len };
            let bytes = [header.encode().as_slice(), &[0; 10]].concat();
            assert_eq!(read_all(&bytes).await, (0, Some(FrameError::Truncated)));
        }
        assert!(LARGEST.get() <= ALLOCATION_MAX, "{}", LARGEST.get());
    });
}

fn hello(hello: &Hello) -> Vec<u8> {
    let body = hello.encode();
    let context = Context::default();
    let header = Header { kind: Kind::Hello, flags: 0, call: 0, context, body_len: body.len(), payload_len: 0 };
    [header.encode().as_slice(), &body].concat()
}

/// Sends bytes and returns the error the server answered with, if it did; the server must then close.
async fn refusal(server: &Server, env: &braid_env::Env, bytes: &[u8]) -> Option<braid_api::Error> {
    let mut connection = env.transport.connect(&server.at).await.unwrap();
    let _ = connection.writer.write_all(bytes).await;
    let mut answer = Vec::new();
    connection.reader.read_to_end(&mut answer).await.unwrap();
    let mut reader = FrameReader::new(&answer[..], Limits::default(), BufferPool::new(0));
    let mut last = None;
    while let Some(frame) = reader.next().await.unwrap() {
        if frame.header.kind == Kind::Error {
            last = Some(decode(&frame.body).unwrap());
        }
    }
    last
}

#[test]
fn a_server_refuses_what_is_no_hello_and_serves_on() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let newer = Hello { version: 9, version_min: PROTOCOL_VERSION + 1, ..Hello::default() };
        let request =
            Header { kind: Kind::Request, flags: 0, call: 1, context: Context::default(), body_len: 0, payload_len: 0 };
        let long = Hello { auth: Bytes::from(vec![0; 16 << 10]), ..Hello::default() };
        let mut longer = hello(&long);
        longer[0..4].copy_from_slice(&(1u32 << 19).to_le_bytes());
        for (bytes, code) in [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Code::FrameTooLong),
            (request.encode().to_vec(), Code::BadMessage),
            (hello(&newer), Code::WrongVersion),
            (longer, Code::FrameTooLong),
            ([hello(&Hello::default()), b"SSH-".to_vec()].concat(), Code::FrameTooLong),
            ([hello(&Hello::default()), hello(&Hello::default())].concat(), Code::BadMessage),
        ] {
            let error = refusal(&server, &env, &bytes).await.expect("a line");
            assert_eq!(error.code, code, "{error}");
        }
        let begun = env.clock.now();
        assert_eq!(refusal(&server, &env, &[]).await, None);
        assert_eq!(env.clock.now().since(begun), Duration::from_secs(5), "the hello's time");
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        remote(&client, &server.at).call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
    });
}

/// What stands in the log of both sides: who speaks what, and what to do.
#[test]
fn who_is_of_another_cluster_or_version_is_told_so() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let (newer, other) = (PROTOCOL_VERSION + 1, ClusterId([8; 16]));
        for (wrong, code, words) in [
            (
                Hello { version: newer + 3, version_min: newer, ..Hello::default() },
                Code::WrongVersion,
                [format!("speaks {newer} to {}", newer + 3), "upgrade the older one".to_owned()],
            ),
            (
                Hello { version: PROTOCOL_VERSION_MIN - 1, version_min: 0, ..Hello::default() },
                Code::WrongVersion,
                [format!("speaks 0 to {}", PROTOCOL_VERSION_MIN - 1), "upgrade the older one".to_owned()],
            ),
            (
                Hello { cluster: other, ..Hello::default() },
                Code::WrongCluster,
                [format!("the client is of {other}"), "check the address".to_owned()],
            ),
            (
                Hello { wanted: Some(Role::Metadata), ..Hello::default() },
                Code::WrongRole,
                ["wants a metadata server".to_owned(), "this is data server 2".to_owned()],
            ),
        ] {
            let error = refusal(&server, &env, &hello(&wrong)).await.expect("a line");
            let text = error.to_string();
            assert_eq!(error.code, code, "{text}");
            assert!(words.iter().all(|word| text.contains(word)) && !text.contains('\n'), "{text}");
        }
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        remote(&client, &server.at).call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
    });
}

#[test]
fn noise_after_the_hello_takes_no_server_down() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let random = Seeded(AtomicU64::new(7));
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let other = remote(&client, &server.at);
        for _ in 0..200 {
            let mut bytes = [hello(&Hello::default()), frame(&random), frame(&random)].concat();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= random.u64() as u8;
            let mut connection = env.transport.connect(&server.at).await.unwrap();
            let _ = connection.writer.write_all(&bytes).await;
            drop(connection);
            other.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        }
        assert_eq!(other.stats().connects, 1);
    });
}

#[test]
fn who_does_not_read_its_answers_holds_up_nobody_else() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let mut lazy = env.transport.connect(&server.at).await.unwrap();
        lazy.writer.write_all(&hello(&Hello::default())).await.unwrap();
        let context = Context::default();
        let mut sent = 0;
        for call in 0..1000 {
            let header = Header { kind: Kind::Request, flags: 0, call, context, body_len: 1, payload_len: 100_000 };
            let mut bytes = header.encode().to_vec();
            bytes.push(ECHO);
            bytes.resize(bytes.len() + 100_000, 1);
            if env.timeout(Duration::from_secs(1), lazy.writer.write_all(&bytes)).await.is_err() {
                break;
            }
            sent = call;
        }
        // 16 MiB of answers queue, then the server reads no more of this connection.
        assert!((160..180).contains(&sent), "{sent}");
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        remote(&client, &server.at).call(within(100), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
    });
}
