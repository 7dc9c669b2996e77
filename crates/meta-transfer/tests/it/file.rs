//! A backup is what was saved, or it is refused.

use super::merge::random_rows;
use braid_meta_engine::{Key, Row};
use braid_meta_transfer::{About, BackupReader, BackupWriter, FORMAT, TransferError};
use braid_types::{ClusterId, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;

fn about() -> About {
    About {
        format: FORMAT,
        cluster: ClusterId([7; 16]),
        taken: Timestamp(5),
        version: "1".into(),
        engine: "sql".into(),
    }
}

fn saved(rows: &[(Key, Row)]) -> Vec<u8> {
    let mut writer = BackupWriter::begin(Vec::new(), &about()).unwrap();
    rows.iter().for_each(|(key, row)| writer.row(key, row).unwrap());
    let bytes = writer.bytes();
    let file = writer.end().unwrap();
    assert!(bytes <= file.len() as u64);
    file
}

fn read(mut file: &[u8]) -> Result<Vec<(Key, Row)>, TransferError> {
    let mut reader = BackupReader::open(&mut file)?;
    assert_eq!(*reader.about(), about());
    let mut rows = Vec::new();
    while let Some(batch) = reader.read()? {
        rows.extend(batch);
    }
    Ok(rows)
}

#[test]
fn what_was_saved_comes_back() {
    for count in [0, 1, 20_000] {
        let rows: Vec<(Key, Row)> = random_rows(&mut StdRng::seed_from_u64(1), count).into_iter().collect();
        let file = saved(&rows);
        assert!(read(&file).unwrap() == rows, "{count} rows, {} bytes", file.len());
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let rows: Vec<(Key, Row)> = random_rows(&mut StdRng::seed_from_u64(2), 40).into_iter().collect();
    let file = saved(&rows);
    for end in 0..file.len() {
        match read(&file[..end]) {
            Err(TransferError::NotOurs) if end < 8 => {}
            Err(TransferError::CutOff { at }) if end >= 8 && at <= end as u64 => {}
            other => panic!("cut at {end} of {}: {other:?}", file.len()),
        }
    }
}

#[test]
fn a_byte_that_has_changed_anywhere_is_noticed() {
    let rows: Vec<(Key, Row)> = random_rows(&mut StdRng::seed_from_u64(3), 40).into_iter().collect();
    let file = saved(&rows);
    for at in 0..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 0x10;
        assert!(read(&bad).is_err(), "byte {at} of {}", file.len());
    }
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let newer = About { format: FORMAT + 1, ..about() };
    let file = BackupWriter::begin(Vec::new(), &newer).unwrap().end().unwrap();
    let error = BackupReader::open(&mut &file[..]).map(drop).unwrap_err();
    assert!(matches!(error, TransferError::Newer { found: 2, known: 1 }), "{error}");
}

/// One piece left out: each that is there is whole.
#[test]
fn rows_that_are_missing_are_noticed() {
    let rows: Vec<(Key, Row)> = random_rows(&mut StdRng::seed_from_u64(4), 9000).into_iter().collect();
    let file = saved(&rows);
    let length = |at: usize| 9 + u32::from_le_bytes(file[at + 1..at + 5].try_into().unwrap()) as usize;
    let first = 8 + length(8);
    let without = [&file[..first], &file[first + length(first)..]].concat();
    let error = read(&without).unwrap_err();
    assert!(matches!(&error, TransferError::Damaged { why, .. } if why.contains("rows were written")), "{error}");
}
