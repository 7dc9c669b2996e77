use crate::world::on_mount;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs;

const ANY: XattrFlags = XattrFlags::empty();

#[test]
fn attributes_are_kept_listed_and_removed() {
    on_mount(|w| {
        let path = w.path("f");
        fs::write(&path, b"").unwrap();
        setxattr(&path, "user.one", b"value", ANY).unwrap();
        setxattr(&path, "trusted.two", b"", ANY).unwrap();
        assert_eq!(setxattr(&path, "user.one", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(setxattr(&path, "user.none", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
        let mut value = [0; 64];
        assert_eq!(getxattr(&path, "user.one", &mut value), Ok(5));
        assert_eq!(&value[..5], b"value");
        let c_path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: both strings are NUL-terminated; a length of 0 asks for the size and writes nothing.
        let size = unsafe { libc::getxattr(c_path.as_ptr(), c"user.one".as_ptr(), std::ptr::null_mut(), 0) };
        assert_eq!(size, 5);
        assert_eq!(getxattr(&path, "user.one", &mut value[..2]), Err(Errno::RANGE));
        let len = listxattr(&path, &mut value).unwrap();
        assert_eq!(&value[..len], b"trusted.two\0user.one\0");
        removexattr(&path, "user.one").unwrap();
        assert_eq!(removexattr(&path, "user.one"), Err(Errno::NODATA));
        assert_eq!(setxattr(&path, "wrong.name", b"x", ANY), Err(Errno::OPNOTSUPP));
        setxattr(&path, "user.large", &vec![1; 64 << 10], ANY).unwrap();
        assert_eq!(getxattr(&path, "user.large", &mut vec![0; 64 << 10]), Ok(64 << 10));
    });
}

#[test]
fn a_policy_is_an_attribute_of_a_directory() {
    on_mount(|w| {
        fs::create_dir_all(w.path("d/e")).unwrap();
        setxattr(w.path("d"), "user.braid.policy", b"rain:4+2", ANY).unwrap();
        let mut value = [0; 64];
        let len = getxattr(w.path("d/e"), "user.braid.policy", &mut value).unwrap();
        assert_eq!(&value[..len], b"rain:4+2");
        assert_eq!(setxattr(w.path("d"), "user.braid.policy", b"raid", ANY), Err(Errno::INVAL));
    });
}
