//! A file says what it is, what it promises and what it leaves to others.

use crate::workspace::Workspace;

const RULE: &str = "every file has documentation: what it is, what it promises, what it leaves to others";

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        for source in krate.production() {
            let is_doc = |line: &str| line.trim_start().starts_with("//!") || line.trim_start().starts_with("///");
            if !source.text.lines().any(is_doc) {
                broken.push(format!("{}/{} says nothing of itself: {RULE}", krate.name, source.path));
            }
        }
        if let Some(lib) = krate.sources.iter().find(|source| source.path == "src/lib.rs")
            && !lib.text.starts_with("//!")
        {
            broken.push(format!("{}/src/lib.rs does not begin with what the crate is: {RULE}", krate.name));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::planted::says;

    #[test]
    fn a_silent_file_is_named() {
        let sources =
            [("src/lib.rs", "//! A crate."), ("src/a.rs", "// no doc\nfn f() {}"), ("src/b.rs", "/// F.\nfn f() {}")];
        assert_eq!(says(check, "wire", "", &sources), [format!("wire/src/a.rs says nothing of itself: {RULE}")]);
        assert_eq!(says(check, "wire", "", &[("src/lib.rs", "mod a; /// a")]).len(), 2);
    }
}
