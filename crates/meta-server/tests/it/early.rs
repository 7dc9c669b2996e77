//! Answers before durability, and what happens when the server crashes behind them.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::admin::AdminAnswer;
use braid_api::meta::*;
use braid_api::{Carries, Code, Context, Namespace, Result, When};
use braid_types::*;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;

/// One change, answered early if it can be.
async fn early<M: Carries<MetaRequest, MetaAnswer>>(w: &World, of: &SessionReply, message: M) -> (MetaAnswer, Kept) {
    let cx = Context { when: When::Early, ..w.cx_of(of) };
    let request = message.wrap();
    let (answer, mark) = w.server.execute_early(cx, request.clone()).await.unwrap();
    let mark = mark.early.expect("an early answer");
    (answer, Kept { request: cx.request, mark, told: true, message: request })
}

/// The first change of a session for a while puts on record that it keeps things, and is answered when it is durable.
async fn warm(w: &World, of: &SessionReply, name: &str) {
    let cx = Context { when: When::Early, ..w.cx_of(of) };
    let (_, mark) = w.server.execute_early(cx, create(ROOT, name).wrap()).await.unwrap();
    assert!(mark.open && mark.early.is_none() && mark.incarnation != 0, "{mark:?}");
}

async fn replay(w: &World, of: &SessionReply, kept: Vec<Kept>) -> Result<ReplayAnswer> {
    w.server.call(w.cx_of(of), Replay { kept, last: true }).await
}

fn mkdir(name: &str) -> MakeNode {
    MakeNode { parent: ROOT.into(), name: crate::common::name(name), spec: spec(FileKind::Directory) }
}

fn created(answer: &MetaAnswer) -> Attr {
    match answer {
        MetaAnswer::MakeNode(made) => made.attr,
        MetaAnswer::CreateFile(made) => made.attr,
        other => panic!("{other:?}"),
    }
}

async fn code_of_lookup(w: &World, name: &str) -> Option<Code> {
    w.call(Lookup { parent: ROOT, name: crate::common::name(name) }).await.err().map(|error| error.code)
}

async fn is_open(w: &World) {
    eventually("the server opens", async || code_of_lookup(w, "x").await.is_none()).await;
}

#[tokio::test]
async fn a_change_is_answered_before_it_is_durable_and_only_to_who_keeps_it() {
    let w = World::new().await;
    warm(&w, &w.session, "warm").await;
    let (_, kept) = early(&w, &w.session, create(ROOT, "a")).await;
    assert!(w.store.pending() > 0, "nothing makes it durable but a wait");
    let cx = Context { when: When::Early, ..w.cx() };
    let look = Lookup { parent: ROOT, name: name("a") };
    let (_, mark) = w.server.execute_early(cx, look.clone().wrap()).await.unwrap();
    assert!(mark.early.is_some() && mark.durable < kept.mark.number, "its own session sees it as it is");
    let other = open_session(&w.server, 2).await;
    let cx = Context { when: When::Early, ..w.cx_of(&other) };
    let (answer, mark) = w.server.execute_early(cx, look.wrap()).await.unwrap();
    assert!(matches!(answer, MetaAnswer::Lookup(LookupAnswer { attr: Some(_), .. })));
    assert!(mark.early.is_none() && mark.durable >= kept.mark.number, "another one waits for durability: {mark:?}");
    // Whoever does not ask for it, and what may not, is never answered early.
    w.create(ROOT, "b").await;
    assert_eq!(w.store.pending(), 0);
    let file = w.create(ROOT, "c").await.attr;
    let cx = Context { when: When::Early, ..w.cx() };
    let (_, mark) = w.server.execute_early(cx, truncate(file.id, 0).wrap()).await.unwrap();
    assert!(mark.early.is_none(), "a data server is told of a truncate at once");
}

