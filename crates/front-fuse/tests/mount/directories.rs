use crate::world::on_mount;
use rustix::fs::{Dir, FileType};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;

fn names(dir: &mut Dir) -> Vec<String> {
    dir.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn open(path: &std::path::Path) -> Dir {
    Dir::new(File::open(path).unwrap()).unwrap()
}

#[test]
fn a_large_directory_is_listed_once_each() {
    on_mount(|w| {
        let expected: BTreeSet<String> = (0..3000).map(|i| format!("file number {i}")).collect();
        for name in &expected {
            fs::write(w.path(name), b"").unwrap();
        }
        let mut dir = open(&w.dir);
        let all = names(&mut dir);
        assert_eq!((all.len(), &all[0], &all[1]), (3002, &".".to_owned(), &"..".to_owned()));
        assert_eq!(all[2..].iter().cloned().collect::<BTreeSet<_>>(), expected);
        dir.rewind();
        assert_eq!(names(&mut dir).len(), 3002);
    });
}

#[test]
fn types_and_numbers_are_told() {
    on_mount(|w| {
        fs::create_dir(w.path("d")).unwrap();
        std::os::unix::fs::symlink("x", w.path("d/s")).unwrap();
        let entries: Vec<_> = open(&w.path("d")).map(|e| e.unwrap()).collect();
        let kinds: Vec<_> = entries.iter().map(|e| e.file_type()).collect();
        assert_eq!(kinds, [FileType::Directory, FileType::Directory, FileType::Symlink]);
        assert_eq!(entries[1].ino(), 1);
    });
}

#[test]
fn what_is_removed_while_listing_shifts_nothing() {
    on_mount(|w| {
        for i in 0..500 {
            fs::write(w.path(&format!("{i:04}")), b"").unwrap();
        }
        let mut seen = 0;
        for entry in fs::read_dir(&w.dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
            seen += 1;
        }
        assert_eq!((seen, fs::read_dir(&w.dir).unwrap().count()), (500, 0));
    });
}

#[test]
fn a_position_can_be_returned_to() {
    on_mount(|w| {
        for i in 0..2000 {
            fs::write(w.path(&format!("a longer name than usual {i:04}")), b"").unwrap();
        }
        let mut dir = open(&w.dir);
        for _ in 0..700 {
            dir.next();
        }
        let at = dir.next().unwrap().unwrap();
        let rest = names(&mut dir);
        dir.seek(at.offset()).unwrap();
        assert_eq!(names(&mut dir), rest);
        assert_eq!(rest.len(), 2002 - 701);
    });
}

#[test]
fn a_directory_is_synced_and_a_removed_one_is_empty() -> io::Result<()> {
    on_mount(|w| {
        fs::create_dir(w.path("d")).unwrap();
        let dir = File::open(w.path("d")).unwrap();
        dir.sync_all().unwrap();
        fs::remove_dir(w.path("d")).unwrap();
        assert_eq!(names(&mut Dir::new(dir).unwrap()).iter().filter(|name| !name.starts_with('.')).count(), 0);
    });
    Ok(())
}
