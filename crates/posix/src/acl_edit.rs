//! What setfacl does to the access lists of an inode. Pure.

use crate::acl::{Acl, AclError, Entry, Who};
use braid_types::{AclChange, AclEdit, AclPermissions, AclWho, Mode};

/// What is kept of an inode's rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    pub mode: Mode,
    /// If it says more than the mode.
    pub access: Option<Acl>,
    /// Of a directory.
    pub default: Option<Acl>,
}

impl From<AclWho> for Who {
    fn from(who: AclWho) -> Who {
        match who {
            AclWho::Owner => Who::Owner,
            AclWho::User(id) => Who::User(id),
            AclWho::OwningGroup => Who::OwningGroup,
            AclWho::Group(id) => Who::Group(id),
            AclWho::Mask => Who::Mask,
            AclWho::Others => Who::Others,
        }
    }
}

/// Applies a change. The mask, unless the change names it, becomes all that anybody it bounds is allowed, as setfacl has it.
///
/// # Errors
/// A list would have names and no mask: the change takes the mask and leaves what it bounds.
pub fn edit(rights: &Rights, change: &AclChange, is_dir: bool) -> Result<Rights, AclError> {
    let mut access = match &rights.access {
        Some(list) => list.entries().to_vec(),
        None => of_mode(rights.mode),
    };
    if change.clear {
        // What the mask kept from it the owning group does not get.
        let mask = access.iter().find(|entry| entry.who == Who::Mask).map_or(7, |mask| mask.allowed);
        access.iter_mut().filter(|entry| entry.who == Who::OwningGroup).for_each(|entry| entry.allowed &= mask);
        access.retain(|entry| is_base(entry.who));
    }
    let of = |default: bool| change.edits.iter().filter(move |edit| edit.default == default).copied();
    let access = Acl::new(edited(access, of(false), is_dir))?;
    let mut default = rights.default.clone().filter(|_| !change.clear_default);
    // A list of which something is taken is not made for that.
    let is_edited = of(true).any(|edit| default.is_some() || edit.allowed.is_some());
    if is_dir && is_edited {
        // What is not said of it is as in the access list.
        let base = || access.entries().iter().filter(|entry| is_base(entry.who)).copied().collect();
        let entries = default.map_or_else(base, |list| list.entries().to_vec());
        default = Some(Acl::new(edited(entries, of(true), is_dir))?);
    }
    let mode = Mode(rights.mode.0 & !0o777 | access.permissions());
    let says_more = !access.is_only_mode();
    Ok(Rights { mode, access: says_more.then_some(access), default })
}

fn is_base(who: Who) -> bool {
    matches!(who, Who::Owner | Who::OwningGroup | Who::Others)
}

fn of_mode(mode: Mode) -> Vec<Entry> {
    let entry = |who, shift: u32| Entry { who, allowed: (mode.0 >> shift) as u16 & 7 };
    vec![entry(Who::Owner, 6), entry(Who::OwningGroup, 3), entry(Who::Others, 0)]
}

fn edited(mut entries: Vec<Entry>, edits: impl Iterator<Item = AclEdit>, is_dir: bool) -> Vec<Entry> {
    let (mut has_changed, mut names_mask) = (false, false);
    for AclEdit { who, allowed, .. } in edits {
        let who = Who::from(who);
        (has_changed, names_mask) = (true, names_mask || who == Who::Mask);
        let may_execute = is_dir || entries.iter().any(|entry| entry.allowed & 1 != 0);
        entries.retain(|entry| entry.who != who);
        if let Some(AclPermissions { bits, execute_if }) = allowed {
            let execute = u16::from(execute_if && may_execute);
            entries.push(Entry { who, allowed: (bits | execute) & 7 });
        }
    }
    let is_bounded = |who| matches!(who, Who::User(_) | Who::OwningGroup | Who::Group(_));
    let has_names = entries.iter().any(|entry| matches!(entry.who, Who::User(_) | Who::Group(_)));
    let has_mask = entries.iter().any(|entry| entry.who == Who::Mask);
    if has_changed && !names_mask && (has_names || has_mask) {
        let all = entries.iter().filter(|entry| is_bounded(entry.who)).fold(0, |all, entry| all | entry.allowed);
        entries.retain(|entry| entry.who != Who::Mask);
        entries.push(Entry { who: Who::Mask, allowed: all });
    }
    entries.sort_by_key(|entry| rank(entry.who));
    entries
}

