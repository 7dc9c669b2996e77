//! The file with a copy's record: two slots, written in turn, so that one is whole whatever a power cut does to the other.
//! See docs/formats/data-store.md.

use crate::checksum::record_sum;
use braid_env::{Disk, DiskFile, OpenMode};
use std::io;
use std::path::Path;

const MAGIC: [u8; 8] = *b"BRCHAIN\0";
pub(super) const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 40;
const SUM_AT: usize = 36;
/// Each slot at first. A record at rest is a hundred bytes.
const SLOT_BYTES_MIN: u64 = 4096;
/// No record is larger. Of a 64 MiB chunk with 64 groups whose blocks all lie scattered it has 300 KB, of one of 1 GiB
/// 5 MB; a chunk of 1 TiB reaches this bound only if half a million of its pages are scattered in the same moment.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// What a slot has.
enum Slot {
    Nothing,
    Newer(u32),
    /// With its sequence.
    Record(u64, Record),
}

/// What is kept: the record, and the length of the chunk that the sync before it covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub synced_len: u64,
    pub bytes: Vec<u8>,
}

/// What a record's file has.
pub(super) enum Found {
    /// No slot is whole.
    Nothing,
    /// A newer program wrote it, in this format.
    Newer(u32),
    Record(Record),
}

fn frame(sequence: u64, synced_len: u64, record: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..16].copy_from_slice(&(record.len() as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
    bytes[24..32].copy_from_slice(&synced_len.to_le_bytes());
    bytes.extend_from_slice(record);
    let sum = record_sum(&bytes);
    bytes[SUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn read_slot(file: &dyn DiskFile, offset: u64, room: u64) -> io::Result<Slot> {
    let mut header = [0; HEADER_BYTES];
    if room < HEADER_BYTES as u64 || file.read_at(&mut header, offset)? < HEADER_BYTES || header[..8] != MAGIC {
        return Ok(Slot::Nothing);
    }
    let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    if half(8) > FORMAT {
        return Ok(Slot::Newer(half(8)));
    }
    let len = u64::from(half(12));
    if HEADER_BYTES as u64 + len > room {
        return Ok(Slot::Nothing);
    }
    let mut bytes = vec![0; HEADER_BYTES + len as usize];
    let n = file.read_at(&mut bytes, offset)?;
    let sum = half(SUM_AT);
    bytes[SUM_AT..HEADER_BYTES].fill(0);
    if n < bytes.len() || record_sum(&bytes) != sum {
        return Ok(Slot::Nothing);
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    Ok(Slot::Record(word(16), Record { synced_len: word(24), bytes: bytes.split_off(HEADER_BYTES) }))
}

fn slots(file: &dyn DiskFile) -> io::Result<(u64, [Slot; 2])> {
    let room = file.len()? / 2;
    Ok((room, [read_slot(file, 0, room)?, read_slot(file, room, room)?]))
}

/// The newest record that is whole.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Found> {
    let file = match disk.open(path, OpenMode::Existing) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        file => file?,
    };
    let mut newest = Found::Nothing;
    let mut highest = 0;
    for slot in slots(file.as_ref())?.1 {
        match slot {
            Slot::Newer(format) => return Ok(Found::Newer(format)),
            Slot::Record(sequence, record) if sequence > highest => {
                (highest, newest) = (sequence, Found::Record(record));
            }
            Slot::Record(..) | Slot::Nothing => {}
        }
    }
    Ok(newest)
}

/// Replaces the record, durably. The file's name must be stable, or become so with the chunk's others.
pub(super) fn write(disk: &dyn Disk, path: &Path, synced_len: u64, record: &[u8]) -> io::Result<()> {
    let needed = HEADER_BYTES as u64 + record.len() as u64;
    if needed > RECORD_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a record of {needed} bytes")));
    }
    let file = disk.open(path, OpenMode::OrCreate)?;
    let (room, slots) = slots(file.as_ref())?;
    let sequence = |slot: &Slot| if let Slot::Record(sequence, _) = slot { *sequence } else { 0 };
    let [first, second] = [sequence(&slots[0]), sequence(&slots[1])];
    let bytes = frame(first.max(second) + 1, synced_len, record);
    if needed <= room {
        // Over the older one, or over what is not whole.
        file.write_at(&bytes, if first <= second { 0 } else { room })?;
        return file.sync_data();
    }
    // Larger slots: in a new file, because the old record must stay until the new one is there.
    let room = needed.next_power_of_two().max(SLOT_BYTES_MIN);
    let new = path.with_extension(NEW_EXTENSION);
    let written = || {
        let file = disk.open(&new, OpenMode::OrCreate)?;
        file.set_len(0)?;
        file.set_len(2 * room)?;
        file.write_at(&bytes, 0)?;
        file.sync_data()
    };
    // What is left of it takes room that there may not be.
    written().inspect_err(|_| drop(disk.remove(&new)))?;
    disk.rename(&new, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new("/")))
}

/// Of a file that takes the place of one whose slots are too small.
pub(super) const NEW_EXTENSION: &str = "chain-new";

#[cfg(test)]
mod tests {
    use super::*;
    use braid_env::simdisk::SimDisk;

    fn found(disk: &SimDisk) -> Option<Vec<u8>> {
        match read(disk, Path::new("/r")).unwrap() {
            Found::Record(record) => {
                assert_eq!(record.synced_len, 7 * u64::from(record.bytes[0]));
                Some(record.bytes)
            }
            Found::Nothing => None,
            Found::Newer(format) => panic!("format {format}"),
        }
    }

    fn put(disk: &SimDisk, record: &[u8]) -> io::Result<()> {
        write(disk, Path::new("/r"), 7 * u64::from(record[0]), record)
    }

    /// Records that grow beyond their slots, cut at every change of the disk.
    #[test]
    fn a_power_cut_leaves_the_old_record_or_the_new() {
        let records: Vec<Vec<u8>> =
            [10, 100, 5_000, 20, 9_000].iter().enumerate().map(|(i, n)| vec![i as u8; *n]).collect();
        let mut cuts = 0;
        for stop in 0.. {
            let disk = SimDisk::new();
            disk.stop_after(Some(stop));
            let kept = records.iter().take_while(|record| put(&disk, record).is_ok()).count();
            disk.crash(stop);
            let found = found(&disk);
            let is = |n: usize| n.checked_sub(1).map(|n| records[n].clone());
            assert!(found == is(kept) || found == is((kept + 1).min(5)), "cut after {stop}: {kept} were kept");
            cuts += 1;
            if kept == records.len() {
                break;
            }
        }
        assert!(cuts > 15, "{cuts}");
    }

    #[test]
    fn damage_shows_and_a_newer_format_is_named() {
        let disk = SimDisk::new();
        let path = Path::new("/r");
        (1..4u8).for_each(|n| put(&disk, &[n; 50]).unwrap());
        assert_eq!(found(&disk), Some(vec![3; 50]));
        // The third lies in the first slot again.
        disk.corrupt(path, 50, 1).unwrap();
        assert_eq!(found(&disk), Some(vec![2; 50]), "the one before");
        disk.corrupt(path, 4096 + 8, 2).unwrap();
        assert!(matches!(read(&disk, path).unwrap(), Found::Newer(3)));
    }
}
