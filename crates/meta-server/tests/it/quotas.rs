//! Quotas over messages: trees that are counted behind them, room for writers, and what they cost.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::Code;
use braid_api::admin::{AdminAnswer, AdminQuery, SideTable};
use braid_api::meta::*;
use braid_api::quota::{Account, Limits, Miscount, Payer, ToSum, Weight};
use braid_types::*;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

const ROOT: InodeId = InodeId::ROOT;

async fn set(w: &World, payer: Payer, inodes: Option<u64>, bytes: Option<u64>) {
    let limits = Some(Limits { inodes, bytes });
    w.call(AdminQuery::SetQuota { payer, limits }).await.unwrap();
}

async fn account(w: &World, payer: Payer) -> Account {
    match w.call(AdminQuery::Account { payer }).await.unwrap() {
        AdminAnswer::Account(account) => account,
        other => panic!("{other:?}"),
    }
}

async fn usage(w: &World, payer: Payer) -> (i64, i64) {
    let account = account(w, payer).await;
    (account.usage.inodes, account.usage.bytes)
}

async fn miscounts(w: &World) -> Vec<Miscount> {
    match w.call(AdminQuery::Miscounts).await.unwrap() {
        AdminAnswer::Miscounts(found) => found,
        other => panic!("{other:?}"),
    }
}

fn put(dir: InodeId, text: &str, bytes: usize) -> PutFile {
    let data = Bytes::from(vec![7; bytes]);
    PutFile { parent: dir.into(), name: name(text), spec: spec(FileKind::File), data, replace: false, open_here: false }
}

async fn counted_to_the_end(w: &World, payer: Payer) {
    eventually("all of it is counted", async || account(w, payer).await.counting.is_none()).await;
}

#[tokio::test]
async fn there_is_no_more_room_than_quotas_above_leave() {
    let w = World::new().await;
    w.add_data_server().await;
    let top = w.mkdir(ROOT, "top").await.id;
    let sub = w.mkdir(top, "sub").await.id;
    let file = w.call(put(sub, "f", 1000)).await.unwrap().attr.id;
    let room = async |of: InodeId| {
        let found = w.call(GetStatFs { of }).await.unwrap();
        (found.bytes_total, found.bytes_free, found.files, found.files_free)
    };
    let all = room(InodeId(0)).await;
    assert_eq!((all.0, all.1, room(file).await), (100 << 30, 100 << 30, all));
    // Counted, and without a limit.
    set(&w, Payer::Dir(top), None, None).await;
    counted_to_the_end(&w, Payer::Dir(top)).await;
    assert_eq!(room(sub).await, all);
    set(&w, Payer::Dir(top), Some(10), Some(1 << 20)).await;
    assert_eq!(room(ROOT).await, all);
    for of in [top, sub, file] {
        assert_eq!(room(of).await, (1 << 20, (1 << 20) - 1000, 10, 7));
    }
    // Of bytes the inner leaves less, of inodes the outer.
    set(&w, Payer::Dir(sub), Some(1 << 50), Some(1500)).await;
    counted_to_the_end(&w, Payer::Dir(sub)).await;
    assert_eq!((room(top).await, room(file).await), ((1 << 20, (1 << 20) - 1000, 10, 7), (1500, 500, 10, 7)));
    // The root directory's is everybody's; who has more than he may has nothing left.
    set(&w, Payer::Dir(ROOT), Some(2), None).await;
    assert_eq!(room(file).await, (1500, 500, 2, 0));
    assert_eq!(room(InodeId(0)).await, all, "of the file system alone");
    assert_eq!(room(InodeId(999_999)).await, all, "what has gone");
    // Open, and without a name: it is charged still.
    w.unlink(sub, "f", true).await.unwrap();
    assert_eq!(room(file).await, (1500, 500, 2, 0));
}

