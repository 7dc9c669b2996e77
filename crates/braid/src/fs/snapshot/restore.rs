//! A directory becomes again what it was in a snapshot.
//!
//! Done by ordinary changes, one after the other, while others may use the directory: what is the same stays, and of a file that has
//! changed only those bytes are written that differ, so that what it shares with its snapshots stays shared. Interrupted, it is begun again.

use crate::fs::path::ClusterPath;
use crate::fs::progress::Copying;
use crate::fs::session::{Paths, Session, brief, brief_of_tree};
use crate::fs::walk::Listing;
use anyhow::{Result, anyhow, bail};
use braid_api::snapshots::PLACE;
use braid_api::{Code, HandleId, NewNode, NodeKind, OpenFlags, SetAttr, TimeOrNow, XattrMode};
use braid_types::{Attr, FileKind, InodeId, Name};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};

/// Compared and written at once.
const PIECE: u32 = 1 << 20;

/// What has been done, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub made: u64,
    pub changed: u64,
    pub removed: u64,
}

pub struct Restore<'s, F: Paths> {
    s: &'s Session<F>,
    /// Nothing is changed: each change is printed.
    dry_run: bool,
    progress: Copying,
    done: Done,
    /// Files with several names, and what each of them is now.
    linked: HashMap<InodeId, InodeId>,
    /// Directories to be looked through: as they were and as they are.
    dirs: Vec<(ClusterPath, Attr, InodeId)>,
}

/// Entries of a directory in the order of their names.
struct Entries<'s, F: Paths> {
    listing: Option<Listing<'s, F>>,
    page: VecDeque<(Name, Attr)>,
}

impl<F: Paths> Entries<'_, F> {
    async fn first(&mut self) -> Result<Option<&(Name, Attr)>> {
        if self.page.is_empty()
            && let Some(listing) = &mut self.listing
        {
            self.page = listing.page().await?.into();
            if self.page.is_empty() {
                self.listing = None;
            }
        }
        Ok(self.page.front())
    }
}

impl<'s, F: Paths> Restore<'s, F> {
    pub fn new(s: &'s Session<F>, dry_run: bool) -> Self {
        let (progress, done) = (Copying::start(), Done::default());
        Restore { s, dry_run, progress, done, linked: HashMap::new(), dirs: Vec::new() }
    }

    /// The directory, which was this. What fails is noted, and the rest is done.
    pub async fn run(mut self, path: &ClusterPath, then: Attr, now: InodeId) -> Result<Done> {
        self.dirs.push((path.clone(), then, now));
        let mut is_top = true;
        while let Some((path, then, now)) = self.dirs.pop() {
            if let Err(e) = self.dir(&path, &then, now, is_top).await {
                self.s.note(&e);
            }
            is_top = false;
        }
        Ok(self.done)
    }

    async fn dir(&mut self, path: &ClusterPath, then: &Attr, now: InodeId, is_top: bool) -> Result<()> {
        let mut was = Entries { listing: Some(self.s.list(path, then.id).await?), page: VecDeque::new() };
        // Of one that is made there is nothing yet; where nothing is made, there will be nothing.
        let listing = if now == NOTHING { None } else { Some(self.s.list(path, now).await?) };
        let mut is = Entries { listing, page: VecDeque::new() };
        loop {
            let (old, new) = (was.first().await?.cloned(), is.first().await?.cloned());
            let order = match (&old, &new) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            if order.is_le() {
                was.page.pop_front();
            }
            if order.is_ge() {
                is.page.pop_front();
            }
            let old = old.filter(|_| order.is_le());
            let new = new.filter(|_| order.is_ge());
            let Some(name) = old.as_ref().or(new.as_ref()).map(|(name, _)| name.clone()) else { break };
            // Snapshots are shown there, and the trash of all is there.
            if is_top && name.as_bytes() == PLACE[0].as_bytes() {
                continue;
            }
            let at = path.join(&name);
            let (old, new) = (old.map(|(_, attr)| attr), new.map(|(_, attr)| attr));
            if let Err(e) = self.entry(&at, (now, &name), old, new).await {
                self.s.note(&e);
            }
        }
        if now != NOTHING {
            let is = self.s.fs.get_attr(&self.s.caller, now, None).await.map_err(|e| failed(path, &e))?.attr;
            self.attributes(path, then, &is).await?;
        }
        Ok(())
    }

    /// What has a name, of what had it.
    async fn entry(
        &mut self,
        path: &ClusterPath,
        (dir, name): (InodeId, &Name),
        then: Option<Attr>,
        now: Option<Attr>,
    ) -> Result<()> {
        if let (Some(then), Some(now)) = (&then, &now)
            && self.stays(path, then, now).await?
        {
            return Ok(());
        }
        if let Some(now) = now {
            self.says("remove", path);
            self.done.removed += 1;
            if !self.dry_run {
                let (fs, caller) = (&self.s.fs, &self.s.caller);
                let gone = match now.is_dir() {
                    true => fs.remove_tree(caller, dir, name).await,
                    false => fs.unlink(caller, dir, name).await,
                };
                gone.or_else(|e| if e.code == Code::NotFound { Ok(()) } else { Err(e) })
                    .map_err(|e| anyhow!("{path}: {}", brief_of_tree(&e)))?;
            }
        }
        match then {
            Some(then) => self.make(path, (dir, name), then).await,
            None => Ok(()),
        }
    }

