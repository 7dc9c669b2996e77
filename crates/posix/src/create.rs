//! Owner, group, mode and lists of what is created in a directory.

use crate::acl::{Acl, inherit};
use braid_types::{FileKind, Mode};

/// Who creates.
#[derive(Clone, Copy, Debug)]
pub struct Creator<'a> {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'a [u32],
    pub umask: u32,
}

/// What the directory brings in.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    pub mode: Mode,
    pub gid: u32,
    pub default_acl: Option<&'a Acl>,
}

/// What the new inode begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOwner {
    pub uid: u32,
    pub gid: u32,
    pub mode: Mode,
    pub access_acl: Option<Acl>,
    pub default_acl: Option<Acl>,
}

/// A setgid directory gives its group to what is made in it, and setgid itself to directories. An executable file
/// does not get setgid for a group its maker is not in.
pub fn new_owner(creator: Creator<'_>, parent: Parent<'_>, kind: FileKind, mode: Mode) -> NewOwner {
    let mut mode = Mode::new(mode.0);
    if kind == FileKind::Symlink {
        // Symbolic links have no permissions of their own; all systems show 0777.
        mode = Mode(0o777);
    }
    let mut gid = creator.gid;
    if parent.mode.has(Mode::SETGID) {
        gid = parent.gid;
        let in_group = creator.uid == 0 || creator.gid == gid || creator.groups.contains(&gid);
        if kind == FileKind::Directory {
            mode.0 |= Mode::SETGID;
        } else if mode.has(Mode::SETGID | 0o010) && !in_group {
            mode.0 &= !Mode::SETGID;
        }
    }
    if kind == FileKind::Symlink {
        return NewOwner { uid: creator.uid, gid, mode, access_acl: None, default_acl: None };
    }
    let inherited = inherit(parent.default_acl, mode, creator.umask, kind == FileKind::Directory);
    NewOwner {
        uid: creator.uid,
        gid,
        mode: inherited.mode,
        access_acl: inherited.access,
        default_acl: inherited.default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Creator<'static> = Creator { uid: 1000, gid: 100, groups: &[7], umask: 0o022 };

    fn made(parent_mode: u32, parent_gid: u32, kind: FileKind, mode: u32) -> (u32, u32) {
        let parent = Parent { mode: Mode(parent_mode), gid: parent_gid, default_acl: None };
        let new = new_owner(USER, parent, kind, Mode(mode));
        (new.gid, new.mode.0)
    }

    #[test]
    fn a_plain_directory_gives_nothing() {
        assert_eq!(made(0o755, 5, FileKind::File, 0o666), (100, 0o644));
        assert_eq!(made(0o755, 5, FileKind::Symlink, 0), (100, 0o777));
    }

    #[test]
    fn a_setgid_directory_gives_its_group() {
        assert_eq!(made(0o2755, 5, FileKind::Directory, 0o777), (5, 0o2755));
        assert_eq!(made(0o2755, 5, FileKind::File, 0o2777), (5, 0o755));
        assert_eq!(made(0o2755, 7, FileKind::File, 0o2777), (7, 0o2755));
        assert_eq!(made(0o2755, 5, FileKind::File, 0o2666), (5, 0o2644));
    }
}
