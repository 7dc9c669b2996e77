//! The words of a chain that cross the network: what data servers say to each other, to the leader and to clients, and these to them. Pure.
//!
//! Whoever says one can be made to stop before or after it (`trap`), and coverage counts where that was.

use braid_api::data::{DataAnswer, DataRequest};
use braid_api::meta::MetaRequest;
use braid_chain::{Body, Envelope, FromLeader, Message, ToLeader};
use braid_wire::{Header, Kind, Limits, PREFIX_BYTES};

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Word { $($(#[$doc])* $name,)* }

        impl Word {
            pub const ALL: &[Word] = &[$(Word::$name),*];

            /// As coverage counts it: who says it stopped before that.
            pub fn before(self) -> &'static str {
                match self { $(Word::$name => concat!("stopped before ", $text),)* }
            }

            pub fn after(self) -> &'static str {
                match self { $(Word::$name => concat!("stopped after ", $text),)* }
            }
        }
    };
}

words! {
    // Between data servers, of a move first.
    Want = "Want";
    Hand = "Hand";
    Owns = "Owns";
    Hello = "Hello";
    Tell = "Tell";
    Ack = "Ack";
    Blocks = "Blocks";
    Pull = "Pull";
    Fetch = "Fetch";
    Fetched = "Fetched";
    // From the leader.
    Grant = "Grant";
    TellChains = "TellChains";
    Prepare = "Prepare";
    Install = "Install";
    Opened = "Opened";
    // To the leader.
    Renew = "Renew";
    Prepared = "Prepared";
    Installed = "Installed";
    Open = "Open";
    Remove = "Remove";
    // Of clients, and what they are answered.
    Write = "a write";
    Written = "the answer to a write";
    Wait = "an fsync";
    Waited = "the answer to an fsync";
    Read = "a read";
    WantChunk = "asking for a chunk";
}

impl Word {
    /// Those of a move of ownership, which are few beside all others.
    pub const OF_A_MOVE: &[Word] = &[Word::WantChunk, Word::Want, Word::Hand, Word::Owns];
    /// The rarest of a takeover.
    pub const OF_A_TAKEOVER: &[Word] = &[Word::Fetch, Word::Fetched];

    /// Those in these bytes.
    pub fn all_in(bytes: &[u8], sent: Sent) -> Vec<Word> {
        let (mut words, mut rest) = (Vec::new(), bytes);
        if let Some(len) = sent.carried {
            words.extend(bytes.get(..len).and_then(from_leader));
            rest = bytes.get(len..).unwrap_or_default();
        }
        while let Some((header, body, after_body)) = first_message(rest) {
            let carried = after_body.get(..header.payload_len).unwrap_or_default();
            match header.kind {
                Kind::Request if sent.to_meta => words.extend(to_leader(body)),
                Kind::Request => of_request(body, carried, &mut words),
                Kind::Answer if !sent.by_meta => words.extend(of_answer(body)),
                _ => {}
            }
            rest = after_body.get(header.payload_len..).unwrap_or_default();
        }
        words
    }

    /// How long what comes next is, if these bytes end with a word of the leader that is to follow.
    pub fn carried_after(bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        loop {
            let (header, body, after_body) = first_message(rest)?;
            match after_body.get(header.payload_len..) {
                Some(next) => rest = next,
                None => {
                    let leads = matches!(braid_wire::decode(body), Ok(DataRequest::LeaderSays(_)));
                    return leads.then_some(header.payload_len);
                }
            }
        }
    }
}

/// Who sends bytes to whom.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub by_meta: bool,
    pub to_meta: bool,
    /// The first so many are what a word of the leader carries, whose beginning has been sent.
    pub carried: Option<usize>,
}

fn first_message(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let header = Header::decode(bytes.first_chunk::<PREFIX_BYTES>()?, &Limits::default()).ok()?;
    let (body, rest) = bytes[PREFIX_BYTES..].split_at_checked(header.body_len)?;
    Some((header, body, rest))
}

fn of_request(body: &[u8], payload: &[u8], words: &mut Vec<Word>) {
    match braid_wire::decode(body) {
        Ok(DataRequest::PeerSays(says)) => {
            let mut rest = says.message.as_slice();
            while let Ok((said, after)) = Envelope::decode_first(rest) {
                words.push(of_peer(&said.body));
                rest = after;
            }
        }
        Ok(DataRequest::LeaderSays(_)) => words.extend(from_leader(payload)),
        Ok(DataRequest::WriteCopies(_)) => words.push(Word::Write),
        Ok(DataRequest::WaitCopies(_)) => words.push(Word::Wait),
        Ok(DataRequest::ReadCopy(_)) => words.push(Word::Read),
        Ok(DataRequest::WantChunk(_)) => words.push(Word::WantChunk),
        _ => {}
    }
}

fn of_answer(body: &[u8]) -> Option<Word> {
    match braid_wire::decode(body).ok()? {
        DataAnswer::WriteCopies(_) => Some(Word::Written),
        DataAnswer::WaitCopies(_) => Some(Word::Waited),
        _ => None,
    }
}

fn of_peer(body: &Body) -> Word {
    match body {
        Body::Want => Word::Want,
        Body::Hand { .. } | Body::HandQueue { .. } => Word::Hand,
        Body::Owns => Word::Owns,
        Body::Hello { .. } => Word::Hello,
        Body::Tell { .. } => Word::Tell,
        Body::Ack { .. } => Word::Ack,
        Body::Blocks { .. } => Word::Blocks,
        Body::Pull { .. } => Word::Pull,
        Body::Fetch { .. } => Word::Fetch,
        Body::Fetched { .. } => Word::Fetched,
    }
}

fn from_leader(bytes: &[u8]) -> Option<Word> {
    match FromLeader::decode(bytes).ok()? {
        FromLeader::Grant { .. } => Some(Word::Grant),
        FromLeader::Prepare { .. } => Some(Word::Prepare),
        FromLeader::Install { .. } => Some(Word::Install),
        FromLeader::Opened { .. } => Some(Word::Opened),
        FromLeader::TellChains { .. } => Some(Word::TellChains),
    }
}

fn to_leader(body: &[u8]) -> Option<Word> {
    let MetaRequest::ServerSays(says) = braid_wire::decode(body).ok()? else { return None };
    match ToLeader::decode(&says.bytes).ok()? {
        ToLeader::Renew { .. } => Some(Word::Renew),
        ToLeader::Prepared { .. } | ToLeader::PreparedWithout { .. } => Some(Word::Prepared),
        ToLeader::Installed { .. } => Some(Word::Installed),
        ToLeader::Open { .. } => Some(Word::Open),
        ToLeader::Remove { .. } => Some(Word::Remove),
        ToLeader::Full { .. } => None,
    }
}
