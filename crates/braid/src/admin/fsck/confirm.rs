//! Makes sure of doubts about names and inodes: each is asked about alone, in one snapshot of the metadata server, so
//! that a cluster at work is not blamed for having changed between two pages.

use super::ask::Ask;
use super::finding::{Fault, Finding, Remedy};
use super::names::{NameOf, Names, entries_of, names_of};
use super::tally::Doubt;
use braid_api::admin::{InodeCheck, InodeRow, PathEnd, Repair};
use braid_api::{Namespace, Result};
use braid_types::{Attr, FileKind, InodeId, Timestamp};
use std::collections::{HashMap, HashSet};

pub struct Confirm<'a, N> {
    ask: &'a Ask<'a, N>,
    findings: Vec<Finding>,
}

pub async fn confirm<N: Namespace>(ask: &Ask<'_, N>, doubts: Vec<(InodeId, Doubt)>) -> Result<Vec<Finding>> {
    let mut work = Confirm { ask, findings: Vec::new() };
    // First what one question decides; what is left needs all names of the inode.
    let mut rest = Vec::new();
    let mut before = HashMap::new();
    for (id, doubt) in doubts {
        match doubt {
            Doubt::Counts => work.counts(id).await?,
            Doubt::LinksHere => work.links_here(id).await?,
            Doubt::Orphan => work.orphan(id).await?,
            Doubt::Circle => work.circle(id).await?,
            Doubt::IdRowNowhere if fits(id, &ask.inode(id).await?) => {}
            Doubt::LinksById => {
                if let Some(state) = links_state(&ask.inode(id).await?) {
                    before.insert(id, state);
                    rest.push((id, doubt));
                }
            }
            _ => rest.push((id, doubt)),
        }
    }
    let wanted: HashSet<InodeId> = rest.iter().map(|(id, _)| *id).collect();
    let names = names_of(ask, &wanted).await?;
    for (id, doubt) in rest {
        let of = names.get(&id).map_or(&[][..], Vec::as_slice);
        match doubt {
            Doubt::Pointers => work.pointers(id, of).await?,
            Doubt::TwoRows => work.two_rows(id, of).await?,
            Doubt::IdRow => work.id_row(id, of).await?,
            Doubt::IdRowNowhere if of.iter().any(|n| n.here) => work.id_row(id, of).await?,
            Doubt::IdRowNowhere => work.id_row_nowhere(id).await?,
            Doubt::LinksById => work.links_by_id(id, &names, before.get(&id)).await?,
            Doubt::NoDirectory if of.iter().any(|n| n.here) => work.not_a_directory(id, of).await?,
            Doubt::NoDirectory => work.no_directory(id).await?,
            _ => {}
        }
    }
    // The same row may have been doubted twice.
    let mut seen = HashSet::new();
    work.findings.retain(|f| seen.insert((f.fault, f.place.clone(), f.what.clone())));
    Ok(work.findings)
}

/// The id row leads to the inode's attributes.
fn fits(id: InodeId, found: &InodeCheck) -> bool {
    match &found.id_row {
        Some(row) if row.place.is_some() => found.entry.as_ref().is_some_and(|e| is_at(id, e)),
        _ => true,
    }
}

fn is_at(id: InodeId, entry: &InodeRow) -> bool {
    entry.id == id && entry.attr.is_some()
}

/// What changes whenever a name comes or goes.
fn links_state(found: &InodeCheck) -> Option<(u32, Timestamp)> {
    let attr = found.id_row.as_ref()?.attr.as_ref()?;
    Some((attr.nlink, attr.ctime))
}

