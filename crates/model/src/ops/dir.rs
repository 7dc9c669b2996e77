use crate::state::{Handle, State};
use braid_api::{Code, DirEntry, HandleId, Result};
use braid_types::{InodeId, Timestamp};
use std::time::Duration;

/// Offsets below belong to the door, for `.` and `..`.
const OFFSET_FIRST: u64 = 4096;

impl State {
    pub fn open_dir(&mut self, id: InodeId) -> Result<HandleId> {
        self.entries(id)?;
        self.open_handle(Handle::Directory { id, names: Vec::new() })
    }

    pub fn read_dir(
        &mut self,
        handle: HandleId,
        offset: u64,
        limit: usize,
        plus: Option<Duration>,
        now: Timestamp,
    ) -> Result<Vec<DirEntry>> {
        let Handle::Directory { id, names } = self.handle(handle)? else { return Err(Code::BadHandle.into()) };
        let id = *id;
        let fresh = self.entries(id)?.keys().cloned().collect();
        let names = if offset == 0 { fresh } else { names.clone() };
        let first = match offset {
            0 => 0,
            _ => offset.checked_sub(OFFSET_FIRST).ok_or(Code::Invalid)? as usize,
        };
        let mut page = Vec::new();
        for (index, name) in names.iter().enumerate().skip(first) {
            if page.len() == limit {
                break;
            }
            // A name that has gone since the handle was at the beginning is passed over.
            let Some(child) = self.find(id, name)? else { continue };
            let attr = self.stat(child)?;
            page.push(DirEntry {
                name: name.clone(),
                id: child,
                kind: attr.kind,
                offset: OFFSET_FIRST + index as u64 + 1,
                attr: plus.map(|valid| (attr, valid)),
            });
        }
        self.inode_mut(id)?.accessed(now);
        if offset == 0 {
            self.handles.insert(handle, Handle::Directory { id, names });
        }
        Ok(page)
    }
}
