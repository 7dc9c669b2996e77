//! Round trips where two serve, and quotas at every server.

use super::*;

/// The budget of design.md §4 (`budget.rs`) where two serve: each operation at whoever holds what it is of, also if the other holds its second
/// directory, with hints as mounts send them. What the two tell each other are messages, and no round trips to the engine; but what a rename or
/// unlink takes away is read before, to know who is to be told: one more, and within the budget.
#[tokio::test]
async fn two_that_serve_keep_within_the_budget_of_round_trips() {
    let ring = Ring::with(2, without_housekeeping()).await;
    let mount = Mount::open(&ring, 1).await;
    let (dir, other) = (dir_of(&mount, LEADER, "dir").await.id, dir_of(&mount, MemberId(2), "other").await.id);
    let mut hinted = Vec::new();
    for id in [dir, other] {
        hinted.push(InodeRef { id, hint: Some((ROOT, name(&name_of(&mount, id).await))) });
    }
    let (from, to) = (hinted[0].clone(), hinted[1].clone());
    let make = |dir: &InodeRef, text: &str| CreateFile { parent: dir.clone(), ..create(dir.id, text) };
    let moves = |from: &InodeRef, old: &str, to: &InodeRef, new: &str| Rename {
        from: from.clone(),
        to: to.clone(),
        ..rename((from.id, old), (to.id, new), RenameKind::Replace)
    };
    for dir in [&from, &to] {
        // Whose policy holds there is known then, what users may have, and each has ids of its own.
        for text in ["warm", "a", "b"] {
            mount.of(dir.id, make(dir, text)).await.unwrap();
        }
    }
    // Each has heard that there are none.
    ring.until_nothing_is_asked().await;
    let mut trips = Vec::new();
    macro_rules! count {
        ($what:literal, $at:expr, $message:expr) => {{
            let before = ring.round_trips();
            let answer = mount.of($at, $message).await.unwrap();
            trips.push(($what, ring.round_trips() - before));
            answer
        }};
    }
    for dir in [&from, &to] {
        let file = count!("lookup", dir.id, Lookup { parent: dir.id, name: name("a") }).attr.unwrap();
        let hint = || InodeRef { id: file.id, hint: Some((dir.id, name("a"))) };
        count!("stat", file.id, GetAttr { inode: hint() });
        count!("open and read", file.id, OpenFile { inode: hint(), ..OpenFile::default() });
        let made = count!("create", dir.id, make(dir, "new")).attr;
        let bytes = CommitContent::Inline(bytes::Bytes::from_static(b"x"));
        count!("close", made.id, commit(&made, 1, bytes));
        count!("chmod", file.id, ChangeAttr { inode: hint(), ..chmod(file.id, 0o600) });
        count!("rename", dir.id, moves(dir, "a", dir, "a2"));
        count!("unlink", dir.id, Unlink { parent: dir.clone(), name: name("a2"), open_here: false });
        // The file is freed.
        ring.until_nothing_is_asked().await;
    }
    count!("rename to the other's", dir, moves(&from, "b", &to, "b2"));
    count!("rename over a file there", other, moves(&to, "b", &from, "new"));
    let of_one = [
        ("lookup", 1),
        ("stat", 1),
        ("open and read", 1),
        ("create", 2),
        ("close", 2),
        ("chmod", 2),
        ("rename", 3),
        ("unlink", 3),
    ];
    let of_both = [("rename to the other's", 3), ("rename over a file there", 3)];
    assert_eq!(trips, [&of_one[..], &of_one, &of_both].concat());
}

/// Only who leads sets quotas; the other reads in a row whether there are any, and believes for a while that there are none.
#[tokio::test]
async fn a_quota_holds_at_every_server_from_when_it_is_set_until_it_is_taken() {
    use braid_api::admin::AdminQuery;
    use braid_api::quota::{Limits, Payer};
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "dir").await.id;
    let payer = Payer::User(spec(FileKind::File).uid);
    let set = async |inodes: Option<u64>| {
        let limits = inodes.map(|inodes| Limits { inodes: Some(inodes), bytes: None });
        mount.at(&ring.leader(), AdminQuery::SetQuota { payer, limits }).await.unwrap();
    };
    let made = async |text: &str| mount.of(dir, create(dir, text)).await.map(|made| made.attr.id);
    for round in 0..3 {
        let before = made(&format!("{round}, before")).await.expect("there is no quota");
        set(Some(1)).await;
        assert_eq!(code(made(&format!("{round}, beyond")).await), Code::QuotaExceeded);
        let opened = mount.of(before, open(before, FileWant::WriteDirect)).await.unwrap();
        assert_eq!(opened.room, None, "it is of inodes");
        let limits = Some(Limits { inodes: None, bytes: Some(1000) });
        mount.at(&ring.leader(), AdminQuery::SetQuota { payer, limits }).await.unwrap();
        let opened = mount.of(before, open(before, FileWant::WriteDirect)).await.unwrap();
        assert_eq!(opened.room, Some(0));
        set(None).await;
        let opened = mount.of(before, open(before, FileWant::WriteDirect)).await.unwrap();
        assert_eq!(opened.room, None);
    }
    // The next leader says so anew.
    set(Some(1)).await;
    ring.lead_anew(MemberId(3)).await;
    mount.renew().await;
    eventually("whoever holds it answers", async || {
        let beyond = code(made("beyond").await);
        assert!(
            matches!(beyond, Code::QuotaExceeded | Code::HeldElsewhere | Code::Recovering | Code::Busy),
            "{beyond:?}"
        );
        beyond == Code::QuotaExceeded
    })
    .await;
}
