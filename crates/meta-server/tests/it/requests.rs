//! How long the answer of a request is remembered: until the client says that it will not ask again.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::*;
use braid_api::{Code, Context, Namespace};
use braid_meta_engine::Table;
use braid_meta_namespace::rows::keys;
use braid_types::*;

const ROOT: InodeId = InodeId::ROOT;

/// The requests of a session whose answers are in the rows.
fn remembered(w: &World, session: SessionId) -> Vec<RequestId> {
    let rows = w.store.durable_rows(Table::Requests);
    let of = rows.iter().filter(|(key, _)| key.partition() == session.0);
    of.map(|(key, _)| RequestId(keys::trailing_number(key).unwrap())).collect()
}

async fn renew(w: &World, of: &SessionReply, low_water: RequestId) {
    let renew = RenewSession { low_water, orphans_seen: 0, orphans_held: Vec::new() };
    w.server.call(w.cx_of(of), renew).await.unwrap();
}

/// Until housekeeping has forgotten all below.
async fn pruned(w: &World, session: SessionId, below: RequestId) {
    eventually("pruning", async || remembered(w, session).iter().all(|id| *id >= below)).await;
}

#[tokio::test]
async fn answers_below_the_low_water_mark_are_forgotten_and_no_others() {
    let w = World::new().await;
    let other = open_session(&w.server, 2).await;
    let mut asked: Vec<(Context, Attr)> = Vec::new();
    for n in 0..6 {
        let cx = w.cx();
        let made = w.server.call(cx, create(ROOT, &format!("f{n}"))).await.unwrap();
        asked.push((cx, made.attr));
        w.server.call(w.cx_of(&other), create(ROOT, &format!("other{n}"))).await.unwrap();
    }
    let ids: Vec<RequestId> = asked.iter().map(|(cx, _)| cx.request).collect();
    let of_other = remembered(&w, other.session);
    assert_eq!((remembered(&w, w.session.session), of_other.len()), (ids.clone(), 6));

    renew(&w, &w.session, ids[3]).await;
    pruned(&w, w.session.session, ids[3]).await;
    // Several rounds later it is still so.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(remembered(&w, w.session.session), ids[3..], "the mark itself is still asked for");
    assert_eq!(remembered(&w, other.session), of_other, "each session has its own mark");
    for (n, (cx, attr)) in asked.iter().enumerate() {
        let again = w.server.call(*cx, create(ROOT, &format!("f{n}"))).await;
        match n < 3 {
            true => assert_eq!(code(again), Code::Exists, "request {n} is unknown and runs again"),
            false => assert_eq!(again.unwrap().attr, *attr, "request {n} has its answer"),
        }
    }

    // A mark that comes late takes nothing back, and the next one goes on from where the last was.
    renew(&w, &w.session, ids[1]).await;
    renew(&w, &w.session, ids[5]).await;
    pruned(&w, w.session.session, ids[5]).await;
    assert_eq!(remembered(&w, w.session.session), ids[5..]);
}

#[tokio::test]
async fn a_mark_of_nothing_forgets_nothing() {
    let w = World::new().await;
    let cx = w.cx();
    let made = w.server.call(cx, create(ROOT, "a")).await.unwrap();
    renew(&w, &w.session, RequestId(0)).await;
    renew(&w, &w.session, cx.request).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(w.server.call(cx, create(ROOT, "a")).await.unwrap().attr, made.attr);
}

/// More than one transaction forgets: what a client left that was away from housekeeping for a while.
#[tokio::test]
async fn thousands_of_answers_are_forgotten_page_by_page() {
    let w = World::new().await;
    let mut last = RequestId(0);
    for n in 0..9_000 {
        let cx = w.cx();
        last = cx.request;
        w.server.call(cx, create(ROOT, &n.to_string())).await.unwrap();
    }
    assert_eq!(remembered(&w, w.session.session).len(), 9_000);
    renew(&w, &w.session, last).await;
    pruned(&w, w.session.session, last).await;
    assert_eq!(remembered(&w, w.session.session), [last]);
}

/// What is known of the mark is memory: a server that starts again has forgotten it, and the client says it again.
#[tokio::test]
async fn a_restarted_server_keeps_what_it_has_until_it_is_told_again() {
    let w = World::new().await;
    let (first, second) = (w.cx(), w.cx());
    w.server.call(first, create(ROOT, "a")).await.unwrap();
    let made = w.server.call(second, create(ROOT, "b")).await.unwrap();
    renew(&w, &w.session, second.request).await;
    pruned(&w, w.session.session, second.request).await;
    w.store.crash(|| false);
    let w2 = World::on(w.store.clone(), w.peers.clone()).await;
    assert_eq!(remembered(&w2, w2.session.session), [second.request]);
    assert_eq!(w2.server.call(second, create(ROOT, "b")).await.unwrap().attr, made.attr);
    renew(&w2, &w2.session, RequestId(second.request.0 + 1)).await;
    eventually("pruning", async || remembered(&w2, w2.session.session).is_empty()).await;
    assert_eq!(code(w2.server.call(second, create(ROOT, "b")).await), Code::Exists);
}
