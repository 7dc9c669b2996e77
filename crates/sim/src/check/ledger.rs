//! What may be in a file after crashes.
//!
//! The ledger keeps every change of a file, in order, and whether it is sure to be kept. A byte then has the value of
//! the last sure change of it, or of any later one that is not sure; in particular a change that was asked for and
//! never answered may be there, or not.

/// One change of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { size: u64 },
}

#[derive(Clone, Debug)]
struct Entry {
    change: Change,
    sure: bool,
    /// It may be lost although who made it lives, and whatever is synced later.
    doubtful: bool,
    /// Which life of which client made it.
    by: u64,
}

impl Entry {
    /// `reader` sees it whatever happened.
    fn is_sure_for(&self, reader: u64) -> bool {
        self.sure || (self.by == reader && !self.doubtful)
    }
}

/// The changes of one file.
#[derive(Clone, Debug, Default)]
pub struct FileLedger {
    entries: Vec<Entry>,
}

impl Change {
    /// What it makes of a byte; `None` if it leaves it.
    fn value(&self, at: u64) -> Option<u8> {
        match self {
            Change::Write { offset, bytes } => bytes.get(usize::try_from(at.checked_sub(*offset)?).ok()?).copied(),
            Change::Truncate { size } => (*size <= at).then_some(0),
        }
    }

    /// The file's size after it.
    fn size(&self, before: u64) -> u64 {
        match self {
            Change::Write { bytes, .. } if bytes.is_empty() => before,
            Change::Write { offset, bytes } => before.max(offset + bytes.len() as u64),
            Change::Truncate { size } => *size,
        }
    }
}

impl FileLedger {
    /// Before the change is asked for.
    pub fn begin(&mut self, change: Change, by: u64) {
        self.entries.push(Entry { change, sure: false, doubtful: false, by });
    }

    /// The last change, a truncate, was answered: that is a transaction, and so durable.
    pub fn answered(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            last.sure = true;
        }
    }

    /// Everything `by` changed so far is sure.
    pub fn make_sure(&mut self, by: u64) {
        self.entries.iter_mut().filter(|e| e.by == by && !e.doubtful).for_each(|entry| entry.sure = true);
        self.compact();
    }

    /// What is not sure by now may be lost for ever.
    pub fn doubt(&mut self) {
        self.entries.iter_mut().filter(|entry| !entry.sure).for_each(|entry| entry.doubtful = true);
    }

    /// What is sure at the beginning need not be kept change by change.
    fn compact(&mut self) {
        let sure = self.entries.iter().take_while(|entry| entry.sure).count();
        if sure < 2 {
            return;
        }
        let (bytes, by) = (self.sure_bytes(sure, u64::MAX), self.entries[sure - 1].by);
        let size = bytes.len() as u64;
        // Truncating first says that everything else is zero.
        let base = [Change::Truncate { size: 0 }, Change::Write { offset: 0, bytes }, Change::Truncate { size }];
        self.entries.splice(..sure, base.map(|change| Entry { change, sure: true, doubtful: false, by }));
    }

    /// What the first `count` entries make, if only the sure ones, and those of `reader`, are kept.
    fn sure_bytes(&self, count: usize, reader: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in self.entries[..count].iter().filter(|entry| entry.is_sure_for(reader)) {
            bytes.resize(entry.change.size(bytes.len() as u64) as usize, 0);
            if let Change::Write { offset, bytes: new } = &entry.change {
                bytes[*offset as usize..*offset as usize + new.len()].copy_from_slice(new);
            }
        }
        bytes
    }

    /// Is this what the file may hold, as `reader` sees it? Who made a change and lives sees it for sure.
    pub fn check(&self, content: &[u8], reader: u64) -> Result<(), String> {
        let sure = self.sure_bytes(self.entries.len(), reader);
        let unsure = || self.entries.iter().filter(|entry| !entry.is_sure_for(reader));
        let (mut least, mut most) = (sure.len() as u64, sure.len() as u64);
        for entry in unsure() {
            (least, most) = (least.min(entry.change.size(least)), most.max(entry.change.size(most)));
        }
        let size = content.len() as u64;
        if size < least || size > most {
            return Err(format!("it has {size} bytes, and may have {least} to {most}"));
        }
        for (at, &byte) in content.iter().enumerate() {
            if sure.get(at).copied().unwrap_or(0) != byte && !self.explains(at as u64, byte, reader) {
                let sure = sure.get(at).copied().unwrap_or(0);
                return Err(format!("byte {at} of {size} is {byte:#04x}; what is sure there is {sure:#04x}"));
            }
        }
        Ok(())
    }

    /// Some change that may have been kept, after the last that was, gives this byte.
    fn explains(&self, at: u64, byte: u8, reader: u64) -> bool {
        for entry in self.entries.iter().rev() {
            let value = entry.change.value(at);
            if value == Some(byte) {
                return true;
            }
            if value.is_some() && entry.is_sure_for(reader) {
                return false;
            }
        }
        byte == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> Change {
        Change::Write { offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn what_is_sure_must_be_there_and_what_is_not_may() {
        let mut ledger = FileLedger::default();
        ledger.begin(write(0, b"aaaa"), 1);
        ledger.make_sure(1);
        ledger.begin(write(2, b"bbbb"), 2);
        for good in [&b"aaaa"[..], b"aabb", b"aabbbb", b"aaab\0b"] {
            assert_eq!(ledger.check(good, 3), Ok(()), "{good:?}");
        }
        for bad in [&b"aaa"[..], b"abaa", b"aaaac", b"aabbbbb", b""] {
            assert!(ledger.check(bad, 3).is_err(), "{bad:?}");
        }
        assert!(ledger.check(b"aaaa", 2).is_err(), "who wrote it sees it");
        ledger.make_sure(2);
        assert!(ledger.check(b"aabbb", 3).is_err() && ledger.check(b"aabbbb", 3).is_ok());
    }

    #[test]
    fn what_is_in_doubt_may_be_gone_also_for_who_wrote_it_and_after_a_sync() {
        let mut ledger = FileLedger::default();
        ledger.begin(write(0, b"aa"), 1);
        ledger.make_sure(1);
        ledger.begin(write(0, b"bb"), 1);
        assert!(ledger.check(b"aa", 1).is_err());
        ledger.doubt();
        ledger.begin(write(2, b"c"), 1);
        ledger.make_sure(1);
        assert!(ledger.check(b"aac", 1).is_ok() && ledger.check(b"bbc", 1).is_ok());
        assert!(ledger.check(b"aa", 1).is_err() && ledger.check(b"xxc", 1).is_err());
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut ledger = FileLedger::default();
        ledger.begin(write(0, b"aaaa"), 1);
        ledger.make_sure(1);
        ledger.begin(Change::Truncate { size: 1 }, 1);
        ledger.answered();
        ledger.begin(write(3, b"c"), 1);
        ledger.make_sure(1);
        assert_eq!(ledger.check(b"a\0\0c", 3), Ok(()));
        assert!(ledger.check(b"aaac", 3).is_err());
    }
}
