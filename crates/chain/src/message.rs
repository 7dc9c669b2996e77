//! What data servers and the leader say to each other about chains.
//!
//! Any message may be lost, repeated or late. What repeats is harmless, because numbers only rise and every message
//! between data servers names the chain epoch and owner term it belongs to; every message of the leader names the
//! incarnation of the process it is for.

use crate::limits::Moment;
use crate::region::Place;
use crate::{BlockSet, Claims, Decision};
use braid_types::{ChainEpoch, ChunkId, ContainerId, LeaderEpoch, OwnerTerm, ServerId, Version};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The format messages are written in. A newer one is refused by name: whoever is upgraded first speaks what the others
/// know until all are (as with any message of the protocol, fields are added with a new format only).
pub const MESSAGE_FORMAT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("a chain message of format {0}, this program reads up to {MESSAGE_FORMAT}")]
    Newer(u8),
    #[error("a chain message is damaged: {0}")]
    Damaged(String),
}

/// A message as bytes, with its format in front: it crosses the protocol as a value that only its two ends read.
pub trait Message: Serialize + DeserializeOwned {
    fn encode(&self) -> Vec<u8> {
        // Into a vector of a value that is all plain data: nothing in it can fail.
        postcard::to_extend(self, vec![MESSAGE_FORMAT]).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        Self::decode_first(bytes).map(|(message, _)| message)
    }

    /// With the bytes behind the message, which are not its own: whoever carries it may add to it for others of its kind.
    fn decode_first(bytes: &[u8]) -> Result<(Self, &[u8]), MessageError> {
        match bytes.split_first() {
            Some((&MESSAGE_FORMAT, body)) => {
                postcard::take_from_bytes(body).map_err(|e| MessageError::Damaged(e.to_string()))
            }
            Some((0, _)) => Err(MessageError::Damaged("format 0".to_owned())),
            Some((newer, _)) => Err(MessageError::Newer(*newer)),
            None => Err(MessageError::Damaged("it is empty".to_owned())),
        }
    }
}

impl Message for Envelope {}
impl Message for ToLeader {}
impl Message for FromLeader {}

/// Between two data servers of a chain, about one chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Envelope {
    pub container: ContainerId,
    pub chunk: ChunkId,
    pub epoch: ChainEpoch,
    pub term: OwnerTerm,
    pub body: Body,
}

/// Changes after `base`, up to `upto`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Told {
    pub base: Version,
    pub upto: Version,
    pub blocks: BlockSet,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Member to owner, in a new epoch or term: what I was told before that is still true, and serve nothing older than.
    Hello { told: Version },
    /// Owner to member: what changed. Without groups it asks how things are.
    Tell {
        groups: Vec<Told>,
        /// All members have everything up to here on stable storage.
        agreed: Version,
        /// Somebody waits until this is on stable storage.
        want_stable: Version,
        /// The blocks follow without being asked for.
        pushed: bool,
        /// How many copies have all of the epoch's start: the fewer, the more urgent is repair.
        copies: u8,
        end: u64,
    },
    /// Member to owner: invalid here up to `told`, here up to `complete`, on stable storage up to `stable`.
    Ack { told: Version, complete: Version, stable: Version, gap: bool },
    /// Member to owner.
    Pull { blocks: BlockSet },
    /// Owner to member, with the content: it has every write up to `at`, and none after `upto`.
    Blocks { at: Version, upto: Version, blocks: BlockSet },
    /// Successor to whoever holds newer blocks, before it begins.
    Fetch { blocks: BlockSet },
    /// The answer, with the content.
    Fetched { blocks: BlockSet },
    /// Member to owner: a writer is beside me.
    Want,
    /// Owner to a member that has all of it: the next term is yours. `told` is all there is; `moves` have been made shortly.
    Hand { told: Version, moves: u32 },
    /// The owner of this term to all others.
    Owns,
    /// As `Hand`, where operations wait for locks of regions: they keep their places at the next owner.
    HandQueue { told: Version, moves: u32, queue: Vec<Place> },
}

/// What a data server says of one chunk when it has stopped obeying older epochs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Report {
    pub chunk: ChunkId,
    pub claims: Claims,
    /// It owns the chunk, and has not restarted since it does.
    pub owns: bool,
}

