//! Sealed files as `lsattr` and `chattr` see them: Linux calls them immutable.

use crate::world::{as_user, errno, on_mount, open};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;
use std::fs;

#[test]
fn the_immutable_flag_is_that_a_file_is_sealed() {
    on_mount(|w| {
        let path = w.path("f");
        fs::write(&path, b"bytes").unwrap();
        let file = open(&path, libc::O_RDONLY).unwrap();
        assert_eq!(ioctl_getflags(&file), Ok(IFlags::empty()));
        // The kernel asks for the right to do this before the door is asked.
        let refused = as_user(1000, 1000, &[], || ioctl_setflags(&file, IFlags::IMMUTABLE));
        assert_eq!(refused, Err(Errno::PERM));
        assert_eq!(ioctl_setflags(&file, IFlags::NOATIME), Err(Errno::OPNOTSUPP));
        ioctl_setflags(&file, IFlags::IMMUTABLE).unwrap();
        assert_eq!(ioctl_getflags(&file), Ok(IFlags::IMMUTABLE));
        assert_eq!(errno(open(&path, libc::O_RDWR)), libc::EPERM);
        assert_eq!(errno(fs::remove_file(&path)), libc::EPERM);
        assert_eq!(errno(fs::rename(&path, w.path("g"))), libc::EPERM);
        assert_eq!(errno(fs::hard_link(&path, w.path("g"))), libc::EPERM);
        assert_eq!(errno(fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))), libc::EPERM);
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
        ioctl_setflags(&file, IFlags::empty()).unwrap();
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn directories_have_no_flags() {
    on_mount(|w| {
        let dir = fs::File::open(&w.dir).unwrap();
        assert_eq!(ioctl_getflags(&dir), Ok(IFlags::empty()));
        assert_eq!(ioctl_setflags(&dir, IFlags::IMMUTABLE), Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn a_file_that_is_open_for_writing_is_not_sealed() {
    on_mount(|w| {
        let path = w.path("f");
        let writing = fs::File::create(&path).unwrap();
        let file = open(&path, libc::O_RDONLY).unwrap();
        assert_eq!(ioctl_setflags(&file, IFlags::IMMUTABLE), Err(Errno::TXTBSY));
        drop(writing);
        // The kernel tells of a close behind it.
        while ioctl_setflags(&file, IFlags::IMMUTABLE) == Err(Errno::TXTBSY) {}
        assert_eq!(ioctl_getflags(&file), Ok(IFlags::IMMUTABLE));
    });
}
