//! Listings page by page, and whole trees, with memory bounded by the depth of the tree and a page a level.

use super::path::ClusterPath;
use super::session::{Paths, Session, brief};
use anyhow::{Result, anyhow};
use braid_api::HandleId;
use braid_types::{Attr, InodeId, Name};

/// Entries in one page.
const PAGE: usize = 1024;

/// An open directory.
pub struct Listing<'s, F: Paths> {
    session: &'s Session<F>,
    path: ClusterPath,
    handle: HandleId,
    offset: u64,
}

impl<F: Paths> Session<F> {
    pub async fn list(&self, path: &ClusterPath, dir: InodeId) -> Result<Listing<'_, F>> {
        let handle = self.fs.open_dir(&self.caller, dir).await.map_err(|e| anyhow!("{path}: {}", brief(&e)))?.handle;
        Ok(Listing { session: self, path: path.clone(), handle, offset: 0 })
    }

    /// Everything below `dir`, a directory before what is in it.
    pub async fn walk(&self, path: &ClusterPath, dir: InodeId) -> Result<Walk<'_, F>> {
        let mut walk = Walk { levels: Vec::new() };
        walk.enter(self, path.clone(), dir).await?;
        Ok(walk)
    }
}

impl<F: Paths> Listing<'_, F> {
    /// Entries in byte order of names; empty at the end, after which the listing is closed.
    pub async fn page(&mut self) -> Result<Vec<(Name, Attr)>> {
        let Session { fs, caller, .. } = self.session;
        let at = |e: braid_api::Error| anyhow!("{}: {}", self.path, brief(&e));
        loop {
            let entries = fs.read_dir(caller, self.handle, self.offset, PAGE, true).await.map_err(at)?;
            let Some(last) = entries.last() else {
                fs.release(self.handle).await;
                return Ok(Vec::new());
            };
            self.offset = last.offset;
            let mut page = Vec::with_capacity(entries.len());
            for entry in entries {
                match entry.attr {
                    Some((attr, _)) => page.push((entry.name, attr)),
                    // Without an answer it was removed since it was listed.
                    None => {
                        if let Ok(found) = fs.get_attr(caller, entry.id, None).await {
                            page.push((entry.name, found.attr));
                        }
                    }
                }
            }
            if !page.is_empty() {
                return Ok(page);
            }
        }
    }
}

impl<F: Paths> Listing<'_, F> {
    /// All that is left of it at once, where that is known to be little.
    pub async fn rest(mut self) -> Result<Vec<(Name, Attr)>> {
        let mut all = Vec::new();
        loop {
            let page = self.page().await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }
}

struct Level<'s, F: Paths> {
    listing: Listing<'s, F>,
    page: std::vec::IntoIter<(Name, Attr)>,
}

pub struct Walk<'s, F: Paths> {
    levels: Vec<Level<'s, F>>,
}

/// One thing met on a walk.
pub struct Met {
    pub path: ClusterPath,
    pub name: Name,
    pub attr: Attr,
    /// Directories between it and where the walk began.
    pub depth: usize,
}

impl<'s, F: Paths> Walk<'s, F> {
    async fn enter(&mut self, session: &'s Session<F>, path: ClusterPath, dir: InodeId) -> Result<()> {
        let listing = session.list(&path, dir).await?;
        self.levels.push(Level { listing, page: Vec::new().into_iter() });
        Ok(())
    }

    /// The next one; a directory that cannot be read is noted and passed over.
    pub async fn next(&mut self) -> Option<Met> {
        loop {
            let depth = self.levels.len().checked_sub(1)?;
            let level = self.levels.last_mut()?;
            let session = level.listing.session;
            if let Some((name, attr)) = level.page.next() {
                let path = level.listing.path.join(&name);
                if attr.is_dir()
                    && let Err(e) = self.enter(session, path.clone(), attr.id).await
                {
                    session.note(&e);
                }
                return Some(Met { path, name, attr, depth });
            }
            match level.listing.page().await {
                Ok(page) if !page.is_empty() => level.page = page.into_iter(),
                Ok(_) => drop(self.levels.pop()),
                Err(e) => {
                    session.note(&e);
                    self.levels.pop();
                }
            }
        }
    }
}
