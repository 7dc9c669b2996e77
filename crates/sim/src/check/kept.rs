//! What is kept for snapshots: rows, chunks and files that are not there otherwise.

use super::rows::{Fault, Rows};
use crate::failures::Invariant;
use braid_meta_engine::{Key, Table};
use braid_meta_namespace::rows::{ChunkRow, Entry, KeptInode, OldRow, RowFormat, SnapshotsRow, keys};
use braid_types::InodeId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Kept {
    /// Chunks as files had them, each once, with the key of their row.
    pub chunks: Vec<(Key, ChunkRow)>,
    /// Files that have gone, whose rows of chunks are where they were.
    pub inodes: BTreeSet<InodeId>,
    /// Those of them that had a name. One that was open and had none when a snapshot was made is kept, and nobody finds it there.
    pub named: BTreeSet<InodeId>,
}

impl Kept {
    /// Everything that is kept is some snapshot's.
    pub fn of(rows: &Rows<'_>, faults: &mut Vec<Fault>) -> Kept {
        let mut kept = Kept::default();
        let snapshots: BTreeMap<InodeId, SnapshotsRow> = rows
            .decoded(Table::Snapshots, faults)
            .into_iter()
            .map(|(key, row)| (InodeId(key.partition()), row))
            .collect();
        let mut seen = BTreeSet::new();
        for (key, row) in rows.table(Table::OldRows) {
            let snapshots = snapshots.get(&InodeId(key.partition())).map(|row| &row.kept[..]).unwrap_or_default();
            let mut wrong = |text: &str| faults.push((Invariant::RowsAgree, format!("{key:?} {text}")));
            if let Some(inode) = keys::of_kept_inode(&key) {
                let Ok(row) = KeptInode::decode(&key, &row) else {
                    wrong("cannot be read");
                    continue;
                };
                if !snapshots.iter().any(|kept| row.born < kept.number && kept.number <= row.until) {
                    wrong("keeps a file that no snapshot has");
                }
                kept.inodes.insert(inode);
                continue;
            }
            let (Some((of, number)), Ok(row)) = (keys::of_old_row(&key), OldRow::decode(&key, &row)) else {
                wrong("cannot be read");
                continue;
            };
            if !snapshots.iter().any(|kept| kept.number == number) {
                wrong("is kept for a snapshot that is not there");
            }
            if let (Table::Inodes, Some(row)) = (of.table(), &row.row) {
                match Entry::decode(&of, row) {
                    Ok(entry) => _ = kept.named.insert(entry.id()),
                    Err(_) => wrong("cannot be read"),
                }
            }
            if of.table() != Table::Chunks {
                continue;
            }
            match row.row.map(|row| ChunkRow::decode(&of, &row)) {
                Some(Ok(row)) if seen.insert((of.clone(), row.chunk)) => kept.chunks.push((of, row)),
                Some(Err(_)) => wrong("cannot be read"),
                _ => {}
            }
        }
        kept
    }

    /// Files that are kept and that no snapshot shows.
    pub fn unseen(&self) -> u64 {
        self.inodes.difference(&self.named).count() as u64
    }
}