    /// What is there is what was there, or is made so. False: it has to go.
    async fn stays(&mut self, path: &ClusterPath, then: &Attr, now: &Attr) -> Result<bool> {
        if then.kind != now.kind {
            return Ok(false);
        }
        if then.is_dir() {
            self.dirs.push((path.clone(), *then, now.id));
            return Ok(true);
        }
        let is_same = then.id.of_snapshot().is_some_and(|(_, id)| id == now.id);
        let (fs, caller) = (&self.s.fs, &self.s.caller);
        if !is_same {
            // One that was made by a restore that was interrupted: or it goes, and what has other names is not written.
            let has_bytes = match then.kind {
                FileKind::File => then.nlink == 1 && now.nlink == 1 || self.compare(path, then, now, false).await?,
                FileKind::Symlink => {
                    let [was, is] = [fs.read_link(caller, then.id).await, fs.read_link(caller, now.id).await];
                    was.map_err(|e| failed(path, &e))? == is.map_err(|e| failed(path, &e))?
                }
                _ => then.rdev == now.rdev,
            };
            let is_alike = then.nlink == now.nlink && self.linked.get(&then.id).is_none_or(|of| *of == now.id);
            if !has_bytes || !is_alike {
                return Ok(false);
            }
        }
        // Another name of it has been made anew: this one goes, and is linked to that.
        if self.linked.get(&then.id).is_some_and(|of| *of != now.id) {
            return Ok(false);
        }
        // Whatever changes a file changes this time. One with several names has been seen to under the first.
        let is_done = self.linked.insert(then.id, now.id).is_some();
        if is_done || is_same && then.ctime == now.ctime {
            return Ok(true);
        }
        let mut is_as_before = !then.is_file() || self.compare(path, then, now, !self.dry_run).await?;
        if !is_as_before && !self.dry_run {
            // Writing has changed its times.
            let now = fs.get_attr(caller, now.id, None).await.map_err(|e| failed(path, &e))?.attr;
            self.attributes(path, then, &now).await?;
        } else {
            is_as_before &= !self.attributes(path, then, now).await?;
        }
        if !is_as_before {
            self.says("change", path);
            self.done.changed += 1;
        }
        Ok(true)
    }

    async fn make(&mut self, path: &ClusterPath, (dir, name): (InodeId, &Name), then: Attr) -> Result<()> {
        self.says("make", path);
        self.done.made += 1;
        if self.dry_run {
            if then.is_dir() {
                self.dirs.push((path.clone(), then, NOTHING));
            }
            return Ok(());
        }
        let (fs, caller) = (&self.s.fs, &self.s.caller);
        if let Some(of) = self.linked.get(&then.id).filter(|_| then.nlink > 1 && !then.is_dir()) {
            return fs.link(caller, *of, dir, name).await.map(drop).map_err(|e| failed(path, &e));
        }
        let kind = match then.kind {
            FileKind::File => NodeKind::File,
            FileKind::Directory => NodeKind::Directory,
            FileKind::Symlink => NodeKind::Symlink(fs.read_link(caller, then.id).await.map_err(|e| failed(path, &e))?),
            other => NodeKind::Special(other, then.rdev),
        };
        let node = NewNode { kind, mode: then.mode };
        let now = fs.make_node(caller, dir, name, node).await.map_err(|e| failed(path, &e))?.attr;
        self.linked.insert(then.id, now.id);
        match then.kind {
            FileKind::Directory => {
                self.dirs.push((path.clone(), then, now.id));
                return Ok(());
            }
            FileKind::File => _ = self.compare(path, &then, &now, true).await?,
            _ => {}
        }
        let now = fs.get_attr(caller, now.id, None).await.map_err(|e| failed(path, &e))?.attr;
        self.set(path, &then, &now).await
    }

    /// Has the file the bytes that it had? With `mend` it has them afterwards.
    async fn compare(&mut self, path: &ClusterPath, then: &Attr, now: &Attr, mend: bool) -> Result<bool> {
        self.progress.file(path);
        let (fs, caller) = (&self.s.fs, &self.s.caller);
        let reading = OpenFlags { read: true, ..OpenFlags::default() };
        let flags = OpenFlags { write: mend, ..reading };
        let from = fs.open(caller, then.id, reading).await.map_err(|e| failed(path, &e))?.handle;
        let to = match fs.open(caller, now.id, flags).await {
            Ok(opened) => opened.handle,
            Err(e) => {
                fs.release(from).await;
                return Err(failed(path, &e));
            }
        };
        let compared = self.compare_pieces(then.size, from, now.id, to, mend).await;
        let stored = if mend { fs.flush(to).await } else { Ok(()) };
        fs.release(from).await;
        fs.release(to).await;
        compared.and_then(|same| stored.map(|()| same)).map_err(|e| failed(path, &e))
    }

