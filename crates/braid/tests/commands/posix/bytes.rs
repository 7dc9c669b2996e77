//! Bytes: direct handles, holes, ranges, sizes.

use super::*;

pub fn a_direct_handle_and_a_cached_one_agree(r: &Room) {
    let mut pages = Box::new(Aligned([0; 16 * PAGE]));
    pages.0.copy_from_slice(&pattern(16 * PAGE));
    let direct = r.open("f", libc::O_CREAT | libc::O_DIRECT);
    direct.write_all_at(&pages.0, 0).unwrap();
    direct.write_all_at(&pages.0, LARGE as u64 / PAGE as u64 * PAGE as u64).unwrap();
    let cached = r.open("f", 0);
    let mut bytes = vec![0; 16 * PAGE];
    cached.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pages.0, "the cached handle reads what the direct one wrote");
    // Over pages that the kernel now keeps.
    cached.write_all_at(b"cached", 5000).unwrap();
    direct.read_exact_at(&mut pages.0, 0).unwrap();
    assert!(pages.0[5000..5006] == *b"cached", "the direct handle reads what the cached one wrote");
    pages.0[..PAGE].fill(b'd');
    direct.write_all_at(&pages.0[..PAGE], 0).unwrap();
    cached.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pages.0, "the kernel's pages of what a direct write changed are gone");
    let all = r.bytes("f");
    assert!(all[..16 * PAGE] == pages.0 && all.len() == LARGE / PAGE * PAGE + 16 * PAGE);
}

/// Where there is data, as SEEK_DATA and SEEK_HOLE tell it.
fn segments(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => {
                at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
                found.push((start, at));
            }
            Err(error) => {
                assert_eq!(error, Errno::NXIO);
                return found;
            }
        }
    }
}

pub fn data_and_holes_are_told_apart(r: &Room) {
    const PIECE: u64 = 64 << 10;
    let file = r.open("f", libc::O_CREAT);
    let starts = [0, 3 * MIB, 6 * MIB + PAGE as u64];
    for start in starts {
        file.write_all_at(&pattern(PIECE as usize), start).unwrap();
    }
    file.set_len(8 * MIB).unwrap();
    let expected = starts.map(|start| (start, start + PIECE));
    assert_eq!(segments(&r.path("f")), expected, "as written");
    file.sync_all().unwrap();
    forget();
    assert_eq!(segments(&r.path("f")), expected, "as synced");
    assert_eq!(segments(&r.there.join("f")), expected, "at the other mount");
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(MIB)), Ok(MIB));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(8 * MIB)), Err(Errno::NXIO));
    let mut whole = vec![0; 8 << 20];
    for start in starts {
        whole[start as usize..][..PIECE as usize].copy_from_slice(&pattern(PIECE as usize));
    }
    assert!(r.bytes("f") == whole);
    // And of one that lies beside its inode.
    let small = r.open("small", libc::O_CREAT);
    small.write_all_at(b"end", 2 * PAGE as u64).unwrap();
    assert_eq!(segments(&r.path("small")).last().map(|last| last.1), Some(2 * PAGE as u64 + 3));
}

pub fn ranges_are_punched_zeroed_and_allocated(r: &Room) {
    const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
    const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
    // Beside the inode, in a chunk, in chunks.
    for (name, len) in [("small", 1000), ("one", LARGE), ("several", 3 << 20)] {
        let (file, mut expected) = (r.make(name, len), pattern(len));
        file.sync_all().unwrap();
        let change = |flags, at: usize, len: usize| rustix::fs::fallocate(&file, flags, at as u64, len as u64);
        let size = || file.metadata().unwrap().len();
        let (part, tail) = (len / 3, len - len / 4);
        change(PUNCH, part, len / 5).unwrap();
        expected[part..part + len / 5].fill(0);
        // Over the end.
        change(PUNCH, tail, len).unwrap();
        expected[tail..].fill(0);
        assert_eq!(size(), len as u64);
        assert!(r.bytes(name) == expected, "{name}: punched");
        change(ZERO, 10, len / 7).unwrap();
        expected[10..10 + len / 7].fill(0);
        change(ZERO | FallocateFlags::KEEP_SIZE, len, len).unwrap();
        change(FallocateFlags::KEEP_SIZE, len, len).unwrap();
        assert_eq!((size(), fs::metadata(r.there.join(name)).unwrap().len()), (len as u64, len as u64), "{name}");
        assert!(r.bytes(name) == expected, "{name}: zeroed");
        change(ZERO, len, 100).unwrap();
        change(FallocateFlags::empty(), 0, len + 777).unwrap();
        expected.resize(len + 777, 0);
        assert!(r.bytes(name) == expected, "{name}: allocated");
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(change(flags, 0, PAGE), Err(Errno::OPNOTSUPP));
        }
    }
    let file = r.make("holes", 3 << 20);
    rustix::fs::fallocate(&file, PUNCH, MIB, MIB).unwrap();
    file.sync_all().unwrap();
    assert_eq!(segments(&r.there.join("holes")), [(0, MIB), (2 * MIB, 3 * MIB)], "what was punched is a hole");
}

