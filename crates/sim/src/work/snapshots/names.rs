//! One task's names: files that are made, written, cut, linked, renamed and removed, one call after the other, so that it is known at any time
//! what there is.

use super::picture::{Sum, content, find, name, sum};
use super::{Cell, Life, Snapshots, Value};
use crate::failures::Invariant;
use braid_api::{Caller, FileSystem, HandleId, OpenFlags, RenameMode, Result, SetAttr};
use braid_types::{InodeId, Mode};
use rand::RngExt;
use std::collections::BTreeMap;

/// Of each task.
const NAMES: usize = 4;
/// Inline, and in a chunk; now and then over the border of two.
const LENGTHS: [usize; 5] = [1, 300, 2000, 9000, 70_000];
const LARGE: usize = (1 << 20) + 5000;
const SIZES: [usize; 5] = [0, 200, 5000, 60_000, (1 << 20) + 1000];

type File = (Vec<u8>, Sum);

/// What there is now.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, usize>,
    files: BTreeMap<usize, File>,
    next: usize,
}

/// The last lies in another directory than the others.
fn path_of(who: usize, number: usize) -> String {
    let dir = if number == NAMES - 1 { "sub/" } else { "" };
    format!("{dir}t{who}-{number}")
}

/// Whose a path is.
pub fn who_has(path: &str) -> Option<usize> {
    let last = path.rsplit('/').next()?;
    last.strip_prefix('t')?.split_once('-')?.0.parse().ok()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let few: Vec<u8> = (0..97).map(|i: u64| ((i * 31 + seed * 7) % 255 + 1) as u8).collect();
    let mut all = few.repeat(len / few.len() + 1);
    all.truncate(len);
    all
}

impl Model {
    fn tree(&self) -> Value {
        let sum = |file: &usize| self.files.get(file).map(|(_, sum)| *sum).unwrap_or_default();
        Value::Tree(self.names.iter().map(|(path, file)| (path.clone(), sum(file))).collect())
    }

    fn set(&mut self, path: &str, content: Vec<u8>) {
        let sum = sum(&content);
        if let Some(file) = self.names.get(path) {
            self.files.insert(*file, (content, sum));
        }
    }

    fn of(&self, path: &str) -> Vec<u8> {
        self.names
            .get(path)
            .and_then(|file| self.files.get(file))
            .map(|(content, _)| content.clone())
            .unwrap_or_default()
    }
}

/// Where a path is.
async fn place(life: &Life, path: &str) -> Result<(InodeId, braid_types::Name)> {
    match path.split_once('/') {
        Some((dir, last)) => {
            let dir = find(&life.fs, life.dir, &[dir]).await?;
            Ok((dir.ok_or(braid_api::Error::bare(braid_api::Code::NotFound))?.id, name(last)))
        }
        None => Ok((life.dir, name(path))),
    }
}

impl Snapshots {
    pub(super) async fn names(&self, mut life: Life, who: usize) -> Result<()> {
        let (mut model, cell) = (Model::default(), Cell::Names(who));
        while !life.process.cluster.is_calm() {
            life.pause(150).await;
            let path = path_of(who, life.random.random_range(0..NAMES));
            let other = path_of(who, life.random.random_range(0..NAMES));
            let is_there = model.names.contains_key(&path);
            match life.random.random_range(0..12) {
                _ if !is_there => self.make(&mut life, &mut model, &cell, &path).await?,
                0..5 => self.change(&mut life, &mut model, &cell, &path).await?,
                5 => {
                    let mut content = model.of(&path);
                    let sizes = SIZES.len() - usize::from(life.random.random_bool(0.7));
                    content.resize(SIZES[life.random.random_range(0..sizes)], 0);
                    let size = content.len() as u64;
                    let (parent, last) = place(&life, &path).await?;
                    let Some(attr) = find(&life.fs, parent, &[&String::from_utf8_lossy(last.as_bytes())]).await? else {
                        return self.gone(&life, &path);
                    };
                    model.set(&path, content);
                    let change = SetAttr { size: Some(size), ..SetAttr::default() };
                    let number = self.begins(&life, &cell, &model, format_args!("{path} is cut to {size}"));
                    life.fs.set_attr(&Caller::default(), attr.id, None, change).await?;
                    self.ends(&life, &cell, number);
                }
                6 | 7 => {
                    let (parent, last) = place(&life, &path).await?;
                    model.names.remove(&path);
                    let number = self.begins(&life, &cell, &model, format_args!("{path} is removed"));
                    life.fs.unlink(&Caller::default(), parent, &last).await?;
                    self.ends(&life, &cell, number);
                }
                8 if model.names.get(&path) != model.names.get(&other) => {
                    let (from, to) = (place(&life, &path).await?, place(&life, &other).await?);
                    let file = model.names.remove(&path).unwrap_or_default();
                    model.names.insert(other.clone(), file);
                    let number = self.begins(&life, &cell, &model, format_args!("{path} becomes {other}"));
                    let (from, to) = ((from.0, &from.1), (to.0, &to.1));
                    life.fs.rename(&Caller::default(), from, to, RenameMode::Replace).await?;
                    self.ends(&life, &cell, number);
                }
                9 if !model.names.contains_key(&other) => {
                    let (from, to) = (place(&life, &path).await?, place(&life, &other).await?);
                    let text = String::from_utf8_lossy(from.1.as_bytes()).into_owned();
                    let Some(attr) = find(&life.fs, from.0, &[&text]).await? else { return self.gone(&life, &path) };
                    let file = model.names.get(&path).copied().unwrap_or_default();
                    model.names.insert(other.clone(), file);
                    let number = self.begins(&life, &cell, &model, format_args!("{path} is linked as {other}"));
                    life.fs.link(&Caller::default(), attr.id, to.0, &to.1).await?;
                    self.ends(&life, &cell, number);
                }
                _ => self.compare(&life, &model, &path).await?,
            }
        }
        for path in model.names.keys() {
            self.compare(&life, &model, path).await?;
        }
        Ok(())
    }