#[tokio::test]
async fn what_was_kept_is_executed_in_order_before_anything_else() {
    let w = World::new().await;
    let other = open_session(&w.server, 2).await;
    warm(&w, &w.session, "warm 1").await;
    warm(&w, &other, "warm 2").await;
    // One session's changes that depend on each other, and another's between them.
    let (dir, first) = early(&w, &w.session, mkdir("dir")).await;
    let dir = created(&dir);
    let (file, second) = early(&w, &w.session, create(dir.id, "file")).await;
    let (_, third) = early(
        &w,
        &w.session,
        Rename {
            from: dir.id.into(),
            from_name: name("file"),
            to: dir.id.into(),
            to_name: name("moved"),
            mode: RenameKind::Replace,
            open_here: false,
        },
    )
    .await;
    assert!(w.store.crash(|| false) >= 3, "they were not durable");

    let w2 = World::on(w.store.clone(), w.peers.clone()).await;
    assert_eq!(code_of_lookup(&w2, "dir").await, Some(Code::Recovering));
    let AdminAnswer::Why(why) = w2.call(AdminQuery::Why).await.unwrap() else { panic!("why") };
    assert_eq!(why.len(), 2, "it says for whom it waits: {why:?}");
    replay(&w2, &other, Vec::new()).await.unwrap();
    assert_eq!(code_of_lookup(&w2, "dir").await, Some(Code::Recovering), "not all have come");
    // Sent twice, in whatever order, with one page that nobody saw the answer of.
    let page = Replay { kept: vec![third.clone()], last: false };
    w2.server.call(w2.cx_of(&w.session), page).await.unwrap();
    replay(&w2, &w.session, vec![third, second, first]).await.unwrap();
    is_open(&w2).await;
    assert_eq!(w2.server.repeated(), (3, 0));
    assert_eq!(w2.lookup(ROOT, "dir").await.map(|attr| (attr.id, attr.btime)), Some((dir.id, dir.btime)), "exactly");
    let moved = w2.lookup(dir.id, "moved").await.unwrap();
    assert_eq!((moved.id, moved.btime), (created(&file).id, created(&file).btime));
    assert!(w2.create(ROOT, "new").await.attr.id.0 >> SLOT_BITS > moved.id.0 >> SLOT_BITS, "ids are never given twice");
    assert_eq!(w2.store.pending(), 0, "and it is durable");
}

#[tokio::test]
async fn what_had_become_durable_is_not_executed_again() {
    let w = World::new().await;
    warm(&w, &w.session, "warm").await;
    let (_, made) = early(&w, &w.session, create(ROOT, "a")).await;
    let (_, gone) = early(&w, &w.session, Unlink { parent: ROOT.into(), name: name("a"), open_here: false }).await;
    let (_, again) = early(&w, &w.session, create(ROOT, "a")).await;
    let mut kept = 0;
    w.store.crash(|| {
        kept += 1;
        kept <= 2
    });
    let w2 = World::on(w.store.clone(), w.peers.clone()).await;
    replay(&w2, &w.session, vec![made, gone, again]).await.unwrap();
    is_open(&w2).await;
    assert_eq!(w2.server.repeated(), (3, 0));
    assert!(w2.lookup(ROOT, "a").await.is_some(), "the unlink that was durable takes nothing away");
}

