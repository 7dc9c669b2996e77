//! What another mount has changed is what the very next read sees, on every path: each way to change a file against each way to read it.
//!
//! Each pair reads first, so that whatever caches on its path holds the state of before; then the other mount changes the file; and when
//! that call has returned the next read must show it: one read, with nothing asked, waited for or forgotten in between. Several rounds.

mod change;
mod pair;
mod read;

use super::PLAIN;
use super::moves::Hosts;
use super::two_mounts::Two;
use pair::{Kept, Pair, Place};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Of each pair: a part of the file is changed, all of it, and a part again, and it is read up to its end, beyond, and up to its end.
const ROUNDS: usize = 3;
/// More than the row of a file takes; several pages, blocks and reads ahead.
const LEN: usize = 300_000;
/// Lies beside its row.
const SMALL: usize = 900;

pub struct Change {
    name: &'static str,
    /// Of the file that it begins with.
    len: usize,
    /// The name leads to another file afterwards: who has the one of before open goes on with that.
    replaces: bool,
    /// Does it by the other mount; what it gives stays open until the next change.
    run: fn(&mut Pair<'_>) -> Kept,
}

const fn change(name: &'static str, run: fn(&mut Pair<'_>) -> Kept) -> Change {
    Change { name, len: LEN, replaces: false, run }
}

const CHANGES: &[Change] = &[
    change("write", change::write),
    change("O_DIRECT write", change::write_direct),
    change("write by the reader's mount", change::write_here),
    change("store, msync", change::store_and_msync),
    change("store", change::store),
    change("O_APPEND write", change::append),
    change("cut", change::cut),
    change("cut and grown", change::cut_and_grown),
    change("O_TRUNC, write", change::written_anew),
    change("hole", change::hole),
    change("zero range", change::zero_range),
    change("allocate", change::allocate),
    change("copy_file_range", change::copy_range),
    change("braid fs put", change::put),
    change("rename", change::rename_over).replacing(),
    change("write, inline", change::write).of_small(),
    change("O_TRUNC, write, inline", change::written_anew).of_small(),
    change("O_APPEND write, inline", change::append).of_small(),
    change("rename, inline", change::rename_over).replacing().of_small(),
    change("out of the row and back", change::grown_and_back).of_small(),
];

impl Change {
    const fn replacing(self) -> Change {
        Change { replaces: true, ..self }
    }

    const fn of_small(self) -> Change {
        Change { len: SMALL, ..self }
    }
}

pub struct Read {
    name: &'static str,
    /// The file is looked for after the change.
    by_name: bool,
    rounds: usize,
    run: fn(&mut Pair<'_>),
}

const fn held(name: &'static str, run: fn(&mut Pair<'_>)) -> Read {
    Read { name, by_name: false, rounds: ROUNDS, run }
}

const fn by_name(name: &'static str, run: fn(&mut Pair<'_>)) -> Read {
    Read { by_name: true, ..held(name, run) }
}

const READS: &[Read] = &[
    held("pread of held pages", read::held_pages),
    held("pread without a message", read::without_a_message),
    held("O_DIRECT pread", read::direct),
    held("load", read::mapped),
    held("sequential read", read::sequential),
    held("fstat", read::fstat),
    by_name("stat", read::stat),
    by_name("open, read", read::opened_anew),
    // Commands take long.
    Read { rounds: 2, ..by_name("braid fs cat", read::cat) },
    Read { rounds: 2, ..by_name("seal, read, unseal; open, read", read::sealed) },
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Any,
    /// `user.braid.shared=1`.
    Marked,
    /// Data servers hand nothing out (`data.local_reads`): every byte comes by a message, as to a host without a copy.
    Messages,
    /// Made on the reader's host, and owned on the other, which writes it.
    Moved,
}

/// What holds instead of what this test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// There is no such path, or it is another line's.
    NoPath,
    /// Beyond the last page that the kernel knew of it is seen when the size has been asked for.
    BehindSize,
    /// The size is right, the times need not be.
    SizeAlone,
}

struct Exception {
    /// A change and a read: `""` is any, `", inline"` all that end so.
    of: (&'static str, &'static str),
    /// Of all files, or of these.
    kind: Option<Kind>,
    instead: Instead,
    why: &'static str,
}

const fn but(of: (&'static str, &'static str), instead: Instead, why: &'static str) -> Exception {
    Exception { of, kind: None, instead, why }
}

const fn no_path(kind: Kind, of: (&'static str, &'static str), why: &'static str) -> Exception {
    Exception { kind: Some(kind), ..but(of, Instead::NoPath, why) }
}

const NO_SIZE: &str = "a page fault asks nobody for the size (docs/posix.md)";
const NO_TIME: &str = "a store moves the times when it is written back (mmap(2))";
const IN_ROW: &str = "bytes beside a row are at no data server";
const NO_MAP: &str = "a marked file is not mapped shared (ENODEV; docs/posix.md)";
const NO_HAND_OUT: &str = "servers hand out no files";
const NO_OWNER: &str = "whoever owns the chunk, this is the metadata server's and the lease's";

