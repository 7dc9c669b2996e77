//! Places for repair at one data server, of which there are few.
#![allow(clippy::unwrap_used)]

use braid_chain::{
    BlockSet, Body, Command, DataServer, Decision, Envelope, Event, FromLeader, Install, Limits, Lineage, Moment, Told,
};
use braid_types::{ChainEpoch, ChunkId, ContainerId, OwnerTerm, ServerId, Version};
use std::time::Duration;

pub const ME: ServerId = ServerId(3);
pub const OTHER: ServerId = ServerId(2);
pub const TERM: OwnerTerm = OwnerTerm(1);
pub const BLOCKS: u64 = 10;

pub fn opening(epoch: u32) -> Version {
    Version { chain_epoch: ChainEpoch(epoch), owner_term: TERM, counter: 0 }
}

/// Nothing of the chunk is stable anywhere, so each epoch goes on from nothing.
pub fn goes_on(server: &mut DataServer, now: Moment, at: (u64, u64), epoch: u32, owner: ServerId) {
    let (container, chunk) = (ContainerId(at.0), ChunkId(at.1));
    let older = (2..=epoch).map(ChainEpoch);
    let lineage = older.fold(Lineage::new(ChainEpoch(1)), |known, epoch| known.extended(epoch, Version::default(), 8));
    let decision = Decision {
        chunk,
        owner,
        term: TERM,
        lineage,
        start: Version::default(),
        opening: BlockSet::of(0..BLOCKS),
        fetch: Vec::new(),
        lost: 0,
        sealed: 0,
        end: BLOCKS,
    };
    let epoch = ChainEpoch(epoch);
    let install = Install { epoch, members: vec![ME, OTHER], copies: 2, min_copies: 2, decisions: vec![decision] };
    let message = FromLeader::Install { container, install };
    for command in server.on(now, Event::FromLeader { incarnation: 1, message }) {
        if let Command::HandsOff { container, epoch } = command {
            server.on(now, Event::HandsOff { container, epoch });
        }
    }
    assert_eq!(server.epoch(container), Some(epoch));
}

/// The owner says that all blocks changed; what this server asks for in the tick after it.
pub fn is_told(server: &mut DataServer, now: Moment, at: (u64, u64), epoch: u32) -> Vec<ChunkId> {
    let (container, chunk) = (ContainerId(at.0), ChunkId(at.1));
    let told = Told { base: Version::default(), upto: opening(epoch), blocks: BlockSet::of(0..BLOCKS) };
    let body = Body::Tell {
        groups: vec![told],
        agreed: Version::default(),
        want_stable: Version::default(),
        pushed: false,
        copies: 1,
        end: BLOCKS,
    };
    let envelope = Envelope { container, chunk, epoch: ChainEpoch(epoch), term: TERM, body };
    server.on(now, Event::FromPeer { from: OTHER, envelope });
    asked_for(server, now)
}

pub fn asked_for(server: &mut DataServer, now: Moment) -> Vec<ChunkId> {
    let pull = |command| match command {
        Command::Send { envelope: Envelope { chunk, body: Body::Pull { .. }, .. }, .. } => Some(chunk),
        _ => None,
    };
    server.on(now, Event::Tick).into_iter().filter_map(pull).collect()
}

/// It had asked for blocks as a member, and its owner is gone: as the owner it waits for no answer to that.
#[test]
fn a_copy_that_becomes_the_owner_while_it_is_repaired_gives_its_place_to_another() {
    let limits = Limits { pull_blocks: 2, repair_at_once: 1, ..Limits::default() };
    let resend = limits.resend;
    let mut server = DataServer::new(ME, 1, limits, []);
    let now = Duration::from_secs(10);
    goes_on(&mut server, now, (1, 1), 1, OTHER);
    assert_eq!(is_told(&mut server, now, (1, 1), 1), [ChunkId(1)]);
    goes_on(&mut server, now, (2, 2), 1, OTHER);
    assert_eq!(is_told(&mut server, now, (2, 2), 1), [], "the only place is taken");

    goes_on(&mut server, now, (1, 1), 2, ME);
    let later = now + resend * 2;
    assert_eq!(asked_for(&mut server, later), [ChunkId(2)]);
}

/// After a server was away for a while there are thousands of chunks that lack a little.
#[test]
fn what_small_chunks_lack_from_before_comes_at_the_rate_of_repair() {
    let limits = Limits { repair_bytes_per_s: 1 << 20, ..Limits::default() };
    let mut server = DataServer::new(ME, 1, limits, []);
    let now = Duration::from_secs(10);
    let (mut asked, chunks) = (0, 200);
    for chunk in 1..=chunks {
        goes_on(&mut server, now, (chunk, chunk), 1, OTHER);
        asked += is_told(&mut server, now, (chunk, chunk), 1).len();
    }
    let each = BLOCKS as usize * 4096;
    assert_eq!(asked, (1 << 20) / each, "what was saved up in a second");
    for ms in (50..=2_000).step_by(50) {
        // Nobody answers: what is not answered after a while gives its place to others.
        asked += asked_for(&mut server, now + Duration::from_millis(ms)).len();
    }
    assert!(asked * each <= 3 << 20, "{asked} messages of {each} bytes in three seconds at 1 MiB a second");
}

#[test]
fn what_is_written_in_this_epoch_is_asked_for_at_once_whatever_repair_does() {
    let mut server = DataServer::new(ME, 1, Limits { repair_bytes_per_s: 1, ..Limits::default() }, []);
    let now = Duration::from_secs(10);
    goes_on(&mut server, now, (1, 1), 1, OTHER);
    is_told(&mut server, now, (1, 1), 1);
    let (container, chunk, epoch) = (ContainerId(1), ChunkId(1), ChainEpoch(1));
    let hears = |server: &mut DataServer, body| {
        let envelope = Envelope { container, chunk, epoch, term: TERM, body };
        server.on(now, Event::FromPeer { from: OTHER, envelope })
    };
    // What was there before has come.
    let all = BlockSet::of(0..BLOCKS);
    let came = hears(&mut server, Body::Blocks { at: opening(1), upto: opening(1), blocks: all.clone() });
    let number = came.iter().find_map(|command| match command {
        Command::Store { number, .. } => Some(*number),
        _ => None,
    });
    server.on(now, Event::Stored { container, chunk, number: number.unwrap() });
    let upto = Version { counter: 1, ..opening(1) };
    let told = Told { base: opening(1), upto, blocks: all };
    let (agreed, want_stable) = (Version::default(), upto);
    let tell = Body::Tell { groups: vec![told], agreed, want_stable, pushed: false, copies: 1, end: BLOCKS };
    let pulls =
        |command: &Command| matches!(command, Command::Send { envelope: Envelope { body: Body::Pull { .. }, .. }, .. });
    assert!(hears(&mut server, tell).iter().any(pulls));
}
