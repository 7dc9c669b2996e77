//! What came from an owner before what it follows: kept until that is here.
//!
//! Announcements and content travel on connections of their own, and no message of one connection waits for another. So content
//! comes before the announcement that says what it is of, and announcements come in another order than they were sent. Without this
//! the first would be dropped and asked for again after 300 ms, and the second refused and repeated.
//!
//! Promises: nothing here is part of the protocol: what is dropped (for there is a bound) was lost, as far as the machine knows, and
//! what is heard late is a late message.

use super::content::Incoming;
use braid_chain::{Body, CopyStatus, Envelope};
use braid_types::{ChunkId, ContainerId, ServerId, Version};
use std::collections::VecDeque;
use std::sync::Arc;

/// Of content, of all chunks: eight writes of 1 MiB that one client has on their way to a file, twice.
const BYTES_MAX: usize = 16 << 20;
const WORDS_MAX: usize = 1024;

#[derive(Clone)]
pub(super) struct Word {
    pub from: ServerId,
    pub envelope: Envelope,
    pub content: Option<Arc<Incoming>>,
}

impl Word {
    /// The copy must have been told of everything up to there for all of this to be understood.
    fn follows(&self) -> Option<Version> {
        match &self.envelope.body {
            Body::Tell { groups, .. } => groups.first().map(|group| group.base),
            Body::Blocks { at, .. } => Some(*at),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        self.content.as_ref().map_or(0, |content| content.bytes())
    }
}

#[derive(Default)]
pub(super) struct Early {
    words: VecDeque<Word>,
    bytes: usize,
}

impl Early {
    /// What is to be heard now, if anything of it; the rest is kept.
    pub fn take_in(&mut self, word: Word, copy: Option<&CopyStatus>) -> Option<Word> {
        let Some(follows) = word.follows() else { return Some(word) };
        let told = copy.map_or(Version::default(), |copy| copy.told);
        let is_of_now = copy.is_none_or(|copy| {
            (copy.epoch, copy.term, copy.owner) == (Some(word.envelope.epoch), word.envelope.term, word.from)
        });
        if follows <= told || !is_of_now {
            return Some(word);
        }
        match &word.envelope.body {
            Body::Blocks { blocks, .. } => {
                // What was asked for is wanted as it is; what nobody has announced yet is kept, and a message may be both.
                let is_wanted = |copy: &CopyStatus| !blocks.intersection(&copy.invalid).is_empty();
                let is_all_wanted = |copy: &CopyStatus| blocks.without(&copy.invalid).is_empty();
                let (now, all) = (copy.is_some_and(is_wanted), copy.is_some_and(is_all_wanted));
                if !all {
                    self.keep(word.clone());
                }
                now.then_some(word)
            }
            _ => {
                self.keep(word);
                None
            }
        }
    }

    fn keep(&mut self, word: Word) {
        self.bytes += word.bytes();
        self.words.push_back(word);
        while self.bytes > BYTES_MAX || self.words.len() > WORDS_MAX {
            let Some(oldest) = self.words.pop_front() else { return };
            self.bytes -= oldest.bytes();
            let (chunk, bytes) = (oldest.envelope.chunk, oldest.bytes());
            tracing::debug!("chunk {chunk}: {bytes} bytes that came too early are dropped");
        }
    }

    /// Something about the chunk that can be understood now that this was told.
    pub fn next(&mut self, container: ContainerId, chunk: ChunkId, told: Version) -> Option<Word> {
        let is_due = |word: &Word| {
            (word.envelope.container, word.envelope.chunk) == (container, chunk)
                && word.follows().is_none_or(|follows| follows <= told)
        };
        let at = self.words.iter().position(is_due)?;
        let word = self.words.remove(at)?;
        self.bytes -= word.bytes();
        Some(word)
    }

    /// The chain is another: who owned its chunks says nothing any more.
    pub fn forget(&mut self, container: ContainerId) {
        self.words.retain(|word| word.envelope.container != container);
        self.bytes = self.words.iter().map(Word::bytes).sum();
    }
}
