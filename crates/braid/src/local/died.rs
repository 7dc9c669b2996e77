//! What of a cluster on this machine has ended and nobody has stopped it, in words. What data servers are the metadata server knows.

use super::{layout::Layout, metadata, point, process};
use crate::config::Config;
use std::path::Path;

/// Of the cluster in `dir`; nothing, if there is none.
pub fn died(dir: &Path, config: &Config) -> Vec<String> {
    let Ok(layout) = Layout::at(dir, false) else { return Vec::new() };
    let mut names = layout.names().unwrap_or_default();
    // Those that `up` starts: there were more, perhaps, before the metadata was moved.
    let servers = metadata::names(&layout, config);
    names.retain(|name| !metadata::is_one(name) || servers.contains(name));
    names.sort();
    names.iter().filter_map(|name| told(&layout, name)).collect()
}

fn told(layout: &Layout, name: &str) -> Option<String> {
    let (root, log) = (layout.root.display(), layout.log(name));
    let begin = match point::dead(layout, name) {
        Some(at) if name == point::NAME => {
            format!("the mount at {} has died: braid up {root} mounts it again", at.display())
        }
        Some(at) => {
            format!("the mount at {0} has died: braid mount {0} --cluster {root} mounts it again", at.display())
        }
        None if metadata::is_one(name) && process::running(layout, name).is_none() => {
            format!("{name} has ended and nobody has stopped it: braid up {root} starts it again")
        }
        None => return None,
    };
    Some(format!("{begin}; its log is {}", log.display()))
}