/// Also where what was in it is freed last, being open or below other directories; and where another server comes to free it.
#[tokio::test]
async fn a_removed_tree_leaves_no_account() {
    let w = World::new().await;
    let (mut held, mut roots) = (Vec::new(), Vec::new());
    // Removed name by name.
    let emptied = w.mkdir(ROOT, "emptied").await.id;
    held.push(w.call(put(emptied, "open", 10)).await.unwrap().attr.id);
    set(&w, Payer::Dir(emptied), Some(1000), None).await;
    counted_to_the_end(&w, Payer::Dir(emptied)).await;
    w.unlink(emptied, "open", true).await.unwrap();
    w.call(RemoveDir { parent: ROOT.into(), name: name("emptied"), tree: false }).await.unwrap();
    for (text, cleared) in [("with", false), ("without", true)] {
        let top = w.mkdir(ROOT, text).await.id;
        roots.push(top);
        let sub = w.mkdir(top, "sub").await.id;
        for n in 0..300 {
            w.call(put(sub, &format!("f{n}"), 10)).await.unwrap();
        }
        held.push(w.call(put(sub, "open", 10)).await.unwrap().attr.id);
        set(&w, Payer::Dir(top), Some(1000), None).await;
        counted_to_the_end(&w, Payer::Dir(top)).await;
        if cleared {
            w.call(AdminQuery::SetQuota { payer: Payer::Dir(top), limits: None }).await.unwrap();
        }
        w.call(RemoveDir { parent: ROOT.into(), name: name(text), tree: true }).await.unwrap();
    }
    let of_directories = async |w: &World| -> Vec<InodeId> {
        let AdminAnswer::SideRows(rows) = w.call(AdminQuery::SideRows { after: None, limit: 1000 }).await.unwrap()
        else {
            panic!("another answer")
        };
        let quotas = rows.into_iter().filter(|row| row.table == SideTable::Quotas && row.inode != ROOT);
        quotas.map(|row| row.inode).collect()
    };
    eventually("all but the open ones", async || {
        disclaim(&w, &held).await;
        let AdminAnswer::Accounts(all) = w.call(AdminQuery::Accounts { after: None, limit: 100 }).await.unwrap() else {
            panic!("another answer")
        };
        all.iter().any(|account| account.payer == Payer::User(1000) && account.usage.inodes == 3)
    })
    .await;
    let charged = of_directories(&w).await;
    assert!(charged.contains(&emptied) && charged.contains(&roots[0]), "open files are charged still: {charged:?}");
    // By the server that has seen it go, while others are charged.
    eventually("the one that was emptied", async || {
        disclaim(&w, &held[1..]).await;
        !of_directories(&w).await.contains(&emptied)
    })
    .await;
    assert!(of_directories(&w).await.contains(&roots[0]));
    w.server.stop();
    let w = World::on(w.store.clone(), w.peers.clone()).await;
    eventually("nothing is left", async || {
        disclaim(&w, &[]).await;
        of_directories(&w).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_tree_is_counted_behind_its_quota_also_by_the_next_server() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "top").await.id;
    let sub = w.mkdir(top, "sub").await.id;
    for n in 0..300 {
        w.call(put(sub, &format!("f{n}"), 10)).await.unwrap();
    }
    set(&w, Payer::Dir(top), Some(1000), None).await;
    // Another server takes over at whatever point this one has come to.
    w.server.stop();
    let w = World::on(w.store.clone(), w.peers.clone()).await;
    let all = (302, 3000);
    eventually("the next server goes on", async || usage(&w, Payer::Dir(top)).await == all).await;
    counted_to_the_end(&w, Payer::Dir(top)).await;
    assert_eq!(miscounts(&w).await, []);
    assert_eq!(code(w.call(AdminQuery::Account { payer: Payer::Dir(InodeId(99 << 12)) }).await), Code::NotFound);

    w.rename((top, "sub"), (ROOT, "sub"), RenameKind::Replace).await.unwrap();
    eventually("what was moved away", async || usage(&w, Payer::Dir(top)).await == (1, 0)).await;
    w.call(AdminQuery::SetQuota { payer: Payer::Dir(top), limits: None }).await.unwrap();
    let AdminAnswer::Accounts(all) = w.call(AdminQuery::Accounts { after: None, limit: 100 }).await.unwrap() else {
        panic!("another answer")
    };
    assert!(all.iter().any(|account| account.payer == Payer::User(1000) && account.usage.inodes == 302), "{all:?}");
    eventually("its account goes", async || usage(&w, Payer::Dir(top)).await == (0, 0)).await;
}

#[tokio::test]
async fn what_goes_beyond_is_refused() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    set(&w, Payer::Dir(dir), Some(3), Some(100)).await;
    w.call(put(dir, "a", 60)).await.unwrap();
    assert_eq!(code(w.call(put(dir, "b", 41)).await), Code::QuotaExceeded);
    w.call(put(dir, "b", 40)).await.unwrap();
    assert_eq!(code(w.call(create(dir, "c")).await), Code::QuotaExceeded);
    let a = w.lookup(dir, "a").await.unwrap();
    assert_eq!(code(w.call(truncate(a.id, 61)).await), Code::QuotaExceeded, "longer by a hole");
    w.call(truncate(a.id, 20)).await.unwrap();
    w.call(truncate(a.id, 60)).await.unwrap();
    w.call(put(ROOT, "outside", 1000)).await.unwrap();
    set(&w, Payer::User(1000), Some(4), None).await;
    assert_eq!(code(w.call(put(ROOT, "more", 1)).await), Code::QuotaExceeded, "dir, a, b and outside are his");
    w.call(AdminQuery::SetQuota { payer: Payer::User(1000), limits: None }).await.unwrap();
    w.call(put(ROOT, "more", 1)).await.unwrap();
    assert_eq!(miscounts(&w).await, []);
}