/// The kernel's order.
fn rank(who: Who) -> (u8, u32) {
    match who {
        Who::Owner => (0, 0),
        Who::User(id) => (1, id),
        Who::OwningGroup => (2, 0),
        Who::Group(id) => (3, id),
        Who::Mask => (4, 0),
        Who::Others => (5, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(set: &str, remove: &str) -> AclChange {
        let parse = |text: &str, removes| match text {
            "" => Vec::new(),
            text => AclChange::parse(text, removes, |_, _| None).unwrap(),
        };
        AclChange { edits: [parse(remove, true), parse(set, false)].concat(), ..AclChange::default() }
    }

    fn plain(mode: u32) -> Rights {
        Rights { mode: Mode(mode), access: None, default: None }
    }

    /// As `getfacl` shows a list, but for the names.
    fn shown(list: Option<&Acl>) -> String {
        let entry = |entry: &Entry| {
            let who = match entry.who {
                Who::Owner => "u:".to_owned(),
                Who::User(id) => format!("u:{id}"),
                Who::OwningGroup => "g:".to_owned(),
                Who::Group(id) => format!("g:{id}"),
                Who::Mask => "m:".to_owned(),
                Who::Others => "o:".to_owned(),
            };
            format!("{who}:{}", entry.allowed)
        };
        list.map_or("-".to_owned(), |list| list.entries().iter().map(entry).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn a_name_is_added_changed_and_removed_and_the_mask_follows() {
        let one = edit(&plain(0o640), &change("u:7:rwx", ""), false).unwrap();
        assert_eq!((one.mode, shown(one.access.as_ref())), (Mode(0o670), "u::6,u:7:7,g::4,m::7,o::0".to_owned()));
        let two = edit(&one, &change("g:9:x,u:7:r", ""), false).unwrap();
        assert_eq!((two.mode, shown(two.access.as_ref())), (Mode(0o650), "u::6,u:7:4,g::4,g:9:1,m::5,o::0".to_owned()));
        let masked = edit(&two, &change("m::r", ""), false).unwrap();
        assert_eq!(
            (masked.mode, shown(masked.access.as_ref())),
            (Mode(0o640), "u::6,u:7:4,g::4,g:9:1,m::4,o::0".to_owned())
        );
        let less = edit(&masked, &change("", "u:7,g:9,m"), false).unwrap();
        assert_eq!((less.mode, less.access), (Mode(0o640), None), "no more than the mode is not kept");
        assert!(edit(&masked, &change("", "m"), false).is_err(), "names without a mask");
        let cleared = edit(&two, &AclChange { clear: true, ..AclChange::default() }, false).unwrap();
        assert_eq!((cleared.mode, cleared.access), (Mode(0o640), None), "the owning group has what it had");
        let masked = edit(&plain(0o670), &change("u:7:rwx,m::r", ""), false).unwrap();
        let cleared = edit(&masked, &AclChange { clear: true, ..AclChange::default() }, false).unwrap();
        assert_eq!(cleared.mode, Mode(0o640), "and no more than the mask let it have");
        let set = edit(&plain(0o4755), &change("u::rw,g::-,o::-", ""), false).unwrap();
        assert_eq!((set.mode, set.access), (Mode(0o4600), None));
    }

    #[test]
    fn x_is_for_directories_and_what_somebody_may_execute() {
        let of = |mode, is_dir| shown(edit(&plain(mode), &change("u:7:rX", ""), is_dir).unwrap().access.as_ref());
        assert_eq!(of(0o640, false), "u::6,u:7:4,g::4,m::4,o::0");
        assert_eq!(of(0o641, false), "u::6,u:7:5,g::4,m::5,o::1");
        assert_eq!(of(0o640, true), "u::6,u:7:5,g::4,m::5,o::0");
        // Also by an entry that the mask does not let, and by one of the same change.
        let hidden = edit(&plain(0o640), &change("u:7:rwx,m::r", ""), false).unwrap();
        let more = edit(&hidden, &change("u:9:rX", ""), false).unwrap();
        assert!(shown(more.access.as_ref()).contains("u:9:5"));
        let same = edit(&plain(0o640), &change("u::rwx,u:9:rX", ""), false).unwrap();
        assert!(shown(same.access.as_ref()).contains("u:9:5"));
    }

    #[test]
    fn a_default_list_begins_as_the_access_list_and_is_of_directories_alone() {
        let dir = edit(&plain(0o750), &change("d:u:7:rwx", ""), true).unwrap();
        assert_eq!((dir.mode, dir.access.clone()), (Mode(0o750), None));
        assert_eq!(shown(dir.default.as_ref()), "u::7,u:7:7,g::5,m::7,o::0");
        assert_eq!(edit(&plain(0o640), &change("d:u:7:rwx", ""), false).unwrap(), plain(0o640));
        let both = edit(&dir, &change("u:7:r,d:g:9:r", ""), true).unwrap();
        assert_eq!(shown(both.access.as_ref()), "u::7,u:7:4,g::5,m::5,o::0");
        assert_eq!(shown(both.default.as_ref()), "u::7,u:7:7,g::5,g:9:4,m::7,o::0");
        assert_eq!(
            edit(&plain(0o750), &change("", "d:u:7"), true).unwrap(),
            plain(0o750),
            "none is made to take from it"
        );
        let cleared = edit(&both, &AclChange { clear_default: true, ..AclChange::default() }, true).unwrap();
        assert_eq!((cleared.access, cleared.default), (both.access, None));
    }
}
