use crate::content::Content;
use crate::inode::{Inode, Node};
use crate::state::State;
use braid_api::{Code, FallocateMode, HandleId, Result, SeekWhence};
use braid_types::{ByteRange, FILE_BYTES_MAX, Timestamp};

/// A call may copy less than it was asked for; this bounds what one does under the mutex.
const COPY_BYTES_MAX: u64 = 8 << 20;

fn content_mut(inode: &mut Inode) -> Result<&mut Content> {
    match &mut inode.node {
        Node::File(content) => Ok(content),
        _ => Err(Code::BadHandle.into()),
    }
}

impl State {
    fn readable(&mut self, handle: HandleId) -> Result<&mut Inode> {
        let (id, flags) = self.file_handle(handle)?;
        if flags.read { self.inode_mut(id) } else { Err(Code::BadHandle.into()) }
    }

    fn writable(&mut self, handle: HandleId) -> Result<&mut Inode> {
        let (id, flags) = self.file_handle(handle)?;
        if flags.write { self.inode_mut(id) } else { Err(Code::BadHandle.into()) }
    }

    pub fn read(&mut self, handle: HandleId, offset: u64, len: u32, now: Timestamp) -> Result<Vec<u8>> {
        let inode = self.readable(handle)?;
        let bytes = content_mut(inode)?.read(offset, len);
        inode.accessed(now);
        Ok(bytes)
    }

    pub fn write(&mut self, handle: HandleId, offset: u64, data: &[u8], now: Timestamp) -> Result<u32> {
        let append = self.file_handle(handle)?.1.append;
        let inode = self.writable(handle)?;
        let content = content_mut(inode)?;
        let offset = if append { content.size() } else { offset };
        if ByteRange::at(offset, data.len() as u64).end > FILE_BYTES_MAX {
            return Err(Code::FileTooBig.into());
        }
        if !data.is_empty() {
            content.write(offset, data);
            inode.modified(now);
        }
        Ok(data.len() as u32)
    }

    pub fn fallocate(&mut self, handle: HandleId, mode: FallocateMode, range: ByteRange, now: Timestamp) -> Result<()> {
        let inode = self.writable(handle)?;
        let content = content_mut(inode)?;
        if range.is_empty() {
            return Err(Code::Invalid.into());
        }
        if range.end > FILE_BYTES_MAX {
            return Err(Code::FileTooBig.into());
        }
        match mode {
            // Memory is not reserved here: there is always enough.
            FallocateMode::AllocateKeepSize => {}
            FallocateMode::Allocate => content.grow(range.end),
            FallocateMode::PunchHole | FallocateMode::ZeroRange { keep_size: true } => {
                content.punch(range.start, range.end);
            }
            FallocateMode::ZeroRange { keep_size: false } => {
                content.punch(range.start, range.end);
                content.grow(range.end);
            }
        }
        inode.modified(now);
        Ok(())
    }

    pub fn seek(&mut self, handle: HandleId, offset: u64, whence: SeekWhence) -> Result<u64> {
        let (id, _) = self.file_handle(handle)?;
        let content = content_mut(self.inode_mut(id)?)?;
        if offset >= content.size() {
            return Err(Code::NoData.into());
        }
        match whence {
            SeekWhence::Data => content.next_data(offset).ok_or(Code::NoData.into()),
            SeekWhence::Hole => Ok(content.next_hole(offset)),
        }
    }

    pub fn copy_range(
        &mut self,
        (from, from_offset): (HandleId, u64),
        (to, to_offset): (HandleId, u64),
        len: u64,
        now: Timestamp,
    ) -> Result<u64> {
        let source = self.readable(from)?;
        let source_id = source.attr.id;
        let size = content_mut(source)?.size();
        let target_id = self.writable(to)?.attr.id;
        if self.file_handle(to)?.1.append {
            return Err(Code::BadHandle.into());
        }
        let len = len.min(size.saturating_sub(from_offset)).min(COPY_BYTES_MAX);
        let overlap = ByteRange::at(from_offset, len).overlaps(ByteRange::at(to_offset, len));
        if source_id == target_id && overlap {
            return Err(Code::Invalid.into());
        }
        let bytes = self.read(from, from_offset, len as u32, now)?;
        self.write(to, to_offset, &bytes, now).map(u64::from)
    }
}
