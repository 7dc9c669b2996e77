//! Calls between one server and its clients, over a network in memory with paused time.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what helps it")]

use crate::support::*;
use braid_api::{Code, Context};
use braid_types::{RequestId, SessionId, Token, TraceId};
use braid_wire::*;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

fn payload(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

async fn echo(remote: &Remote, len: usize) {
    let (body, back) = remote.call(within(0), &Raw(&[ECHO, 9]), payload(len)).await.unwrap();
    assert_eq!((&body[..], back), (&[ECHO, 9][..], payload(len)));
}

#[test]
fn bodies_and_payloads_of_all_sizes_come_back() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        for len in [0, 1, 2047, 2048, 2049, 4096, 32 << 10, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20, 16 << 20] {
            echo(&remote, len).await;
        }
        let long = vec![ECHO; 900 << 10];
        let (body, _) = remote.call(within(0), &Raw(&long), Bytes::new()).await.unwrap();
        assert_eq!(body, long);
        assert!(client.pool().free_bytes() > 0);
    });
}

#[test]
fn the_context_arrives_whole() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let token = Token { session: SessionId(5), snapshot: u64::MAX, ..Token::default() };
        let deadline = Duration::from_millis(700);
        let cx = Context { token, request: RequestId(6), trace: TraceId(7), deadline, ..Context::default() };
        remote(&client, &server.at).call(cx, &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        let seen = server.service.last.lock().unwrap();
        assert_eq!((seen.token, seen.request, seen.trace, seen.deadline), (token, RequestId(6), TraceId(7), deadline));
    });
}

#[test]
fn many_calls_share_a_connection_and_answers_find_their_callers() {
    run(async {
        let (env, net) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let calls: Vec<_> = (0..200u8)
            .map(|i| {
                let remote = remote.clone();
                tokio::spawn(async move {
                    // The later ones are answered first.
                    let order = [if i % 3 == 0 { ECHO } else { SLEEP }, 20 - i / 10, i];
                    let (body, _) = remote.call(within(0), &Raw(&order), Bytes::new()).await.unwrap();
                    assert_eq!(&body[..], order);
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(net.connects.load(SeqCst), 1);
    });
}

#[test]
fn counters_are_exact() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        for _ in 0..3 {
            echo(&remote, 5000).await;
        }
        remote.call(within(0), &Raw(&[SLEEP, 1]), Bytes::new()).await.unwrap();
        let error = remote.call(within(0), &Raw(&[99]), Bytes::new()).await.unwrap_err();
        assert_eq!(error.code, Code::BadMessage);
        let (asked, served) = (remote.stats(), server.stats.snapshot());
        let expected = [("Echo", 3), ("Sleep", 1), ("unknown message", 1)].into_iter().collect();
        assert_eq!(asked.sent, expected);
        assert_eq!((&asked.received, &served.received, &served.sent), (&expected, &expected, &expected));
        assert_eq!((asked.payload_bytes_sent, asked.payload_bytes_received), (15_000, 15_000));
        let bytes = 5 * PREFIX_BYTES as u64 + 15_000 + 3 * 2 + 2 + 1;
        assert_eq!((asked.bytes_sent, served.bytes_received), (bytes, bytes));
        assert_eq!(asked.bytes_received, served.bytes_sent);
        assert_eq!((asked.errors, served.errors, served.inline, asked.connects), (1, 1, 4, 1));
        assert_eq!((asked.retries, asked.cancels), (0, 0));
    });
}

#[test]
fn a_deadline_names_peer_and_message_and_cancels_at_the_server() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let begun = env.clock.now();
        let error = remote.call(within(300), &Raw(&[HANG]), Bytes::new()).await.unwrap_err();
        assert_eq!(env.clock.now().since(begun).as_millis() / 10, 30);
        let text = error.to_string();
        assert_eq!(error.code, Code::DeadlineExceeded);
        assert!(text.contains("Hang") && text.contains("data server 2") && text.contains("a:1"), "{text}");
        env.sleep(Duration::from_millis(10)).await;
        assert_eq!(server.service.dropped.load(SeqCst), 1);
        echo(&remote, 10).await;
    });
}

