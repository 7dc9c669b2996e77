//! Which mounts a program uses, as the kernel says: without asking the mounts, which may hang.

use crate::roles::braid_mounts;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A process of this machine.
#[derive(Debug)]
pub struct Program {
    pub pid: u32,
    pub name: String,
    /// The places of mounts in which it has something open, mapped or as its directory.
    pub uses: BTreeSet<PathBuf>,
    /// It cannot be said which: it is another user's.
    pub is_closed: bool,
}

impl Program {
    /// `id` may be that of one of its threads.
    pub fn find(id: u32) -> Result<Program> {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/status")) else {
            bail!("there is no process {id} on this machine");
        };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let pid = field("Tgid:").and_then(|id| id.parse().ok()).unwrap_or(id);
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let table = std::fs::read_to_string(proc.join("mountinfo")).unwrap_or_default();
        let mounts = braid_mounts(&table);
        let (used, is_closed) = used_paths(&proc);
        let uses = used.iter().filter_map(|path| mount_of(path, &mounts)).collect();
        Ok(Program { pid, name: field("Name:").unwrap_or_default().to_owned(), uses, is_closed })
    }
}

/// The mount that a path lies in, as far as its name says: the innermost.
fn mount_of(path: &Path, mounts: &[PathBuf]) -> Option<PathBuf> {
    mounts.iter().filter(|mount| path.starts_with(mount)).max_by_key(|mount| mount.as_os_str().len()).cloned()
}

/// Links that the kernel follows for nobody who only reads them.
fn used_paths(proc: &Path) -> (BTreeSet<PathBuf>, bool) {
    let mut used = BTreeSet::new();
    let link = |name: &str| std::fs::read_link(proc.join(name));
    let is_closed = link("cwd").is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
    used.extend(["cwd", "root", "exe"].into_iter().filter_map(|name| link(name).ok()));
    let files = std::fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    used.extend(files.filter_map(|file| std::fs::read_link(file.path()).ok()));
    let maps = std::fs::read_to_string(proc.join("maps")).unwrap_or_default();
    used.extend(maps.lines().filter_map(mapped));
    (used, is_closed)
}

/// `7f…-7f… r--p 00000000 00:2a 4097    /mnt/a b`.
fn mapped(line: &str) -> Option<PathBuf> {
    let at = line.find('/')?;
    Some(PathBuf::from(&line[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_innermost_mount_around_it() {
        let mounts = [PathBuf::from("/m"), PathBuf::from("/m/inner"), PathBuf::from("/mnt")];
        let of = |path: &str| mount_of(Path::new(path), &mounts).map(|mount| mount.display().to_string());
        assert_eq!(of("/m/f").as_deref(), Some("/m"));
        assert_eq!(of("/m/inner/f (deleted)").as_deref(), Some("/m/inner"));
        assert_eq!((of("/m").as_deref(), of("/mx/f"), of("socket:[5]")), (Some("/m"), None, None));
    }

    #[test]
    fn what_is_mapped_is_read_from_the_line_of_its_mapping() {
        let line = "7f2c00000000-7f2c00021000 r--p 00000000 00:2a 4097                           /mnt/a b";
        assert_eq!(mapped(line), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(mapped("7f2c00000000-7f2c00021000 rw-p 00000000 00:00 0 [heap]"), None);
    }

    #[test]
    fn a_process_is_found_by_any_of_its_threads() {
        let own = Program::find(std::process::id()).unwrap();
        assert!(own.uses.is_empty() && !own.is_closed && !own.name.is_empty());
        let thread = std::thread::spawn(|| std::fs::read_link("/proc/thread-self").unwrap()).join().unwrap();
        let id: u32 = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert_ne!(id, own.pid);
        // It may be gone by now.
        if let Ok(program) = Program::find(id) {
            assert_eq!(program.pid, own.pid);
        }
        assert!(Program::find(u32::MAX).unwrap_err().to_string().contains("no process"));
    }
}
