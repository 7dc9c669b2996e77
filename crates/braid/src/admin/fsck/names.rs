//! A second pass over all names, for the few inodes whose names must be known: made only if there are such.

use super::ask::Ask;
use braid_api::{Namespace, Result};
use braid_types::InodeId;
use std::collections::{HashMap, HashSet};

/// An entry that leads to an inode.
#[derive(Clone, Debug)]
pub struct NameOf {
    pub parent: InodeId,
    pub name: Vec<u8>,
    /// With the attributes beside it.
    pub here: bool,
}

pub type Names = HashMap<InodeId, Vec<NameOf>>;

pub async fn names_of<N: Namespace>(ask: &Ask<'_, N>, wanted: &HashSet<InodeId>) -> Result<Names> {
    let mut found = Names::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    let mut after = None;
    loop {
        let page = ask.inode_rows(after).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some((last.parent, last.name.clone()));
        for row in page {
            if wanted.contains(&row.id) {
                let name = NameOf { parent: row.parent, here: row.attr.is_some(), name: row.name };
                found.entry(row.id).or_default().push(name);
            }
        }
    }
}

/// All entries of one directory, also of one that does not exist.
pub async fn entries_of<N: Namespace>(ask: &Ask<'_, N>, dir: InodeId) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut after = Some((dir, Vec::new()));
    loop {
        let page = ask.inode_rows(after).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some((last.parent, last.name.clone()));
        let beyond = last.parent != dir;
        found.extend(page.into_iter().take_while(|row| row.parent == dir).map(|row| row.name));
        if beyond {
            return Ok(found);
        }
    }
}