#[test]
fn the_default_deadline_is_a_minute_and_why_shows_who_waits() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let begun = env.clock.now();
        let cx = Context { token: Token { session: SessionId(3), ..Token::default() }, ..Context::default() };
        let call = tokio::spawn(async move { remote.call(cx, &Raw(&[HANG]), Bytes::new()).await });
        env.sleep(Duration::from_millis(900)).await;
        assert_eq!(client.waits().list(), []);
        env.sleep(Duration::from_millis(1100)).await;
        let waits = client.waits().list();
        assert_eq!(waits.len(), 1);
        assert_eq!((waits[0].who.as_str(), waits[0].since_ms / 100), ("Hang of session 3", 20));
        assert!(waits[0].for_what.contains("data server 2 at tcp:a:1"), "{waits:?}");
        assert_eq!(call.await.unwrap().unwrap_err().code, Code::DeadlineExceeded);
        assert_eq!(env.clock.now().since(begun).as_secs(), 60);
        assert_eq!(client.waits().list(), []);
    });
}

#[test]
fn a_dropped_call_is_cancelled() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let hang = remote.clone();
        let call = tokio::spawn(async move { hang.call(within(0), &Raw(&[HANG]), Bytes::new()).await });
        env.sleep(Duration::from_millis(10)).await;
        assert_eq!((server.service.begun.load(SeqCst), server.service.dropped.load(SeqCst)), (1, 0));
        call.abort();
        env.sleep(Duration::from_millis(10)).await;
        assert_eq!(server.service.dropped.load(SeqCst), 1);
        assert_eq!((remote.stats().cancels, server.stats.snapshot().cancels), (1, 1));
        echo(&remote, 10).await;
    });
}

/// Three ways to lose whoever waits. In each the change has begun, and what comes after its wait must still happen.
#[test]
fn a_change_that_has_begun_goes_on_to_its_end_whoever_has_gone() {
    run(async {
        let (env, net) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let effects = || (server.service.begun.load(SeqCst), server.service.effects.load(SeqCst));
        let channel = client.connect(&server.at, Role::Data, WireStats::new(NAMES)).await.unwrap();

        let error = channel.call(within(200), &Raw(&[CHANGE, 5]), Bytes::new()).await.unwrap_err();
        assert_eq!((error.code, effects()), (Code::DeadlineExceeded, (1, 0)));
        env.sleep(Duration::from_millis(400)).await;
        assert_eq!(effects(), (1, 1), "after its deadline");

        let of_call = channel.clone();
        let call = tokio::spawn(async move { of_call.call(within(0), &Raw(&[CHANGE, 5]), Bytes::new()).await });
        env.sleep(Duration::from_millis(100)).await;
        call.abort();
        env.sleep(Duration::from_millis(100)).await;
        assert_eq!((effects(), server.stats.snapshot().cancels), ((2, 1), 2));
        env.sleep(Duration::from_millis(400)).await;
        assert_eq!(effects(), (2, 2), "cancelled");
        // What is ended and what goes on share a connection that lives.
        channel.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();

        let of_call = channel.clone();
        let call = tokio::spawn(async move { of_call.call(within(0), &Raw(&[CHANGE, 5]), Bytes::new()).await });
        env.sleep(Duration::from_millis(100)).await;
        net.cut();
        assert_eq!(call.await.unwrap().unwrap_err().code, Code::Disconnected);
        assert_eq!(effects(), (4, 2));
        env.sleep(Duration::from_millis(500)).await;
        assert_eq!(effects(), (4, 3), "the connection broke");
    });
}

#[test]
fn a_panic_and_a_garbage_body_spoil_one_call_each() {
    run(async {
        let (env, net) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        for (order, code) in [(&[PANIC][..], Code::Internal), (&[77], Code::BadMessage), (&[], Code::BadMessage)] {
            assert_eq!(remote.call(within(0), &Raw(order), Bytes::new()).await.unwrap_err().code, code);
        }
        echo(&remote, 10).await;
        assert_eq!(net.connects.load(SeqCst), 1);
    });
}

