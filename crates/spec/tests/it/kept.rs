//! With every rule: no state of these configurations breaks an invariant.

use crate::explore;
use braid_spec::rules::Passing::{Fenced, Yields};
use braid_spec::rules::Setup;

fn two() -> Setup {
    Setup::new(2)
}

fn three() -> Setup {
    Setup::new(3)
}

/// There, back, given up, with a `Hand` that is lost; a write that is sent again anywhere; the lease passes on.
#[test]
fn two_servers_and_moves() {
    let setup = Setup { writes: [2, 0], words: 2, repeats: 1, slow_store: true, lost_hands: 1, stories: true, ..two() };
    let moves = ["ownership moves", "ownership moves back", "the next owner answers", "nobody owns it"];
    explore("moves", setup, &[&moves[..], &["a move is given up", "a lost Hand is said again, and heard"]].concat(), 1);
    let setup = Setup { writes: [1, 1], words: 2, repeats: 1, passing: Yields, ..two() };
    explore("a lease passes on", setup, &[&moves[..], &["the second client writes"]].concat(), 1);
}

/// Writes that wait for all, readers that let go late, a new epoch and a crash in between.
#[test]
fn two_servers_and_a_crash() {
    let setup = Setup { writes: [2, 0], words: 2, epochs: 1, crashes: 1, shared: true, slow_readers: true, ..two() };
    let reached = ["ownership moves back", "an epoch goes on from a later term", "ownership moves in a later epoch"];
    explore("crash, shared", setup, &reached, 1);
    let setup = Setup { writes: [2, 0], words: 1, epochs: 1, crashes: 1, fsyncs: 1, ..two() };
    let reached = ["an fsync is answered", "an epoch goes on from a later term", "a move is ended by an epoch"];
    explore("crash, fsync", setup, &reached, 1);
}

#[test]
fn two_servers_and_a_fence() {
    let setup = Setup { writes: [2, 1], words: 2, repeats: 1, passing: Fenced, slow_readers: true, ..two() };
    let reached = ["a session ends", "ownership moves back", "the second client writes"];
    explore("fence, two servers", setup, &reached, 1);
}

#[test]
fn three_servers_and_a_fence() {
    let setup = Setup { writes: [1, 1], words: 2, passing: Fenced, slow_readers: true, ..three() };
    let reached = ["a session ends", "ownership moves back", "the second client writes"];
    explore("fence, three servers", setup, &reached, 1);
}

#[test]
fn three_servers_and_an_epoch() {
    let setup = Setup { writes: [1, 0], words: 1, epochs: 1, fsyncs: 1, ..three() };
    let reached =
        ["ownership moves in a later epoch", "a move is ended by an epoch", "what a past owner holds is fetched"];
    explore("epoch, three servers", setup, &reached, 1);
}

/// Two copies on three servers, of which any two are the chain.
#[test]
fn a_spare_server_and_two_epochs() {
    let setup = Setup { copies: 2, writes: [1, 0], words: 1, epochs: 2, fsyncs: 1, ..three() };
    let reached = ["ownership moves in a later epoch", "what a past owner holds is fetched", "an fsync is answered"];
    explore("two epochs, a spare", setup, &reached, 1);
    let setup = Setup { copies: 2, writes: [1, 0], words: 1, epochs: 1, crashes: 1, fsyncs: 1, ..three() };
    explore("crash, a spare", setup, &reached, 1);
}

/// It stays where it is.
#[test]
fn mounts_that_write_at_the_same_time() {
    let setup = Setup { writes: [1, 2], words: 1, repeats: 1, beside: true, shared: true, ..two() };
    explore("beside each other", setup, &["the second client writes"], 1);
}

/// Minutes, and gigabytes of memory.
#[test]
#[ignore = "run by hand"]
fn large() {
    let (moves, base) = (["ownership moves", "ownership moves back"], two());
    let setup = Setup { writes: [2, 1], words: 2, repeats: 1, passing: Yields, slow_store: true, ..base };
    explore("large: moves", Setup { lost_hands: 1, stories: true, ..setup }, &moves, 2);
    let setup = Setup { writes: [1, 1], words: 1, epochs: 1, crashes: 1, fsyncs: 1, passing: Fenced, ..base };
    explore("large: fence, crash, fsync", setup, &["a session ends", "an fsync is answered"], 2);
    let setup = Setup { writes: [1, 1], words: 1, epochs: 1, passing: Fenced, slow_readers: true, ..three() };
    explore("large: fence and epoch, three servers", setup, &["a session ends", "ownership moves in a later epoch"], 2);
    let setup = Setup { writes: [2, 0], words: 1, epochs: 1, fsyncs: 1, ..three() };
    explore("large: epoch, three servers", setup, &["what a past owner holds is fetched"], 2);
    let setup = Setup { writes: [1, 0], words: 1, epochs: 1, crashes: 1, fsyncs: 1, ..three() };
    explore("large: crash, three servers", setup, &["an fsync is answered", "a move is ended by an epoch"], 2);
    let setup = Setup { writes: [2, 2], words: 1, repeats: 1, beside: true, shared: true, ..three() };
    explore("large: beside each other, three servers", setup, &["the second client writes"], 2);
}
