use serde::{Deserialize, Serialize};

/// Whom an entry of an access list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AclWho {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    /// The most that anybody but owner and others gets.
    Mask,
    Others,
}

/// What it allows: read 4, write 2, execute 1; `X`: execute for directories, and for what somebody may execute already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclPermissions {
    pub bits: u16,
    pub execute_if: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclEdit {
    /// Of the list that new entries of a directory begin with; nothing of what is no directory.
    pub default: bool,
    pub who: AclWho,
    /// `None`: nothing is said of it any more.
    pub allowed: Option<AclPermissions>,
}

/// What setfacl does to access lists, which depends on those that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclChange {
    /// All but owner, owning group and others goes first.
    pub clear: bool,
    /// The default lists of directories go first.
    pub clear_default: bool,
    pub edits: Vec<AclEdit>,
}

impl AclChange {
    /// Edits as setfacl reads them: `u:alice:rwx,g:7:rX,d:o::-,m::rx`; with `removes` without permissions: `u:alice,d:g:7`.
    /// `number` finds the number of a user (true) or a group by name.
    ///
    /// # Errors
    /// What of the text is not an entry.
    pub fn parse(
        text: &str,
        removes: bool,
        number: impl Fn(bool, &str) -> Option<u32>,
    ) -> Result<Vec<AclEdit>, String> {
        text.split(',').map(|entry| parse_entry(entry.trim(), removes, &number)).collect()
    }
}

fn parse_entry(text: &str, removes: bool, number: &impl Fn(bool, &str) -> Option<u32>) -> Result<AclEdit, String> {
    let form = if removes { "[d:]u:USER, g:GROUP or m" } else { "[d:]u:USER:rwx, g:GROUP:rX, m::rwx or o::-" };
    let bad = || format!("{text:?} is no entry of an access list; use {form}");
    let (default, rest) = match text.strip_prefix("d:").or_else(|| text.strip_prefix("default:")) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut fields = rest.split(':');
    let (tag, name) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    // The name that these have not may be left out.
    let (name, allowed) = match (tag, fields.next()) {
        ("m" | "mask" | "o" | "other", None) if !removes => ("", Some(name)),
        (_, allowed) => (name, allowed),
    };
    let find = |is_user| match name.parse() {
        // Which stands for nobody.
        Ok(u32::MAX) => Err(bad()),
        Ok(number) => Ok(number),
        Err(_) => number(is_user, name).ok_or_else(|| format!("{name:?} of {text:?} is not known on this machine")),
    };
    let who = match (tag, name) {
        ("u" | "user", "") => AclWho::Owner,
        ("u" | "user", _) => AclWho::User(find(true)?),
        ("g" | "group", "") => AclWho::OwningGroup,
        ("g" | "group", _) => AclWho::Group(find(false)?),
        ("m" | "mask", "") => AclWho::Mask,
        ("o" | "other", "") => AclWho::Others,
        _ => return Err(bad()),
    };
    let allowed = match (removes, allowed) {
        (true, None | Some("")) => None,
        (false, Some(allowed)) => Some(parse_permissions(allowed).ok_or_else(bad)?),
        _ => return Err(bad()),
    };
    let is_base = matches!(who, AclWho::Owner | AclWho::OwningGroup | AclWho::Others);
    if fields.next().is_some() || (removes && is_base) {
        return Err(bad());
    }
    Ok(AclEdit { default, who, allowed })
}

fn parse_permissions(text: &str) -> Option<AclPermissions> {
    if let (1, Ok(bits @ 0..=7)) = (text.len(), text.parse()) {
        return Some(AclPermissions { bits, execute_if: false });
    }
    let mut allowed = AclPermissions { bits: 0, execute_if: false };
    for ch in text.chars() {
        match ch {
            'r' => allowed.bits |= 4,
            'w' => allowed.bits |= 2,
            'x' => allowed.bits |= 1,
            'X' => allowed.execute_if = true,
            '-' => {}
            _ => return None,
        }
    }
    (!text.is_empty()).then_some(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, removes: bool) -> Result<Vec<AclEdit>, String> {
        AclChange::parse(text, removes, |is_user, name| match (is_user, name) {
            (true, "alice") => Some(7),
            (false, "staff") => Some(8),
            _ => None,
        })
    }

    #[test]
    fn entries_are_read_as_setfacl_reads_them() {
        let edit = |default, who, bits, execute_if| {
            let allowed = Some(AclPermissions { bits, execute_if });
            AclEdit { default, who, allowed }
        };
        let read = parse("u:alice:rw-,d:group:staff:rX,g:9:5,m:rwx,o::-,u::7", false).unwrap();
        let expected = [
            edit(false, AclWho::User(7), 6, false),
            edit(true, AclWho::Group(8), 4, true),
            edit(false, AclWho::Group(9), 5, false),
            edit(false, AclWho::Mask, 7, false),
            edit(false, AclWho::Others, 0, false),
            edit(false, AclWho::Owner, 7, false),
        ];
        assert_eq!(read, expected);
        let gone = |default, who| AclEdit { default, who, allowed: None };
        let read = parse("u:alice,default:g:staff:,m", true).unwrap();
        assert_eq!(read, [gone(false, AclWho::User(7)), gone(true, AclWho::Group(8)), gone(false, AclWho::Mask)]);
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in
            ["", "u:bob:r", "u:alice", "x::r", "u:alice:rq", "u:alice:", "o:alice:r", "u:alice:r:r", "u:4294967295:r"]
        {
            assert!(parse(text, false).is_err(), "{text:?}");
        }
        for text in ["u:alice:r", "o", "u:", "g:bob"] {
            assert!(parse(text, true).is_err(), "{text:?}");
        }
    }
}