    async fn compare_pieces(
        &self,
        size: u64,
        from: HandleId,
        now: InodeId,
        to: HandleId,
        mend: bool,
    ) -> braid_api::Result<bool> {
        let (fs, caller) = (&self.s.fs, &self.s.caller);
        let mut same = fs.get_attr(caller, now, Some(to)).await?.attr.size == size;
        if !same && mend {
            let change = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.set_attr(caller, now, Some(to), change).await?;
        }
        let mut at = 0;
        while at < size && (same || mend) {
            let len = u64::from(PIECE).min(size - at) as u32;
            let (was, is) = (fs.read(from, at, len).await?.concat(), fs.read(to, at, len).await?.concat());
            if was.is_empty() {
                break;
            }
            let len = was.len() as u64;
            if was != is {
                same = false;
                if mend {
                    fs.write(to, at, Bytes::from(was)).await?;
                }
            }
            at += len;
            self.progress.bytes(len);
        }
        Ok(same)
    }

    /// True if they differed.
    async fn attributes(&mut self, path: &ClusterPath, then: &Attr, now: &Attr) -> Result<bool> {
        let shown = |attr: &Attr| (attr.mode, attr.uid, attr.gid, attr.mtime);
        let mut differ = shown(then) != shown(now);
        if !differ && (then.xattrs || now.xattrs) {
            let [was, is] = [self.xattrs(then).await, self.xattrs(now).await];
            differ = was.map_err(|e| failed(path, &e))? != is.map_err(|e| failed(path, &e))?;
        }
        if differ && !self.dry_run {
            self.set(path, then, now).await?;
        }
        Ok(differ)
    }

    /// Attributes by name, then owner, mode and times, which the former would change.
    async fn set(&self, path: &ClusterPath, then: &Attr, now: &Attr) -> Result<()> {
        let at = |e: braid_api::Error| failed(path, &e);
        let (fs, caller) = (&self.s.fs, &self.s.caller);
        if then.xattrs || now.xattrs {
            let (was, is) = (self.xattrs(then).await.map_err(at)?, self.xattrs(now).await.map_err(at)?);
            for name in is.keys().filter(|name| !was.contains_key(*name)) {
                fs.remove_xattr(caller, now.id, name).await.map_err(at)?;
            }
            for (name, value) in was.iter().filter(|(name, value)| is.get(*name) != Some(value)) {
                fs.set_xattr(caller, now.id, name, value.clone(), XattrMode::Any).await.map_err(at)?;
            }
        }
        let own = SetAttr {
            uid: (then.uid != now.uid).then_some(then.uid),
            gid: (then.gid != now.gid).then_some(then.gid),
            ..SetAttr::default()
        };
        if own.uid.is_some() || own.gid.is_some() {
            fs.set_attr(caller, now.id, None, own).await.map_err(at)?;
        }
        let rest = SetAttr {
            mode: (then.kind != FileKind::Symlink).then_some(then.mode),
            atime: Some(TimeOrNow::At(then.atime)),
            mtime: Some(TimeOrNow::At(then.mtime)),
            ..SetAttr::default()
        };
        fs.set_attr(caller, now.id, None, rest).await.map(drop).map_err(at)
    }

    async fn xattrs(&self, of: &Attr) -> braid_api::Result<HashMap<Bytes, Bytes>> {
        let (fs, caller) = (&self.s.fs, &self.s.caller);
        let mut found = HashMap::new();
        if of.xattrs {
            for name in fs.list_xattr(caller, of.id).await? {
                let value = fs.get_xattr(caller, of.id, &name).await?;
                found.insert(name, value);
            }
        }
        Ok(found)
    }

    fn says(&self, what: &str, path: &ClusterPath) {
        if self.dry_run {
            println!("{what} {path}");
        }
    }
}

/// What is not there.
const NOTHING: InodeId = InodeId(0);

fn failed(path: &ClusterPath, error: &braid_api::Error) -> anyhow::Error {
    anyhow!("{path}: {}", brief(error))
}

/// The snapshot of a directory.
pub async fn find<F: Paths>(s: &Session<F>, path: &ClusterPath, dir: InodeId, name: &Name) -> Result<Attr> {
    let mut at = dir;
    let mut found = None;
    for text in PLACE.map(|text| text.as_bytes()).into_iter().chain([name.as_bytes()]) {
        let text = Name::new(text).map_err(|e| anyhow!("{path}: {e}"))?;
        found = s.fs.lookup(&s.caller, at, &text).await.map_err(|e| failed(path, &e))?.attr;
        let Some(attr) = &found else { break };
        at = attr.id;
    }
    if let Some(attr) = found {
        return Ok(attr);
    }
    bail!("{path}: it has no snapshot {}", crate::output::shown(name.as_bytes()))
}
