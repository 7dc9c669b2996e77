//! POSIX access control lists in the form of the extended attributes `system.posix_acl_access` and
//! `system.posix_acl_default`: version 2, then entries of tag, permission and id, all little-endian.
//!
//! An [`Acl`] that exists is valid: one entry each for owner, owning group and others, in the kernel's order, and a
//! mask if anybody is named. The nine permission bits of the mode and the access ACL say the same thing twice; the
//! functions here keep them equal. A list that says no more than the mode is not kept at all.

use braid_types::Mode;

/// Where the list that governs access is kept.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Where a directory keeps the list its new entries begin with.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// What the kernel writes as the id of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    /// The most that anybody but owner and others gets.
    Mask,
    Others,
}

impl Who {
    const fn tag(self) -> u16 {
        match self {
            Who::Owner => 0x01,
            Who::User(_) => 0x02,
            Who::OwningGroup => 0x04,
            Who::Group(_) => 0x08,
            Who::Mask => 0x10,
            Who::Others => 0x20,
        }
    }

    fn id(self) -> u32 {
        match self {
            Who::User(id) | Who::Group(id) => id,
            _ => NOBODY,
        }
    }

    fn new(tag: u16, id: u32) -> Option<Self> {
        let named = id != NOBODY;
        Some(match tag {
            0x01 => Who::Owner,
            0x02 if named => Who::User(id),
            0x04 => Who::OwningGroup,
            0x08 if named => Who::Group(id),
            0x10 => Who::Mask,
            0x20 => Who::Others,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub who: Who,
    /// read 4, write 2, execute 1.
    pub allowed: u16,
}

/// Why bytes are not an ACL: EINVAL, or EOPNOTSUPP for another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    #[error("an ACL of another version than 2")]
    Version,
    #[error("not whole entries of 8 bytes")]
    Length,
    #[error("an entry with an unknown tag, permission or id")]
    Entry,
    #[error("entries missing, doubled or out of order")]
    Order,
}

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads an attribute's value. `None` is a list without entries, which means "remove".
    pub fn parse(bytes: &[u8]) -> Result<Option<Acl>, AclError> {
        let (version, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(AclError::Length)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(AclError::Version);
        }
        let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else { return Err(AclError::Length) };
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter().map(parse_entry).collect::<Result<Vec<_>, _>>()?;
        Acl::new(entries).map(Some)
    }

    pub fn new(entries: Vec<Entry>) -> Result<Acl, AclError> {
        if entries.iter().any(|e| e.allowed > 7) {
            return Err(AclError::Entry);
        }
        // The tags rise in the order the kernel demands; only those that name somebody may repeat.
        let tags: Vec<u16> = entries.iter().map(|e| e.who.tag()).collect();
        let repeats = |tag| tag == 0x02 || tag == 0x08;
        let ordered = tags.windows(2).all(|pair| pair[0] < pair[1] || (pair[0] == pair[1] && repeats(pair[0])));
        let has = |tag: u16| tags.contains(&tag);
        let names_somebody = has(0x02) || has(0x08);
        if !ordered || !has(0x01) || !has(0x04) || !has(0x20) || (names_somebody && !has(0x10)) {
            return Err(AclError::Order);
        }
        Ok(Acl { entries })
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The attribute's value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.entries.len());
        bytes.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            bytes.extend(entry.who.tag().to_le_bytes());
            bytes.extend(entry.allowed.to_le_bytes());
            bytes.extend(entry.who.id().to_le_bytes());
        }
        bytes
    }

    /// The nine permission bits that show this list: the group's are the mask's, where there is one.
    pub fn permissions(&self) -> u32 {
        let bits = |shift| u32::from(self.entries[self.position(shift)].allowed) << shift;
        bits(6) | bits(3) | bits(0)
    }

    /// True if the mode alone says the same.
    pub fn is_only_mode(&self) -> bool {
        self.entries.iter().all(|e| matches!(e.who, Who::Owner | Who::OwningGroup | Who::Others))
    }

    /// Makes the list show `mode`'s permission bits, as chmod must.
    pub fn chmod(&mut self, mode: Mode) {
        for shift in [6, 3, 0] {
            let position = self.position(shift);
            self.entries[position].allowed = (mode.0 >> shift) as u16 & 7;
        }
    }

    /// Takes away what `mode` does not have; returns the permission bits left in both.
    fn restrict(&mut self, mode: Mode) -> u32 {
        for shift in [6, 3, 0] {
            let position = self.position(shift);
            self.entries[position].allowed &= (mode.0 >> shift) as u16 & 7;
        }
        self.permissions()
    }

    /// Which entry stands for the mode's bits at `shift`. A valid list has it.
    fn position(&self, shift: u32) -> usize {
        let find = |who| self.entries.iter().position(|e| e.who == who);
        let found = match shift {
            6 => find(Who::Owner),
            3 => find(Who::Mask).or_else(|| find(Who::OwningGroup)),
            _ => find(Who::Others),
        };
        found.unwrap_or_default()
    }
}

fn parse_entry(bytes: &[u8; ENTRY_BYTES]) -> Result<Entry, AclError> {
    let [t0, t1, p0, p1, id @ ..] = *bytes;
    let who = Who::new(u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id)).ok_or(AclError::Entry)?;
    Ok(Entry { who, allowed: u16::from_le_bytes([p0, p1]) })
}

/// What setting `system.posix_acl_access` to `value` does: the new mode and the list to keep (`None`: none, remove it).
pub fn set_access(value: &[u8], mode: Mode) -> Result<(Mode, Option<Acl>), AclError> {
    let Some(acl) = Acl::parse(value)? else { return Ok((mode, None)) };
    let mode = Mode(mode.0 & !0o777 | acl.permissions());
    let keep = !acl.is_only_mode();
    Ok((mode, keep.then_some(acl)))
}

/// What chmod to `mode` makes of a kept access list.
pub fn chmod(value: &[u8], mode: Mode) -> Result<Option<Acl>, AclError> {
    let mut acl = Acl::parse(value)?;
    if let Some(acl) = &mut acl {
        acl.chmod(mode);
    }
    Ok(acl)
}

/// What a new inode begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    pub mode: Mode,
    pub access: Option<Acl>,
    /// For a directory: its own default list.
    pub default: Option<Acl>,
}

/// Applies the parent's default list, or the umask where there is none. Never used for a symbolic link.
pub fn inherit(parent_default: Option<&Acl>, mode: Mode, umask: u32, is_dir: bool) -> Inherited {
    let Some(default) = parent_default else {
        return Inherited { mode: Mode(mode.0 & !(umask & 0o777)), access: None, default: None };
    };
    let mut access = default.clone();
    let mode = Mode(mode.0 & !0o777 | access.restrict(mode));
    let keep = !access.is_only_mode();
    Inherited { mode, access: keep.then_some(access), default: is_dir.then(|| default.clone()) }
}

#[cfg(test)]
#[path = "acl_tests.rs"]
mod tests;