const EXCEPTIONS: &[Exception] = &[
    but(("O_APPEND write", "load"), Instead::BehindSize, NO_SIZE),
    but(("allocate", "load"), Instead::BehindSize, NO_SIZE),
    but(("out of the row and back", "load"), Instead::BehindSize, NO_SIZE),
    but(("store", "fstat"), Instead::SizeAlone, NO_TIME),
    but(("store", "stat"), Instead::SizeAlone, NO_TIME),
    but((", inline", "pread without a message"), Instead::NoPath, IN_ROW),
    but((", inline", "seal, read, unseal; open, read"), Instead::NoPath, IN_ROW),
    no_path(Kind::Marked, ("store", ""), NO_MAP),
    no_path(Kind::Marked, ("store, msync", ""), NO_MAP),
    no_path(Kind::Marked, ("", "load"), NO_MAP),
    no_path(Kind::Marked, ("", "pread without a message"), "its handles keep no pages: it is the first of the reads"),
    no_path(Kind::Marked, ("", "seal, read, unseal; open, read"), "its handles are not passed through"),
    no_path(Kind::Messages, ("", "pread without a message"), NO_HAND_OUT),
    no_path(Kind::Messages, ("", "seal, read, unseal; open, read"), NO_HAND_OUT),
    no_path(Kind::Moved, (", inline", ""), IN_ROW),
    no_path(Kind::Moved, ("out of the row and back", ""), IN_ROW),
    no_path(Kind::Moved, ("rename", ""), "its chunk is another, which was made there"),
    no_path(Kind::Moved, ("", "fstat"), NO_OWNER),
    no_path(Kind::Moved, ("", "stat"), NO_OWNER),
];

fn exception(change: &Change, read: &Read, kind: Kind) -> Option<&'static Exception> {
    let is_it = |said: &str, name: &str| match said.starts_with(", ") {
        true => name.ends_with(said),
        false => said.is_empty() || said == name,
    };
    let found = EXCEPTIONS.iter().filter(|but| but.kind.is_none_or(|of| of == kind));
    let mut found = found.filter(|but| is_it(but.of.0, change.name) && is_it(but.of.1, read.name));
    // That there is no path says more than how it would be.
    found.clone().find(|but| but.instead == Instead::NoPath).or_else(|| found.next())
}

/// All failures are told: which paths are wrong says more than the first that is.
fn every_pair(place: &Place<'_>) {
    // `NEXT_READ="write / load"` does these alone.
    let only = std::env::var("NEXT_READ").unwrap_or_default();
    let mut failures = Vec::new();
    for (read, change) in READS.iter().flat_map(|read| CHANGES.iter().map(move |change| (read, change))) {
        let title = format!("{} / {}", change.name, read.name);
        let instead = exception(change, read, place.kind).map(|but| {
            eprintln!("{title}: {:?}, as {}", but.instead, but.why);
            but.instead
        });
        if instead == Some(Instead::NoPath) || !title.contains(&only) {
            continue;
        }
        let name: String = title.chars().filter(char::is_ascii_alphanumeric).collect();
        let pair = || {
            let mut pair = Pair::new(place, change, read, instead, &name);
            while pair.round < read.rounds {
                (read.run)(&mut pair);
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(pair)) {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref().copied());
            failures.push(format!("{title}: {}", text.unwrap_or("?")));
        }
    }
    assert!(failures.is_empty(), "{}, {} failures:\n{}", place.title, failures.len(), failures.join("\n"));
    assert!(place.c.says("admin fsck").starts_with("clean: "));
}

fn of_two(title: &'static str, settings: &[&str], kind: Kind) {
    let Some(two) = Two::with(settings) else { return };
    let status: serde_json::Value = serde_json::from_str(&two.c.says("admin status --json")).unwrap();
    let page = status["pages"]["mount"].as_str().unwrap().to_owned();
    every_pair(&Place::new(title, &two.c, &two.at, kind, &|| 0, page));
}

#[test]
fn whatever_changes_a_file_with_one_copy_the_next_read_sees_it() {
    of_two("files with one copy", PLAIN, Kind::Any);
}

#[test]
fn whatever_changes_a_file_with_two_copies_the_next_read_sees_it() {
    of_two("files with two copies", &[], Kind::Any);
}

#[test]
fn whatever_changes_a_file_that_is_read_by_messages_the_next_read_sees_it() {
    of_two("files with two copies, read by messages", &["--set", "data.local_reads=false"], Kind::Messages);
}

#[test]
fn whatever_changes_a_file_marked_as_shared_the_next_read_sees_it() {
    of_two("files marked as shared", &[], Kind::Marked);
}

#[test]
fn whatever_changes_a_file_whose_owner_has_moved_the_next_read_sees_it() {
    let Some(hosts) = Hosts::new() else { return };
    let moves = || hosts.metric("braid_data_moves_total");
    every_pair(&Place::new("files whose owner has moved", &hosts.c, &hosts.at, Kind::Moved, &moves, hosts.page_here()));
}