impl<N: Namespace> Confirm<'_, N> {
    fn add(&mut self, fault: Fault, place: String, what: String, repair: Repair) {
        self.findings.push(Finding::new(fault, place, what, Remedy::Row(repair)));
    }

    async fn counts(&mut self, id: InodeId) -> Result<()> {
        let found = self.ask.inode(id).await?;
        let Some((row, attr)) = here(id, &found).filter(|(row, _)| row.kind == FileKind::Directory) else {
            return Ok(());
        };
        let nlink = found.subdirs + 2;
        if (u64::from(attr.nlink), row.entries) == (nlink, found.entries) {
            return Ok(());
        }
        let what = format!(
            "its row counts {} entries and {} links, there are {} and {nlink}",
            row.entries, attr.nlink, found.entries
        );
        let nlink = u32::try_from(nlink).unwrap_or(u32::MAX);
        let place = self.ask.path(id).await?;
        self.add(Fault::Counts, place, what, Repair::Links { inode: id, nlink, entries: found.entries });
        Ok(())
    }

    async fn links_here(&mut self, id: InodeId) -> Result<()> {
        let found = self.ask.inode(id).await?;
        let Some((_, attr)) = here(id, &found).filter(|(row, a)| row.kind != FileKind::Directory && a.nlink != 1)
        else {
            return Ok(());
        };
        let what = format!("it has one name, its link count is {}", attr.nlink);
        let place = self.ask.path(id).await?;
        self.add(Fault::Links, place, what, Repair::Links { inode: id, nlink: 1, entries: 0 });
        Ok(())
    }

    async fn orphan(&mut self, id: InodeId) -> Result<()> {
        let found = self.ask.inode(id).await?;
        let attr = found.id_row.as_ref().and_then(|row| row.attr.as_ref());
        if !found.orphan || attr.is_some_and(|a| a.nlink == 0) {
            return Ok(());
        }
        let what = match &found.id_row {
            None => "it is listed as unlinked and does not exist",
            Some(_) => "it is listed as unlinked and has a name",
        };
        self.add(Fault::WrongOrphan, format!("inode {id}"), what.to_owned(), Repair::DropOrphan { inode: id });
        Ok(())
    }

    async fn circle(&mut self, id: InodeId) -> Result<()> {
        let found = self.ask.path_of(id).await?;
        let PathEnd::Circle(_) = found.end else { return Ok(()) };
        let names: Vec<String> = found.names.iter().map(|n| n.escape_ascii().to_string()).collect();
        let what = format!("this directory lies below itself, in a circle of {}: {}", names.len(), names.join("/"));
        self.add(Fault::Circle, format!("inode {id}"), what, Repair::Reattach { inode: id });
        Ok(())
    }

    async fn pointers(&mut self, id: InodeId, names: &[NameOf]) -> Result<()> {
        for NameOf { parent, name, .. } in names.iter().filter(|n| !n.here) {
            let found = self.ask.entry(*parent, name).await?;
            let points = found.entry.is_some_and(|e| e.id == id && e.attr.is_none());
            if points && found.id_row.is_none_or(|row| row.attr.is_none()) {
                let place = self.ask.path_in(*parent, name).await?;
                let repair = Repair::DropEntry { parent: *parent, name: name.clone() };
                self.add(Fault::NoInode, place, format!("it leads to inode {id}, which does not exist"), repair);
            }
        }
        Ok(())
    }

    async fn two_rows(&mut self, id: InodeId, names: &[NameOf]) -> Result<()> {
        for NameOf { parent, name, .. } in names.iter().filter(|n| n.here) {
            let found = self.ask.entry(*parent, name).await?;
            let Some(row) = found.id_row.filter(|_| found.entry.is_some_and(|e| is_at(id, &e))) else { continue };
            let elsewhere = row.place.as_ref().is_some_and(|(p, n)| (p, n) != (parent, name))
                && found.there.is_some_and(|there| is_at(id, &there));
            if elsewhere || row.attr.is_some() {
                let place = self.ask.path_in(*parent, name).await?;
                let repair = Repair::Duplicate { parent: *parent, name: name.clone() };
                self.add(Fault::TwoRows, place, format!("the attributes of inode {id} lie in another row too"), repair);
            }
        }
        Ok(())
    }

    async fn id_row(&mut self, id: InodeId, names: &[NameOf]) -> Result<()> {
        for NameOf { parent, name, .. } in names.iter().filter(|n| n.here) {
            let found = self.ask.entry(*parent, name).await?;
            if !found.entry.is_some_and(|e| is_at(id, &e)) {
                continue;
            }
            let (fault, what) = match (&found.id_row, &found.there) {
                (None, _) => (Fault::NoIdRow, format!("no row says where inode {id} is")),
                // Attributes in `inode_ids`: see `two_rows`.
                (Some(row), _) if row.attr.is_some() => continue,
                (Some(_), Some(there)) if is_at(id, there) => continue,
                (Some(_), _) => (Fault::WrongIdRow, format!("the row that says where inode {id} is leads elsewhere")),
            };
            let place = self.ask.path_in(*parent, name).await?;
            self.add(fault, place, what, Repair::IdRow { inode: id, parent: *parent, name: name.clone() });
            // One is enough: if there are two, the other is found as `TwoRows` next time.
            return Ok(());
        }
        Ok(())
    }

    async fn id_row_nowhere(&mut self, id: InodeId) -> Result<()> {
        let found = self.ask.inode(id).await?;
        if !fits(id, &found) {
            let what = "the row that says where it is leads nowhere".to_owned();
            self.add(Fault::IdRowNowhere, format!("inode {id}"), what, Repair::DropIdRow { inode: id });
        }
        Ok(())
    }

    /// If links and change time are the same before and after the pass that counted names, nobody gave or took a name
    /// meanwhile, and the count is right.
    async fn links_by_id(&mut self, id: InodeId, names: &Names, before: Option<&(u32, Timestamp)>) -> Result<()> {
        let found = self.ask.inode(id).await?;
        let state = links_state(&found);
        let Some((nlink, ctime)) = state.filter(|state| before == Some(state)) else { return Ok(()) };
        let of = names.get(&id).map_or(&[][..], Vec::as_slice);
        let count = of.len() as u32;
        let repair = Repair::FileLinks { inode: id, names: count, nlink, ctime };
        match (count, nlink) {
            (0, 0) if found.orphan => {}
            (0, 0) => {
                let what = "it has no name and is not listed to be freed".to_owned();
                self.add(Fault::NotFreed, format!("inode {id}"), what, Repair::MakeOrphan { inode: id });
            }
            (0, _) => {
                let what = format!("it has no name, its link count is {nlink}");
                self.add(Fault::NoName, format!("inode {id}"), what, repair);
            }
            (count, nlink) if count != nlink => {
                let place = match of.first() {
                    Some(first) => self.ask.path_in(first.parent, &first.name).await?,
                    None => format!("inode {id}"),
                };
                self.add(
                    Fault::Links,
                    place,
                    format!("inode {id} has {count} names, its link count is {nlink}"),
                    repair,
                );
            }
            _ => {}
        }
        Ok(())
    }

    async fn no_directory(&mut self, dir: InodeId) -> Result<()> {
        for name in entries_of(self.ask, dir).await? {
            let found = self.ask.entry(dir, &name).await?;
            if found.entry.is_some() && !found.parent_exists {
                let what = format!("its directory, inode {dir}, does not exist");
                let place = format!("(inode {dir})/{}", name.escape_ascii());
                self.add(Fault::NoDirectory, place, what, Repair::MoveEntry { parent: dir, name });
            }
        }
        Ok(())
    }

    /// The inode is there: if it is a directory, it was only seen too late; if not, it can have no entries.
    async fn not_a_directory(&mut self, id: InodeId, of: &[NameOf]) -> Result<()> {
        for NameOf { parent, name, .. } in of {
            let found = self.ask.entry(*parent, name).await?;
            if found.entry.is_some_and(|e| e.id == id && e.kind == FileKind::Directory) {
                return Ok(());
            }
        }
        self.no_directory(id).await
    }
}

/// The inode's entry with its attributes.
fn here(id: InodeId, found: &InodeCheck) -> Option<(&InodeRow, &Attr)> {
    let entry = found.entry.as_ref().filter(|e| e.id == id)?;
    Some((entry, entry.attr.as_ref()?))
}
