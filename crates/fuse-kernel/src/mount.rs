//! Mounting and unmounting.
//!
//! Root mounts through the kernel itself; anyone else through the set-uid helper `fusermount3`, which allows what
//! `/etc/fuse.conf` does. A `Mount` unmounts when it is dropped, lazily, so that open files do not keep it in sight.

use crate::device::open_device;
use crate::fusermount;
use crate::mountinfo::{self, DeviceNumber, canonical};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fmt::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// How the file system is mounted. The default lets root's mounts have devices and set-uid programs, as a local disk does;
/// `fusermount3` allows neither.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The source that `mount` shows.
    pub fsname: String,
    /// The type is `fuse.` and this.
    pub subtype: String,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permission bits; without it every operation is left to the file system.
    pub default_permissions: bool,
    pub read_only: bool,
    pub nodev: bool,
    pub nosuid: bool,
    pub noexec: bool,
    pub noatime: bool,
    /// Largest READ; `None` leaves it to `Config::max_write`.
    pub max_read: Option<u32>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fsname: "braid".into(),
            subtype: "braid".into(),
            allow_other: true,
            default_permissions: true,
            read_only: false,
            nodev: false,
            nosuid: false,
            noexec: false,
            noatime: false,
            max_read: None,
        }
    }
}

impl MountOptions {
    fn check(&self) -> io::Result<()> {
        let plain = |text: &str| !text.is_empty() && !text.contains(['\0', '\n']);
        let word =
            |text: &str| plain(text) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if plain(&self.fsname) && word(&self.subtype) {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "fsname or subtype cannot be shown by mount"))
        }
    }

    /// What FUSE itself understands, each with a comma before it.
    fn fuse_options(&self) -> String {
        let mut text = String::new();
        if self.allow_other {
            text.push_str(",allow_other");
        }
        if self.default_permissions {
            text.push_str(",default_permissions");
        }
        if let Some(bytes) = self.max_read {
            let _ = write!(text, ",max_read={bytes}");
        }
        text
    }

    fn flags(&self) -> MountFlags {
        let table = [
            (self.read_only, MountFlags::RDONLY),
            (self.nodev, MountFlags::NODEV),
            (self.nosuid, MountFlags::NOSUID),
            (self.noexec, MountFlags::NOEXEC),
            (self.noatime, MountFlags::NOATIME),
        ];
        table.into_iter().filter(|(on, _)| *on).fold(MountFlags::empty(), |flags, (_, flag)| flags | flag)
    }

    /// As the helper wants them.
    fn helper_options(&self) -> String {
        let fsname = self.fsname.replace('\\', "\\\\").replace(',', "\\,");
        let mut text = format!("fsname={fsname},subtype={}{}", self.subtype, self.fuse_options());
        text.push_str(if self.read_only { ",ro" } else { ",rw" });
        for (on, word) in [(self.noexec, ",noexec"), (self.noatime, ",noatime")] {
            if on {
                text.push_str(word);
            }
        }
        text
    }
}

/// A file system that is mounted.
#[derive(Debug)]
pub(crate) struct Mount {
    pub point: PathBuf,
    pub device: Option<DeviceNumber>,
    by_helper: bool,
    mounted: bool,
}

/// Ends the connection of a mount, for who does not have it.
pub(crate) struct Abort {
    point: PathBuf,
    /// What was mounted by the helper, and which device that is.
    helped: Option<Option<DeviceNumber>>,
}

impl Abort {
    /// Mounted by root it is gone then, too.
    pub fn abort(&self) -> io::Result<()> {
        match self.helped {
            Some(device) => {
                let number = device.ok_or(io::ErrorKind::NotFound)?;
                fs::write(format!("/sys/fs/fuse/connections/{}/abort", number.minor), "1")
            }
            // A forced unmount of FUSE aborts the connection before it tries anything else.
            None => Ok(unmount(&self.point, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH)?),
        }
    }
}

impl Mount {
    /// Mounts, and gives the device that its requests come from.
    pub fn new(path: &Path, options: &MountOptions) -> io::Result<(Self, OwnedFd)> {
        options.check()?;
        let point = canonical(path)?;
        let by_helper = !rustix::process::geteuid().is_root();
        let device = if by_helper {
            fusermount::mount(&point, &options.helper_options())?
        } else {
            mount_directly(&point, options)?
        };
        let number = mountinfo::find(&point).ok().flatten().map(|entry| entry.device);
        Ok((Self { point, device: number, by_helper, mounted: true }, device))
    }

    /// Unmounts; `ResourceBusy` while it is in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.end(false)
    }

    /// Takes the mount out of sight now; it ends when its last user is gone.
    pub fn detach(&mut self) -> io::Result<()> {
        self.end(true)
    }

    /// Ends the connection and removes the mount, whoever uses it. Without root this needs the fuse control file system.
    pub fn abort(&mut self) -> io::Result<()> {
        self.abort_by_others().abort()?;
        if self.by_helper {
            return self.detach();
        }
        self.mounted = false;
        Ok(())
    }

    pub fn abort_by_others(&self) -> Abort {
        Abort { point: self.point.clone(), helped: self.by_helper.then_some(self.device) }
    }

    fn end(&mut self, lazy: bool) -> io::Result<()> {
        if !self.mounted {
            return Ok(());
        }
        match unmount_path(&self.point, lazy, self.by_helper) {
            // Someone else has unmounted it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            tracing::warn!(mount_point = %self.point.display(), %error, "the mount could not be removed");
        }
    }
}

