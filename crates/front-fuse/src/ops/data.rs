use crate::caller::caller;
use crate::convert::{self, inode_of};
use crate::door::Door;
use crate::handles::handle;
use crate::privileges::kill_privileges;
use braid_api::{Code, FileSystem, SeekWhence};
use braid_fuse_kernel::{CopyFileRange, Reply, Request, Write};
use braid_types::{ByteRange, InodeId};
use std::io::IoSlice;

/// Pieces the kernel takes in one answer: IOV_MAX less the header.
const PIECES_MAX: usize = 1023;

impl<F: FileSystem> Door<F> {
    pub fn read(&self, reply: Reply, id: InodeId, fh: u64, offset: u64, size: u32) {
        self.paged.add(id);
        let fs = self.fs.clone();
        let reading = self.ends.reading(id);
        let call = async move { fs.read(handle(fh), offset, size).await };
        self.answer_read(reply, call, move |reply, pieces| {
            let len: usize = pieces.iter().map(|piece| piece.len()).sum();
            let reply = match len < size as usize {
                true => reply.holding(reading.ends_early(ByteRange::at(offset, len as u64))),
                false => reply,
            };
            match &pieces[..] {
                [] => reply.data(&[]),
                [one] => reply.data(one),
                several if several.len() <= PIECES_MAX => {
                    let slices: Vec<_> = several.iter().map(|piece| IoSlice::new(piece)).collect();
                    reply.data_vectored(&slices);
                }
                many => reply.data(&many.concat()),
            }
        });
    }

    pub fn write(&self, request: &Request<'_>, reply: Reply, id: InodeId, write: &Write<'_>) {
        self.paged.add(id);
        let (fs, cx, handles) = (self.fs.clone(), caller(request), self.handles.clone());
        let Write { fh, offset, kill_suidgid, .. } = *write;
        let append = write.flags as i32 & libc::O_APPEND != 0 && !write.from_cache;
        let data = write.data.to_bytes();
        let privileges = self.privileges_if_ours();
        let call = async move {
            if let Some(privileges) = privileges {
                privileges.before_change(&*fs, &cx, id, Some(fh)).await?;
            }
            if kill_suidgid {
                kill_privileges(&*fs, &cx, id, Some(handle(fh))).await?;
            }
            let writer = handles.writer(&*fs, &cx, id, fh, append).await?;
            fs.write(writer, offset, data).await
        };
        self.answer(reply, call, |reply, written| reply.write(written.into()));
    }

    pub fn fallocate(
        &self,
        request: &Request<'_>,
        reply: Reply,
        id: InodeId,
        fh: u64,
        (offset, length): (u64, u64),
        mode: u32,
    ) {
        let (fs, cx, handles) = (self.fs.clone(), caller(request), self.handles.clone());
        let mode = convert::fallocate_mode(mode);
        let call = async move {
            let writer = handles.writer(&*fs, &cx, id, fh, false).await?;
            fs.fallocate(writer, mode?, ByteRange::at(offset, length)).await
        };
        self.answer(reply, call, |reply, ()| reply.ok());
    }

    pub fn seek(&self, reply: Reply, fh: u64, offset: u64, whence: u32) {
        let fs = self.fs.clone();
        let whence = match whence as i32 {
            libc::SEEK_DATA => SeekWhence::Data,
            libc::SEEK_HOLE => SeekWhence::Hole,
            _ => return self.refuse(reply, &Code::Invalid.into()),
        };
        self.answer(reply, async move { fs.seek(handle(fh), offset, whence).await }, |reply, at| reply.lseek(at));
    }

    pub fn copy_range(&self, request: &Request<'_>, reply: Reply, copy: &CopyFileRange) {
        let (fs, cx, handles, copy) = (self.fs.clone(), caller(request), self.handles.clone(), *copy);
        let call = async move {
            let to = handles.writer(&*fs, &cx, inode_of(copy.nodeid_out), copy.fh_out, false).await?;
            fs.copy_range(handle(copy.fh_in), copy.offset_in, to, copy.offset_out, copy.length).await
        };
        self.answer(reply, call, |reply, copied| reply.write(copied));
    }
}
