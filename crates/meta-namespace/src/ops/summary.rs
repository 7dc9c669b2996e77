//! What a tree has, page by page: whoever asks keeps nothing but where to go on, and the server nothing at all.

use super::entries::{Entries, locate};
use crate::{OpError, Query, Unit};
use braid_api::Code;
use braid_api::quota::{Summary, ToSum, Weight};

/// Entries looked at in one page.
const ENTRIES_A_PAGE: usize = 4096;
/// Directories that may wait: a page of each level of a deep tree with many at each.
const WAITING_MAX: usize = 1 << 16;

/// [`braid_api::admin::AdminQuery::Summary`].
pub struct SumUp(pub Vec<ToSum>);

impl Query for SumUp {
    type Answer = Summary;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Summary, OpError> {
        let mut sum = Summary { waiting: self.0.clone(), ..Summary::default() };
        let mut room = ENTRIES_A_PAGE;
        while let Some(ToSum { dir, after }) = sum.waiting.pop() {
            // Those that wait for the rest of a page are deeper than what is found later, so the deepest goes first.
            if room == 0 || sum.waiting.len() > WAITING_MAX {
                sum.waiting.push(ToSum { dir, after });
                if room == 0 {
                    break;
                }
                return Err(Code::TooBig.into());
            }
            let page = Entries::read(unit, dir, after.as_ref(), room).await?;
            room -= page.list.len().min(room);
            page.load_elsewhere(unit).await?;
            sum.waiting.extend(page.next().map(|name| ToSum { dir, after: Some(name) }));
            for (name, entry) in page.list {
                let Some(found) = locate(unit, dir, &name, entry).await? else { continue };
                let inode = found.inode;
                if inode.is_dir() {
                    sum.directories += 1;
                    sum.waiting.push(ToSum { dir: inode.id, after: None });
                    continue;
                }
                let attr = inode.attr();
                let weight = Weight { bytes: inode.charge().bytes, size: attr.size, blocks: attr.blocks };
                if inode.nlink > 1 {
                    sum.several.push((inode.id, weight));
                } else {
                    sum.files += 1;
                    sum.weight.add(weight);
                }
            }
            // An empty directory costs a look, too.
            room = room.saturating_sub(1);
        }
        Ok(sum)
    }
}