/// A client that has gone together with the server: its last changes are lost, from some point on, and nothing else.
#[tokio::test]
async fn a_session_that_has_gone_is_waited_for_and_then_ends() {
    for keep in [0, 1, 2] {
        let w = World::new().await;
        warm(&w, &w.session, "warm").await;
        for name in ["a", "b", "c"] {
            early(&w, &w.session, create(ROOT, name)).await;
        }
        let mut kept = 0;
        w.store.crash(|| {
            kept += 1;
            kept <= keep
        });
        let config = braid_meta_server::MetaConfig {
            session_renew: Duration::from_millis(10),
            heartbeat: Duration::from_millis(10),
            server_lease: Duration::from_millis(50),
            session_lease: Duration::from_millis(200),
            gather: Duration::from_millis(200),
            ..fast_config()
        };
        let w2 = World::with(w.store.clone(), w.peers.clone(), config, 2).await;
        assert_eq!(code_of_lookup(&w2, "a").await, Some(Code::Recovering));
        is_open(&w2).await;
        let mut there = Vec::new();
        for name in ["a", "b", "c"] {
            there.push(w2.lookup(ROOT, name).await.is_some());
        }
        assert_eq!(there, [keep > 0, keep > 1, false], "a beginning of what was done");
        // It is too late for the rest, and whoever comes with it is told so.
        let late = replay(&w2, &w.session, Vec::new()).await.unwrap_err().code;
        assert!(matches!(late, Code::SessionFenced | Code::SessionUnknown), "{late:?}");
        let late = w2.server.call(w2.cx_of(&w.session), create(ROOT, "late")).await.unwrap_err().code;
        assert!(matches!(late, Code::SessionFenced | Code::SessionUnknown), "{late:?}");
        eventually("the session ends", async || {
            w2.peers.0.fenced.lock().contains(&w.session.session) || {
                let AdminAnswer::Sessions(all) = w2.call(AdminQuery::Sessions).await.unwrap() else {
                    panic!("sessions")
                };
                all.iter().all(|s| s.session != w.session.session)
            }
        })
        .await;
    }
}

/// `braid mount` at the place of a dead client says that it is dead.
#[tokio::test]
async fn a_session_whose_end_is_told_is_not_waited_for() {
    let w = World::new().await;
    warm(&w, &w.session, "warm").await;
    early(&w, &w.session, create(ROOT, "a")).await;
    w.store.crash(|| false);
    let w2 = World::with(w.store.clone(), w.peers.clone(), fast_config(), 2).await;
    assert_eq!(code_of_lookup(&w2, "a").await, Some(Code::Recovering));
    w2.server.call(w2.cx_of(&w.session), CloseSession {}).await.unwrap();
    is_open(&w2).await;
    assert!(w2.lookup(ROOT, "a").await.is_none());
}

#[tokio::test]
async fn who_keeps_nothing_is_not_waited_for() {
    // A client that never asked for early answers.
    let w = World::new().await;
    w.create(ROOT, "a").await;
    w.store.crash(|| false);
    let w2 = World::with(w.store.clone(), w.peers.clone(), fast_config(), 2).await;
    assert_eq!(code_of_lookup(&w2, "a").await, None);
    // One whose last change is some time ago.
    warm(&w2, &w2.session, "warm").await;
    early(&w2, &w2.session, create(ROOT, "b")).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(w2.store.pending(), 0);
    w2.store.crash(|| false);
    let w3 = World::with(w2.store.clone(), w2.peers.clone(), fast_config(), 3).await;
    assert!(w3.lookup(ROOT, "b").await.is_some());
    // A server that was told to stop.
    warm(&w3, &w3.session, "warm again").await;
    let (_, kept) = early(&w3, &w3.session, create(ROOT, "c")).await;
    w3.server.close().await.unwrap();
    assert_eq!(w3.store.crash(|| false), 0, "everything is durable");
    let w4 = World::with(w3.store.clone(), w3.peers.clone(), fast_config(), 4).await;
    assert!(w4.lookup(ROOT, "c").await.is_some());
    // Its client does not know that, and asks.
    let answer = replay(&w4, &w3.session, vec![kept.clone()]).await.unwrap();
    assert_eq!(answer, ReplayAnswer::default());
    let never = Kept { request: RequestId(kept.request.0 + 1000), ..kept };
    let answer = replay(&w4, &w3.session, vec![never.clone()]).await.unwrap();
    assert_eq!(answer.lost, [never.request], "what nobody has is said to be lost, not executed out of turn");
}

#[tokio::test]
async fn nothing_is_answered_early_where_that_is_off() {
    let config = braid_meta_server::MetaConfig { early_reply: false, ..fast_config() };
    let w = World::with(braid_meta_engine::MemStore::new(), Peers::default(), config, 1).await;
    for name in ["a", "b"] {
        let cx = Context { when: When::Early, ..w.cx() };
        let (_, mark) = w.server.execute_early(cx, create(ROOT, name).wrap()).await.unwrap();
        assert!(mark.early.is_none());
        assert_eq!(w.store.pending(), 0);
    }
}
