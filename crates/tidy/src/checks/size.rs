//! A `lib.rs` fits one screen, and a file that asks to be scrolled and scrolled hides a noun.

use super::{Allowed, is_allowed};
use crate::workspace::Workspace;

const LIB_LINES_MAX: usize = 120;
const FILE_LINES_MAX: usize = 600;

/// Long files that are better whole, and why.
const ALLOWED: &[Allowed] = &[];

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        for source in &krate.sources {
            let lines = source.text.lines().count();
            let place = format!("{}/{}", krate.name, source.path);
            if source.path == "src/lib.rs" && lines > LIB_LINES_MAX {
                broken.push(format!("{place} has {lines} lines: a lib.rs fits one screen ({LIB_LINES_MAX})"));
            }
            if lines > FILE_LINES_MAX && !is_allowed(ALLOWED, krate, source) {
                broken.push(format!("{place} has {lines} lines: over {FILE_LINES_MAX} look for the noun it is hiding"));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::planted::says;

    #[test]
    fn long_files_are_named() {
        let (long, longer) = ("//!\n".repeat(121), "//!\n".repeat(601));
        let found = says(check, "wire", "", &[("src/lib.rs", &long), ("src/a.rs", &long), ("src/b.rs", &longer)]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], "wire/src/lib.rs has 121 lines: a lib.rs fits one screen (120)");
        assert!(found[1].starts_with("wire/src/b.rs has 601 lines"));
    }
}
