//! Snapshots of what several servers hold.

use super::*;

fn snapshot(text: &str, wait_ms: u64) -> braid_api::admin::AdminQuery {
    braid_api::admin::AdminQuery::CreateSnapshot { dir: ROOT, name: name(text), wait_ms }
}

/// Gives up what is recalled at a server, and says of what.
async fn yields(mount: &Mount, id: MemberId) -> Vec<InodeId> {
    let mut recalled = Vec::new();
    for order in mount.listens(id, Duration::from_millis(100)).await {
        if let Order::Recall { inode, generation, to, .. } = order {
            let files = vec![(inode, generation, to)];
            let said = YieldFiles { member: id, files, locks: Vec::new(), locks_done: 0, handles: Vec::new() };
            mount.at(&mount.ring.server(id), said).await.unwrap();
            recalled.push(inode);
        }
    }
    recalled
}

/// What is under a name of a snapshot, by any server's way.
async fn then(mount: &Mount, at: MemberId, snapshot: &str, path: &[&str]) -> Option<Attr> {
    let path: Vec<Name> = [".braid", "snapshots", snapshot].iter().chain(path).map(|text| name(text)).collect();
    let wanted = path.len();
    let found = mount.at(&mount.ring.server(at), Resolve { from: ROOT, path }).await.unwrap();
    (found.attrs.len() == wanted).then(|| *found.attrs.last().unwrap())
}

#[tokio::test]
async fn a_snapshot_waits_for_who_writes_at_another_server_and_is_shown_by_all() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let (one, two) = (dir_of(&mount, LEADER, "one").await.id, dir_of(&mount, MemberId(2), "two").await.id);
    let [at_one, at_two] = [one, two].map(|dir| (dir, create(dir, "f")));
    let (at_one, at_two) = (mount.of(at_one.0, at_one.1).await.unwrap(), mount.of(at_two.0, at_two.1).await.unwrap());
    assert_eq!(at_two.lease.state, LeaseState::Exclusive);
    let (leader, cx) = (ring.leader(), mount.cx());
    let making = tokio::spawn(async move { leader.call(cx, snapshot("s", 20_000)).await });
    tokio::time::sleep(SHORT).await;
    assert_eq!(yields(&mount, LEADER).await, [at_one.attr.id]);
    tokio::time::sleep(SHORT).await;
    assert!(!making.is_finished(), "what is written at the other is not stored yet");
    // Meanwhile that one goes on, with all but this file.
    let beside = mount.of(two, create(two, "beside")).await.unwrap();
    assert_eq!(beside.lease.state, LeaseState::Exclusive);
    // Until the last of them has been given up.
    let mut given = Vec::new();
    eventually("all is given up", async || {
        given.extend(yields(&mount, MemberId(2)).await);
        making.is_finished()
    })
    .await;
    making.await.unwrap().unwrap();
    assert!(given.contains(&at_two.attr.id) && given.contains(&beside.attr.id), "{given:?}");
    mount.of(two, MakeNode { parent: two.into(), name: name("later"), spec: spec(FileKind::Directory) }).await.unwrap();
    for id in [LEADER, MemberId(2)] {
        let found = then(&mount, id, "s", &[&name_of(&mount, two).await, "f"]).await;
        assert!(found.is_some_and(|attr| attr.id.is_in_snapshot()), "{id}");
        assert_eq!(then(&mount, id, "s", &[&name_of(&mount, two).await, "later"]).await, None, "{id}");
        assert_eq!(then(&mount, id, "other", &[]).await, None, "{id}");
    }
    // And it is let go of: the file can be written again.
    eventually("it is written again", async || {
        let opened = mount.of(two, open(at_two.attr.id, FileWant::Alone)).await.unwrap();
        opened.lease.state == LeaseState::Exclusive
    })
    .await;
    let dropped = braid_api::admin::AdminQuery::DropSnapshot { dir: ROOT, name: name("s") };
    mount.at(&ring.leader(), dropped).await.unwrap();
    for id in [LEADER, MemberId(2)] {
        assert_eq!(then(&mount, id, "s", &[]).await, None, "{id}");
    }
}

