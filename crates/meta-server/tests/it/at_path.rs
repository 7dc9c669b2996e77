//! Requests by path: one message, with the effect and the errors of the two that it stands for.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::*;
use braid_api::{Carries, Code, Context};
use braid_meta_engine::MemStore;
use braid_types::*;
use bytes::Bytes;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;

fn path(text: &str) -> Vec<Name> {
    text.split('/').map(name).collect()
}

fn nowhere() -> InodeRef {
    InodeRef::default()
}

fn make(text: &str) -> CreateFile {
    CreateFile { parent: nowhere(), ..create(ROOT, text) }
}

impl World {
    async fn at<M: Carries<Then, ThenAnswer>>(&self, at: &str, message: M) -> braid_api::Result<M::Answer> {
        self.call(AtPath::new(path(at), message)).await?.of::<M>()
    }
}

#[tokio::test]
async fn every_request_is_about_what_its_path_leads_to() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    let deep = w.mkdir(dir, "deep").await.id;
    let file = w.at("dir/deep", make("file")).await.unwrap().attr;
    assert_eq!(w.lookup(deep, "file").await.unwrap().id, file.id);
    let made =
        w.at("dir", MakeNode { parent: nowhere(), name: name("sub"), spec: spec(FileKind::Directory) }).await.unwrap();
    assert_eq!(w.lookup(dir, "sub").await.unwrap().id, made.attr.id);
    let put = PutFile {
        parent: nowhere(),
        name: name("small"),
        spec: spec(FileKind::File),
        data: Bytes::from_static(b"bytes"),
        replace: false,
        open_here: false,
    };
    w.at("dir/sub", put).await.unwrap();
    let opened = w.at("dir/sub/small", OpenFile::default()).await.unwrap();
    assert_eq!(opened.map.content, Content::Inline(Bytes::from_static(b"bytes")));
    w.at("dir/sub/small", ChangeAttr { mode: Some(Mode(0o600)), ..no_change(InodeId(0)) }).await.unwrap();
    let attr = w.at("dir/sub/small", GetAttr { inode: nowhere() }).await.unwrap().attr;
    assert_eq!((attr.id, attr.mode.0 & 0o7777), (opened.attr.id, 0o600));
    let page = w
        .at("dir", ReadDir { inode: InodeId(0), after: None, limit: 10, plus: false, knows: Vec::new() })
        .await
        .unwrap();
    assert_eq!(page.entries.iter().map(|e| e.0.clone()).collect::<Vec<_>>(), [name("deep"), name("sub")]);
    let set = SetXattr {
        inode: nowhere(),
        name: Bytes::from_static(b"user.a"),
        value: Bytes::from_static(b"1"),
        mode: XattrKind::Any,
        clear_setgid: false,
    };
    w.at("dir/deep/file", set).await.unwrap();
    let get = GetXattr { inode: nowhere(), name: Bytes::from_static(b"user.a") };
    assert_eq!(w.at("dir/deep/file", get).await.unwrap(), Bytes::from_static(b"1"));

    let two = |first: &str, second: &str, from: &str, to: &str| {
        let message = rename((InodeId(0), from), (InodeId(0), to), RenameKind::NoReplace);
        AtPath::two(path(first), path(second), message)
    };
    let moved = w.call(two("dir/deep", "dir/sub", "file", "moved")).await.unwrap().of::<Rename>().unwrap();
    assert_eq!((moved.moved.id, w.lookup(made.attr.id, "moved").await.unwrap().id), (file.id, file.id));
    let link = Link { inode: nowhere(), parent: nowhere(), name: name("second") };
    w.call(AtPath::two(path("dir/deep"), path("dir/sub/moved"), link)).await.unwrap().of::<Link>().unwrap();
    assert_eq!(w.lookup(deep, "second").await.unwrap().nlink, 2);
    w.at("dir/deep", Unlink { parent: nowhere(), name: name("second"), open_here: false }).await.unwrap();
    assert!(w.lookup(deep, "second").await.is_none());
    w.at("dir", RemoveDir { parent: nowhere(), name: name("deep"), tree: false }).await.unwrap();
    assert!(w.lookup(dir, "deep").await.is_none());
}

