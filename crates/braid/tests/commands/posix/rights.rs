//! Who may do what: extended attributes, access lists, the bits of modes.

use super::*;

pub fn attributes_are_set_listed_and_removed(r: &Room) {
    const ANY: XattrFlags = XattrFlags::empty();
    let get = |path: &Path, name: &str| {
        let mut value = vec![0; 70_000];
        rustix::fs::getxattr(path, name, &mut value).map(|len| value[..len].to_vec())
    };
    let names = |path: &Path| {
        let mut list = vec![0; 1000];
        let len = rustix::fs::listxattr(path, &mut list).unwrap();
        String::from_utf8(list[..len].to_vec()).unwrap()
    };
    r.make("f", 1);
    fs::create_dir(r.path("d")).unwrap();
    for name in ["f", "d"] {
        let path = r.path(name);
        let set = |name, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        assert_eq!(set("user.one", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
        set("user.one", b"first", XattrFlags::CREATE).unwrap();
        assert_eq!(set("user.one", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
        set("user.one", b"second", XattrFlags::REPLACE).unwrap();
        set("user.two", b"", ANY).unwrap();
        set("trusted.three", &pattern(60_000), ANY).unwrap();
        forget();
        for path in [path.clone(), r.there.join(name)] {
            assert_eq!(get(&path, "user.one").unwrap(), b"second");
            assert_eq!(get(&path, "user.two").unwrap(), b"");
            assert!(get(&path, "trusted.three").unwrap() == pattern(60_000));
            assert_eq!(names(&path), "trusted.three\0user.one\0user.two\0");
            assert_eq!(rustix::fs::getxattr(&path, "user.one", &mut [0; 3]), Err(Errno::RANGE));
            assert_eq!(get(&path, "user.none"), Err(Errno::NODATA));
        }
        rustix::fs::removexattr(&path, "user.one").unwrap();
        assert_eq!(rustix::fs::removexattr(&path, "user.one"), Err(Errno::NODATA));
        assert_eq!(names(&r.there.join(name)), "trusted.three\0user.two\0");
        as_user(USER, || {
            assert_eq!(get(&path, "trusted.three"), Err(Errno::NODATA), "only root sees these");
            assert_eq!(set("user.two", b"x", ANY), Err(Errno::ACCESS));
        });
    }
    symlink("f", r.path("s")).unwrap();
    assert_eq!(rustix::fs::lsetxattr(r.path("s"), "user.one", b"x", ANY), Err(Errno::PERM));
}

/// A list as `system.posix_acl_access` has it: the version, then tag, rights and id of each.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;

/// The owner may everything, `USER` what is said, nobody else anything.
fn naming(rights: u16, mask: u16) -> Vec<u8> {
    let (owner, user, group, most, others) = (1, 2, 4, 16, 32);
    list(&[(owner, 7, NOBODY), (user, rights, USER), (group, 0, NOBODY), (most, mask, NOBODY), (others, 0, NOBODY)])
}

const ACCESS: &str = "system.posix_acl_access";

const DEFAULT: &str = "system.posix_acl_default";

pub fn an_access_list_lets_one_more_user_in(r: &Room) {
    r.make("f", LARGE);
    set_mode(&r.path("f"), 0o600);
    let (here, there) = (r.path("f"), r.there.join("f"));
    let reads = |uid: u32, path: &Path| as_user(uid, || errno(fs::read(path)));
    for path in [&here, &there] {
        assert_eq!(reads(USER, path), libc::EACCES);
    }
    rustix::fs::setxattr(&here, ACCESS, &naming(4, 4), XattrFlags::empty()).unwrap();
    for _ in 0..2 {
        for path in [&here, &there] {
            assert_eq!((reads(USER, path), reads(OTHER, path)), (0, libc::EACCES));
            assert_eq!(as_user(USER, || errno(open(path, libc::O_WRONLY))), libc::EACCES);
            assert_eq!(mode(path), 0o740, "the mask shows as the group's bits");
        }
        forget();
    }
    // chmod moves the mask, here what the other mount allows too.
    set_mode(&here, 0o700);
    for path in [&here, &there] {
        assert_eq!(reads(USER, path), libc::EACCES);
        let mut value = [0; 100];
        let len = rustix::fs::getxattr(path, ACCESS, &mut value).unwrap();
        assert_eq!(value[..len], naming(4, 0));
    }
    rustix::fs::removexattr(&here, ACCESS).unwrap();
    assert_eq!(rustix::fs::getxattr(&there, ACCESS, &mut [0; 100]), Err(Errno::NODATA));
}

pub fn a_default_list_is_inherited(r: &Room) {
    fs::create_dir(r.path("d")).unwrap();
    set_mode(&r.path("d"), 0o755);
    rustix::fs::setxattr(r.path("d"), DEFAULT, &naming(6, 6), XattrFlags::empty()).unwrap();
    // At the other mount, which has only heard of the list.
    fs::write(r.there.join("d/f"), "inherited").unwrap();
    fs::create_dir(r.there.join("d/sub")).unwrap();
    assert_eq!((mode(&r.path("d/f")), mode(&r.path("d/sub"))), (0o660, 0o760), "and no umask");
    assert_eq!(as_user(USER, || fs::read_to_string(r.path("d/f")).unwrap()), "inherited");
    assert_eq!(as_user(OTHER, || errno(fs::read(r.path("d/f")))), libc::EACCES);
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(r.path("d/sub"), DEFAULT, &mut value).unwrap();
    assert_eq!(value[..len], naming(6, 6));
}

pub fn a_setgid_directory_gives_its_group(r: &Room) {
    fs::create_dir(r.path("d")).unwrap();
    chown(r.path("d"), None, Some(OTHER)).unwrap();
    set_mode(&r.path("d"), 0o2777);
    as_user(USER, || {
        fs::create_dir(r.there.join("d/sub")).unwrap();
        fs::write(r.path("d/f"), "").unwrap();
        fs::write(r.path("d/sub/f"), "").unwrap();
    });
    forget();
    for (name, is_dir) in [("d/sub", true), ("d/f", false), ("d/sub/f", false)] {
        let meta = fs::metadata(r.path(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o2000 != 0), (USER, OTHER, is_dir), "{name}");
    }
}

pub fn a_sticky_directory_keeps_the_names_of_others(r: &Room) {
    fs::create_dir(r.path("d")).unwrap();
    set_mode(&r.path("d"), 0o1777);
    for name in ["mine", "kept"] {
        as_user(USER, || fs::write(r.path("d").join(name), "").unwrap());
    }
    for dir in [r.path("d"), r.there.join("d")] {
        as_user(OTHER, || {
            fs::write(dir.join("other"), "").unwrap();
            assert_eq!(errno(fs::remove_file(dir.join("mine"))), libc::EPERM);
            assert_eq!(errno(fs::rename(dir.join("mine"), dir.join("moved"))), libc::EPERM);
            assert_eq!(errno(fs::rename(dir.join("other"), dir.join("mine"))), libc::EPERM);
            fs::remove_file(dir.join("other")).unwrap();
        });
    }
    as_user(USER, || fs::remove_file(r.there.join("d/mine")).unwrap());
    fs::remove_file(r.path("d/kept")).unwrap();
}

pub fn a_write_of_another_user_takes_setuid(r: &Room) {
    for (name, len) in [("small", 10), ("large", LARGE)] {
        r.make(name, len);
        set_mode(&r.path(name), 0o6777);
        as_user(USER, || open(&r.path(name), libc::O_WRONLY).unwrap().write_all_at(b"x", 1).unwrap());
        assert_eq!((mode(&r.path(name)), mode(&r.there.join(name))), (0o777, 0o777), "{name}");
    }
}
