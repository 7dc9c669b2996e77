//! What people call servers, sessions and files that messages name by address and number.

use crate::local::{Layout, process};
use crate::output::shown;
use crate::roles::{predecessor, ready};
use braid_api::admin::{PathCheck, PathEnd, SessionStatus};
use braid_types::{InodeId, SessionId};
use std::collections::BTreeMap;
use std::path::Path;

/// What people call data servers that a message names by an address.
#[derive(Default)]
pub struct Called(Vec<Alias>);

struct Alias {
    address: String,
    /// `data server 2`, as messages have it before the address.
    short: String,
    name: String,
}

impl Called {
    pub fn add(&mut self, short: &str, name: &str, addresses: &[String]) {
        let alias = |address: &String| Alias { address: address.clone(), short: short.into(), name: name.into() };
        self.0.extend(addresses.iter().map(alias));
    }

    /// Those of this machine, by what `braid up` calls them, where the metadata server cannot be asked.
    pub fn add_local(&mut self, run: &Path) {
        let Some(layout) = run.parent().and_then(|dir| Layout::at(dir, false).ok()) else { return };
        for name in layout.names().unwrap_or_default().iter().filter(|name| name.starts_with("data-")) {
            let line = ready::read(&layout.ready(name)).unwrap_or_default();
            let addresses: Vec<String> = line.split(' ').map(str::to_owned).collect();
            self.add("data server", name, &addresses);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text with names for addresses.
    pub fn told(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, Alias { address, short, name }| {
            let text = replaced(&text, &format!(" or {address}"), "");
            let text = replaced(&text, &format!("{short} at {address}"), name);
            let text = replaced(&text, &format!("data server at {address}"), name);
            let text = replaced(&text, &format!(" at {address}"), &format!(" ({name})"));
            replaced(&text, address, name)
        })
    }
}

/// As `str::replace`, but not where `from` is only the beginning of a longer address.
pub fn replaced(text: &str, from: &str, to: &str) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(from).filter(|_| !from.is_empty()) {
        told.push_str(before);
        told.push_str(if behind.starts_with(|ch: char| ch.is_ascii_alphanumeric()) { from } else { to });
        rest = behind;
    }
    told + rest
}

/// What people call sessions and files.
#[derive(Default)]
pub struct Names {
    pub sessions: BTreeMap<SessionId, String>,
    pub paths: BTreeMap<InodeId, String>,
}

impl Names {
    pub fn told(&self, text: &str) -> String {
        let text = self
            .sessions
            .iter()
            .fold(text.to_owned(), |text, (id, name)| replaced(&text, &format!("session {id}"), name));
        self.paths.iter().fold(text, |text, (id, path)| replaced(&text, &format!("inode {id}"), path))
    }
}

/// `mount /mnt/a on host h (process 7)`.
pub fn session_name(session: &SessionStatus) -> String {
    let SessionStatus { description, host, .. } = session;
    let Some((place, pid)) = predecessor::mount_of(description) else { return format!("{description} on host {host}") };
    let state = predecessor::is_here(description).then(|| process::state(pid));
    format!("mount {place} on host {host} (process {pid}{})", state.map(condition).unwrap_or_default())
}

/// Of a process of this machine that cannot answer: why.
pub fn condition(state: Option<char>) -> &'static str {
    match state {
        Some('T' | 't') => ", which is stopped",
        Some('Z' | 'X') | None => ", which is gone",
        _ => "",
    }
}

/// `None` if it lies below no root.
pub fn path_name(check: &PathCheck) -> Option<String> {
    let names = check.names.iter().map(|name| format!("/{}", shown(name)));
    match (check.end, check.names.is_empty()) {
        (PathEnd::Root, true) => Some("/".to_owned()),
        (PathEnd::Root, false) => Some(names.collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::SessionEpoch;

    #[test]
    fn data_servers_are_called_by_their_names() {
        let mut called = Called::default();
        called.add("data server 1", "data server 1 on h", &["unix:/c/data-1.sock".into(), "tcp:127.0.0.1:3544".into()]);
        called.add("data server 2", "data server 2 on h", &["tcp:127.0.0.1:35449".into()]);
        for (text, told) in [
            ("tcp:127.0.0.1:35449", "data server 2 on h"),
            ("tcp:127.0.0.1:3544: refused", "data server 1 on h: refused"),
            ("data server 1 at unix:/c/data-1.sock or tcp:127.0.0.1:3544: gone", "data server 1 on h: gone"),
            ("data server at tcp:127.0.0.1:35449", "data server 2 on h"),
            ("tcp:127.0.0.1:354490", "tcp:127.0.0.1:354490"),
            ("data server 3 at tcp:127.0.0.1:35449", "data server 3 (data server 2 on h)"),
        ] {
            assert_eq!(called.told(text), told);
        }
    }

    #[test]
    fn sessions_and_files_are_called_by_what_people_know_them_by() {
        let session = |description: &str| SessionStatus {
            session: SessionId(3),
            epoch: SessionEpoch(1),
            description: description.into(),
            host: "h".into(),
            silent_ms: 0,
        };
        let mount = session_name(&session("mount /mnt/a by process 7 (boot another, pid:[1])"));
        assert_eq!(mount, "mount /mnt/a on host h (process 7)");
        assert_eq!(session_name(&session("fs put by process 7")), "fs put by process 7 on host h");
        // On this machine it is looked at whether the process can answer.
        let own = session_name(&session(&predecessor::description(Path::new("/m"))));
        assert_eq!(own, format!("mount /m on host h (process {})", std::process::id()));
        let states = [Some('T'), Some('S'), None].map(condition);
        assert_eq!(states, [", which is stopped", "", ", which is gone"]);
        let names = Names {
            sessions: [(SessionId(3), mount)].into(),
            paths: [(InodeId(7), "/d/f".to_owned()), (InodeId(2), "/d".to_owned())].into(),
        };
        let text = "session 3, to give up the exclusive lease of inode 7; session 31 and the name f in inode 2";
        assert_eq!(
            names.told(text),
            "mount /mnt/a on host h (process 7), to give up the exclusive lease of /d/f; session 31 and the name f in /d"
        );
    }

    #[test]
    fn a_path_is_told_when_it_leads_to_the_root() {
        let check =
            |names: &[&str], end| PathCheck { names: names.iter().map(|n| n.as_bytes().to_vec()).collect(), end };
        assert_eq!(path_name(&check(&[], PathEnd::Root)).as_deref(), Some("/"));
        assert_eq!(path_name(&check(&["a", "b"], PathEnd::Root)).as_deref(), Some("/a/b"));
        assert_eq!(path_name(&check(&["b"], PathEnd::Missing(InodeId(9)))), None);
    }
}