#[tokio::test]
async fn a_path_that_leads_nowhere_changes_nothing_and_says_how_far_it_went() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    w.create(dir, "file").await;
    let link = NodeSpec { target: Bytes::from_static(b"dir"), ..spec(FileKind::Symlink) };
    w.call(MakeNode { parent: ROOT.into(), name: name("link"), spec: link }).await.unwrap();
    assert_eq!(code(w.at("dir/none/deeper", make("x")).await), Code::NotFound);
    assert_eq!(code(w.at("dir/file/deeper", make("x")).await), Code::NotDirectory);
    assert_eq!(code(w.at("link/file", OpenFile::default()).await), Code::NotDirectory);
    match w.call(AtPath::new(path("dir/none/deeper"), make("x"))).await.unwrap() {
        Reached::Short { path: 0, found } => {
            assert_eq!((found.attrs.iter().map(|a| a.id).collect::<Vec<_>>(), found.rest), (vec![dir], 2));
        }
        other => panic!("{other:?}"),
    }
    // The second of two.
    let message = rename((InodeId(0), "file"), (InodeId(0), "x"), RenameKind::Replace);
    let short = w.call(AtPath::two(path("dir"), path("none"), message.clone())).await.unwrap();
    assert!(matches!(short, Reached::Short { path: 1, .. }), "{short:?}");
    assert_eq!(code(w.call(AtPath::new(path("dir"), message)).await), Code::Invalid, "one path of two");
    // What the request itself refuses is its own error.
    assert_eq!(code(w.at("dir", make("file")).await), Code::Exists);
    let page = w
        .at("dir", ReadDir { inode: InodeId(0), after: None, limit: 10, plus: false, knows: Vec::new() })
        .await
        .unwrap();
    assert_eq!(page.entries.len(), 1);
}

#[tokio::test]
async fn a_change_by_path_takes_effect_once_wherever_its_path_leads_by_then() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    let cx: Context = w.cx();
    let again = || async {
        let reached = w.server.call(cx, AtPath::new(path("dir"), make("file"))).await?;
        reached.of::<CreateFile>().map(|made| made.attr.id)
    };
    let first = again().await.unwrap();
    assert_eq!(again().await.unwrap(), first, "an exclusive create");
    // The directory has gone elsewhere, and another has its name.
    w.rename((ROOT, "dir"), (ROOT, "away"), RenameKind::NoReplace).await.unwrap();
    assert_eq!(again().await.unwrap(), first, "its path leads nowhere");
    let other = w.mkdir(ROOT, "dir").await.id;
    assert_eq!(again().await.unwrap(), first, "its path leads elsewhere");
    assert!(w.lookup(other, "file").await.is_none());
    assert_eq!(w.lookup(dir, "file").await.unwrap().id, first);
    assert_eq!(code(w.server.call(cx, AtPath::new(path("away"), no_change(InodeId(0)))).await), Code::RequestReused);
}

crate::on_every_engine! {
    a_read_by_path_is_one_message_and_two_round_trips_whatever_the_depth
}

/// Two round trips to the engine: the walk, and what the request takes beyond it.
async fn a_read_by_path_is_one_message_and_two_round_trips_whatever_the_depth(rows: Rows) {
    let w = rows.world(without_housekeeping()).await;
    let (mut dir, mut at) = (ROOT, String::new());
    for n in 0..20 {
        dir = w.mkdir(dir, &format!("d{n}")).await.id;
        at.push_str(&format!("d{n}/"));
    }
    let file = w.create(dir, "file").await.attr;
    let open = || AtPath::new(path(&format!("{at}file")), OpenFile::default());
    for expected in [2, 1, 1] {
        let (trips, answer) = w.counted(open()).await;
        let read = "the second time the file is read in the same round trip as its path";
        assert_eq!((trips, answer.of::<OpenFile>().unwrap().attr.id), (expected, file.id), "{read}");
    }
    let list = ReadDir { inode: InodeId(0), after: None, limit: 10, plus: true, knows: Vec::new() };
    assert_eq!(w.counted(AtPath::new(path(at.trim_end_matches('/')), list)).await.0, 2);
    assert_eq!(
        w.counted(AtPath::new(path(at.trim_end_matches('/')), make("new"))).await.0,
        3,
        "a create is two where something was made before"
    );
}

