//! A copy whose groups have become long is written anew: its base with the groups in it.
//!
//! The base is read and written as a stream, in the order of its keys; only the groups are held in memory, which is what
//! bounds them. The old file goes on taking groups meanwhile; they are copied at the end.

use super::copy_file::{CopyFile, Place, Rotation};
use braid_env::{Disk, DiskFile};
use braid_types::{RowChange, RowChanges};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const PAGE_BYTES: usize = 1 << 20;

type Row = Option<Vec<u8>>;

fn spoilt() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a copy of the metadata holds what is no change of rows")
}

/// What the groups make of rows.
fn changed(file: &dyn DiskFile, groups: &[Place]) -> io::Result<BTreeMap<(u8, Vec<u8>), Row>> {
    let mut rows = BTreeMap::new();
    for place in groups {
        let bytes = place.read(file)?;
        for change in RowChanges::read(&bytes) {
            let change = change.map_err(|_| spoilt())?;
            rows.insert((change.table, change.key.to_vec()), change.row.map(<[u8]>::to_vec));
        }
    }
    Ok(rows)
}

/// Pages of the new file.
struct Pages<'a> {
    to: &'a mut CopyFile,
    rows: RowChanges,
}

impl Pages<'_> {
    fn push(&mut self, table: u8, key: &[u8], row: &[u8]) -> io::Result<()> {
        self.rows.push(RowChange { table, key, row: Some(row) });
        if self.rows.len() >= PAGE_BYTES { self.end() } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() { Ok(()) } else { self.to.page(&rows.into_bytes()) }
    }
}

/// Writes the new file without its end: groups that came meanwhile are still to be added.
pub fn rotate(disk: &dyn Disk, dir: &Path, work: &Rotation, generation: u64) -> io::Result<CopyFile> {
    let file = &*work.file;
    let mut to = CopyFile::create(disk, dir, generation, work.base)?;
    let mut new = changed(file, &work.groups)?;
    let mut pages = Pages { to: &mut to, rows: RowChanges::default() };
    for place in &work.pages {
        let bytes = place.read(file)?;
        for change in RowChanges::read(&bytes) {
            let RowChange { table, key, row } = change.map_err(|_| spoilt())?;
            // What the groups have made and the base does not have comes in between.
            while let Some(first) = new.first_entry()
                && (first.key().0, first.key().1.as_slice()) < (table, key)
            {
                let ((table, key), row) = first.remove_entry();
                row.map_or(Ok(()), |row| pages.push(table, &key, &row))?;
            }
            match new.first_entry().filter(|first| (first.key().0, first.key().1.as_slice()) == (table, key)) {
                Some(first) => first.remove().map_or(Ok(()), |row| pages.push(table, key, &row))?,
                None => row.map_or(Ok(()), |row| pages.push(table, key, row))?,
            }
        }
    }
    for ((table, key), row) in new {
        row.map_or(Ok(()), |row| pages.push(table, &key, &row))?;
    }
    pages.end()?;
    to.handle().sync_data()?;
    Ok(to)
}
