//! Nothing outside tests gives up by `unwrap`.

use super::{Allowed, is_allowed};
use crate::workspace::Workspace;

const RULE: &str = "no unwrap() outside tests: an error says what failed, and a certainty says why it is one";

const ALLOWED: &[Allowed] = &[
    ("meta-engine", "src/conformance", "the examination of engines: its failures are those of a test"),
    ("data-store", "src/conformance", "the examination of stores: its failures are those of a test"),
];

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        for source in krate.production() {
            if is_allowed(ALLOWED, krate, source) {
                continue;
            }
            for line in source.code.lines_with(&[".", "unwrap", "(", ")"]) {
                broken.push(format!("{}/{}:{line} unwraps: {RULE}", krate.name, source.path));
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
    fn an_unwrap_is_named() {
        let text = "/// `x.unwrap()`\nfn f() { x.unwrap_or(1); y\n.unwrap() }\n#[cfg(test)]\nmod tests { fn f() { x.unwrap() } }";
        assert_eq!(says(check, "wire", "", &[("src/a.rs", text)]), [format!("wire/src/a.rs:3 unwraps: {RULE}")]);
        assert!(says(check, "wire", "", &[("src/a_tests.rs", text)]).is_empty());
    }
}