/// What a path led to before is believed of nothing: wherever the tree has changed, a file is opened as what its path leads to now.
#[tokio::test]
async fn what_a_path_led_to_is_no_answer_when_it_leads_elsewhere() {
    let w = World::new().await;
    let put = async |dir: InodeId, text: &str, bytes: &'static [u8]| {
        let (spec, data) = (spec(FileKind::File), Bytes::from_static(bytes));
        let put = PutFile { parent: dir.into(), name: name(text), spec, data, replace: true, open_here: false };
        w.call(put).await.unwrap().attr.id
    };
    let read = async |text: &str| {
        let opened = w.server.call(w.cx(), AtPath::new(path(text), OpenFile::default())).await.unwrap();
        match opened {
            Reached::Done(ThenAnswer::OpenFile(opened)) => Some((opened.attr.id, opened.map.content)),
            Reached::Short { .. } => None,
            other => panic!("{other:?}"),
        }
    };
    let is = |id, bytes: &'static [u8]| Some((id, Content::Inline(Bytes::from_static(bytes))));
    let outer = w.mkdir(ROOT, "outer").await.id;
    let inner = w.mkdir(outer, "inner").await.id;
    let first = put(inner, "f", b"first").await;
    let twice = async |text: &str, expected: Option<(InodeId, Content)>| {
        for _ in 0..2 {
            assert_eq!(read(text).await, expected, "{text}");
        }
    };
    twice("outer/inner/f", is(first, b"first")).await;
    // Its bytes change, and its place in the tree.
    put(inner, "f", b"changed").await;
    let now = w.lookup(inner, "f").await.unwrap().id;
    twice("outer/inner/f", is(now, b"changed")).await;
    w.rename((inner, "f"), (inner, "g"), RenameKind::Replace).await.unwrap();
    twice("outer/inner/f", None).await;
    twice("outer/inner/g", is(now, b"changed")).await;
    // Another file has the name, then none, then a directory.
    let other = put(inner, "f", b"other").await;
    twice("outer/inner/f", is(other, b"other")).await;
    w.unlink(inner, "f", false).await.unwrap();
    twice("outer/inner/f", None).await;
    w.mkdir(inner, "f").await;
    let dir = w.server.call(w.cx(), AtPath::new(path("outer/inner/f"), OpenFile::default())).await;
    assert_eq!(code(dir), Code::IsDirectory);
    // A directory on the way is another.
    w.rename((outer, "inner"), (ROOT, "away"), RenameKind::Replace).await.unwrap();
    twice("outer/inner/g", None).await;
    twice("away/g", is(now, b"changed")).await;
    let again = w.mkdir(outer, "inner").await.id;
    let there = put(again, "g", b"there").await;
    twice("outer/inner/g", is(there, b"there")).await;
    // Two names of one file, of which one goes to another.
    w.call(Link { inode: there.into(), parent: ROOT.into(), name: name("second") }).await.unwrap();
    twice("second", is(there, b"there")).await;
    twice("outer/inner/g", is(there, b"there")).await;
    let third = put(ROOT, "third", b"third").await;
    w.rename((ROOT, "third"), (again, "g"), RenameKind::Replace).await.unwrap();
    twice("outer/inner/g", is(third, b"third")).await;
    twice("second", is(there, b"there")).await;
    // A tree that is being removed has no files.
    w.call(RemoveDir { parent: ROOT.into(), name: name("outer"), tree: true }).await.unwrap();
    twice("outer/inner/g", None).await;
}

/// A client that keeps what it learns is granted every name on the way and of attributes those at the end alone: what is made in a directory
/// on the way is nothing to it.
#[tokio::test]
async fn a_walk_grants_the_names_and_what_they_lead_to_in_one_round_trip() {
    let w = World::with(MemStore::new(), Peers::default(), without_housekeeping(), 1).await;
    let open = OpenSession {
        client: 7,
        former: None,
        since: SessionId(0),
        description: "caches".into(),
        host: "h".into(),
        caches: true,
    };
    let caching = w.server.call(Context::default(), open).await.unwrap();
    let (mut dir, mut at, mut dirs) = (ROOT, String::new(), vec![ROOT]);
    for n in 0..20 {
        dir = w.mkdir(dir, &format!("d{n}")).await.id;
        at.push_str(&format!("d{n}/"));
        dirs.push(dir);
    }
    let file = w.create(dir, "file").await.attr;
    let walk = |text: &str, attr| Walk { from: ROOT, path: path(&format!("{at}{text}")), attr };
    let walked = |walk| w.server.call(w.cx_of(&caching), walk);
    let told = walked(walk("file", true)).await.unwrap();
    assert_eq!((told.found.attrs.last().unwrap().id, told.found.rest), (file.id, 0));
    assert!(told.names.iter().all(|granted| *granted) && told.names.len() == 21 && told.attr);
    assert!(!told.absence);
    let leases = w.server.leases();
    assert_eq!(leases, 22, "21 names, and the attributes of the file");
    // Nobody waits for it who makes something on the way.
    for dir in &dirs {
        let made = tokio::time::timeout(Duration::from_secs(5), w.create(*dir, "made")).await;
        assert!(made.is_ok(), "in {dir}");
    }
    assert_eq!(w.server.leases(), leases);
    // Without a session that caches.
    let (trips, told) = w.counted(walk("file", true)).await;
    assert_eq!((trips, told.found.attrs.last().unwrap().id), (1, file.id));
    assert!(!told.names.iter().any(|granted| *granted) && !told.attr);
    // Where it ends early: how far it led is granted, and that nothing has the last name.
    let short = walked(walk("none", true)).await.unwrap();
    assert_eq!((short.found.attrs.len(), short.found.rest, short.absence, short.attr), (20, 1, true, false));
    let shorter = walked(Walk { from: ROOT, path: path("d0/none/deeper"), attr: true }).await.unwrap();
    assert_eq!((shorter.names, shorter.found.rest, shorter.absence), (vec![true], 2, false));
    let below = walked(walk("file/deeper", true)).await.unwrap();
    assert_eq!((below.found.rest, below.absence, below.attr), (1, false, false));
    let by_name = walked(Walk { from: ROOT, path: path("d0"), attr: false }).await.unwrap();
    assert_eq!((by_name.names, by_name.attr), (vec![true], false));
}
