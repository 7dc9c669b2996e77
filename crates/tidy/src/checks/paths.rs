//! Paths are taken apart in front of the doors, by the kernel or the commands. Below, a component each, and only the namespace
//! knows what a name means.

use crate::workspace::Workspace;

const RULE: &str =
    "no path strings below the doors: names come one component at a time, and mean something in meta-namespace alone";

const WATCHED: &[&str] = &[
    "api",
    "wire",
    "client",
    "placement",
    "posix",
    "meta-engine",
    "meta-engine-embedded",
    "meta-engine-sql",
    "meta-namespace",
    "meta-server",
    "data-server",
];

/// What takes a path apart.
const CUTS: &[&[&str]] = &[&["components", "(", ")"], &["Path", "::", "Components"]];
const SLASHES: &[&str] = &["split('/')", "rsplit('/')", "split_once('/')", "rsplit_once('/')", "split(\"/\")"];

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in workspace.crates.iter().filter(|krate| WATCHED.contains(&krate.name.as_str())) {
        for source in krate.production() {
            let by_words = CUTS.iter().flat_map(|words| source.code.lines_with(words));
            let tests = source.text.find("#[cfg(test)]").unwrap_or(source.text.len());
            let lines = source.text[..tests].lines().enumerate();
            let by_slash = lines
                .filter(|(_, line)| !line.trim_start().starts_with("//"))
                .filter(|(_, line)| SLASHES.iter().any(|cut| line.contains(cut)))
                .map(|(number, _)| number + 1);
            for line in by_words.chain(by_slash) {
                broken.push(format!("{}/{}:{line} takes a path apart: {RULE}", krate.name, source.path));
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
    fn a_path_in_a_server_is_named() {
        let text = "fn f(p: &str) {\n    for name in p.split('/') {}\n}\n// p.split('/')\n#[cfg(test)]\nfn g() { p.split('/') }";
        let found = says(check, "meta-server", "", &[("src/a.rs", text)]);
        assert_eq!(found, [format!("meta-server/src/a.rs:2 takes a path apart: {RULE}")]);
        assert_eq!(says(check, "client", "", &[("src/a.rs", "fn f() { path.components() }")]).len(), 1);
        assert!(says(check, "braid", "", &[("src/a.rs", text)]).is_empty());
    }
}
