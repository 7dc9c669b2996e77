//! Adds to answers what is not in rows: where chunks are, and what may be kept.

use crate::leases::Ask;
use crate::server::MetaServer;
use braid_api::meta::*;
use braid_api::{Code, Error, Result};
use braid_lease::Key;
use braid_meta_engine::Engine;
use braid_meta_namespace::OpContext;
use braid_meta_namespace::ops::{policy::as_served, spares};
use braid_types::InodeId;
use std::collections::BTreeSet;

impl MetaServer {
    /// Adds what is not in rows: where chunks are.
    pub(crate) async fn complete(&self, answer: &mut MetaAnswer) -> Result<()> {
        match answer {
            MetaAnswer::CreateFile(a) | MetaAnswer::CreateTemporary(a) | MetaAnswer::OpenFile(a) => {
                self.complete_map(&mut a.map).await
            }
            MetaAnswer::CommitFile(a) | MetaAnswer::DropChunks(a) => self.complete_page(&mut a.instead).await,
            _ => Ok(()),
        }
    }

    pub(crate) async fn complete_map(&self, map: &mut FileMap) -> Result<()> {
        map.policy = as_served(map.policy, self.row_copies());
        match &mut map.content {
            Content::Chunked(page) => self.complete_page(page).await,
            Content::Inline(_) => Ok(()),
        }
    }

    /// Data servers that kept the rows may have gone while a change became durable, so that bytes beside a row are on fewer disks
    /// than were counted before. Whoever waited for it is told to look again; the repetition finds what holds then.
    pub(crate) fn still_kept(&self, inode: InodeId, op: &OpContext, inline: bool) -> Result<()> {
        match op.row_copies {
            Some(before) if inline && !op.early && self.row_copies() < before => {
                let cause = "a data server that kept a copy of the rows went away meanwhile";
                Err(Error::new(Code::FewRowCopies, format_args!("inode {inode}"), cause))
            }
            _ => Ok(()),
        }
    }

    async fn complete_page(&self, page: &mut ChunkPage) -> Result<()> {
        let unknown = self.containers.fill(page);
        if !unknown.is_empty() {
            let more = self.read_containers(unknown).await?;
            page.containers.extend(more);
        }
        Ok(())
    }

    pub(crate) async fn read_containers(&self, ids: Vec<braid_types::ContainerId>) -> Result<Vec<ContainerInfo>> {
        let (mut found, mut missing) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            match self.containers.get(id) {
                Some(info) => found.push(info),
                None => missing.push(id),
            }
        }
        if !missing.is_empty() {
            let rows = self.engine.read(0, spares::ReadContainers(missing)).await.map_err(Error::from)?;
            for (id, row) in rows {
                self.containers.learn_chain(row.info(id));
                found.push(row.info(id));
            }
        }
        Ok(found)
    }
}

/// What of an answer may be kept.
pub(crate) fn claim(ask: Option<Ask<'_>>, entry: Option<Key>, attr: Option<InodeId>) -> Grant {
    let Some(ask) = ask else { return Grant::default() };
    let attr = attr.map(Key::Attr);
    let granted = ask.claim(entry.iter().chain(&attr).cloned().collect());
    let has = |key: &Option<Key>| key.as_ref().is_some_and(|key| granted.contains(key));
    Grant { entry: has(&entry), attr: has(&attr) }
}

/// Of which of these what an answer says may be kept.
pub(crate) fn claim_attrs(ask: Option<Ask<'_>>, of: impl Iterator<Item = InodeId>) -> BTreeSet<InodeId> {
    let granted = ask.map(|ask| ask.claim(of.map(Key::Attr).collect()));
    let attr = |key| if let Key::Attr(inode) = key { Some(inode) } else { None };
    granted.into_iter().flatten().filter_map(attr).collect()
}

/// The same for each entry of a page that is `wanted`, and for what is in the directory.
pub(crate) fn claim_page(
    ask: Ask<'_>,
    dir: InodeId,
    page: &mut DirPage,
    listing: bool,
    wanted: impl Fn(InodeId) -> bool,
) {
    let mut keys = Vec::with_capacity(page.entries.len() * 2 + 1);
    // Before its pages are read: they are of one moment while this is held.
    keys.extend(listing.then_some(Key::Dir(dir)));
    for (name, _, _, attr) in page.entries.iter().filter(|(_, id, ..)| wanted(*id)) {
        keys.push(Key::Name(dir, name.clone()));
        keys.extend(attr.map(|attr| Key::Attr(attr.id)));
    }
    let any = keys.len() > usize::from(listing);
    // In the order of the keys.
    let mut granted = ask.claim(keys).into_iter().peekable();
    page.listing = granted.next_if(|key| matches!(key, Key::Dir(_))).is_some();
    let grants = page.entries.iter().filter(|_| any).map(|(name, id, _, attr)| {
        if !wanted(*id) {
            return Grant::default();
        }
        let entry = granted.next_if(|key| matches!(key, Key::Name(_, of) if of == name)).is_some();
        let attr = attr.is_some_and(|attr| granted.next_if(|key| *key == Key::Attr(attr.id)).is_some());
        Grant { entry, attr }
    });
    page.grants = grants.collect();
}
