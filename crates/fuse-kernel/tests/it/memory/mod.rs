//! A file system in memory, just good enough to be asked everything.

mod node;

use braid_fuse_kernel::*;
use bytes::Bytes;
use node::Tree;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Long enough that nothing runs out during a test.
const VALID: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub struct Memory {
    tree: Mutex<Tree>,
    /// How often each operation came.
    counts: Mutex<HashMap<String, usize>>,
    /// Payloads kept as they came, so that buffers are away for a while.
    kept: Mutex<VecDeque<Bytes>>,
    pub largest_write: AtomicUsize,
    pub unaligned_writes: AtomicUsize,
    pub last_umask: AtomicU32,
    pub last_groups: Mutex<Vec<u32>>,
    pub destroyed: AtomicUsize,
    /// What each answer to STATFS keeps.
    pub statfs: Arc<()>,
    /// What opens of `backed` are answered with.
    pub backed: Mutex<Backed>,
}

#[derive(Default)]
pub struct Backed {
    /// The file that they pass through to, if to any.
    pub file: Option<Arc<BackingFile>>,
    pub flags: u32,
}

type Outcome<T> = Result<T, i32>;

impl Memory {
    pub fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock()
    }

    pub fn count(&self, operation: &str) -> usize {
        self.counts.lock().get(operation).copied().unwrap_or(0)
    }

    fn note(&self, request: &Request<'_>) {
        let text = format!("{:?}", request.operation);
        let name = text.split([' ', '(']).next().unwrap_or_default().to_owned();
        *self.counts.lock().entry(name).or_default() += 1;
    }

    fn entry_of(&self, id: u64) -> EntryOut {
        let attr = self.tree().attr(id);
        EntryOut { nodeid: id, generation: 1, entry_valid: VALID, attr_valid: VALID, attr }
    }

    fn entry(&self, made: Outcome<u64>, reply: Reply) {
        match made {
            Ok(id) => reply.entry(&self.entry_of(id)),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(&self, id: u64, write: &Write<'_>, reply: Reply) {
        let payload = write.data.as_slice();
        self.largest_write.fetch_max(payload.len(), Ordering::Relaxed);
        if !payload.as_ptr().addr().is_multiple_of(4096) {
            self.unaligned_writes.fetch_add(1, Ordering::Relaxed);
        }
        let bytes = write.data.to_bytes();
        self.tree().write(id, write.offset as usize, &bytes);
        let mut kept = self.kept.lock();
        kept.push_back(bytes);
        if kept.len() > 4 {
            kept.pop_front();
        }
        reply.write(payload.len() as u64);
    }

    fn open(&self, id: u64, reply: Reply) {
        let backed = self.backed.lock();
        let is_backed = self.tree().name_of(id) == Some("backed");
        reply.open(match &backed.file {
            Some(file) if is_backed => OpenOut::passthrough(id, backed.flags, file),
            _ if is_backed => OpenOut::new(id, backed.flags),
            _ => OpenOut::new(id, open_flags::KEEP_CACHE),
        });
    }

    /// What comes at `offset` and behind it.
    fn listing(&self, id: u64, offset: u64) -> impl Iterator<Item = (usize, u64, String)> + use<> {
        let list = self.tree().list(id).into_iter().enumerate();
        list.map(|(index, (child, name))| (index, child, name)).skip(offset as usize)
    }

    fn getxattr(&self, id: u64, name: &[u8], size: u32, reply: Reply) {
        match self.tree().node(id).xattrs.get(name) {
            None => reply.error(libc::ENODATA),
            Some(value) if size == 0 => reply.xattr_size(value.len() as u32),
            Some(value) if value.len() > size as usize => reply.error(libc::ERANGE),
            Some(value) => reply.data(value),
        }
    }
}

fn answer(outcome: Outcome<()>, reply: Reply) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Dispatch for Memory {
    fn dispatch(&self, request: Request<'_>, reply: Reply) {
        use Operation as Op;
        self.note(&request);
        let id = request.nodeid;
        let attr_out = |id| AttrOut { attr: self.tree().attr(id), attr_valid: VALID };
        match request.operation {
            Op::Lookup { name: b"panic" } => panic!("as the test wants it"),
            Op::Lookup { name: b"dropped" } => drop(reply),
            Op::Lookup { name } => {
                let found = self.tree().child(id, name);
                self.entry(found, reply)
            }
            Op::Getattr { .. } => reply.attr(&attr_out(id)),
            Op::Statx { .. } => {
                let btime = Some(Timestamp { secs: 86_400, nsecs: 5 });
                let attr = self.tree().attr(id);
                reply.statx(&StatxOut { attr, attr_valid: VALID, btime, ..StatxOut::default() })
            }
            Op::Setattr(set) => {
                self.tree().set(id, &set);
                reply.attr(&attr_out(id))
            }
            Op::Readlink => reply.data(&self.tree().node(id).data),
            Op::Symlink { name, target } => {
                let made = self.tree().make(id, name, libc::S_IFLNK | 0o777, 0);
                if let Ok(link) = made {
                    self.tree().write(link, 0, target);
                }
                self.entry(made, reply)
            }
            Op::Mknod { name, mode, rdev, umask } => {
                let made = self.tree().make(id, name, mode & !umask, rdev);
                self.entry(made, reply)
            }
            Op::Mkdir { name, mode, umask } => {
                self.last_umask.store(umask, Ordering::Relaxed);
                *self.last_groups.lock() = request.groups;
                let made = self.tree().make(id, name, libc::S_IFDIR | (mode & !umask), 0);
                self.entry(made, reply)
            }
            Op::Unlink { name } | Op::Rmdir { name } => {
                let removed = self.tree().remove(id, name);
                answer(removed, reply)
            }
            Op::Rename { name, new_parent, new_name, flags } => {
                let renamed = self.tree().rename(id, name, new_parent, new_name, flags);
                answer(renamed, reply)
            }
            Op::Link { nodeid, new_name } => {
                let linked = self.tree().link(id, new_name, nodeid).map(|()| nodeid);
                self.entry(linked, reply)
            }
            Op::Open { .. } => self.open(id, reply),
            Op::Read { offset, size, .. } => {
                // Answered from another thread, in two pieces.
                let data = self.tree().read(id, offset as usize, size as usize);
                thread::spawn(move || {
                    let (head, tail) = data.split_at(data.len() / 2);
                    reply.data_vectored(&[std::io::IoSlice::new(head), std::io::IoSlice::new(tail)]);
                });
            }
            Op::Write(write) => self.write(id, &write, reply),
            Op::Statfs => {
                let reply = reply.holding(self.statfs.clone());
                reply.statfs(&StatfsOut { blocks: 1000, bfree: 600, bsize: 4096, frsize: 4096, ..StatfsOut::default() })
            }
            Op::Setxattr { name, value, .. } => {
                self.tree().node_mut(id).xattrs.insert(name.to_vec(), value.to_vec());
                reply.ok()
            }
            Op::Getxattr { name, size } => self.getxattr(id, name, size, reply),
            Op::Opendir { .. } => reply.open(OpenOut::default()),
            Op::Readdir { offset, size, .. } => {
                let mut page = DirBuffer::new(size);
                for (index, child, name) in self.listing(id, offset) {
                    let mode = self.tree().node(child).attr.mode;
                    if !page.push(child, index as u64 + 1, mode, name.as_bytes()) {
                        break;
                    }
                }
                reply.directory(&page)
            }
            Op::Readdirplus { offset, size, .. } => {
                let mut page = DirPlusBuffer::new(size);
                for (index, child, name) in self.listing(id, offset) {
                    if !page.push(&self.entry_of(child), index as u64 + 1, name.as_bytes()) {
                        break;
                    }
                }
                reply.directory_plus(&page)
            }
            Op::Create { name, mode, umask, .. } => {
                let made = self.tree().make(id, name, libc::S_IFREG | (mode & !umask), 0);
                match made {
                    Ok(id) => reply.create(&self.entry_of(id), OpenOut::new(id, 0)),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Tmpfile { mode, umask, .. } => {
                let id = self.tree().make_nameless(libc::S_IFREG | (mode & !umask), 0);
                reply.create(&self.entry_of(id), OpenOut::new(id, 0))
            }
            Op::Getlk(ask) => reply.lock(&Lock { kind: libc::F_UNLCK as u32, ..ask.lock }),
            Op::Lseek { offset, .. } => reply.lseek(offset + 1),
            Op::CopyFileRange(copy) => {
                let data = self.tree().read(id, copy.offset_in as usize, copy.length as usize);
                self.tree().write(copy.nodeid_out, copy.offset_out as usize, &data);
                reply.write(data.len() as u64)
            }
            Op::Fallocate { offset, length, .. } => {
                self.tree().node_mut(id).data.resize((offset + length) as usize, 0);
                reply.ok()
            }
            Op::Flush { .. } | Op::Release(_) | Op::Releasedir(_) | Op::Fsync { .. } | Op::Fsyncdir { .. } => {
                reply.ok()
            }
            Op::Setlk(_) | Op::Setlkw(_) | Op::Syncfs => reply.ok(),
            Op::Forget { .. } | Op::BatchForget { .. } | Op::Interrupt { .. } => reply.none(),
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }
}
