//! Where the mount of a local cluster is, or goes. Looked at before anything is made or started: an `up` that cannot mount
//! changes nothing.

use super::layout::{CONFIG_FILE, Layout, settled};
use super::process;
use crate::roles::{self, ready};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the mount that `up` starts.
pub const NAME: &str = "mount";
/// A mount that was just unmounted sends first what was written there.
const UMOUNT_LIMIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub struct Point {
    pub place: PathBuf,
    /// A mount of this cluster serves it, but not the one that `up` starts.
    pub is_served: bool,
}

impl Point {
    /// Where `up` mounts the cluster in `dir`: at `wanted`, or where it is mounted already.
    pub fn find(dir: &Path, wanted: Option<&Path>) -> Result<Point> {
        let root = settled(dir)?;
        let wanted = wanted.map(settled).transpose()?;
        let layout = Layout::at(dir, false).ok();
        if let Some(there) = layout.as_ref().map(present).transpose()?.flatten() {
            return match wanted {
                Some(wanted) if wanted != there && served(layout.as_ref(), &wanted) => {
                    Ok(Point { place: wanted, is_served: true })
                }
                Some(wanted) if wanted != there => bail!(
                    "{dir} is mounted at {there}, not at {wanted}: braid umount {there} ends that, \
                     braid mount {wanted} --cluster {dir} mounts it there too",
                    dir = dir.display(),
                    there = there.display(),
                    wanted = wanted.display()
                ),
                _ => Ok(Point { place: there, is_served: false }),
            };
        }
        if let Some(layout) = &layout {
            clear_dead(layout, NAME);
        }
        let place = wanted.unwrap_or_else(|| root.join("mnt"));
        if served(layout.as_ref(), &place) {
            return Ok(Point { place, is_served: true });
        }
        apart(&place, &root)?;
        fit(&place)?;
        Ok(Point { place, is_served: false })
    }

    /// The directory, if it is not there.
    pub fn make(&self) -> Result<()> {
        let place = &self.place;
        if matches!(roles::is_braid_mount(place), Ok(true)) {
            return Ok(());
        }
        std::fs::create_dir_all(place).with_context(|| format!("cannot make the mount point {}", place.display()))
    }
}

/// Where the mount that `up` has started is. One that was just unmounted ends in a moment: it is not there.
fn present(layout: &Layout) -> Result<Option<PathBuf>> {
    let begun = Instant::now();
    loop {
        let Some(place) = place_of(layout, NAME) else { return Ok(None) };
        if matches!(roles::is_braid_mount(&place), Ok(true)) {
            return Ok(Some(place));
        }
        if begun.elapsed() > UMOUNT_LIMIT {
            let (place, log) = (place.display(), layout.log(NAME));
            bail!("the mount at {place} begins or ends since a while: try again, its log is {}", log.display());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Whether a mount made by `braid mount` serves `place`.
fn served(layout: Option<&Layout>, place: &Path) -> bool {
    let Some(layout) = layout else { return false };
    let names = layout.names().unwrap_or_default();
    let is_there = |name: &String| name.starts_with(NAME) && place_of(layout, name).is_some_and(|at| at == place);
    names.iter().any(is_there) && matches!(roles::is_braid_mount(place), Ok(true))
}

/// The mount point of a process of ours. What `up` started says it in its command line, ready or not.
fn place_of(layout: &Layout, name: &str) -> Option<PathBuf> {
    let process = process::running(layout, name)?;
    match name {
        NAME => process::command_line(process)?.get(2).map(PathBuf::from),
        _ => ready::read(&layout.ready(name)).map(PathBuf::from),
    }
}

/// Where the mount `name` has said that it is. A killed one cannot take that back.
fn said_place(layout: &Layout, name: &str) -> Option<PathBuf> {
    ready::read(&layout.ready(name)).filter(|_| name.starts_with(NAME)).map(PathBuf::from)
}

/// Where the mount `name` was when it was killed, as long as nobody has mounted anew or unmounted there.
pub fn dead(layout: &Layout, name: &str) -> Option<PathBuf> {
    let place = said_place(layout, name)?;
    let is_left = process::running(layout, name).is_none() && matches!(roles::is_braid_mount(&place), Ok(true));
    (is_left && !served(Some(layout), &place)).then_some(place)
}

/// Takes away what the mount `name` has left where it was, if it was killed; answers where. A mount that lives stays,
/// whose ever it is.
pub fn clear_dead(layout: &Layout, name: &str) -> Option<PathBuf> {
    let place = said_place(layout, name)?;
    let identity = ready::read_identity(&layout.ready(name)).filter(|_| process::running(layout, name).is_none());
    let cleared = match identity {
        Some(identity) => braid_fuse_kernel::clear_killed_mount(&place, &identity),
        None => braid_fuse_kernel::clear_stale_mount(&place),
    };
    matches!(cleared, Ok(true)).then_some(place)
}

/// A mount point on the cluster's own files would hide them.
fn apart(place: &Path, root: &Path) -> Result<()> {
    let hides = root.starts_with(place);
    let first = place.strip_prefix(root).ok().and_then(|rest| rest.components().next());
    let is_own = first.is_some_and(|name| {
        let name = name.as_os_str().to_string_lossy();
        matches!(&*name, "run" | "log" | "metadata" | CONFIG_FILE)
            || name.starts_with("data-")
            || name.starts_with("metadata-")
    });
    if hides || is_own {
        bail!(
            "the mount point {} would hide the cluster's own files in {}: choose another directory",
            place.display(),
            root.display()
        );
    }
    Ok(())
}

/// A directory that can be mounted on, or that can be made.
fn fit(place: &Path) -> Result<()> {
    if std::fs::symlink_metadata(place).is_ok() || roles::is_braid_mount(place)? {
        return roles::check_mount_point(place).map(drop);
    }
    let there = place.ancestors().find(|at| at.exists()).unwrap_or(Path::new("/"));
    if !there.is_dir() {
        bail!("cannot make the mount point {}: {} is not a directory", place.display(), there.display());
    }
    roles::place::writable(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_looked_at_before_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let find = |point: &str| Point::find(&at.join("c"), Some(&at.join(point)));
        let says = |point: &str| find(point).err().map(|e| format!("{e:#}")).unwrap_or_default();
        std::fs::create_dir(at.join("empty")).unwrap();
        std::fs::create_dir(at.join("full")).unwrap();
        std::fs::write(at.join("full/mine"), "").unwrap();
        assert_eq!(find("new/deep").unwrap().place, at.join("new/deep"));
        assert_eq!(find("empty").unwrap().place, at.join("empty"));
        assert_eq!(Point::find(&at.join("c"), None).unwrap().place, at.join("c/mnt"));
        assert!(says("full").contains("not empty"));
        assert!(says("full/mine").contains("not a directory"));
        assert!(says("full/mine/below").contains("full/mine is not a directory"));
        for point in ["", "c", "c/log", "c/data-1/x", "c/braid.toml"] {
            assert!(says(point).contains("would hide"), "{point}: {}", says(point));
        }
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), 2, "nothing was made");
    }
}