#[tokio::test]
async fn where_servers_come_while_a_snapshot_is_made_it_is_made_of_what_they_hold_too() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "d").await.id;
    let file = mount.of(dir, create(dir, "f")).await.unwrap();
    let (leader, cx) = (ring.leader(), mount.cx());
    let making = tokio::spawn(async move { leader.call(cx, snapshot("s", 20_000)).await });
    tokio::time::sleep(SHORT).await;
    // The one that was asked is none any more, and what it held is held elsewhere, as the session says.
    ring.kill(MemberId(2));
    ring.start(MemberId(3)).await;
    ring.turn([1, 3].map(MemberId).to_vec()).await;
    let holder = ring.roster().holder_of(dir.slot()).unwrap();
    for id in [LEADER, MemberId(3)] {
        let term = mount.at(&ring.server(id), RenewTerm {}).await.unwrap().term.unwrap();
        let held = (id == holder).then_some((file.attr.id, LeaseState::Exclusive));
        if let Some(round) = term.reassert {
            mount.reassert(&ring.server(id), term, round, held.into_iter().collect()).await;
        }
    }
    tokio::time::sleep(SHORT).await;
    assert!(!making.is_finished(), "whoever holds it now has its writer, who has stored nothing");
    let mut given = Vec::new();
    eventually("it is given up", async || {
        given.extend(yields(&mount, holder).await);
        making.is_finished()
    })
    .await;
    assert!(given.contains(&file.attr.id), "{given:?}");
    making.await.unwrap().unwrap();
    assert!(then(&mount, MemberId(3), "s", &[]).await.is_some());
}

#[tokio::test]
async fn a_word_about_a_snapshot_that_comes_late_holds_up_nobody() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "d").await.id;
    // What is below it says so from now on.
    mount.at(&ring.leader(), snapshot("first", 5_000)).await.unwrap();
    let server = ring.server(MemberId(2));
    let (to, epoch) = (MemberId(2), ring.roster().epoch);
    let say = |turn, step| {
        let word = StillAt { to, epoch, number: 5, turn, root: ROOT, step };
        server.call(Context::default(), word)
    };
    assert!(say(1, StillStep::Files).await.unwrap());
    assert!(say(2, StillStep::Writes).await.unwrap());
    assert!(say(2, StillStep::Writes).await.unwrap(), "it was not known that it is done");
    assert_eq!(code(say(1, StillStep::Files).await), Code::HeldElsewhere, "what holds now goes on holding");
    let (at, cx) = (server.clone(), mount.cx());
    let waits = tokio::spawn(async move { at.call(cx, create(dir, "f")).await });
    tokio::time::sleep(SHORT).await;
    assert!(!waits.is_finished() || waits.await.unwrap().unwrap().lease.state != LeaseState::Exclusive);
    assert!(say(3, StillStep::LetGo).await.unwrap());
    assert!(say(3, StillStep::LetGo).await.unwrap());
    assert_eq!(code(say(2, StillStep::Writes).await), Code::HeldElsewhere);
    mount.renew().await;
    let opened = mount.of(dir, create(dir, "g")).await.unwrap();
    assert_eq!(opened.lease.state, LeaseState::Exclusive, "nothing is held");
    // The leader has gone without a word.
    let begun = |number| StillAt { to, epoch, number, turn: 1, root: ROOT, step: StillStep::Writes };
    assert!(!server.call(Context::default(), begun(6)).await.unwrap(), "it has a writer");
    ring.turn([1, 2].map(MemberId).to_vec()).await;
    mount.renew().await;
    assert_eq!(code(server.call(Context::default(), begun(7)).await), Code::HeldElsewhere, "of another epoch");
    let opened = mount.of(dir, create(dir, "h")).await.unwrap();
    assert_eq!(opened.lease.state, LeaseState::Exclusive, "nothing is held");
}
