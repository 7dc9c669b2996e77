//! Is a directory fit for a server's role? Looked at before anything is made, asked or written: a directory of another
//! role, or one that holds somebody's files, must stay as it is.

use crate::local::CONFIG_FILE;
use anyhow::{Context, Result, bail};
use std::io::ErrorKind;
use std::path::Path;

/// A file that shows whose a directory is, and names that may lie there before that file does.
struct Kind {
    role: &'static str,
    setting: &'static str,
    proof: &'static str,
    own: &'static [&'static str],
}

/// `lost+found`: the directory may be the root of a disk.
const METADATA: Kind = Kind {
    role: "metadata server",
    setting: "metadata.dir",
    proof: "data.mdb",
    own: &[
        "data.mdb",
        "data.checkpoint",
        "data.checkpoint.part",
        "data.log.0",
        "data.log.1",
        "lock.mdb",
        "open.lock",
        "lost+found",
    ],
};
const DATA: Kind = Kind {
    role: "data server",
    setting: "data.dir",
    proof: "store.toml",
    own: &["store.toml", "store.toml.new", "chunks", "activity", "activity.new", "lock"],
};

pub fn for_metadata(dir: &Path) -> Result<()> {
    fit(dir, &METADATA, &DATA)
}

pub fn for_data(dir: &Path) -> Result<()> {
    fit(dir, &DATA, &METADATA)
}

/// What a cluster's directory may hold before there is a cluster: disks are mounted below it, and a start was cut short.
const BEFORE: [&str; 5] = ["run", "log", "mnt", "metadata", "lost+found"];

/// For a new cluster in `dir`, a path from the root, that is mounted at `point`.
pub fn for_cluster(dir: &Path, point: Option<&Path>) -> Result<()> {
    let at = dir.display();
    for above in dir.ancestors().skip(1) {
        for kind in [&METADATA, &DATA] {
            if above.join(kind.proof).exists() {
                bail!(
                    "{at} is inside the directory of a {} ({}): choose another directory",
                    kind.role,
                    above.display()
                );
            }
        }
        if above.join(CONFIG_FILE).exists() && above.join("run").is_dir() {
            bail!("{at} is inside the cluster in {}: choose another directory", above.display());
        }
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => bail!("{at} cannot hold a cluster: {error}"),
    };
    let point = point.and_then(|point| point.strip_prefix(dir).ok()?.components().next());
    for entry in entries {
        let name = entry.with_context(|| format!("cannot read {at}"))?.file_name();
        let is_own = |name: &str| BEFORE.contains(&name) || name.starts_with("data-");
        if !name.to_str().is_some_and(is_own) && point.is_none_or(|point| point.as_os_str() != name) {
            bail!("{at} is no cluster and not empty ({} is in it): choose an empty or a new directory", name.display());
        }
    }
    Ok(())
}

/// The directory, or what is there of the way to it.
pub fn nearest(dir: &Path) -> &Path {
    dir.ancestors().find(|at| at.exists()).unwrap_or(Path::new("."))
}

/// A disk that cannot be written is told before anything else fails on it.
pub fn writable(dir: &Path) -> Result<()> {
    let there = nearest(dir);
    let disk = rustix::fs::statvfs(there).with_context(|| format!("cannot look at {}", there.display()))?;
    if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        bail!("{} is on a read-only disk: make it writable (mount -o remount,rw)", dir.display());
    }
    Ok(())
}

fn fit(dir: &Path, kind: &Kind, other: &Kind) -> Result<()> {
    let at = dir.display();
    writable(dir)?;
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => bail!("{at} cannot be used as {}: {error}", kind.setting),
    };
    if dir.join(kind.proof).exists() {
        return Ok(());
    }
    if dir.join(other.proof).exists() {
        bail!(
            "{at} belongs to a {} ({} is in it), this is a {}: set {} to a directory of its own",
            other.role,
            other.proof,
            kind.role,
            kind.setting
        );
    }
    for entry in entries {
        let name = entry.with_context(|| format!("cannot read {at}"))?.file_name();
        if !kind.own.iter().any(|own| name == *own) {
            bail!(
                "{at} is no {}'s and not empty ({} is in it): set {} to an empty directory",
                kind.role,
                name.display(),
                kind.setting
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_directories_and_those_of_the_role_are_fit() {
        let dir = tempfile::tempdir().unwrap();
        let is_refused = |result: Result<()>, word: &str| {
            let text = format!("{:#}", result.unwrap_err());
            assert!(text.contains(word) && text.contains(&dir.path().display().to_string()), "{text}");
        };
        assert!(for_data(dir.path()).is_ok() && for_metadata(&dir.path().join("new")).is_ok());
        std::fs::write(dir.path().join("lock"), "").unwrap();
        assert!(for_data(dir.path()).is_ok(), "a first start that was cut short");
        is_refused(for_metadata(dir.path()), "not empty (lock is in it)");
        std::fs::write(dir.path().join("store.toml"), "").unwrap();
        assert!(for_data(dir.path()).is_ok());
        is_refused(for_metadata(dir.path()), "belongs to a data server");
        std::fs::remove_file(dir.path().join("store.toml")).unwrap();
        std::fs::write(dir.path().join("data.mdb"), "").unwrap();
        is_refused(for_data(dir.path()), "belongs to a metadata server");
        is_refused(for_data(&dir.path().join("lock")), "cannot be used as data.dir");
    }
}