/// What was granted is charged, so a commit of it is never refused; what is not used goes back.
#[tokio::test]
async fn room_is_taken_before_bytes_are_written() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    assert_eq!(w.create(dir, "free").await.room, None);
    set(&w, Payer::Dir(dir), None, Some(1 << 20)).await;
    counted_to_the_end(&w, Payer::Dir(dir)).await;
    let made = w.create(dir, "file").await;
    let file = made.attr;
    assert_eq!(made.room, Some((1 << 20) / 16), "some comes with a new file");
    let take = |until, wish| TakeRoom { inode: file.id.into(), until, wish };
    let room = w.call(take(500_000, 2 << 20)).await.unwrap();
    assert!((500_000..600_000).contains(&room), "{room}: not much more than it needs when there is little");
    assert_eq!(usage(&w, Payer::Dir(dir)).await, (3, room as i64));
    assert_eq!(code(w.call(take((1 << 20) + 1, 2 << 20)).await), Code::QuotaExceeded);
    let other = w.create(dir, "other").await.attr;
    assert_eq!(code(w.call(TakeRoom { inode: other.id.into(), until: 600_000, wish: 0 }).await), Code::QuotaExceeded);
    let inline = Bytes::from(vec![1; 4000]);
    w.commit(&file, 500_000, CommitContent::Unchanged).await.unwrap();
    w.commit(&other, 4000, CommitContent::Inline(inline)).await.unwrap();
    w.call(ReturnRoom { inodes: vec![file.id.into(), other.id.into()] }).await.unwrap();
    assert_eq!(usage(&w, Payer::Dir(dir)).await, (4, 504_000));
    let open = OpenFile { inode: file.id.into(), want: FileWant::Alone, truncate: false };
    assert_eq!(w.call(open.clone()).await.unwrap().room, Some(500_000), "an open says so as well");
    let reads = OpenFile { want: FileWant::Read, ..open };
    assert_eq!(w.call(reads).await.unwrap().room, None, "not to a reader");

    // A session that ends leaves nothing taken.
    w.call(take(700_000, 0)).await.unwrap();
    assert_eq!(usage(&w, Payer::Dir(dir)).await, (4, 704_000));
    w.call(CloseSession {}).await.unwrap();
    assert_eq!(usage(&w, Payer::Dir(dir)).await, (4, 504_000));
    assert_eq!(miscounts(&w).await, []);
}

crate::on_every_engine! {
    what_is_made_below_quotas_takes_three_round_trips_and_four_over_a_database
    of_many_that_ask_at_once_no_more_get_in_than_fit
    what_many_move_between_quotas_at_once_is_charged_where_it_is
    how_many_inodes_there_are_is_told
}

/// By `braid admin status`, and by `df -i`.
async fn how_many_inodes_there_are_is_told(rows: Rows) {
    let w = rows.world(fast_config()).await;
    let told = async || {
        let AdminAnswer::Status(status) = w.call(AdminQuery::Status).await.unwrap() else { panic!("no status") };
        let found = w.call(GetStatFs { of: InodeId(0) }).await.unwrap();
        assert_eq!(found.files - found.files_free, status.inodes);
        status.inodes
    };
    assert_eq!(told().await, 1, "the root directory");
    let dir = w.mkdir(ROOT, "dir").await.id;
    let file = w.create(dir, "file").await.attr.id;
    w.call(Link { inode: file.into(), parent: ROOT.into(), name: name("link") }).await.unwrap();
    w.call(put(dir, "small", 100)).await.unwrap();
    assert_eq!(told().await, 4);
    w.unlink(dir, "small", false).await.unwrap();
    w.unlink(ROOT, "link", false).await.unwrap();
    eventually("what was removed is freed", async || told().await == 3).await;
}

