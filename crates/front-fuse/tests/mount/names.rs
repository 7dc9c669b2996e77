use crate::world::{errno, on_mount};
use rustix::fs::{AtFlags, CWD, RenameFlags, StatxFlags, renameat_with, statx};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

#[test]
fn names_move_and_exchange() {
    on_mount(|w| {
        let (a, b) = (w.path("a"), w.path("b"));
        fs::write(&a, b"A").unwrap();
        fs::write(&b, b"B").unwrap();
        let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(&a).unwrap(), b"B");
        assert_eq!(rename(RenameFlags::WHITEOUT), Err(rustix::io::Errno::INVAL));
        fs::rename(&a, &b).unwrap();
        assert_eq!((errno(fs::metadata(&a)), fs::read(&b).unwrap()), (libc::ENOENT, b"B".to_vec()));
    });
}

#[test]
fn directories_move_with_what_is_below() {
    on_mount(|w| {
        fs::create_dir_all(w.path("a/b/c")).unwrap();
        fs::write(w.path("a/b/c/f"), b"deep").unwrap();
        assert_eq!(errno(fs::rename(w.path("a"), w.path("a/b/x"))), libc::EINVAL);
        assert_eq!(errno(fs::rename(w.path("a/b"), w.path("a"))), libc::ENOTEMPTY);
        fs::rename(w.path("a/b"), w.path("moved")).unwrap();
        assert_eq!(fs::read(w.path("moved/c/f")).unwrap(), b"deep");
        let up = fs::metadata(w.path("moved/..")).unwrap();
        assert_eq!((up.ino(), up.nlink(), fs::metadata(&w.dir).unwrap().ino()), (1, 4, 1));
        assert_eq!(errno(fs::remove_dir(w.path("moved"))), libc::ENOTEMPTY);
        fs::remove_dir_all(w.path("moved")).unwrap();
    });
}

#[test]
fn links_share_an_inode() {
    on_mount(|w| {
        fs::write(w.path("f"), b"x").unwrap();
        fs::hard_link(w.path("f"), w.path("g")).unwrap();
        let (f, g) = (fs::metadata(w.path("f")).unwrap(), fs::metadata(w.path("g")).unwrap());
        assert_eq!((f.ino(), f.nlink()), (g.ino(), 2));
        fs::rename(w.path("f"), w.path("g")).unwrap();
        assert_eq!(fs::metadata(w.path("f")).unwrap().nlink(), 2);
        symlink("g", w.path("s")).unwrap();
        assert_eq!(
            (fs::read(w.path("s")).unwrap(), fs::symlink_metadata(w.path("s")).unwrap().len()),
            (b"x".to_vec(), 1)
        );
    });
}

#[test]
fn long_names_are_refused() {
    on_mount(|w| {
        fs::write(w.path(&"n".repeat(255)), b"").unwrap();
        assert_eq!(errno(fs::write(w.path(&"n".repeat(256)), b"")), libc::ENAMETOOLONG);
    });
}

#[test]
fn statx_tells_the_birth() {
    on_mount(|w| {
        fs::write(w.path("f"), b"1").unwrap();
        let birth = || statx(CWD, w.path("f"), AtFlags::empty(), StatxFlags::BTIME | StatxFlags::BASIC_STATS).unwrap();
        let first = birth();
        assert!(first.stx_mask & StatxFlags::BTIME.bits() != 0 && first.stx_btime.tv_sec > 1_600_000_000);
        fs::write(w.path("f"), b"22").unwrap();
        let second = birth();
        assert_eq!(first.stx_btime.tv_nsec, second.stx_btime.tv_nsec);
        assert_eq!(second.stx_size, 2);
    });
}

#[test]
fn totals_are_shown() {
    on_mount(|w| {
        let totals = rustix::fs::statvfs(&w.dir).unwrap();
        assert!(totals.f_blocks >= totals.f_bfree && totals.f_bfree > 0 && totals.f_namemax == 255);
    });
}
