//! What a directory shows: all that is in it, read to the end.

use crate::host::Mount;
use crate::work::bytes::value_of;
use braid_api::{Caller, FileSystem, OpenFlags, Result};
use braid_types::{Attr, FileKind, InodeId, Name};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Cell, FILES, PLACE_BYTES, Value, who_has};

/// Length and content of a file.
pub type Sum = (usize, u64);

pub fn sum(content: &[u8]) -> Sum {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    (content.len(), hasher.finish())
}

/// All files below a directory, by their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    files: BTreeMap<String, Sum>,
    values: BTreeMap<(usize, usize), std::result::Result<u64, String>>,
}

const PAGE: usize = 5;
const READ_MAX: u32 = 1 << 20;
const AROUND: u64 = 300;

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a short name")
}

pub async fn find(fs: &Mount, mut at: InodeId, path: &[&str]) -> Result<Option<Attr>> {
    let mut found = None;
    for text in path {
        let Some(attr) = fs.lookup(&Caller::default(), at, &name(text)).await?.attr else { return Ok(None) };
        (at, found) = (attr.id, Some(attr));
    }
    Ok(found)
}

/// All of a file, and its size.
pub async fn content(fs: &Mount, id: InodeId) -> Result<Vec<u8>> {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let handle = fs.open(&Caller::default(), id, flags).await?.handle;
    let mut all = Vec::new();
    loop {
        let piece = fs.read(handle, all.len() as u64, READ_MAX).await?.concat();
        if piece.is_empty() {
            break;
        }
        all.extend(piece);
    }
    // The size is what the attributes say.
    let size = fs.get_attr(&Caller::default(), id, Some(handle)).await?.attr.size;
    fs.release(handle).await;
    match all.len() as u64 == size {
        true => Ok(all),
        false => Err(braid_api::Error::new(
            braid_api::Code::Internal,
            format_args!("inode {id}"),
            format_args!("{} bytes of {size} were read", all.len()),
        )),
    }
}

async fn listed(fs: &Mount, dir: InodeId) -> Result<Vec<(Name, InodeId, FileKind)>> {
    let cx = Caller::default();
    let handle = fs.open_dir(&cx, dir).await?.handle;
    let (mut all, mut offset) = (Vec::new(), 0);
    loop {
        let page = fs.read_dir(&cx, handle, offset, PAGE, false).await?;
        let Some(last) = page.last() else { break };
        offset = last.offset;
        all.extend(page.into_iter().map(|entry| (entry.name, entry.id, entry.kind)));
    }
    fs.release(handle).await;
    Ok(all)
}

/// Names in a directory that are none of directories.
pub async fn files_in(fs: &Mount, dir: InodeId) -> Result<Vec<Name>> {
    let all = listed(fs, dir).await?.into_iter().filter(|(_, _, kind)| *kind != FileKind::Directory);
    Ok(all.map(|(name, ..)| name).collect())
}

impl Picture {
    pub async fn of(fs: &Mount, dir: InodeId) -> Result<Picture> {
        let (mut picture, mut todo) = (Picture::default(), vec![(String::new(), dir)]);
        while let Some((above, dir)) = todo.pop() {
            for (name, id, kind) in listed(fs, dir).await? {
                let path = format!("{above}{}", String::from_utf8_lossy(name.as_bytes()));
                match kind {
                    FileKind::Directory => todo.push((format!("{path}/"), id)),
                    _ => match FILES.iter().position(|file| file.name == path) {
                        Some(file) => picture.add_shared(fs, file, id).await?,
                        None => _ = picture.files.insert(path, sum(&content(fs, id).await?)),
                    },
                }
            }
        }
        Ok(picture)
    }

    /// Most of these files is a hole: of them only the places are read, with what is around them.
    async fn add_shared(&mut self, fs: &Mount, file: usize, id: InodeId) -> Result<()> {
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let handle = fs.open(&Caller::default(), id, flags).await?.handle;
        let mut all = Vec::new();
        for (place, at) in FILES[file].places.iter().enumerate() {
            let from = at.saturating_sub(AROUND);
            let bytes = fs.read(handle, from, (at - from + AROUND) as u32 + PLACE_BYTES as u32).await?.concat();
            let begin = ((at - from) as usize).min(bytes.len());
            let end = (begin + PLACE_BYTES).min(bytes.len());
            self.values.insert((file, place), value_of(&bytes[begin..end]));
            all.extend(bytes);
        }
        let size = fs.get_attr(&Caller::default(), id, Some(handle)).await?.attr.size;
        fs.release(handle).await;
        self.files.insert(FILES[file].name.to_owned(), (size as usize, sum(&all).1));
        Ok(())
    }

    /// What each cell is; an error says what none can be. What a client was writing when it died may be there in part.
    pub fn values(&self, tasks: usize, may_be_torn: bool) -> std::result::Result<BTreeMap<Cell, Value>, String> {
        let mut all = BTreeMap::new();
        for (file, kind) in FILES.iter().enumerate() {
            for place in 0..kind.places.len() {
                let value = self.values.get(&(file, place)).cloned().unwrap_or(Ok(0));
                let value = match value {
                    Ok(value) => value,
                    Err(_) if may_be_torn => continue,
                    Err(text) => return Err(format!("{} at place {place}: {text}", kind.name)),
                };
                all.insert(Cell::Place(file, place), Value::Number(value));
            }
        }
        let mut trees: Vec<BTreeMap<String, Sum>> = vec![BTreeMap::new(); tasks];
        for (path, sum) in self.files.iter().filter(|(path, _)| !FILES.iter().any(|file| file.name == **path)) {
            let tree = who_has(path).and_then(|who| trees.get_mut(who));
            tree.ok_or_else(|| format!("nobody made {path}"))?.insert(path.clone(), *sum);
        }
        all.extend(trees.into_iter().enumerate().map(|(who, tree)| (Cell::Names(who), Value::Tree(tree))));
        Ok(all)
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Files that are not the same.
    pub fn differs(&self, other: &Picture) -> Vec<String> {
        let paths = self.files.keys().chain(other.files.keys().filter(|path| !self.files.contains_key(*path)));
        let differ = paths.filter(|path| self.files.get(*path) != other.files.get(*path));
        differ.map(|path| format!("{path}: {:?} and {:?}", self.files.get(path), other.files.get(path))).collect()
    }
}
