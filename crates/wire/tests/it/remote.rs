//! Reconnecting and repeating.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what helps it")]

use crate::support::*;
use braid_api::erased::MetaPeers;
use braid_api::{Code, Context, Manner};
use braid_types::{ClusterId, RequestId, ServerId};
use braid_wire::*;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

#[test]
fn calls_in_flight_are_repeated_after_a_restart_and_take_effect_once() {
    run(async {
        let (env, net) = world();
        let service = Arc::new(Obedient::default());
        let server = Server::start(&env, &at("a:1"), service.clone(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let calls: Vec<_> = (1..=50)
            .map(|id| {
                let remote = remote.clone();
                let cx = Context { request: RequestId(id), ..Context::default() };
                tokio::spawn(async move { remote.call(cx, &Raw(&[ADD]), Bytes::new()).await })
            })
            .collect();
        env.sleep(Duration::from_millis(100)).await;
        assert_eq!(service.effects.load(SeqCst), 50);
        server.kill(&net);
        env.sleep(Duration::from_secs(3)).await;
        let waits = client.waits().list();
        assert_eq!(waits.len(), 50);
        assert!(waits.iter().all(|w| w.who == "Add" && w.for_what.contains("refused")), "{:?}", waits[0]);
        let _server = Server::start(&env, &at("a:1"), service.clone(), Limits::default()).await;
        for call in calls {
            assert_eq!(&call.await.unwrap().unwrap().0[..], b"added");
        }
        assert_eq!(service.effects.load(SeqCst), 50);
        assert_eq!(client.waits().list(), []);
        assert!(remote.stats().retries >= 50);
        assert_eq!(remote.stats().connects, 2);
    });
}

#[test]
fn a_server_that_stays_away_is_named_with_the_last_cause() {
    run(async {
        let (env, net) = world();
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &at("nowhere:1"));
        let begun = env.clock.now();
        let error = remote.call(within(20_000), &Raw(&[ECHO]), Bytes::new()).await.unwrap_err();
        assert_eq!(env.clock.now().since(begun).as_secs(), 20);
        let text = error.to_string();
        assert_eq!(error.code, Code::Unreachable, "nothing can have happened");
        assert!(text.contains("data server 2 at tcp:nowhere:1") && text.contains("refused"), "{text}");
        // 10 ms doubling to 1 s: six tries in the first second or so, then one or two a second.
        let tries = net.connects.load(SeqCst);
        assert!((20..60).contains(&tries), "{tries} tries");
    });
}

#[test]
fn a_call_that_is_made_once_waits_for_no_server_that_is_away() {
    run(async {
        let (env, net) = world();
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &at("a:1"));
        let begun = env.clock.now();
        let once = Context { manner: Manner::Once, ..within(20_000) };
        for _ in 0..100 {
            let error = remote.call(once, &Raw(&[ECHO]), Bytes::new()).await.unwrap_err();
            assert!(error.code == Code::Unreachable && error.to_string().contains("refused"), "{error}");
        }
        assert!(env.clock.now().since(begun) < Duration::from_millis(500));
        assert!(net.connects.load(SeqCst) < 20, "a hundred calls are not a hundred attempts to connect");
        let _server = Server::start(&env, &at("a:1"), Arc::new(Obedient::default()), Limits::default()).await;
        env.sleep(Duration::from_secs(2)).await;
        remote.call(once, &Raw(&[ECHO]), Bytes::new()).await.unwrap();
    });
}

#[test]
fn a_call_that_is_meant_to_wait_is_shown_only_while_there_is_no_server_to_wait_at() {
    run(async {
        let (env, net) = world();
        let server = Server::start(&env, &at("a:1"), Arc::new(Obedient::default()), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let standing = Context { manner: Manner::Standing, ..within(60_000) };
        let call = {
            let remote = remote.clone();
            tokio::spawn(async move { remote.call(standing, &Raw(&[HANG]), Bytes::new()).await })
        };
        env.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.waits().list(), []);
        server.kill(&net);
        env.sleep(Duration::from_secs(3)).await;
        assert_eq!(client.waits().list().len(), 1);
        let _server = Server::start(&env, &at("a:1"), Arc::new(Obedient::default()), Limits::default()).await;
        env.sleep(Duration::from_secs(3)).await;
        assert_eq!(client.waits().list(), []);
        call.abort();
    });
}

