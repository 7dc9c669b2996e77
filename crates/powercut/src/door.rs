//! The kernel's requests, turned into calls of the machine.
//!
//! Nothing may be believed for any time: the kernel asks for each name and for attributes anew, so that after a cut it finds the
//! new nodes without being told. Pages it keeps, because it is the only one that changes them, and a shared mapping of
//! LMDB reads what `pwrite` put there. Writes come at once (no write-back cache), and locks are the kernel's own.

use crate::machine::{Machine, Outcome};
use crate::names::NodeId;
use crate::node::Node;
use braid_fuse_kernel::{
    AttrOut, Config, DirBuffer, Dispatch, EntryOut, InitFlags, OpenOut, Operation, Reply, Request, StatfsOut,
    open_flags,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const BLOCK_BYTES: u32 = 4096;

pub(crate) struct Door {
    pub machine: Arc<Mutex<Machine>>,
}

/// Without what the machine has no answer to. The kernel applies the umask and truncates by SETATTR.
pub(crate) fn config() -> Config {
    let unwanted = InitFlags::POSIX_ACL
        | InitFlags::DONT_MASK
        | InitFlags::ATOMIC_O_TRUNC
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::EXPORT_SUPPORT;
    Config::default().without(unwanted)
}

impl Dispatch for Door {
    fn dispatch(&self, request: Request<'_>, reply: Reply) {
        use Operation as Op;
        let id = request.nodeid;
        let made = |mode: u32| Node::new(mode, request.uid, request.gid);
        match request.operation {
            Op::Lookup { name } => self.entry(reply, |machine| machine.lookup(id, name)),
            Op::Forget { .. } | Op::BatchForget { .. } | Op::Interrupt { .. } => reply.none(),
            Op::Getattr { .. } => self.attr(reply, |machine| machine.attr(id)),
            Op::Setattr(set) => self.attr(reply, |machine| machine.set_attr(id, &set)),
            Op::Readlink => match self.machine.lock().node(id) {
                Ok(node) => reply.data(&node.target),
                Err(errno) => reply.error(errno),
            },
            Op::Symlink { name, target } => {
                let node = Node { target: target.to_vec(), ..made(libc::S_IFLNK | 0o777) };
                self.entry(reply, |machine| machine.make(id, name, node));
            }
            Op::Mknod { name, mode, rdev, .. } => {
                self.entry(reply, |machine| machine.make(id, name, Node { rdev, ..made(mode) }));
            }
            Op::Mkdir { name, mode, .. } => {
                self.entry(reply, |machine| machine.make(id, name, made(libc::S_IFDIR | mode)));
            }
            Op::Create { name, mode, .. } => self.create(reply, id, name, made(libc::S_IFREG | mode)),
            Op::Unlink { name } => self.done(reply, |machine| machine.remove(id, name, false)),
            Op::Rmdir { name } => self.done(reply, |machine| machine.remove(id, name, true)),
            Op::Rename { name, new_parent, new_name, flags } => {
                self.done(reply, |machine| machine.rename((id, name), (new_parent, new_name), flags));
            }
            Op::Link { nodeid, new_name } => {
                self.entry(reply, |machine| machine.link(nodeid, id, new_name).map(|()| nodeid));
            }
            Op::Open { .. } | Op::Opendir { .. } => match self.machine.lock().open(id) {
                Ok(fh) => reply.open(OpenOut::new(fh, open_flags::KEEP_CACHE)),
                Err(errno) => reply.error(errno),
            },
            Op::Read { fh, offset, size, .. } => {
                let read = self.machine.lock().read(id, fh, offset, size);
                match read {
                    Ok(data) => reply.data(&data),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Write(write) => {
                let data = write.data.as_slice();
                let written = self.machine.lock().write(id, write.fh, write.offset, data);
                match written {
                    Ok(()) => reply.write(data.len() as u64),
                    Err(errno) => reply.error(errno),
                }
            }
            Op::Fallocate { fh, offset, length, mode } => {
                self.done(reply, |machine| machine.fallocate(id, fh, offset, length, mode));
            }
            Op::Fsync { fh, data_only } => self.sync(reply, move |machine| machine.sync_file(id, fh, data_only)),
            Op::Fsyncdir { fh, .. } => self.sync(reply, move |machine| machine.sync_dir(id, fh)),
            // Closing is no sync.
            Op::Flush { .. } => reply.ok(),
            Op::Release(release) | Op::Releasedir(release) => {
                self.machine.lock().release(release.fh);
                reply.ok();
            }
            Op::Readdir { fh, offset, size } => self.read_dir(reply, fh, offset, size),
            Op::Statfs => self.statfs(reply),
            _ => reply.error(libc::ENOSYS),
        }
    }
}

impl Door {
    fn done(&self, reply: Reply, call: impl FnOnce(&mut Machine) -> Outcome<()>) {
        let outcome = call(&mut self.machine.lock());
        answer(reply, outcome);
    }

    fn attr(&self, reply: Reply, call: impl FnOnce(&mut Machine) -> Outcome<braid_fuse_kernel::Attr>) {
        let outcome = call(&mut self.machine.lock());
        match outcome {
            Ok(attr) => reply.attr(&AttrOut { attr, attr_valid: Duration::ZERO }),
            Err(errno) => reply.error(errno),
        }
    }

    fn entry(&self, reply: Reply, call: impl FnOnce(&mut Machine) -> Outcome<NodeId>) {
        let mut machine = self.machine.lock();
        let outcome = call(&mut machine).and_then(|id| entry(&machine, id));
        drop(machine);
        match outcome {
            Ok(entry) => reply.entry(&entry),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(&self, reply: Reply, dir: NodeId, name: &[u8], node: Node) {
        let mut machine = self.machine.lock();
        let outcome = machine.make(dir, name, node).and_then(|id| Ok((machine.open(id)?, entry(&machine, id)?)));
        drop(machine);
        match outcome {
            Ok((fh, entry)) => reply.create(&entry, OpenOut::new(fh, open_flags::KEEP_CACHE)),
            Err(errno) => reply.error(errno),
        }
    }

    /// A slow sync waits in a thread of its own and takes effect at its end, so that a cut can come before it.
    fn sync(&self, reply: Reply, call: impl FnOnce(&mut Machine) -> Outcome<()> + Send + 'static) {
        let delay = self.machine.lock().faults.sync_delay;
        if delay.is_zero() {
            return self.done(reply, call);
        }
        let machine = self.machine.clone();
        thread::spawn(move || {
            thread::sleep(delay);
            let outcome = call(&mut machine.lock());
            answer(reply, outcome);
        });
    }

    fn read_dir(&self, reply: Reply, fh: u64, offset: u64, size: u32) {
        let mut machine = self.machine.lock();
        let listed = match machine.list(fh, offset == 0) {
            Ok(listed) => listed,
            Err(errno) => return reply.error(errno),
        };
        let mut page = DirBuffer::new(size);
        for (number, entry) in listed.iter().enumerate().skip(offset as usize) {
            if !page.push(entry.node, number as u64 + 1, entry.mode, &entry.name) {
                break;
            }
        }
        reply.directory(&page);
    }

    fn statfs(&self, reply: Reply) {
        let (total, free) = self.machine.lock().space();
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        reply.statfs(&StatfsOut {
            blocks: blocks(total),
            bfree: blocks(free),
            bavail: blocks(free),
            files: u64::from(u32::MAX),
            ffree: u64::from(u32::MAX),
            bsize: BLOCK_BYTES,
            namelen: 255,
            frsize: BLOCK_BYTES,
        });
    }
}

fn answer(reply: Reply, outcome: Outcome<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn entry(machine: &Machine, id: NodeId) -> Outcome<EntryOut> {
    Ok(EntryOut { nodeid: id, attr: machine.attr(id)?, ..EntryOut::default() })
}
