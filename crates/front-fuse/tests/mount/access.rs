use crate::world::{World, as_user, errno, on_mount, with_world};
use braid_front_fuse::{KillPrivileges, MountConfig};
use braid_posix::acl::{self, Acl, Entry, Who};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

const USER: u32 = 65534;
const OTHER: u32 = 1;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn list(entries: &[(Who, u16)]) -> Vec<u8> {
    let entries = entries.iter().map(|&(who, allowed)| Entry { who, allowed }).collect();
    Acl::new(entries).unwrap().to_bytes()
}

fn named(user: u16, mask: u16) -> Vec<u8> {
    list(&[(Who::Owner, 7), (Who::User(USER), user), (Who::OwningGroup, 0), (Who::Mask, mask), (Who::Others, 0)])
}

fn set_list(path: &Path, name: &[u8], value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

#[test]
fn permission_bits_are_checked() {
    on_mount(|w| {
        let path = w.path("f");
        fs::write(&path, b"secret").unwrap();
        set_mode(&path, 0o640);
        assert_eq!(as_user(USER, USER, &[], || errno(fs::read(&path))), libc::EACCES);
        chown(&path, None, Some(77)).unwrap();
        assert_eq!(as_user(USER, USER, &[77], || errno(fs::read(&path))), 0);
    });
}

#[test]
fn an_access_list_governs_and_shows_in_the_mode() {
    on_mount(|w| {
        let path = w.path("f");
        fs::write(&path, b"secret").unwrap();
        set_mode(&path, 0o600);
        set_list(&path, acl::ACCESS, &named(4, 4));
        assert_eq!(mode(&path), 0o740);
        assert_eq!(as_user(USER, USER, &[], || errno(fs::read(&path))), 0);
        assert_eq!(as_user(USER, USER, &[], || errno(fs::write(&path, b"x"))), libc::EACCES);
        assert_eq!(as_user(OTHER, OTHER, &[], || errno(fs::read(&path))), libc::EACCES);
        // chmod moves the mask, and with it the list.
        set_mode(&path, 0o700);
        assert_eq!(as_user(USER, USER, &[], || errno(fs::read(&path))), libc::EACCES);
        let mut value = [0; 100];
        let len = getxattr(&path, acl::ACCESS, &mut value).unwrap();
        assert_eq!(value[..len], named(4, 0));
    });
}

#[test]
fn a_default_list_is_inherited_instead_of_the_umask() {
    on_mount(|w| {
        let dir = w.path("d");
        fs::create_dir(&dir).unwrap();
        set_list(&dir, acl::DEFAULT, &named(6, 6));
        fs::write(dir.join("f"), b"").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        // 0666 and 0777 restricted by the list; the umask of this process would have taken the group's write bit.
        assert_eq!((mode(&dir.join("f")), mode(&dir.join("sub"))), (0o660, 0o760));
        let mut value = [0; 100];
        assert!(getxattr(dir.join("sub"), acl::DEFAULT, &mut value).unwrap() > 4);
        assert_eq!(errno(getxattr(dir.join("f"), acl::DEFAULT, &mut value).map_err(Into::into)), libc::ENODATA);
    });
}

#[test]
fn a_setgid_directory_gives_its_group() {
    on_mount(|w| {
        let dir = w.path("d");
        fs::create_dir(&dir).unwrap();
        chown(&dir, None, Some(77)).unwrap();
        set_mode(&dir, 0o2777);
        as_user(USER, USER, &[], || {
            fs::create_dir(dir.join("sub")).unwrap();
            fs::write(dir.join("f"), b"").unwrap();
        });
        let sub = fs::metadata(dir.join("sub")).unwrap();
        assert_eq!((sub.gid(), sub.uid(), sub.mode() & 0o2000), (77, USER, 0o2000));
        assert_eq!(fs::metadata(dir.join("f")).unwrap().gid(), 77);
    });
}

fn privileges_go(w: &World) {
    let path = w.path("program");
    let fresh = |bits| {
        fs::write(&path, b"program").unwrap();
        set_mode(&path, bits);
        assert_eq!(mode(&path), bits);
    };
    fresh(0o6777);
    as_user(USER, USER, &[], || {
        fs::File::options().write(true).open(&path).unwrap().write_all_at(b"x", 1).unwrap();
    });
    assert_eq!(mode(&path), 0o777, "after a write");
    assert_eq!(fs::read(&path).unwrap(), b"pxogram");
    fresh(0o6777);
    as_user(USER, USER, &[], || fs::File::options().write(true).open(&path).unwrap().set_len(3).unwrap());
    assert_eq!(mode(&path), 0o777, "after a truncate");
    fresh(0o6777);
    as_user(USER, USER, &[], || fs::File::create(&path).map(drop).unwrap());
    assert_eq!(mode(&path), 0o777, "after an open that truncates");
    fresh(0o6755);
    chown(&path, Some(OTHER), None).unwrap();
    assert_eq!(mode(&path), 0o755, "after a change of owner");
    // Without group execute, setgid is no privilege.
    fresh(0o2766);
    as_user(USER, USER, &[], || fs::File::options().append(true).open(&path).unwrap().write_at(b"x", 0).unwrap());
    assert_eq!(mode(&path), 0o2766);
    // Root may write and the bits stay.
    fresh(0o6755);
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"x", 1).unwrap();
    assert_eq!(mode(&path), 0o6755);
}

fn capabilities_go(w: &World) {
    let path = w.path("capable");
    // cap_net_raw, version 2, as setcap writes it.
    let value: Vec<u8> = [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let has = |w: &World| getxattr(w.path("capable"), "security.capability", &mut [0; 64]).is_ok();
    fs::write(&path, b"program").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"P", 0).unwrap();
    let capable = || set_list(&w.path("capable"), b"security.capability", &value);
    capable();
    assert!(has(w));
    file.write_all_at(b"P", 0).unwrap();
    assert!(!has(w), "after a write");
    capable();
    file.set_len(3).unwrap();
    assert!(!has(w), "after a truncate");
    capable();
    fs::File::create(&path).unwrap();
    assert!(!has(w), "after an open that truncates");
    capable();
    chown(&path, Some(OTHER), None).unwrap();
    assert!(!has(w), "after a change of owner");
}

fn with_privileges(kill_privileges: KillPrivileges, test: fn(&World)) {
    let config = MountConfig { kill_privileges, truncate_in_open: true, ..MountConfig::default() };
    with_world(config.clone(), Duration::from_secs(1), test);
    with_world(MountConfig { truncate_in_open: false, ..config }, Duration::from_secs(1), test);
}

#[test]
fn privileges_go_when_the_kernel_sees_to_it() {
    with_privileges(KillPrivileges::Kernel, privileges_go);
    with_privileges(KillPrivileges::Kernel, capabilities_go);
}

#[test]
fn privileges_go_when_the_door_sees_to_it() {
    with_privileges(KillPrivileges::Door, privileges_go);
    with_privileges(KillPrivileges::Door, capabilities_go);
}
