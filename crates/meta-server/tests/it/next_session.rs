//! A session ends although its client lives: what the client repeats under its next one.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::*;
use braid_api::{Code, Context, Namespace};
use braid_meta_engine::Table;
use braid_meta_server::MetaConfig;
use braid_types::*;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;
/// The number of the client whose session ends.
const CLIENT: u64 = 77;

fn rows(w: &World) -> (usize, usize) {
    (w.store.durable_rows(Table::Sessions).len(), w.store.durable_rows(Table::Requests).len())
}

/// The same request, under another session.
fn under(w: &World, session: &SessionReply, first: Context) -> Context {
    Context { request: first.request, ..w.cx_of(session) }
}

#[tokio::test]
async fn a_request_repeated_under_the_clients_next_session_takes_effect_once() {
    for restart in [false, true] {
        let mut w = World::new().await;
        w.create(ROOT, "a").await;
        let old = open_session(&w.server, CLIENT).await;
        let unlink = Unlink { parent: ROOT.into(), name: name("a"), open_here: false };
        let (first, second) = (w.cx_of(&old), w.cx_of(&old));
        w.server.call(first, unlink.clone()).await.unwrap();
        let made = w.server.call(second, create(ROOT, "b")).await.unwrap();
        // Its answers are lost, it is taken for dead, and another client uses the name again.
        w.server.call(w.cx_of(&old), EndSession {}).await.unwrap();
        w.create(ROOT, "a").await;
        if restart {
            w = World::on(w.store.clone(), w.peers.clone()).await;
        }
        assert_eq!(code(w.server.call(first, unlink.clone()).await), Code::SessionUnknown, "the old one is over");
        let next = open_session(&w.server, CLIENT).await;
        assert_ne!(next.session, old.session);
        w.server.call(under(&w, &next, first), unlink.clone()).await.unwrap();
        assert!(w.lookup(ROOT, "a").await.is_some(), "the repetition must not remove what another has made");
        let again = w.server.call(under(&w, &next, second), create(ROOT, "b")).await.unwrap();
        assert_eq!(again.attr.id, made.attr.id, "the same answer, not Exists");
        // Under another client's session it is another request.
        let other = open_session(&w.server, CLIENT + 1).await;
        assert_eq!(code(w.server.call(under(&w, &other, second), create(ROOT, "b")).await), Code::Exists);
    }
}

/// The end of the session waits for a data server, and the client goes on under another number without waiting for that.
#[tokio::test]
async fn a_request_repeated_while_the_old_session_still_ends_takes_effect_once() {
    for ended in [false, true] {
        let w = World::new().await;
        let server = w.add_data_server().await;
        w.create(ROOT, "a").await;
        let old = open_session(&w.server, CLIENT).await;
        let unlink = Unlink { parent: ROOT.into(), name: name("a"), open_here: false };
        let take = TakeSpares { policy: Policy::PLAIN, count: 2, beside: None, for_moves: false };
        let (first, second, third) = (w.cx_of(&old), w.cx_of(&old), w.cx_of(&old));
        w.server.call(first, unlink.clone()).await.unwrap();
        let made = w.server.call(second, create(ROOT, "b")).await.unwrap();
        let spares = w.server.call(third, take.clone()).await.unwrap().spares;
        w.create(ROOT, "a").await;
        // On its way while the session ends: it runs before the client is another, or not at all.
        let late = w.cx_of(&old);
        w.peers.0.away.store(true, Ordering::Relaxed);
        let end = w.server.call(w.cx_of(&old), EndSession {}).await;
        assert_eq!(code(end), Code::Unreachable, "data server {server} is away");
        if ended {
            w.peers.0.away.store(false, Ordering::Relaxed);
            eventually("the end of the old session", async || has_ended(&w, &old).await).await;
        }
        let next = open_session_after(&w.server, CLIENT + 1, Some(CLIENT)).await;
        assert_ne!(next.session, old.session);
        let again = open_session_after(&w.server, CLIENT + 1, Some(CLIENT)).await;
        assert_eq!(again.session, next.session, "its answer was lost");
        let refused = code(w.server.call(late, create(ROOT, "late")).await);
        assert!(matches!(refused, Code::SessionFenced | Code::SessionUnknown), "{refused:?}");
        w.server.call(under(&w, &next, first), unlink.clone()).await.unwrap();
        assert!(w.lookup(ROOT, "a").await.is_some(), "the repetition must not remove what another has made");
        let again = w.server.call(under(&w, &next, second), create(ROOT, "b")).await.unwrap();
        assert_eq!(again.attr.id, made.attr.id, "the same answer, not Exists");
        let others = w.server.call(under(&w, &next, third), take).await.unwrap().spares;
        assert!(
            others.iter().all(|spare| !spares.contains(spare)),
            "{others:?} are free, {spares:?} went with the session"
        );
        w.peers.0.away.store(false, Ordering::Relaxed);
        eventually("the end of the old session", async || has_ended(&w, &old).await).await;
        w.server.call(under(&w, &next, late), create(ROOT, "late")).await.unwrap();
        w.server.call(under(&w, &next, first), unlink).await.unwrap();
        assert!(w.lookup(ROOT, "a").await.is_some(), "also when the old session has ended");
    }
}