/// A chain and its epoch, and how each chunk goes on. A chunk that is not named begins with nothing, at the first
/// member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Install {
    pub epoch: ChainEpoch,
    pub members: Vec<ServerId>,
    /// Copies there should be.
    pub copies: u8,
    pub min_copies: u8,
    pub decisions: Vec<Decision>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FromLeader {
    /// The lease asked for at `asked`, and the chain epochs this server must not act under any more.
    Grant {
        asked: Moment,
        leader: LeaderEpoch,
        raised: Vec<(ContainerId, ChainEpoch)>,
    },
    /// No lease before you say what chains you know.
    TellChains {
        leader: LeaderEpoch,
    },
    /// Stop acting under older epochs, and say what you have.
    Prepare {
        container: ContainerId,
        epoch: ChainEpoch,
    },
    Install {
        container: ContainerId,
        install: Install,
    },
    /// These chunks are open in this epoch, durably.
    Opened {
        container: ContainerId,
        epoch: ChainEpoch,
        chunks: Vec<ChunkId>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToLeader {
    /// Asks for a lease; with the epochs this server acts under, if the leader may not know them.
    Renew {
        asked: Moment,
        chains: Option<Vec<(ContainerId, ChainEpoch)>>,
    },
    Prepared {
        container: ContainerId,
        epoch: ChainEpoch,
        reports: Vec<Report>,
    },
    Installed {
        container: ContainerId,
        epoch: ChainEpoch,
    },
    /// `min_copies` members have the start of the epoch on stable storage.
    Open {
        container: ContainerId,
        epoch: ChainEpoch,
        chunks: Vec<ChunkId>,
    },
    /// This member does not answer.
    Remove {
        container: ContainerId,
        epoch: ChainEpoch,
        server: ServerId,
    },
    /// The disk of whoever says this has had no room for a while for what it is to have. In the same format, because a leader
    /// that does not know it loses nothing: the member tries on, as it did before there was this message.
    Full {
        container: ContainerId,
        epoch: ChainEpoch,
        /// What the container's chunks may take in all.
        bytes: u64,
    },
    /// As [`ToLeader::Prepared`], of a server that has lost copies it had acknowledged, in that epoch or an older one: that it has nothing of them
    /// does not say that there was nothing.
    PreparedWithout {
        container: ContainerId,
        epoch: ChainEpoch,
        reports: Vec<Report>,
        lost: Vec<(ChunkId, ChainEpoch)>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Holder, LockMode};
    use crate::{Lineage, Start};
    use braid_types::{ByteRange, SessionId};
    use std::fmt::Debug;
    use std::time::Duration;

    fn v(epoch: u32, counter: u64) -> Version {
        Version { chain_epoch: ChainEpoch(epoch), owner_term: OwnerTerm(1), counter }
    }

    /// One of each kind, with every field set.
    fn samples() -> (Vec<Envelope>, Vec<ToLeader>, Vec<FromLeader>) {
        let blocks: BlockSet = (0..5).chain(9000..9003).collect();
        let scattered: BlockSet = (0..200).step_by(2).collect();
        let groups = vec![Told { base: v(1, 2), upto: v(1, 300), blocks: scattered }];
        let (agreed, want_stable, upto) = (v(1, 1), v(1, 9), v(1, 301));
        let bodies = vec![
            Body::Hello { told: v(1, 2) },
            Body::Tell { groups, agreed, want_stable, pushed: true, copies: 3, end: 9003 },
            Body::Ack { told: v(1, 300), complete: v(1, 8), stable: v(1, 7), gap: true },
            Body::Pull { blocks: blocks.clone() },
            Body::Blocks { at: v(1, 300), upto, blocks: blocks.clone() },
            Body::Fetch { blocks: blocks.clone() },
            Body::Fetched { blocks: blocks.clone() },
        ];
        let (container, chunk, epoch, term) = (ContainerId(7), ChunkId(1 << 40), ChainEpoch(3), OwnerTerm(1));
        let envelopes = bodies.into_iter().map(|body| Envelope { container, chunk, epoch, term, body }).collect();
        let lineage = Lineage::new(ChainEpoch(1)).extended(epoch, v(1, 300), 8);
        assert_eq!(lineage.starts().last(), Some(&Start { epoch, from: v(1, 300) }));
        let claims = Claims { lineage: lineage.clone(), suspect: blocks.clone(), end: 9003, ..Claims::default() };
        let asked = Duration::from_millis(1_234_567);
        let to_leader = vec![
            ToLeader::Renew { asked, chains: Some(vec![(container, epoch)]) },
            ToLeader::Prepared { container, epoch, reports: vec![Report { chunk, claims, owns: true }] },
            ToLeader::Installed { container, epoch },
            ToLeader::Open { container, epoch, chunks: vec![chunk] },
            ToLeader::Remove { container, epoch, server: ServerId(4) },
        ];
        let decision = Decision {
            chunk,
            owner: ServerId(2),
            term,
            lineage,
            start: v(1, 300),
            opening: blocks.clone(),
            fetch: vec![(ServerId(3), v(1, 301), blocks)],
            lost: 5,
            sealed: 6,
            end: 9003,
        };
        let members = vec![ServerId(2), ServerId(3), ServerId(4)];
        let install = Install { epoch, members, copies: 3, min_copies: 2, decisions: vec![decision] };
        let leader = LeaderEpoch(11);
        let from_leader = vec![
            FromLeader::Grant { asked, leader, raised: vec![(container, epoch)] },
            FromLeader::TellChains { leader },
            FromLeader::Prepare { container, epoch },
            FromLeader::Install { container, install },
            FromLeader::Opened { container, epoch, chunks: vec![chunk] },
        ];
        (envelopes, to_leader, from_leader)
    }

    /// Each with its length in front.
    fn joined<M: Message>(messages: &[M]) -> Vec<u8> {
        let framed = |message: &M| {
            let bytes = message.encode();
            [(bytes.len() as u32).to_le_bytes().to_vec(), bytes].concat()
        };
        messages.iter().flat_map(framed).collect()
    }

    fn read<M: Message + PartialEq + Debug>(mut golden: &[u8], expected: &[M]) {
        for message in expected {
            let (len, rest) = golden.split_first_chunk().unwrap();
            let (bytes, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
            assert_eq!(&M::decode(bytes).unwrap(), message);
            golden = rest;
        }
        assert!(golden.is_empty());
    }

    /// Spoken by programs that exist. Never to be changed: a new format gets a new file and reads this one.
    #[test]
    fn the_first_format_is_spoken_for_ever() {
        let (envelopes, to_leader, from_leader) = samples();
        let golden = include_bytes!("../tests/golden/messages.v1");
        let lengths = [joined(&envelopes).len(), joined(&to_leader).len(), joined(&from_leader).len()];
        assert_eq!(lengths.iter().sum::<usize>(), golden.len());
        let (first, rest) = golden.split_at(lengths[0]);
        let (second, third) = rest.split_at(lengths[1]);
        read(first, &envelopes);
        read(second, &to_leader);
        read(third, &from_leader);
        assert!([joined(&envelopes), joined(&to_leader), joined(&from_leader)].concat() == golden);
    }

    #[test]
    #[ignore = "writes the golden file"]
    fn write_golden_file() {
        let (envelopes, to_leader, from_leader) = samples();
        let bytes = [joined(&envelopes), joined(&to_leader), joined(&from_leader)].concat();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/messages.v1");
        if std::fs::metadata(path).unwrap().len() == 0 {
            std::fs::write(path, bytes).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let (envelopes, ..) = samples();
        assert_eq!(Envelope::decode(&[2, 0]), Err(MessageError::Newer(2)));
        assert!(matches!(Envelope::decode(&[]), Err(MessageError::Damaged(_))));
        assert!(matches!(Envelope::decode(&[0, 1]), Err(MessageError::Damaged(_))));
        for bytes in envelopes.iter().map(Message::encode) {
            for cut in 1..bytes.len() {
                assert!(Envelope::decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    /// Came later, behind the others.
    #[test]
    fn a_move_of_ownership_is_spoken_of_as_ever() {
        let (container, chunk, epoch, term) = (ContainerId(7), ChunkId(9), ChainEpoch(3), OwnerTerm(2));
        let hand = Body::Hand { told: v(3, 300), moves: 5 };
        let bodies = [(Body::Want, vec![7]), (hand, vec![8, 3, 1, 172, 2, 5]), (Body::Owns, vec![9])];
        for (body, bytes) in bodies {
            let envelope = Envelope { container, chunk, epoch, term, body };
            assert_eq!(envelope.encode(), [vec![1, 7, 9, 3, 2], bytes].concat());
            let more = [envelope.encode(), vec![5, 6]].concat();
            assert_eq!(Envelope::decode(&more).as_ref(), Ok(&envelope), "read by who knows of nothing behind it");
            assert_eq!(Envelope::decode_first(&more), Ok((envelope.clone(), &[5, 6][..])));
            assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
        }
    }

    /// Came later, behind the others.
    #[test]
    fn a_queue_that_goes_along_is_spoken_of_as_ever() {
        let place = Place {
            holder: Holder { session: SessionId(6), number: 300 },
            mode: LockMode::ProtectedWrite,
            range: ByteRange::new(1, 300),
        };
        let body = Body::HandQueue { told: v(3, 300), moves: 5, queue: vec![place] };
        let (container, chunk, epoch, term) = (ContainerId(7), ChunkId(9), ChainEpoch(3), OwnerTerm(2));
        let envelope = Envelope { container, chunk, epoch, term, body };
        let queue = [1, 6, 172, 2, 3, 1, 172, 2];
        assert_eq!(envelope.encode(), [&[1, 7, 9, 3, 2, 10, 3, 1, 172, 2, 5][..], &queue].concat());
        assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
    }

    /// Came later, behind the others: what was spoken before is spoken as it was.
    #[test]
    fn a_full_server_is_spoken_of_as_ever() {
        let full = ToLeader::Full { container: ContainerId(7), epoch: ChainEpoch(3), bytes: 300 };
        assert_eq!(full.encode(), [1, 5, 7, 3, 172, 2]);
        assert_eq!(ToLeader::decode(&full.encode()), Ok(full));
    }

    #[test]
    fn a_server_that_has_lost_copies_is_spoken_of_as_ever() {
        let lost = vec![(ChunkId(300), ChainEpoch(2))];
        let (container, epoch, reports) = (ContainerId(7), ChainEpoch(3), Vec::new());
        let without = ToLeader::PreparedWithout { container, epoch, reports, lost };
        assert_eq!(without.encode(), [1, 6, 7, 3, 0, 1, 172, 2, 2]);
        assert_eq!(ToLeader::decode(&without.encode()), Ok(without));
    }
}