/// Also where an account is spread over several rows: all of them are locked when so little is left.
async fn of_many_that_ask_at_once_no_more_get_in_than_fit(rows: Rows) {
    let w = Arc::new(rows.world(fast_config()).await);
    let top = w.mkdir(ROOT, "top").await.id;
    let mut dirs = Vec::new();
    for n in 0..8 {
        dirs.push(w.mkdir(top, &n.to_string()).await.id);
    }
    let mut files = Vec::new();
    for n in 0..24 {
        files.push(w.create(dirs[n % 8], &format!("file{n}")).await.attr.id);
    }
    let (inodes, bytes) = (33 + 100, 512 << 20);
    set(&w, Payer::Dir(top), Some(inodes), Some(bytes)).await;
    counted_to_the_end(&w, Payer::Dir(top)).await;
    let mut makes = tokio::task::JoinSet::new();
    for n in 0..160 {
        let (w, dir) = (w.clone(), dirs[n % 8]);
        makes.spawn(async move {
            let node = MakeNode { parent: dir.into(), name: name(&format!("new{n}")), spec: spec(FileKind::Directory) };
            w.call(node).await.map(drop)
        });
    }
    let mut takes = tokio::task::JoinSet::new();
    for file in files {
        let w = w.clone();
        takes.spawn(async move { w.call(TakeRoom { inode: file.into(), until: 64 << 20, wish: 0 }).await.map(drop) });
    }
    for (asked, fit) in [(makes, 100), (takes, 8)] {
        let answers = asked.join_all().await;
        let refused: Vec<Code> = answers.iter().filter_map(|answer| answer.as_ref().err().map(|e| e.code)).collect();
        assert!(refused.iter().all(|code| *code == Code::QuotaExceeded), "{refused:?}");
        assert_eq!(answers.len() - refused.len(), fit);
    }
    assert_eq!(usage(&w, Payer::Dir(top)).await, (inodes as i64, bytes as i64));
    assert_eq!(miscounts(&w).await, []);
}

/// Below three quotas, one of them above another, with no room until something leaves.
async fn what_many_move_between_quotas_at_once_is_charged_where_it_is(rows: Rows) {
    const FILES: usize = 24;
    const TASKS: u64 = 8;
    let w = Arc::new(rows.world(fast_config()).await);
    let outer = w.mkdir(ROOT, "outer").await.id;
    let dirs = [w.mkdir(outer, "inner").await.id, w.mkdir(ROOT, "beside").await.id, w.mkdir(ROOT, "free").await.id];
    for n in 0..FILES {
        w.call(put(dirs[n % 2], &format!("f{n}"), 100)).await.unwrap();
    }
    let (fits, above) = (FILES as u64 / 2 + 1, FILES as u64 / 2 + 2);
    for (dir, inodes) in [(outer, above), (dirs[0], fits), (dirs[1], fits)] {
        set(&w, Payer::Dir(dir), Some(inodes), Some(100 * 1000)).await;
        counted_to_the_end(&w, Payer::Dir(dir)).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let w = w.clone();
        tasks.spawn(async move {
            let (mut moved, mut refused) = (0, 0);
            let mut random = StdRng::seed_from_u64(task);
            for _ in 0..60 {
                let n = random.random_range(0..FILES);
                // Rather to where there is no room.
                let (from, to) = (dirs[random.random_range(0..3)], dirs[[0, 0, 1, 1, 2][random.random_range(0..5)]]);
                let text = name(&format!("f{n}"));
                let rename = Rename {
                    from: from.into(),
                    from_name: text.clone(),
                    to: to.into(),
                    to_name: text,
                    mode: RenameKind::NoReplace,
                    open_here: false,
                };
                match w.call(rename).await.map_err(|error| error.code) {
                    Ok(_) => moved += u32::from(from != to),
                    Err(Code::QuotaExceeded) => refused += 1,
                    Err(code) => assert!(matches!(code, Code::NotFound | Code::Exists | Code::Busy), "{code:?}"),
                }
            }
            (moved, refused)
        });
    }
    let all = tasks.join_all().await;
    let sum = all.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(sum.0 > FILES as u32 && sum.1 > 0, "moved and refused: {sum:?}");
    let mut there = Vec::new();
    for dir in dirs {
        let page = ReadDir { inode: dir, after: None, limit: 1000, plus: false, knows: Vec::new() };
        there.push(w.call(page).await.unwrap().entries.len() as i64);
    }
    assert_eq!(there.iter().sum::<i64>(), FILES as i64);
    // Each directory with itself.
    let expected =
        [(outer, there[0] + 2, there[0]), (dirs[0], there[0] + 1, there[0]), (dirs[1], there[1] + 1, there[1])];
    for ((dir, inodes, files), most) in expected.into_iter().zip([above, fits, fits]) {
        assert_eq!(usage(&w, Payer::Dir(dir)).await, (inodes, 100 * files));
        assert!(inodes <= most as i64);
    }
    assert_eq!(miscounts(&w).await, []);
}