#[test]
fn a_server_that_moved_is_found_at_once() {
    run(async {
        let (env, net) = world();
        let service = Arc::new(Obedient::default());
        let server = Server::start(&env, &at("a:1"), service.clone(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        remote.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        server.kill(&net);
        let again = remote.clone();
        let call = tokio::spawn(async move { again.call(within(0), &Raw(&[ECHO]), Bytes::new()).await });
        env.sleep(Duration::from_secs(10)).await;
        let _server = Server::start(&env, &at("b:2"), service, Limits::default()).await;
        remote.set_addresses(vec![at("b:2")]);
        let begun = env.clock.now();
        call.await.unwrap().unwrap();
        assert!(env.clock.now().since(begun) <= Duration::from_secs(1));
    });
}

#[test]
fn an_address_that_passed_to_another_server_is_not_used() {
    run(async {
        let (env, _) = world();
        let other = endpoint(&env, Role::Data, 3, Limits::default());
        let other = Server::start_as(other, &at("a:1"), Arc::default()).await;
        let server = Server::start(&env, &at("b:2"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = Remote::new(&client, Role::Data, ServerId(2), NAMES, vec![at("a:1"), at("b:2")]);
        remote.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        assert_eq!((other.service.begun.load(SeqCst), server.service.begun.load(SeqCst)), (0, 1));
    });
}

#[test]
fn an_error_that_may_pass_is_waited_out_and_others_are_not() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        remote.call(within(0), &Raw(&[BUSY]), Bytes::new()).await.unwrap();
        assert_eq!((server.service.begun.load(SeqCst), remote.stats().retries), (4, 3));
        assert_eq!(remote.call(within(0), &Raw(&[99]), Bytes::new()).await.unwrap_err().code, Code::BadMessage);
        assert_eq!(remote.stats().retries, 3);
    });
}

#[test]
fn a_connection_without_any_sign_of_life_is_given_up() {
    run(async {
        let (env, net) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let remote = remote(&client, &server.at);
        let _ = remote.call(within(500), &Raw(&[HANG]), Bytes::new()).await.unwrap_err();
        assert!(remote.peer().is_some(), "half a second is not silence");
        let _ = remote.call(within(15_000), &Raw(&[HANG]), Bytes::new()).await.unwrap_err();
        assert!(remote.peer().is_none());
        remote.call(within(500), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        assert_eq!(net.connects.load(SeqCst), 2);
    });
}

#[test]
fn wrong_cluster_and_role_end_the_call_at_once_and_harm_nobody() {
    run(async {
        let (env, _) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let client = endpoint(&env, Role::Client, 0, Limits::default());
        let begun = env.clock.now();

        let meta = Remote::new(&client, Role::Metadata, ServerId(0), NAMES, vec![server.at.clone()]);
        let error = meta.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap_err();
        assert_eq!(error.code, Code::WrongRole);
        assert!(error.to_string().contains("data server 2"), "{error}");

        let foreign = ClusterId([8; 16]);
        let identity = Identity { cluster: foreign, ..client.identity() };
        let other = Endpoint::new(env.clone(), identity, Limits::default());
        let error = remote(&other, &server.at).call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap_err();
        assert_eq!(error.code, Code::WrongCluster);
        let text = error.to_string();
        assert!(text.contains(&CLUSTER.to_string()) && text.contains(&foreign.to_string()), "{text}");

        let new = Endpoint::new(env.clone(), Identity { cluster: ClusterId::default(), ..identity }, Limits::default());
        let joining = remote(&new, &server.at);
        joining.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        assert_eq!(joining.peer().unwrap().cluster, CLUSTER);
        assert_eq!(env.clock.now(), begun, "nothing was repeated");
        assert_eq!(server.stats.snapshot().refusals, 2);
    });
}

/// At the address of a cluster that is gone another may serve one day, whose files have the same numbers: a mount must not write
/// into them.
#[test]
fn a_client_stays_with_the_cluster_that_it_reached_first() {
    run(async {
        let (env, net) = world();
        let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        let unknown =
            Identity { role: Role::Client, cluster: ClusterId::default(), server: ServerId(0), incarnation: 9 };
        let client = Endpoint::new(env.clone(), unknown, Limits::default());
        let there = remote(&client, &server.at);
        there.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        server.kill(&net);
        let of_another =
            Identity { role: Role::Data, cluster: ClusterId([8; 16]), server: ServerId(2), incarnation: 2 };
        let other = Endpoint::new(env.clone(), of_another, Limits::default());
        let other = Server::start_as(other, &at("a:1"), Arc::default()).await;
        let error = there.call(within(2_000), &Raw(&[ECHO]), Bytes::new()).await.unwrap_err();
        assert!(error.to_string().contains("check the address"), "{error}");
        assert_eq!(other.service.begun.load(SeqCst), 0, "nothing has reached it");
        // Its own, back again, is taken as ever.
        other.kill(&net);
        let back = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
        there.call(within(0), &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        drop(back);
    });
}

#[test]
fn calls_to_one_metadata_server_share_a_stub_and_those_that_went_are_forgotten() {
    run(async {
        let (env, _) = world();
        let peers = WireMetaPeers::new(&endpoint(&env, Role::Metadata, 0, Limits::default()));
        let list = |n: u32| vec![format!("tcp:a:{n}"), format!("tcp:b:{n}")];
        let (first, other) = (peers.meta(&list(1)), peers.meta(&list(2)));
        assert!(Arc::ptr_eq(&first, &peers.meta(&list(1))) && !Arc::ptr_eq(&first, &other));
        let gone = Arc::downgrade(&other);
        drop(other);
        (3..1000).for_each(|n| drop(peers.meta(&list(n))));
        assert!(gone.upgrade().is_none(), "nobody asks it any more");
        assert!(Arc::ptr_eq(&first, &peers.meta(&list(1))), "somebody does");
    });
}
