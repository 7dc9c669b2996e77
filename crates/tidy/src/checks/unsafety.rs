//! Who uses `unsafe` says why it is sound. Clippy looks at each block; this looks at files, tests included.

use crate::workspace::Workspace;

const RULE: &str = "every unsafe has its SAFETY";

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        for source in &krate.sources {
            let is_unsafe = |words: &[&str]| source.code.lines_with(words).next();
            let line = is_unsafe(&["unsafe", "{"]).or_else(|| is_unsafe(&["unsafe", "impl"]));
            if let Some(line) = line.filter(|_| !source.text.contains("SAFETY: ")) {
                broken.push(format!("{}/{}:{line} is unsafe without a reason: {RULE}", krate.name, source.path));
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
    fn unsafe_without_a_reason_is_named() {
        let bare = "fn f() {\n    unsafe { g() }\n}";
        let found = says(check, "env", "", &[("src/a.rs", bare)]);
        assert_eq!(found, [format!("env/src/a.rs:2 is unsafe without a reason: {RULE}")]);
        let reasoned = "// SAFETY: g is harmless.\nunsafe { g() }";
        assert!(says(check, "env", "", &[("src/a.rs", reasoned), ("src/b.rs", "// unsafe {}")]).is_empty());
    }
}
