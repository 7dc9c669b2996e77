//! Mappings, and handles that append.

use super::*;

pub fn a_shared_mapping_is_the_file(r: &Room) {
    let file = r.make("f", LARGE);
    let mut expected = pattern(LARGE);
    let (map, second) = (Map::shared(&file, LARGE).unwrap(), Map::shared(&r.open("f", 0), LARGE).unwrap());
    map.write(5000, b"mapped");
    expected[5000..5006].copy_from_slice(b"mapped");
    assert_eq!(second.read(5000, 6), b"mapped");
    let mut six = [0; 6];
    file.read_exact_at(&mut six, 5000).unwrap();
    assert_eq!(&six, b"mapped");
    map.sync();
    assert!(r.bytes("f") == expected, "synced");
    file.write_all_at(b"written", 200_000).unwrap();
    expected[200_000..200_007].copy_from_slice(b"written");
    assert_eq!(map.read(200_000, 7), b"written", "a write is seen in the mapping");
    // Without msync, and beyond the end in the last page.
    second.write(LARGE - 3, b"end");
    expected[LARGE - 3..].copy_from_slice(b"end");
    drop((map, second));
    drop(file);
    assert!(r.bytes("f") == expected, "unmapped and closed");
    // What the other mount writes is seen where it is mapped.
    let file = r.open("f", 0);
    let map = Map::shared(&file, LARGE).unwrap();
    assert_eq!(map.read(5000, 6), b"mapped");
    open(&r.there.join("f"), libc::O_RDWR).unwrap().write_all_at(b"theirs", 5000).unwrap();
    assert_eq!(map.read(5000, 6), b"theirs");
    map.write(5001, b"H");
    let mut six = [0; 6];
    open(&r.there.join("f"), libc::O_RDONLY).unwrap().read_exact_at(&mut six, 5000).unwrap();
    assert_eq!(&six, b"tHeirs", "and the other way, without msync");
}

pub fn a_private_mapping_stays_private(r: &Room) {
    let file = r.make("f", LARGE);
    let map = Map::new(&file, LARGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).unwrap();
    map.write(0, b"mine alone");
    map.sync();
    assert_eq!(map.read(0, 10), b"mine alone");
    drop(map);
    drop(file);
    assert!(r.bytes("f") == pattern(LARGE));
}

pub fn a_direct_handle_is_mapped_privately_only(r: &Room) {
    r.make("f", LARGE);
    let direct = r.open("f", libc::O_DIRECT);
    let shared = Map::new(&direct, LARGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    assert_eq!(shared.err(), Some(Errno::NODEV), "it keeps no pages");
    let private = Map::new(&direct, LARGE, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
    assert!(private.read(0, LARGE) == pattern(LARGE));
    // A mapping of another handle sees what a direct one writes.
    let map = Map::shared(&r.open("f", 0), LARGE).unwrap();
    assert!(map.read(0, LARGE) == pattern(LARGE));
    map.write(0, b"mapped");
    map.sync();
    let mut page = Box::new(Aligned([0; 16 * PAGE]));
    direct.read_exact_at(&mut page.0, 0).unwrap();
    assert_eq!(&page.0[..6], b"mapped");
    page.0[..6].copy_from_slice(b"direct");
    direct.write_all_at(&page.0, 0).unwrap();
    assert_eq!(map.read(0, 6), b"direct");
    let mut expected = pattern(LARGE);
    expected[..6].copy_from_slice(b"direct");
    drop((map, private));
    assert!(r.bytes("f") == expected);
}

pub fn appends_of_two_descriptors_follow_each_other(r: &Room) {
    let open = || r.open("f", libc::O_CREAT | libc::O_APPEND);
    let (mut a, mut b) = (open(), open());
    let mut expected = Vec::new();
    for n in 0..100 {
        let line = format!("{n:>4} {}\n", "x".repeat(n * 37));
        // Where they stand in it does not matter, as append has it.
        rustix::fs::seek(&a, SeekFrom::Start(0)).unwrap();
        if n % 2 == 0 { &mut a } else { &mut b }.write_all(line.as_bytes()).unwrap();
        expected.extend(line.into_bytes());
    }
    assert!(r.bytes("f") == expected);
    // Also while another handle cuts the file.
    r.open("f", 0).set_len(3).unwrap();
    a.write_all(b"+").unwrap();
    assert_eq!(r.bytes("f"), [&expected[..3], b"+"].concat());
}

pub fn an_appending_handle_is_mapped_privately_only(r: &Room) {
    r.make("f", 2 * PAGE);
    let file = r.open("f", libc::O_APPEND);
    for protection in [ProtFlags::READ, ProtFlags::READ | ProtFlags::WRITE] {
        let shared = Map::new(&file, 2 * PAGE, protection, MapFlags::SHARED);
        assert_eq!(shared.err(), Some(Errno::NODEV));
    }
    let private = Map::new(&file, 2 * PAGE, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
    assert!(private.read(0, 2 * PAGE) == pattern(2 * PAGE));
    // Of one that only reads, appending says nothing.
    let reading = open(&r.path("f"), libc::O_RDONLY | libc::O_APPEND).unwrap();
    let shared = Map::new(&reading, 2 * PAGE, ProtFlags::READ, MapFlags::SHARED).unwrap();
    assert!(shared.read(0, 2 * PAGE) == pattern(2 * PAGE));
}
