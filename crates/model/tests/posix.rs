//! What the stream of random operations cannot show: waiting, and cases by name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use braid_api::*;
use braid_model::Model;
use braid_types::{ByteRange, FILE_BYTES_MAX, InodeId, Mode, Name};
use std::sync::Arc;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;
const WHOLE: ByteRange = ByteRange { start: 0, end: u64::MAX };

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn cx() -> Caller {
    Caller::default()
}

const RW: OpenFlags = OpenFlags::READ_WRITE;

async fn file(fs: &Model, text: &str) -> (InodeId, HandleId) {
    let (made, opened) = fs.create(&cx(), ROOT, &name(text), Mode(0o644), RW).await.unwrap();
    (made.attr.id, opened.handle)
}

async fn dir(fs: &Model, parent: InodeId, text: &str) -> InodeId {
    let new = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    fs.make_node(&cx(), parent, &name(text), new).await.unwrap().attr.id
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

#[tokio::test]
async fn an_unlinked_file_lives_as_long_as_its_handle() {
    let fs = Model::default();
    let (id, handle) = file(&fs, "f").await;
    fs.write(handle, 0, "data".into()).await.unwrap();
    fs.unlink(&cx(), ROOT, &name("f")).await.unwrap();
    assert_eq!(fs.read(handle, 0, 10).await.unwrap().concat(), b"data");
    assert_eq!(fs.get_attr(&cx(), id, None).await.unwrap().attr.nlink, 0);
    assert_eq!(code(fs.link(&cx(), id, ROOT, &name("g")).await), Code::NotFound);
    fs.release(handle).await;
    assert_eq!(code(fs.get_attr(&cx(), id, None).await), Code::Stale);
}

#[tokio::test]
async fn a_temporary_file_gets_a_name_unless_it_must_not() {
    let fs = Model::default();
    let (made, opened) = fs.make_temporary(&cx(), ROOT, Mode(0o600), RW).await.unwrap();
    fs.link(&cx(), made.attr.id, ROOT, &name("t")).await.unwrap();
    fs.release(opened.handle).await;
    assert_eq!(fs.get_attr(&cx(), made.attr.id, None).await.unwrap().attr.nlink, 1);
    let (made, _) = fs.make_temporary(&cx(), ROOT, Mode(0o600), OpenFlags { exclusive: true, ..RW }).await.unwrap();
    assert_eq!(code(fs.link(&cx(), made.attr.id, ROOT, &name("u")).await), Code::NotFound);
}

#[tokio::test]
async fn names_of_one_file_are_bounded() {
    let fs = Model::default();
    let (id, _) = file(&fs, "f").await;
    for i in 1..braid_posix::LINKS_MAX {
        fs.link(&cx(), id, ROOT, &name(&i.to_string())).await.unwrap();
    }
    assert_eq!(code(fs.link(&cx(), id, ROOT, &name("one too many")).await), Code::TooManyLinks);
}

#[tokio::test]
async fn a_directory_cannot_move_below_itself() {
    let fs = Model::default();
    let a = dir(&fs, ROOT, "a").await;
    let b = dir(&fs, a, "b").await;
    let rename = |from, to, mode| fs.rename(&CX, from, to, mode);
    static CX: std::sync::LazyLock<Caller> = std::sync::LazyLock::new(Caller::default);
    let (an, bn, cn) = (name("a"), name("b"), name("c"));
    assert_eq!(code(rename((ROOT, &an), (b, &cn), RenameMode::Replace).await), Code::Invalid);
    assert_eq!(code(rename((ROOT, &an), (a, &cn), RenameMode::Replace).await), Code::Invalid);
    assert_eq!(code(rename((a, &bn), (ROOT, &an), RenameMode::Exchange).await), Code::Invalid);
    assert_eq!(code(rename((a, &bn), (ROOT, &an), RenameMode::Replace).await), Code::NotEmpty);
    assert_eq!(code(rename((a, &bn), (ROOT, &an), RenameMode::NoReplace).await), Code::Exists);
    assert_eq!(code(rename((a, &bn), (ROOT, &cn), RenameMode::Exchange).await), Code::NotFound);
    rename((a, &bn), (ROOT, &cn), RenameMode::Replace).await.unwrap();
    assert_eq!(fs.parent(&cx(), b).await.unwrap(), ROOT);
    assert_eq!(fs.get_attr(&cx(), a, None).await.unwrap().attr.nlink, 2);
    assert_eq!(fs.get_attr(&cx(), ROOT, None).await.unwrap().attr.nlink, 4);
}

#[tokio::test]
async fn files_end_at_the_largest_offset() {
    let fs = Model::default();
    let (id, handle) = file(&fs, "f").await;
    fs.write(handle, FILE_BYTES_MAX - 1, "x".into()).await.unwrap();
    assert_eq!(code(fs.write(handle, FILE_BYTES_MAX, "x".into()).await), Code::FileTooBig);
    let grow = SetAttr { size: Some(FILE_BYTES_MAX + 1), ..SetAttr::default() };
    assert_eq!(code(fs.set_attr(&cx(), id, None, grow).await), Code::FileTooBig);
    let attr = fs.get_attr(&cx(), id, None).await.unwrap().attr;
    assert_eq!((attr.size, attr.blocks), (FILE_BYTES_MAX, 8));
}

#[tokio::test]
async fn a_policy_is_inherited_and_shown_where_it_was_set() {
    let fs = Model::default();
    let a = dir(&fs, ROOT, "a").await;
    let b = dir(&fs, a, "b").await;
    let policy = b"user.braid.policy";
    fs.set_xattr(&cx(), a, policy, "replica:3".into(), XattrMode::Any).await.unwrap();
    assert_eq!(&fs.get_xattr(&cx(), b, policy).await.unwrap()[..], b"replica:3");
    assert_eq!(fs.list_xattr(&cx(), a).await.unwrap().len(), 1);
    assert!(fs.list_xattr(&cx(), b).await.unwrap().is_empty());
    let error = fs.set_xattr(&cx(), b, policy, "raid5".into(), XattrMode::Any).await.unwrap_err();
    assert!(error.code == Code::Invalid && error.to_string().contains("rain:K+M"), "{error}");
    fs.remove_xattr(&cx(), a, policy).await.unwrap();
    assert_eq!(&fs.get_xattr(&cx(), b, policy).await.unwrap()[..], b"plain");
}

#[tokio::test]
async fn removal_does_not_shift_a_listing() {
    let fs = Model::default();
    for i in 0..100 {
        dir(&fs, ROOT, &format!("d{i:03}")).await;
    }
    let handle = fs.open_dir(&cx(), ROOT).await.unwrap().handle;
    let mut seen = 0;
    let mut offset = 0;
    loop {
        let page = fs.read_dir(&cx(), handle, offset, 7, false).await.unwrap();
        let Some(last) = page.last() else { break };
        offset = last.offset;
        for entry in &page {
            fs.remove_dir(&cx(), ROOT, &entry.name).await.unwrap();
        }
        seen += page.len();
    }
    assert_eq!(seen, 100);
}

fn write_lock(owner: u64) -> LockRequest {
    LockRequest { space: LockSpace::Posix, owner, pid: 1, kind: LockKind::Write, range: WHOLE }
}

#[tokio::test]
async fn a_lock_is_waited_for_and_an_abandoned_wait_holds_nobody_up() {
    let fs = Arc::new(Model::default());
    let (_, handle) = file(&fs, "f").await;
    fs.set_lock(handle, write_lock(1), false).await.unwrap();
    assert_eq!(code(fs.set_lock(handle, write_lock(2), false).await), Code::WouldBlock);
    let waiter = |owner| {
        let fs = fs.clone();
        tokio::spawn(async move { fs.set_lock(handle, write_lock(owner), true).await })
    };
    let abandoned = waiter(2);
    tokio::task::yield_now().await;
    let patient = waiter(3);
    tokio::task::yield_now().await;
    abandoned.abort();
    let _ = abandoned.await;
    assert!(!patient.is_finished());
    fs.set_lock(handle, LockRequest { kind: LockKind::Unlock, ..write_lock(1) }, false).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), patient).await.unwrap().unwrap().unwrap();
    let found = fs.get_lock(handle, write_lock(1)).await.unwrap().unwrap();
    assert_eq!((found.owner, found.kind), (3, LockKind::Write));
}

#[tokio::test]
async fn release_ends_flock_locks() {
    let fs = Model::default();
    let (id, first) = file(&fs, "f").await;
    let second = fs.open(&cx(), id, RW).await.unwrap().handle;
    let flock = |owner| LockRequest { space: LockSpace::Flock, ..write_lock(owner) };
    fs.set_lock(first, flock(10), false).await.unwrap();
    assert_eq!(code(fs.set_lock(second, flock(20), false).await), Code::WouldBlock);
    fs.release(first).await;
    fs.set_lock(second, flock(20), false).await.unwrap();
}