async fn has_ended(w: &World, session: &SessionReply) -> bool {
    let nothing = Unlink { parent: ROOT.into(), name: name("nothing"), open_here: false };
    code(w.server.call(w.cx_of(session), nothing).await) == Code::SessionUnknown
}

#[tokio::test]
async fn what_went_with_a_session_is_not_answered_again() {
    let w = World::new().await;
    w.add_data_server().await;
    let old = open_session(&w.server, CLIENT).await;
    let (first, second) = (w.cx_of(&old), w.cx_of(&old));
    let take = TakeSpares { policy: Policy::PLAIN, count: 2, beside: None, for_moves: false };
    let spares = w.server.call(first, take.clone()).await.unwrap().spares;
    let temporary = CreateTemporary { parent: ROOT.into(), spec: spec(FileKind::File) };
    w.server.call(second, temporary.clone()).await.unwrap();
    w.server.call(w.cx_of(&old), EndSession {}).await.unwrap();
    let next = open_session(&w.server, CLIENT).await;
    let others = w.server.call(under(&w, &next, first), take).await.unwrap().spares;
    assert!(others.iter().all(|spare| !spares.contains(spare)), "{others:?} are free to be taken, {spares:?} are not");
    let file = w.server.call(under(&w, &next, second), temporary).await.unwrap();
    assert!(w.attr(file.attr.id).await.is_ok(), "a file that is there");
}

#[tokio::test]
async fn answers_of_a_client_that_does_not_come_back_are_forgotten() {
    let short = Duration::from_millis(150);
    let config = MetaConfig {
        session_lease: short,
        session_renew: short / 3,
        session_expiry: short,
        heartbeat: short / 3,
        server_lease: short,
        ..fast_config()
    };
    let w = World::with(braid_meta_engine::MemStore::new(), Peers::default(), config, 1).await;
    let old = open_session(&w.server, CLIENT).await;
    w.server.call(w.cx_of(&old), create(ROOT, "a")).await.unwrap();
    // Neither says anything more.
    eventually("the end of both sessions, and of what they asked for", async || rows(&w) == (0, 0)).await;
    // One that says that it goes is not remembered at all.
    let clean = open_session(&w.server, CLIENT).await;
    w.server.call(w.cx_of(&clean), create(ROOT, "b")).await.unwrap();
    w.server.call(w.cx_of(&clean), CloseSession {}).await.unwrap();
    assert_eq!(rows(&w), (0, 0));
}

/// A data server that registers hears of every session that has ended, or whose end has begun and may not find it any more.
#[tokio::test]
async fn a_data_server_that_registers_hears_which_sessions_live() {
    let mut w = World::new().await;
    let id = w.add_data_server().await;
    let other = w.data_server(ServerId(0)).await;
    let (ended, ends, lives) = (
        open_session(&w.server, CLIENT).await,
        open_session(&w.server, CLIENT + 1).await,
        open_session(&w.server, CLIENT + 2).await,
    );
    w.server.call(w.cx_of(&ended), EndSession {}).await.unwrap();
    let register = RegisterServer {
        id,
        incarnation: 2,
        addresses: vec!["tcp:nowhere:1".into()],
        host: "h".into(),
        clean_stop: false,
        rack: String::new(),
    };
    let heard = w.call(register.clone()).await.unwrap().sessions;
    let live = |heard: &LiveSessions| [&ended, &ends, &lives].map(|s| heard.may_live(s.session));
    assert_eq!((live(&heard), heard.before), ([false, true, true], SessionId(lives.session.0 + 1)));
    // Its end waits for a server that is away. One that registers now is not asked to fence it.
    w.peers.0.away.store(true, Ordering::Relaxed);
    let (end, heard) = tokio::join!(w.server.call(w.cx_of(&ends), EndSession {}), w.call(register.clone()));
    assert_eq!(code(end), Code::Unreachable, "data server {other} is away");
    assert!(!live(&heard.unwrap().sessions)[0]);
    w.peers.0.away.store(false, Ordering::Relaxed);
    eventually("the end of the session", async || has_ended(&w, &ends).await).await;
    w = World::on(w.store.clone(), w.peers.clone()).await;
    let heard = w.call(register).await.unwrap().sessions;
    assert_eq!(live(&heard), [false, false, true], "also of a metadata server that has started again");
}