fn mount_directly(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let root_type = fs::metadata(point)?.mode() & libc::S_IFMT;
    let device = open_device()?;
    let data = format!(
        "fd={},rootmode={root_type:o},user_id={},group_id={}{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options.fuse_options()
    );
    let data = CString::new(data).map_err(io::Error::other)?;
    mount(&*options.fsname, point, format!("fuse.{}", options.subtype), options.flags(), data.as_c_str())?;
    Ok(device)
}

fn unmount_path(point: &Path, lazy: bool, by_helper: bool) -> io::Result<()> {
    if by_helper {
        return fusermount::unmount(point, lazy);
    }
    let lazily = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    Ok(unmount(point, UnmountFlags::NOFOLLOW | lazily)?)
}

/// How long a file system may think before it counts as alive.
const PROBE: Duration = Duration::from_secs(5);
const CALLED_OFF_AGAIN: Duration = Duration::from_millis(5);

/// What is said when a file system is asked whether anyone is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Lives,
    Gone,
    /// Nothing.
    None,
}

/// Removes the mount that a killed daemon left at `path`. False when there is none: nothing, another file system, or a FUSE mount
/// that lives. A daemon that does not answer lives.
pub fn clear_stale_mount(path: &Path) -> io::Result<bool> {
    clear(path, None)
}

/// The same; the mount with this identity also if it does not answer: a thread of a daemon that was killed, and waits in the kernel for an
/// answer of its own mount, keeps the connection, and with it all who wait, until somebody ends that. Root alone can.
pub fn clear_killed_mount(path: &Path, identity: &str) -> io::Result<bool> {
    clear(path, Some(identity))
}

fn clear(path: &Path, killed: Option<&str>) -> io::Result<bool> {
    let point = canonical(path)?;
    if !mountinfo::find(&point)?.is_some_and(|entry| entry.is_fuse()) {
        return Ok(false);
    }
    let is_root = rustix::process::geteuid().is_root();
    let is_killed = || killed.is_some() && mount_identity(&point).as_deref() == killed;
    match asked(&point)? {
        Answer::Gone => unmount_path(&point, true, !is_root)?,
        // Ends the connection.
        Answer::None if is_root && is_killed() => {
            unmount(&point, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH)?;
        }
        Answer::Lives | Answer::None => return Ok(false),
    }
    Ok(true)
}

/// `STATX_MNT_ID_UNIQUE`, Linux 6.8: a number that no other mount gets until the next boot.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Which mount of all that there ever were is on top at `path`; `None` where the kernel does not say. Asks no daemon.
pub fn mount_identity(path: &Path) -> Option<String> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(rustix::fs::CWD, path, flags, MNT_ID_UNIQUE).ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    (found.stx_mask & MNT_ID_UNIQUE.bits() != 0).then(|| format!("{} {}", boot.trim(), found.stx_mnt_id))
}

/// `statfs` is never answered from a cache, so it tells whether anyone is there.
fn asked(point: &Path) -> io::Result<Answer> {
    let (send, receive) = mpsc::channel();
    let path = point.to_owned();
    let ask = move || {
        let begun = Instant::now();
        // While the rings of one that was killed are put away whoever asks is told that it was called off: it has no answer yet.
        while begun.elapsed() < PROBE {
            match rustix::fs::statfs(&path) {
                Err(Errno::CANCELED) => thread::sleep(CALLED_OFF_AGAIN),
                said => return send.send(said.map(drop)),
            }
        }
        Ok(())
    };
    thread::Builder::new().name("fuse-probe".into()).spawn(ask)?;
    Ok(match receive.recv_timeout(PROBE) {
        Ok(Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CONNREFUSED)) => Answer::Gone,
        Ok(_) => Answer::Lives,
        Err(_) => Answer::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelt_as_kernel_and_helper_read_them() {
        let options =
            MountOptions { fsname: "a,b".into(), noexec: true, max_read: Some(65536), ..MountOptions::default() };
        assert_eq!(options.fuse_options(), ",allow_other,default_permissions,max_read=65536");
        assert_eq!(options.flags(), MountFlags::NOEXEC);
        assert_eq!(
            options.helper_options(),
            "fsname=a\\,b,subtype=braid,allow_other,default_permissions,max_read=65536,rw,noexec"
        );
        assert!(MountOptions { subtype: "a,dev".into(), ..options }.check().is_err());
    }

    /// Root too may use the helper; the device it passed is then closed as a dying daemon would.
    #[test]
    fn the_mount_of_a_dead_daemon_is_found_and_cleared() {
        let here = tempfile::tempdir().unwrap();
        assert!(!clear_stale_mount(here.path()).unwrap());
        let options = MountOptions { allow_other: false, ..MountOptions::default() };
        let device = match fusermount::mount(here.path(), &options.helper_options()) {
            Ok(device) => device,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        drop(device);
        assert_eq!(fs::read_dir(here.path()).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
        assert!(clear_stale_mount(here.path()).unwrap());
        assert!(!clear_stale_mount(here.path()).unwrap());
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
    }
}
