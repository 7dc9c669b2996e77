//! Names and what has them: links, renames, listings, limits.

use super::*;

fn link_descriptor(file: &File, to: &Path) -> Result<(), Errno> {
    rustix::fs::linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, to, AtFlags::SYMLINK_FOLLOW)
}

pub fn a_temporary_file_has_no_name_until_it_is_linked(r: &Room) {
    let file = open(&r.dir, libc::O_RDWR | libc::O_TMPFILE).unwrap();
    file.write_all_at(&pattern(LARGE), 0).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), fs::read_dir(&r.there).unwrap().count()), (0, 0));
    link_descriptor(&file, &r.path("seen")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(link_descriptor(&file, &r.path("seen")), Err(Errno::EXIST));
    drop(file);
    assert!(r.bytes("seen") == pattern(LARGE));
    // One that is to stay without a name.
    let secret = open(&r.dir, libc::O_RDWR | libc::O_TMPFILE | libc::O_EXCL).unwrap();
    assert_eq!(link_descriptor(&secret, &r.path("secret")), Err(Errno::NOENT));
}

pub fn a_rename_replaces_nothing_or_exchanges(r: &Room) {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    fs::write(r.path("a"), "A").unwrap();
    fs::write(r.path("b"), "B").unwrap();
    fs::create_dir(r.path("d")).unwrap();
    fs::write(r.path("d/below"), "below").unwrap();
    let rename = |from, to, flags| rustix::fs::renameat_with(CWD, r.path(from), CWD, r.path(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!((read(r.path("a")), read(r.there.join("b"))), ("A".to_owned(), "B".to_owned()));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((read(r.path("a")), read(r.there.join("b"))), ("B".to_owned(), "A".to_owned()));
    // A file and a directory change places.
    rename("a", "d", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((read(r.path("d")), read(r.there.join("a/below"))), ("B".to_owned(), "below".to_owned()));
    assert_eq!(rename("a", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename("b", "new", RenameFlags::NOREPLACE).unwrap();
    assert_eq!((read(r.there.join("new")), errno(fs::metadata(r.there.join("b")))), ("A".to_owned(), libc::ENOENT));
    // An open file stays the one it was when another takes its name.
    let mut old = File::open(r.path("new")).unwrap();
    fs::rename(r.path("d"), r.path("new")).unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), old.metadata().unwrap().nlink(), read(r.path("new"))), ("A", 0, "B".to_owned()));
}

pub fn a_position_in_a_directory_outlives_removals(r: &Room) {
    const NAMES: usize = 600;
    for n in 0..NAMES {
        fs::write(r.path(&format!("a longer name than usual {n:04}")), "").unwrap();
    }
    let names = |dir: &mut rustix::fs::Dir| -> Vec<String> {
        dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
    };
    let mut dir = rustix::fs::Dir::new(File::open(&r.dir).unwrap()).unwrap();
    let mut before = Vec::new();
    for _ in 0..199 {
        before.push(dir.next().unwrap().unwrap().file_name().to_str().unwrap().to_owned());
    }
    let position = dir.next().unwrap().unwrap();
    let rest = names(&mut dir);
    assert_eq!(rest.len(), NAMES + 2 - 200);
    // Some of what came before it and of what comes after, here and at the other mount.
    let gone: Vec<&String> = before[2..].iter().chain(&rest).step_by(3).collect();
    for (n, name) in gone.iter().enumerate() {
        fs::remove_file(if n % 2 == 0 { &r.dir } else { &r.there }.join(name)).unwrap();
    }
    fs::remove_file(r.path(position.file_name().to_str().unwrap())).unwrap();
    dir.seek(position.offset()).unwrap();
    let seen = names(&mut dir);
    // What is gone may still be told until the listing begins anew, what is there must be.
    let left: Vec<&String> = rest.iter().filter(|name| !gone.contains(name)).collect();
    let seen: Vec<&String> = seen.iter().filter(|name| !gone.contains(name)).collect();
    assert!(seen == left, "each of the rest once and nothing else");
    dir.rewind();
    assert_eq!(names(&mut dir).len(), NAMES + 2 - gone.len() - 1);
    let meta = fs::metadata(&r.dir).unwrap();
    assert_eq!((meta.len(), meta.blocks()), (4096, 0), "however many there are");
    // A program that removes what it lists.
    for entry in fs::read_dir(&r.dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(fs::read_dir(&r.there).unwrap().count(), 0);
}

pub fn links_are_counted(r: &Room) {
    r.make("f", LARGE);
    let links = |name: &str| {
        let (here, there) = (fs::metadata(r.path(name)).unwrap(), fs::metadata(r.there.join(name)).unwrap());
        assert_eq!((here.nlink(), here.ino()), (there.nlink(), there.ino()), "{name}");
        here.nlink()
    };
    fs::create_dir(r.path("d")).unwrap();
    fs::hard_link(r.path("f"), r.path("d/g")).unwrap();
    fs::hard_link(r.there.join("f"), r.there.join("h")).unwrap();
    assert_eq!((links("f"), links("d/g"), links("h")), (3, 3, 3));
    // Two names of one file: nothing is to be done.
    fs::rename(r.path("f"), r.path("h")).unwrap();
    assert_eq!(links("f"), 3);
    fs::remove_file(r.there.join("f")).unwrap();
    assert_eq!(links("h"), 2);
    fs::write(r.path("other"), "").unwrap();
    fs::rename(r.path("other"), r.path("h")).unwrap();
    assert_eq!((links("d/g"), links("h")), (1, 1));
    assert!(r.bytes("d/g") == pattern(LARGE));
    let open = File::open(r.path("d/g")).unwrap();
    fs::remove_file(r.path("d/g")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    forget();
    let mut bytes = vec![0; LARGE];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pattern(LARGE), "it is read until it is closed");
    assert_eq!(errno(fs::hard_link(r.path("d"), r.path("e"))), libc::EPERM);
    let before = links("d");
    fs::create_dir(r.path("d/sub")).unwrap();
    assert_eq!(links("d"), before + 1);
}

pub fn totals_are_told(r: &Room) {
    let totals = rustix::fs::statvfs(&r.dir).unwrap();
    assert!(totals.f_blocks >= totals.f_bfree && totals.f_bfree > 0 && totals.f_bavail > 0);
    assert!(totals.f_bsize > 0 && totals.f_frsize > 0 && totals.f_namemax == 255);
    // As `df` tells file systems apart.
    assert_eq!(rustix::fs::statfs(&r.dir).unwrap().f_type, 0x6573_5546, "FUSE");
}

pub fn pipes_sockets_and_devices_have_names(r: &Room) {
    let make = |name: &str, kind: u32, device| {
        let path = std::ffi::CString::new(r.path(name).as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with NUL and outlives the call.
        checked(unsafe { libc::mknod(path.as_ptr(), kind | 0o644, device) }.into()).unwrap();
        fs::symlink_metadata(r.there.join(name)).unwrap()
    };
    assert!(make("pipe", libc::S_IFIFO, 0).file_type().is_fifo());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| fs::read(r.path("pipe")).unwrap());
        fs::write(r.path("pipe"), "through the pipe").unwrap();
        assert_eq!(reading.join().unwrap(), b"through the pipe");
    });
    let device = make("null", libc::S_IFCHR, libc::makedev(1, 3));
    assert!(device.file_type().is_char_device() && device.rdev() == libc::makedev(1, 3));
    // A socket's address has room for some hundred bytes: by a short name.
    let dir = File::open(&r.dir).unwrap();
    let short = PathBuf::from(format!("/proc/self/fd/{}/socket", dir.as_raw_fd()));
    let listening = std::os::unix::net::UnixListener::bind(&short).unwrap();
    let mut calling = std::os::unix::net::UnixStream::connect(&short).unwrap();
    calling.write_all(b"!").unwrap();
    listening.accept().unwrap().0.read_exact(&mut [0]).unwrap();
    assert!(fs::symlink_metadata(r.there.join("socket")).unwrap().file_type().is_socket());
}

pub fn limits_are_told(r: &Room) {
    fs::write(r.path(&"n".repeat(255)), "").unwrap();
    assert_eq!(errno(fs::write(r.path(&"n".repeat(256)), "")), libc::ENAMETOOLONG);
    symlink("s".repeat(4095), r.path("s")).unwrap();
    assert_eq!(fs::read_link(r.there.join("s")).unwrap().as_os_str().len(), 4095);
    assert_eq!(errno(symlink("s".repeat(4096), r.path("t"))), libc::ENAMETOOLONG);
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let file = File::open(r.path(&"n".repeat(255))).unwrap();
    assert_eq!(ioctl_getflags(&file), Ok(IFlags::empty()));
    assert_eq!(ioctl_setflags(&file, IFlags::APPEND), Err(Errno::OPNOTSUPP), "immutable is the only one");
}