#[test]
fn what_is_too_long_is_not_sent() {
    run(async {
        let (env, net) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let error = remote.call(within(0), &Raw(&[ECHO]), payload((16 << 20) + 1)).await.unwrap_err();
        assert_eq!(error.code, Code::FrameTooLong);
        let error = remote.call(within(0), &Raw(&vec![ECHO; (1 << 20) + 1]), Bytes::new()).await.unwrap_err();
        assert_eq!(error.code, Code::FrameTooLong);
        echo(&remote, 10).await;
        assert_eq!(net.connects.load(SeqCst), 1);
    });
}

#[test]
fn a_peer_that_sends_too_long_a_frame_is_told_so_and_closed() {
    run(async {
        let (env, _) = world();
        let limits = Limits { payload_bytes_max: 1000, ..Limits::default() };
        let server = Server::start(&env, &at("a:1"), Arc::default(), limits).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let channel = client.connect(&server.at, Role::Data, WireStats::new(NAMES)).await.unwrap();
        let error = channel.call(within(0), &Raw(&[ECHO]), payload(1001)).await.unwrap_err();
        assert_eq!(error.code, Code::Disconnected);
        assert!(error.to_string().contains("a payload of 1001 bytes; at most 1000"), "{error}");
        assert!(channel.is_broken());
    });
}

#[test]
fn running_requests_are_bounded_and_the_rest_is_not_read() {
    run(async {
        let (env, _) = world();
        let limits = Limits { running_max: 5, ..Limits::default() };
        let server = Server::start(&env, &at("a:1"), Arc::default(), limits).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let call = |order: [u8; 2], len: usize| {
            let remote = remote.clone();
            tokio::spawn(async move { remote.call(within(0), &Raw(&order), payload(len)).await })
        };
        let calls: Vec<_> = (0..20).map(|_| call([SLEEP, 10], 0)).collect();
        env.sleep(Duration::from_millis(500)).await;
        assert_eq!(server.service.begun.load(SeqCst), 5);
        // Another connection is not concerned.
        let other = client.connect(&server.at, Role::Data, WireStats::new(NAMES)).await.unwrap();
        other.call(within(100), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(server.service.begun.load(SeqCst), 21);
    });
}

#[test]
fn running_bytes_are_bounded() {
    run(async {
        let (env, _) = world();
        let limits = Limits { running_bytes_max: 3000, ..Limits::default() };
        let server = Server::start(&env, &at("a:1"), Arc::default(), limits).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        for _ in 0..6 {
            let remote = remote.clone();
            tokio::spawn(async move { remote.call(within(0), &Raw(&[SLEEP, 10]), payload(1500)).await });
        }
        env.sleep(Duration::from_millis(500)).await;
        assert_eq!(server.service.begun.load(SeqCst), 2);
        env.sleep(Duration::from_millis(1000)).await;
        assert_eq!(server.service.begun.load(SeqCst), 4);
    });
}

#[test]
fn graceful_shutdown_finishes_what_runs() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let channel = client.connect(&server.at, Role::Data, WireStats::new(NAMES)).await.unwrap();
        let (slow, hung) = (channel.clone(), channel.clone());
        let slow = tokio::spawn(async move { slow.call(within(0), &Raw(&[SLEEP, 20]), payload(100_000)).await });
        let hung = tokio::spawn(async move { hung.call(within(0), &Raw(&[HANG]), Bytes::new()).await });
        env.sleep(Duration::from_millis(100)).await;
        let begun = env.clock.now();
        server.shut_down().await;
        assert_eq!(env.clock.now().since(begun).as_secs(), 5, "the bound");
        assert!(slow.await.unwrap().is_ok());
        assert_eq!(hung.await.unwrap().unwrap_err().code, Code::Disconnected);
        let error = channel.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap_err();
        assert_eq!(error.code, Code::Unreachable, "nothing was sent: {error}");
    });
}
