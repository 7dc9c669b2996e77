//! The checks. Each gives the sentences of the rules that are broken, with the place.

mod architecture;
mod arrows;
mod documented;
mod errno;
mod outside;
mod paths;
mod pinned;
mod promises;
mod size;
mod unsafety;
mod unwraps;

use crate::workspace::{Crate, Source, Workspace};

pub struct Check {
    pub name: &'static str,
    pub run: fn(&Workspace) -> Vec<String>,
}

/// All of them, in the order of the building.
pub fn all() -> Vec<Check> {
    vec![
        Check { name: "arrows", run: arrows::check },
        Check { name: "pinned", run: pinned::check },
        Check { name: "outside", run: outside::check },
        Check { name: "paths", run: paths::check },
        Check { name: "errno", run: errno::check },
        Check { name: "unwraps", run: unwraps::check },
        Check { name: "unsafety", run: unsafety::check },
        Check { name: "size", run: size::check },
        Check { name: "documented", run: documented::check },
        Check { name: "architecture", run: architecture::check },
        Check { name: "promises", run: promises::check },
    ]
}

/// What a check lets pass: a crate, how the paths of its files begin, and why.
type Allowed = (&'static str, &'static str, &'static str);

fn is_allowed(list: &[Allowed], krate: &Crate, source: &Source) -> bool {
    list.iter().any(|(name, path, _)| *name == krate.name && source.path.starts_with(path))
}

#[cfg(test)]
mod planted {
    use super::*;

    /// What a check says of a workspace of one crate.
    pub fn says(
        check: fn(&Workspace) -> Vec<String>,
        name: &str,
        manifest: &str,
        sources: &[(&str, &str)],
    ) -> Vec<String> {
        let crates = vec![Crate::planted(name, manifest, sources)];
        check(&Workspace { crates, ..Workspace::default() })
    }
}