    fn begins(&self, life: &Life, cell: &Cell, model: &Model, what: std::fmt::Arguments<'_>) -> usize {
        let number = self.history.lock().begin(cell, model.tree(), life.number);
        life.process.note(format_args!("{cell:?}.{number}: {what}"));
        number
    }

    fn ends(&self, life: &Life, cell: &Cell, number: usize) {
        self.history.lock().end(cell, number);
        life.process.note(format_args!("{cell:?}.{number} has ended"));
    }

    async fn make(&self, life: &mut Life, model: &mut Model, cell: &Cell, path: &str) -> Result<()> {
        let (parent, last) = place(life, path).await?;
        model.next += 1;
        model.names.insert(path.to_owned(), model.next);
        model.set(path, Vec::new());
        let flags = OpenFlags { read: true, write: true, exclusive: true, ..OpenFlags::default() };
        let number = self.begins(life, cell, model, format_args!("{path} is made"));
        let handle = life.fs.create(&Caller::default(), parent, &last, Mode::new(0o644), flags).await?.1.handle;
        self.ends(life, cell, number);
        self.fill(life, model, cell, path, handle).await
    }

    async fn change(&self, life: &mut Life, model: &mut Model, cell: &Cell, path: &str) -> Result<()> {
        let (parent, last) = place(life, path).await?;
        let Some(attr) = life.fs.lookup(&Caller::default(), parent, &last).await?.attr else {
            return self.gone(life, path);
        };
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let handle = life.fs.open(&Caller::default(), attr.id, flags).await?.handle;
        self.fill(life, model, cell, path, handle).await
    }

    async fn fill(&self, life: &mut Life, model: &mut Model, cell: &Cell, path: &str, handle: HandleId) -> Result<()> {
        for _ in 0..life.random.random_range(1..3) {
            let mut content = model.of(path);
            let at = life.random.random_range(0..=content.len().min(LARGE));
            let is_large = at < 1000 && life.random.random_bool(0.04);
            let len = if is_large { LARGE } else { LENGTHS[life.random.random_range(0..LENGTHS.len())] };
            let new = bytes(life.random.random_range(0..256), len);
            content.resize(content.len().max(at + new.len()), 0);
            content[at..at + new.len()].copy_from_slice(&new);
            model.set(path, content);
            let number = self.begins(life, cell, model, format_args!("{path} has {} written at {at}", new.len()));
            life.fs.write(handle, at as u64, new.into()).await?;
            self.ends(life, cell, number);
            life.pause(60).await;
        }
        if life.random.random_bool(0.3) {
            life.fs.fsync(handle, false).await?;
        }
        life.fs.flush(handle).await?;
        life.fs.release(handle).await;
        Ok(())
    }

    async fn compare(&self, life: &Life, model: &Model, path: &str) -> Result<()> {
        let (parent, last) = place(life, path).await?;
        let Some(attr) = life.fs.lookup(&Caller::default(), parent, &last).await?.attr else {
            return self.gone(life, path);
        };
        let (found, expected) = (content(&life.fs, attr.id).await?, model.of(path));
        if found != expected {
            let at = found.iter().zip(&expected).position(|(a, b)| a != b);
            let text = format_args!("{path} has {} bytes for {}, and differs at {at:?}", found.len(), expected.len());
            life.fail(Invariant::BytesAreLinearizable, text);
        }
        Ok(())
    }

    fn gone(&self, life: &Life, path: &str) -> Result<()> {
        life.fail(Invariant::NamesAreLinearizable, format_args!("{path} is not there"));
        Ok(())
    }
}
