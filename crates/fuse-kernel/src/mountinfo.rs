//! What is mounted where, from `/proc/self/mountinfo`: asking a mount itself could wait for its daemon.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The number of a mounted file system, as `stat` would tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

/// The topmost mount at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    pub device: DeviceNumber,
    pub fs_type: String,
}

impl MountEntry {
    pub fn is_fuse(&self) -> bool {
        self.fs_type == "fuse" || self.fs_type.starts_with("fuse.")
    }
}

/// The mount whose root is at `mount_point` (as `canonical` gives it), if there is one.
pub(crate) fn find(mount_point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(find_in(&fs::read("/proc/self/mountinfo")?, mount_point))
}

fn find_in(mountinfo: &[u8], mount_point: &Path) -> Option<MountEntry> {
    mountinfo.split(|&byte| byte == b'\n').rev().find_map(|line| parse(line, mount_point))
}

/// `36 35 98:0 /root /mount/point options … - type source options`
fn parse(line: &[u8], mount_point: &Path) -> Option<MountEntry> {
    let mut words = line.split(|&byte| byte == b' ');
    let number = str::from_utf8(words.nth(2)?).ok()?;
    if unescape(words.nth(1)?) != mount_point.as_os_str().as_bytes() {
        return None;
    }
    words.find(|word| *word == b"-")?;
    let fs_type = String::from_utf8_lossy(words.next()?).into_owned();
    let (major, minor) = number.split_once(':')?;
    Some(MountEntry { device: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? }, fs_type })
}

/// Blank, tab, line feed and backslash stand in mountinfo as `\` and three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, behind)) = rest.split_first() {
        match behind.first_chunk::<3>() {
            Some(digits) if byte == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)) => {
                out.push(digits.iter().fold(0, |value: u8, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &behind[3..];
            }
            _ => {
                out.push(byte);
                rest = behind;
            }
        }
    }
    out
}

/// The absolute path without links. Of a mount whose daemon is gone only the parent can be asked.
pub(crate) fn canonical(path: &Path) -> io::Result<PathBuf> {
    let dead = match fs::canonicalize(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => error,
        other => return other,
    };
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Err(dead),
    }
}

/// Sets how far the kernel reads ahead on the file system mounted at `mount_point`.
pub fn set_read_ahead_kb(mount_point: &Path, kb: u32) -> io::Result<()> {
    let entry = find(mount_point)?.ok_or(io::ErrorKind::NotFound)?;
    set_device_read_ahead_kb(entry.device, kb)
}

pub(crate) fn set_device_read_ahead_kb(device: DeviceNumber, kb: u32) -> io::Result<()> {
    fs::write(format!("/sys/class/bdi/{}:{}/read_ahead_kb", device.major, device.minor), kb.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 254:0 / / rw - ext4 /dev/root rw\n\
        40 22 0:39 / /mnt/a\\040b rw,nosuid shared:7 - fuse.braid braid rw,user_id=0\n\
        41 22 0:40 / /mnt/a rw - tmpfs none rw\n\
        42 41 0:41 / /mnt/a rw master:1 propagate_from:2 - fuse x rw\n\
        broken line\n";

    #[test]
    fn finds_the_topmost_mount() {
        let found = |path| find_in(TEXT, Path::new(path));
        let spaced = found("/mnt/a b").unwrap();
        assert_eq!(spaced.device, DeviceNumber { major: 0, minor: 39 });
        assert!(spaced.is_fuse());
        assert_eq!(found("/mnt/a").unwrap().fs_type, "fuse");
        assert!(!found("/").unwrap().is_fuse());
        assert_eq!(found("/mnt"), None);
    }
}
