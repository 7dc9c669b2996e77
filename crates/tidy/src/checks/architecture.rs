//! The page that shows the building shows every crate.

use crate::workspace::Workspace;

pub fn check(workspace: &Workspace) -> Vec<String> {
    let Some(page) = &workspace.architecture else { return Vec::new() };
    let names = |krate: &&crate::Crate| !is_named(page, &krate.name);
    let missing = workspace.crates.iter().filter(names);
    missing.map(|krate| format!("ARCHITECTURE.md does not name {}: it names every crate", krate.name)).collect()
}

/// As a word of its own: `meta-engine` is not named by `meta-engine-sql`.
fn is_named(page: &str, name: &str) -> bool {
    let joins = |char: char| char.is_alphanumeric() || char == '-' || char == '_';
    let words = page.split(|char| !joins(char));
    words.map(|word| word.strip_prefix("braid-").unwrap_or(word)).any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Crate;

    #[test]
    fn a_crate_that_is_not_shown_is_named() {
        let crates = ["types", "meta-engine", "wire"].map(|name| Crate::planted(name, "", &[])).into();
        let page = "`types`, crates/braid-wire and meta-engine-sql".to_owned();
        let workspace = Workspace { crates, architecture: Some(page), ..Workspace::default() };
        assert_eq!(check(&workspace), ["ARCHITECTURE.md does not name meta-engine: it names every crate"]);
    }
}
