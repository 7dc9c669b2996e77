//! A copy in one file, which only grows: a base, then groups; groups that are dropped are said so.
//!
//! A file is whole when its base has ended and the groups the base needs are there. The one with the highest number that is
//! whole counts; a start removes the others and cuts a torn end.

use super::record::{self, Kind};
use braid_copyset::Copy;
use braid_env::{Disk, DiskFile, OpenMode};
use braid_types::MetaPosition;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// And the version of the format.
const MAGIC: &[u8; 8] = b"brdcopy\x01";
const PREFIX: &str = "copy.";

/// Where a page's or a group's changes lie: behind so many bytes of a record's body.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    record: u64,
    skip: usize,
    len: usize,
}

impl Place {
    /// Checked against the record's sum each time: what was written long ago may have rotted since it was last read.
    pub fn read(&self, file: &dyn DiskFile) -> io::Result<Vec<u8>> {
        let found = record::read(file, self.record)?.map(|(_, body)| body);
        let mut body = found.filter(|body| body.len() == self.skip + self.len).ok_or_else(|| {
            let cause = format!("the record at byte {} of a copy of the metadata is damaged", self.record);
            io::Error::new(io::ErrorKind::InvalidData, cause)
        })?;
        Ok(body.split_off(self.skip))
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

/// What a new file is made from.
pub struct Rotation {
    pub file: Arc<dyn DiskFile>,
    pub generation: u64,
    /// The new base: everything up to here, which is never dropped.
    pub base: MetaPosition,
    pub pages: Vec<Place>,
    pub groups: Vec<Place>,
}

pub struct CopyFile {
    file: Arc<dyn DiskFile>,
    generation: u64,
    end: u64,
    base: MetaPosition,
    upto: Option<u64>,
    pages: Vec<Place>,
    groups: Vec<(MetaPosition, Place)>,
}

impl CopyFile {
    pub fn create(disk: &dyn Disk, dir: &Path, generation: u64, base: MetaPosition) -> io::Result<CopyFile> {
        let file = disk.open(&dir.join(format!("{PREFIX}{generation}")), OpenMode::OrCreate)?;
        file.set_len(0)?;
        file.write_at(MAGIC, 0)?;
        let (pages, groups) = (Vec::new(), Vec::new());
        let mut copy = CopyFile { file, generation, end: MAGIC.len() as u64, base, upto: None, pages, groups };
        copy.write(Kind::Begin, &[&base.to_bytes()])?;
        Ok(copy)
    }

    /// The copy that counts, if there is one; removes what is left of others.
    pub fn find(disk: &dyn Disk, dir: &Path) -> io::Result<Option<CopyFile>> {
        let names = disk.list(dir)?;
        let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix(PREFIX)?.parse::<u64>().ok();
        let mut generations: Vec<u64> = names.iter().filter_map(|entry| number(&entry.name)).collect();
        generations.sort_unstable();
        let mut found = None;
        for generation in generations.into_iter().rev() {
            let path = dir.join(format!("{PREFIX}{generation}"));
            if found.is_none() {
                let copy = CopyFile::open(disk, &path, generation)?;
                found = copy.filter(|copy| {
                    let last = copy.groups.last().map_or(copy.base, |(at, _)| *at);
                    copy.upto.is_some_and(|upto| last.number >= upto)
                });
                if found.is_some() {
                    continue;
                }
            }
            disk.remove(&path)?;
        }
        Ok(found)
    }

    fn open(disk: &dyn Disk, path: &Path, generation: u64) -> io::Result<Option<CopyFile>> {
        let file = disk.open(path, OpenMode::Existing)?;
        let mut magic = [0; 8];
        if file.read_at(&mut magic, 0)? < magic.len() {
            return Ok(None);
        }
        if magic[..7] == MAGIC[..7] && magic[7] > MAGIC[7] {
            let cause = format!("{} was written by a newer version", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        if magic != *MAGIC {
            return Ok(None);
        }
        let (base, upto) = (MetaPosition::default(), None);
        let (pages, groups) = (Vec::new(), Vec::new());
        let mut copy = CopyFile { file, generation, end: MAGIC.len() as u64, base, upto, pages, groups };
        while let Some((kind, body)) = record::read(&*copy.file, copy.end)? {
            if copy.take(kind, &body).is_none() {
                break;
            }
            copy.end += (record::HEAD_BYTES + body.len()) as u64;
        }
        if copy.file.len()? > copy.end {
            tracing::info!(path = %path.display(), bytes = copy.file.len()? - copy.end, "the torn end of a copy is cut");
            copy.file.set_len(copy.end)?;
        }
        // What was read may lie in the page cache only; from here on it is what the server says that it has.
        copy.file.sync_data()?;
        Ok(Some(copy))
    }

    fn take(&mut self, kind: Kind, body: &[u8]) -> Option<()> {
        let place = |skip: usize| {
            let len = body.len().checked_sub(skip)?;
            Some(Place { record: self.end, skip, len })
        };
        match kind {
            Kind::Begin => self.base = record::position(body)?,
            Kind::Page => self.pages.push(place(0)?),
            Kind::End => self.upto = Some(record::number(body)?),
            Kind::Group => self.groups.push((record::position(body)?, place(MetaPosition::BYTES)?)),
            Kind::Drop => {
                let number = record::number(body)?;
                self.groups.retain(|(at, _)| at.number <= number);
            }
        }
        Some(())
    }

    fn write(&mut self, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        record::encode(kind, parts, &mut bytes);
        self.file.write_at(&bytes, self.end)?;
        let body = bytes.split_off(record::HEAD_BYTES);
        let _ = self.take(kind, &body);
        self.end += (record::HEAD_BYTES + body.len()) as u64;
        Ok(())
    }

    pub fn positions(&self) -> Copy {
        Copy::found(self.base, self.upto.unwrap_or_default(), self.groups.iter().map(|(at, _)| *at))
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{PREFIX}{}", self.generation))
    }

    pub fn handle(&self) -> Arc<dyn DiskFile> {
        self.file.clone()
    }

    pub fn page(&mut self, rows: &[u8]) -> io::Result<()> {
        self.write(Kind::Page, &[rows])
    }

    pub fn end_base(&mut self, upto: u64) -> io::Result<()> {
        self.write(Kind::End, &[&upto.to_le_bytes()])
    }

    pub fn append(&mut self, groups: &[(MetaPosition, &[u8])]) -> io::Result<()> {
        groups.iter().try_for_each(|(at, changes)| self.write(Kind::Group, &[&at.to_bytes(), changes]))
    }

    pub fn drop_after(&mut self, number: u64) -> io::Result<()> {
        self.write(Kind::Drop, &[&number.to_le_bytes()])
    }

    /// What is to be written anew, if the groups up to `durable` have more bytes than this, and than a quarter of the base.
    pub fn rotation(&self, durable: u64, bytes_max: usize) -> Option<Rotation> {
        let fixed = self.groups.partition_point(|(at, _)| at.number <= durable);
        let bytes = |places: &mut dyn Iterator<Item = &Place>| places.map(|place| place.len).sum::<usize>();
        let log = bytes(&mut self.groups[..fixed].iter().map(|(_, place)| place));
        let base = bytes(&mut self.pages.iter());
        // The groups are held in memory while the base is read.
        if log < bytes_max.max((base / 4).min(4 * bytes_max)) {
            return None;
        }
        let (base, _) = *self.groups[..fixed].last()?;
        let groups = self.groups[..fixed].iter().map(|(_, place)| *place).collect();
        let (file, generation, pages) = (self.file.clone(), self.generation, self.pages.clone());
        Some(Rotation { file, generation, base, pages, groups })
    }

    /// Ends a file that was made from this one: groups that came meanwhile are added.
    pub fn pass_on(&self, to: &mut CopyFile) -> io::Result<()> {
        let base = to.base.number;
        for (at, place) in self.groups.iter().filter(|(at, _)| at.number > base) {
            to.append(&[(*at, &place.read(&*self.file)?)])?;
        }
        // A base that was read while groups went on needs those still.
        to.end_base(self.upto.unwrap_or_default().max(base))?;
        to.file.sync_data()
    }

    pub fn base(&self) -> MetaPosition {
        self.base
    }

    /// All that is to be read of it.
    pub fn places(&self) -> Vec<Place> {
        self.pages.iter().chain(self.groups.iter().map(|(_, place)| place)).copied().collect()
    }

    /// A piece of the copy from the page or group `from` on; where the next begins, and where the copy ends.
    pub fn piece(&self, from: u64, bytes_max: usize) -> io::Result<(Option<u64>, MetaPosition, Vec<u8>)> {
        let places = self.pages.iter().chain(self.groups.iter().map(|(_, place)| place));
        let (mut rows, mut next) = (Vec::new(), from);
        for place in places.skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            if !rows.is_empty() && rows.len() + place.len > bytes_max {
                break;
            }
            rows.extend(place.read(&*self.file)?);
            next += 1;
        }
        let all = (self.pages.len() + self.groups.len()) as u64;
        let last = self.groups.last().map_or(self.base, |(at, _)| *at);
        Ok(((next < all).then_some(next), last, rows))
    }
}
