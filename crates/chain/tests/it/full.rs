//! A data server whose disk has no room for what it is to have.
#![allow(clippy::unwrap_used)]

use crate::repair::*;
use braid_chain::{BlockSet, Body, Command, DataServer, Envelope, Event, FromLeader, Limits, Moment, Report, ToLeader};
use braid_types::{ChainEpoch, ChunkId, ContainerId};
use std::time::Duration;

const C: ContainerId = ContainerId(1);
const CHUNK: ChunkId = ChunkId(1);

/// All of the chunk comes; the number under which it is to be stored.
fn comes(server: &mut DataServer, now: Moment) -> u64 {
    let body = Body::Blocks { at: opening(1), upto: opening(1), blocks: BlockSet::of(0..BLOCKS) };
    let envelope = Envelope { container: C, chunk: CHUNK, epoch: ChainEpoch(1), term: TERM, body };
    let commands = server.on(now, Event::FromPeer { from: OTHER, envelope });
    let number = |command| if let Command::Store { number, .. } = command { Some(number) } else { None };
    commands.into_iter().find_map(number).unwrap()
}

fn lacking(now: Moment) -> DataServer {
    let mut server = DataServer::new(ME, 1, Limits::default(), []);
    goes_on(&mut server, now, (1, 1), 1, OTHER);
    is_told(&mut server, now, (1, 1), 1);
    server
}

/// Else the leader would grant it nothing, and it could not even be read any more.
#[test]
fn what_finds_no_room_does_not_keep_a_server_from_saying_what_it_has() {
    let now = Duration::from_secs(10);
    let mut server = lacking(now);
    let number = comes(&mut server, now);
    let prepare = FromLeader::Prepare { container: C, epoch: ChainEpoch(2) };
    server.on(now, Event::FromLeader { incarnation: 1, message: prepare });
    server.on(now, Event::HandsOff { container: C, epoch: ChainEpoch(2) });
    let said = server.on(now, Event::Unstored { container: C, chunk: CHUNK, number });
    let [Command::ToLeader(ToLeader::Prepared { reports, .. })] = &said[..] else { panic!("{said:?}") };
    let [Report { claims, .. }] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(claims.suspect, BlockSet::of(0..BLOCKS), "a part of it may be there");
    assert_eq!(claims.complete(), Default::default());
}

/// It asks again, but not as if nothing were wrong; and the leader hears of it, until there is room.
#[test]
fn who_stays_without_room_says_so_until_there_is_some() {
    let begin = Duration::from_secs(10);
    let mut server = lacking(begin);
    let (mut asked, mut said) = (Vec::new(), Vec::new());
    let mut is_full = true;
    for ms in (0..40_000).step_by(50) {
        let now = begin + Duration::from_millis(ms);
        if ms == 0 {
            let number = comes(&mut server, now);
            server.on(now, Event::Unstored { container: C, chunk: CHUNK, number });
        }
        for command in server.on(now, Event::Tick) {
            match command {
                Command::Send { envelope: Envelope { body: Body::Pull { .. }, .. }, .. } => {
                    asked.push(ms);
                    is_full = ms < 20_000;
                    let number = comes(&mut server, now);
                    let (container, chunk) = (C, CHUNK);
                    server.on(
                        now,
                        match is_full {
                            true => Event::Unstored { container, chunk, number },
                            false => Event::Stored { container, chunk, number },
                        },
                    );
                }
                Command::ToLeader(ToLeader::Full { container, epoch, bytes }) => {
                    assert_eq!((container, epoch, bytes), (C, ChainEpoch(1), BLOCKS * 4096));
                    said.push(ms);
                }
                _ => {}
            }
        }
    }
    assert_eq!(asked, [1_000, 3_000, 7_000, 15_000, 23_000], "the pause doubles up to eight seconds");
    assert_eq!(said.first(), Some(&10_000));
    assert!(said.len() > 10 && *said.last().unwrap() <= 23_000, "{said:?}");
    assert!(!is_full && server.copy(C, CHUNK).unwrap().invalid.is_empty());
}

/// What is deleted makes room: nobody waits for the longest pause.
#[test]
fn a_deletion_lets_it_be_tried_again_soon() {
    let begin = Duration::from_secs(10);
    let mut server = lacking(begin);
    let mut now = begin;
    for _ in 0..5 {
        let number = comes(&mut server, now);
        server.on(now, Event::Unstored { container: C, chunk: CHUNK, number });
        now += Duration::from_secs(8);
    }
    now -= Duration::from_secs(7);
    assert_eq!(asked_for(&mut server, now), []);
    server.forget(now, ContainerId(2), ChunkId(2));
    now += Limits::default().room_pause;
    assert_eq!(asked_for(&mut server, now), [CHUNK]);
}

/// A record that finds no room leaves the one before, which is true; it is tried again.
#[test]
fn a_record_that_finds_no_room_is_written_later_and_nothing_is_called_stable_before() {
    let mut now = Duration::from_secs(10);
    let mut server = lacking(now);
    let number = comes(&mut server, now);
    server.on(now, Event::Stored { container: C, chunk: CHUNK, number });
    // The first was asked for when the epoch began.
    (1..10).for_each(|number| drop(server.on(now, Event::Unsynced { container: C, chunk: CHUNK, number })));
    let mut tries = 0;
    let syncs = |commands: Vec<Command>| {
        commands.into_iter().find_map(|command| match command {
            Command::Sync { number, .. } => Some(number),
            _ => None,
        })
    };
    for _ in 0..100 {
        now += Duration::from_millis(50);
        let Some(number) = syncs(server.on(now, Event::Tick)) else { continue };
        tries += 1;
        server.on(now, Event::Synced { container: C, chunk: CHUNK, number });
        server.on(now, Event::Unsynced { container: C, chunk: CHUNK, number });
        assert_eq!(server.copy(C, CHUNK).unwrap().stable, Default::default());
    }
    assert_eq!(tries, 2, "after one second, and after two more");
    now += Duration::from_secs(8);
    let number = syncs(server.on(now, Event::Tick)).unwrap();
    server.on(now, Event::Synced { container: C, chunk: CHUNK, number });
    server.on(now, Event::Persisted { container: C, chunk: CHUNK, number });
    assert_eq!(server.copy(C, CHUNK).unwrap().stable, opening(1));
}