pub fn ranges_are_copied_between_files(r: &Room) {
    const LEN: usize = 2_000_001;
    let (from, to) = (r.make("from", LEN), r.make("to", 10));
    let (mut from_at, mut to_at) = (3, 5);
    while from_at < LEN as u64 {
        let copied = rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), LEN).unwrap();
        assert!(copied > 0, "at {from_at}");
    }
    assert_eq!((from_at, to_at), (LEN as u64, LEN as u64 + 2), "no more than there is");
    assert_eq!(rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), 10), Ok(0), "at the end");
    let mut expected = pattern(10);
    expected.truncate(5);
    expected.extend_from_slice(&pattern(LEN)[3..]);
    assert!(r.bytes("to") == expected);
    let overlapping = rustix::fs::copy_file_range(&from, Some(&mut 0), &from, Some(&mut 10), 100);
    assert_eq!(overlapping, Err(Errno::INVAL));
    assert!(r.bytes("from") == pattern(LEN));
}

pub fn files_are_cut_and_grow_with_zeros(r: &Room) {
    for (name, len) in [("small", 1000), ("large", LARGE), ("chunks", 3 << 20)] {
        let (file, mut expected) = (r.make(name, len), pattern(len));
        for (n, size) in [len / 2 + 1, len, len / 3, 2 * len + 5, len / 2, 10, len].into_iter().enumerate() {
            // Sometimes of what the servers have, sometimes of what they do not have yet.
            if n % 2 == 0 {
                file.sync_data().unwrap();
            }
            file.set_len(size as u64).unwrap();
            expected.resize(size, 0);
            assert_eq!(fs::metadata(r.there.join(name)).unwrap().len(), size as u64);
            assert!(r.bytes(name) == expected, "{name}: {size}");
            file.write_all_at(b"w", size as u64 / 2).unwrap();
            expected[size / 2] = b'w';
        }
        let cut = rustix::fs::ftruncate(File::open(r.path(name)).unwrap(), 0);
        assert_eq!(cut, Err(Errno::INVAL), "a handle that only reads");
        drop(r.open(name, libc::O_TRUNC));
        assert_eq!(r.bytes(name), b"");
    }
    let file = r.open("huge", libc::O_CREAT);
    file.set_len(1 << 42).unwrap();
    file.write_all_at(b"far", (1 << 42) - 3).unwrap();
    let mut four = [9; 4];
    open(&r.there.join("huge"), libc::O_RDONLY).unwrap().read_exact_at(&mut four, (1 << 42) - 4).unwrap();
    assert_eq!(&four, b"\0far");
}

pub fn blocks_count_the_size_with_its_holes(r: &Room) {
    let file = r.open("f", libc::O_CREAT);
    file.set_len(8 * MIB).unwrap();
    file.sync_all().unwrap();
    forget();
    for path in [r.path("f"), r.there.join("f")] {
        assert_eq!(fs::metadata(path).unwrap().blocks(), 8 * MIB / 512);
    }
    r.make("small", 1).sync_all().unwrap();
    assert_eq!(fs::metadata(r.there.join("small")).unwrap().blocks(), 8, "whole blocks of 4 KiB");
}