/// The budget of design.md §4 with quotas that are looked at.
async fn what_is_made_below_quotas_takes_three_round_trips_and_four_over_a_database(rows: Rows) {
    let over_database = matches!(rows, Rows::Database(_));
    let w = rows.world(without_housekeeping()).await;
    let (outer, to) = (w.mkdir(ROOT, "outer").await.id, w.mkdir(ROOT, "to").await.id);
    let dir = w.mkdir(outer, "dir").await.id;
    for payer in [Payer::Dir(outer), Payer::Dir(dir), Payer::Dir(to), Payer::User(1000), Payer::Group(1000)] {
        set(&w, payer, Some(1000), Some(1 << 30)).await;
        counted_to_the_end(&w, payer).await;
    }
    w.create(dir, "warm").await;
    let node = MakeNode { parent: dir.into(), name: name("d"), spec: spec(FileKind::Directory) };
    let mut trips = vec![
        ("create", w.counted(create(dir, "a")).await.0),
        ("mkdir", w.counted(node).await.0),
        ("a whole file", w.counted(put(dir, "put", 100)).await.0),
    ];
    let file = w.lookup(dir, "a").await.unwrap();
    let bytes = CommitContent::Inline(Bytes::from_static(b"x"));
    let unlink = Unlink { parent: dir.into(), name: name("warm"), open_here: false };
    trips.extend([
        ("close", w.counted(commit(&file, 1, bytes)).await.0),
        ("rename", w.counted(rename((dir, "a"), (dir, "b"), RenameKind::Replace)).await.0),
        ("unlink", w.counted(unlink).await.0),
        ("rename to another quota", w.counted(rename((dir, "b"), (to, "b"), RenameKind::Replace)).await.0),
    ]);
    // Over a database an account is spread over several rows, and who is to be refused looks at their sum first.
    let looks = u64::from(over_database);
    let expected = [
        ("create", 3 + looks),
        ("mkdir", 3 + looks),
        ("a whole file", 3 + looks),
        ("close", 2),
        ("rename", 2),
        ("unlink", 2),
        ("rename to another quota", 3 + looks),
    ];
    assert_eq!(trips, expected);
}

#[tokio::test]
async fn a_tree_is_summed_up_page_by_page() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "top").await.id;
    for n in 0..40 {
        let sub = w.mkdir(top, &format!("d{n}")).await.id;
        for m in 0..n {
            w.call(put(sub, &format!("f{m}"), m)).await.unwrap();
        }
    }
    let linked = w.lookup(top, "d9").await.unwrap().id;
    let file = w.lookup(linked, "f5").await.unwrap();
    w.call(Link { inode: file.id.into(), parent: top.into(), name: name("again") }).await.unwrap();
    let (mut waiting, mut sum) = (vec![ToSum { dir: top, after: None }], (0, 0, Weight::default(), Vec::new()));
    while !waiting.is_empty() {
        let AdminAnswer::Summary(page) = w.call(AdminQuery::Summary { waiting }).await.unwrap() else {
            panic!("another answer")
        };
        sum.0 += page.directories;
        sum.1 += page.files;
        sum.2.add(page.weight);
        sum.3.extend(page.several);
        waiting = page.waiting;
    }
    let bytes: u64 = (0..40u64).flat_map(|n| 0..n).sum();
    // Each has a block, but for those of no bytes.
    let empty = 39;
    let weight = Weight { bytes: bytes - 5, size: bytes - 5, blocks: 8 * (779 - empty) };
    assert_eq!((sum.0, sum.1, sum.2), (40, 779, weight));
    assert_eq!(sum.3, [(file.id, Weight { bytes: 5, size: 5, blocks: 8 }); 2]);
}
