//! What a kernel above this client shows of a file's end. It is told sizes with attributes and nowhere else, so that it may believe a file
//! to end where it ended before another mount wrote; a read of what is in front of that asks for no attributes, and brings a page with
//! bytes behind it. Promised here: such a page shows nothing of before a cut, and nothing of before an append.
//!
//! A kernel that believes a file to end where it is cut drops nothing. It is told to, before it hears that the cut is done.

use crate::core::Core;
use crate::inode::{FileState, Inode};
use braid_api::OpenFlags;
use braid_types::{Attr, ByteRange, InodeId};
use std::time::Duration;

/// Longer than a kernel takes to drop a page. One that has not done so by then waits for one of its own requests: a page that was stored
/// to through a mapping is written back after the cut, and not before.
pub const DROPS_MAX: Duration = Duration::from_millis(50);

/// The kernel may keep pages through such a handle. What is appended it would put where it believes the end to be.
pub fn keeps_pages(flags: OpenFlags) -> bool {
    !(flags.direct || flags.append && flags.write)
}

impl FileState {
    /// The file is of this size now, whoever made it so.
    pub fn moves_end(&mut self, attr: &Attr) {
        self.end_moved |= attr.size != self.size;
    }
}

impl Core {
    /// A cut to `size` is done and not yet told. A kernel keeps no page of a file that it believes to be empty.
    pub async fn kernel_cuts(&self, inode: &Inode, size: u64) {
        let was_moved = std::mem::take(&mut inode.state.lock().end_moved);
        if was_moved && size > 0 {
            // What begins behind its end a kernel does not read without asking for attributes: it is the page at the border.
            self.kernel_drops_soon(inode.id, ByteRange::at(size, 1)).await;
        }
    }

    /// `range` was appended, and the kernel, which believed the file to end at `believed`, has not been told. It dropped its pages of where
    /// it believed the bytes to go, before it sent them.
    pub async fn kernel_appends(&self, inode: &Inode, believed: u64, range: ByteRange) {
        let has_pages = {
            let mut state = inode.state.lock();
            state.end_moved |= believed != range.start;
            state.paged > 0
        };
        if believed != range.start || has_pages {
            self.kernel_drops_soon(inode.id, range).await;
        }
    }

    async fn kernel_drops_soon(&self, id: InodeId, range: ByteRange) {
        let _ = self.env.timeout(DROPS_MAX, self.forget_pages(id, range)).await;
    }
}
