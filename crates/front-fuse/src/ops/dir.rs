use crate::caller::caller;
use crate::convert::{self, node_of, type_bits};
use crate::door::Door;
use crate::handles::{handle, number};
use crate::told::Telling;
use braid_api::{Caller, DirEntry, EntryReply, FileSystem, HandleId, Result};
use braid_fuse_kernel as kernel;
use braid_fuse_kernel::{DirBuffer, DirPlusBuffer, EntryOut, OpenOut, Reply, Request};
use braid_types::{Attr, FileKind, InodeId};

/// The kernel's offsets: behind `.` is 1, behind `..` is 2, then come the file system's own, which start at 4096 and
/// are 0 at its beginning.
const BEHIND_DOTS: u64 = 2;

/// Bytes of an entry with a name of 16, the average; what does not fit is asked for again.
const ENTRY_BYTES: usize = 24 + 16;
const ENTRY_PLUS_BYTES: usize = 128 + ENTRY_BYTES;

/// What one answer shows, as far as it fits.
struct Page {
    /// Name, inode and offset of `.` and `..`, if they come in this page.
    dots: Vec<(&'static [u8], InodeId, u64)>,
    entries: Vec<DirEntry>,
}

async fn page<F: FileSystem>(
    fs: &F,
    cx: &Caller,
    dir: InodeId,
    handle: HandleId,
    offset: u64,
    limit: usize,
    plus: bool,
) -> Result<Page> {
    let mut dots = Vec::new();
    if offset < 1 {
        dots.push((&b"."[..], dir, 1));
    }
    if offset < BEHIND_DOTS {
        dots.push((&b".."[..], fs.parent(cx, dir).await?, BEHIND_DOTS));
    }
    let offset = if offset <= BEHIND_DOTS { 0 } else { offset };
    let entries = fs.read_dir(cx, handle, offset, limit.max(1), plus).await?;
    Ok(Page { dots, entries })
}

/// An entry that only tells number and type: the kernel looks it up when it wants more.
fn bare(id: InodeId, kind: FileKind) -> EntryOut {
    let attr = kernel::Attr { ino: node_of(id), mode: type_bits(kind), ..kernel::Attr::default() };
    EntryOut { attr, ..EntryOut::default() }
}

fn plain_page(page: Page, size: u32) -> DirBuffer {
    let mut buffer = DirBuffer::new(size);
    let dots = page.dots.iter().map(|&(name, id, offset)| (id, offset, FileKind::Directory, name));
    let entries = page.entries.iter().map(|e| (e.id, e.offset, e.kind, e.name.as_bytes()));
    for (id, offset, kind, name) in dots.chain(entries) {
        if !buffer.push(node_of(id), offset, type_bits(kind), name) {
            break;
        }
    }
    buffer
}

/// And the attributes that it tells, each of which counts a lookup.
fn plus_page(telling: &Telling, page: Page, size: u32) -> (DirPlusBuffer, Vec<Attr>) {
    let mut told = Vec::new();
    let mut buffer = DirPlusBuffer::new(size);
    for (name, id, offset) in page.dots {
        if !buffer.push(&bare(id, FileKind::Directory), offset, name) {
            return (buffer, told);
        }
    }
    for entry in page.entries {
        let out = match entry.attr {
            Some((attr, valid)) => {
                let valid = telling.valid(attr.id, valid);
                convert::entry(&EntryReply { attr, valid })
            }
            None => bare(entry.id, entry.kind),
        };
        if !buffer.push(&out, entry.offset, entry.name.as_bytes()) {
            break;
        }
        told.extend(entry.attr.map(|(attr, _)| attr));
    }
    (buffer, told)
}

impl<F: FileSystem> Door<F> {
    pub fn open_dir(&self, request: &Request<'_>, reply: Reply, id: InodeId) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let call = async move { fs.open_dir(&cx, id).await };
        self.answer(reply, call, |reply, opened| {
            reply.open(OpenOut::new(number(opened.handle, false), convert::dir_flags(&opened)));
        });
    }

    pub fn read_dir(&self, request: &Request<'_>, reply: Reply, id: InodeId, fh: u64, offset: u64, size: u32) {
        let (fs, cx) = (self.fs.clone(), caller(request));
        let limit = size as usize / ENTRY_BYTES;
        let call = async move { page(&*fs, &cx, id, handle(fh), offset, limit, false).await };
        self.answer_as(self.replies.begin_listing(), reply, call, move |reply, page| {
            reply.directory(&plain_page(page, size))
        });
    }

    pub fn read_dir_plus(&self, request: &Request<'_>, reply: Reply, id: InodeId, fh: u64, offset: u64, size: u32) {
        let (fs, cx, telling) = (self.fs.clone(), caller(request), self.told.begin(id));
        let (limit, passing) = (size as usize / ENTRY_PLUS_BYTES, self.passing.clone());
        let call = async move { page(&*fs, &cx, id, handle(fh), offset, limit, true).await };
        self.answer_as(self.replies.begin_listing(), reply, call, move |reply, page| {
            let (page, told) = plus_page(&telling, page, size);
            passing.telling_all(reply, &told).directory_plus(&page);
        });
    }

    pub fn sync_dir(&self, reply: Reply, fh: u64) {
        let fs = self.fs.clone();
        self.answer(reply, async move { fs.sync_dir(handle(fh)).await }, |reply, ()| reply.ok());
    }

    pub fn sync_fs(&self, reply: Reply) {
        let fs = self.fs.clone();
        self.answer(reply, async move { fs.sync_fs().await }, |reply, ()| reply.ok());
    }
}
