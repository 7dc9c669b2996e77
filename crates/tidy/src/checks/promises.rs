//! `docs/semantics.md` makes no claim without a test: what it names exists and is run, and each claim names something.

use crate::workspace::{Source, Workspace};
use std::collections::BTreeMap;

/// Sections that promise nothing.
const NO_PROMISES: &[&str] = &["Known defects", "Not there yet"];

pub fn check(workspace: &Workspace) -> Vec<String> {
    let Some(page) = &workspace.semantics else { return Vec::new() };
    let tests = tests(workspace);
    let mut broken = Vec::new();
    let mut promises = true;
    for (line, block) in blocks(page) {
        if let Some(title) = block.strip_prefix("## ") {
            promises = !NO_PROMISES.contains(&title.trim());
            continue;
        }
        let named: Vec<&str> = quoted(&block).collect();
        let mut proofs = 0;
        for name in named {
            if let Some(script) = name.strip_prefix("scripts/") {
                let script = script.split_whitespace().next().unwrap_or_default();
                match workspace.scripts.iter().any(|known| known == script) {
                    true => proofs += 1,
                    false => {
                        broken.push(format!("docs/semantics.md:{line} names scripts/{script}, which is not there"))
                    }
                }
            } else if looks_like_a_test(name) {
                match tests.get(name) {
                    Some(true) => proofs += 1,
                    Some(false) => broken.push(format!("docs/semantics.md:{line} names {name}, which is ignored")),
                    None => broken.push(format!("docs/semantics.md:{line} names {name}, which is no test")),
                }
            }
        }
        if promises && is_claim(&block) && proofs == 0 {
            broken.push(format!("docs/semantics.md:{line} makes a claim and names no test of it"));
        }
    }
    broken
}

/// List items, and rows of a table that say what is kept or lost.
fn is_claim(block: &str) -> bool {
    block.starts_with("- ") || (block.starts_with('|') && (block.contains("| kept") || block.contains("| lost")))
}

/// Test functions, and whether they are run.
fn tests(workspace: &Workspace) -> BTreeMap<String, bool> {
    let files = workspace.crates.iter().flat_map(|krate| krate.sources.iter().chain(&krate.tests));
    files.flat_map(tests_of).collect()
}

fn tests_of(source: &Source) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let (mut is_test, mut is_ignored, mut is_list) = (false, false, false);
    for line in source.text.lines().map(str::trim) {
        // `crate::on_every_engine! { a_test another_test }`: the macro makes tests of them.
        if is_list || line.ends_with("on_every_engine! {") {
            is_list = line != "}";
            found.extend(
                line.split_whitespace().filter(|name| looks_like_a_test(name)).map(|name| (name.to_owned(), true)),
            );
            continue;
        }
        let code = line.trim_start_matches("pub ").trim_start_matches("async ");
        if line.starts_with("#[") {
            is_test |= line.contains("test]") || line.contains("test(");
            is_ignored |= line.starts_with("#[ignore");
        } else if let Some(rest) = code.strip_prefix("fn ") {
            let name: String = rest.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect();
            if is_test {
                found.push((name, !is_ignored));
            }
            (is_test, is_ignored) = (false, false);
        }
    }
    found
}

/// Sentences with three joints are how tests are called here; calls of the system have fewer.
fn looks_like_a_test(name: &str) -> bool {
    let is_word = name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_');
    is_word && name.matches('_').count() >= 3
}

/// What stands between backquotes, whatever the case.
fn quoted(block: &str) -> impl Iterator<Item = &str> {
    block.split('`').skip(1).step_by(2)
}

/// Headings, list items and paragraphs, with the line each begins in.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in page.lines().enumerate() {
        let begins = line.starts_with('#') || line.starts_with("- ") || line.starts_with('|') || !open;
        match blocks.last_mut() {
            Some((_, block)) if !begins && !line.trim().is_empty() => {
                block.push(' ');
                block.push_str(line.trim());
            }
            _ if !line.trim().is_empty() => blocks.push((number + 1, line.to_owned())),
            _ => {}
        }
        open = !line.trim().is_empty() && !line.starts_with('#');
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Crate;

    fn says(page: &str) -> Vec<String> {
        let text = "#[tokio::test(flavor = \"x\")]\nasync fn it_is_kept_for_ever() {}\n\
                    #[ignore]\n#[test]\nfn it_is_not_run_at_all() {}\nfn it_is_no_test_either() {}\n\
                    crate::on_every_engine! {\n    it_is_so_on_each it_is_so_there_too\n}\nfn nor_is_it_one_here() {}";
        let crates = vec![Crate::planted("wire", "", &[("src/a_tests.rs", text)])];
        let scripts = vec!["kill-rounds".to_owned()];
        check(&Workspace { crates, scripts, semantics: Some(page.to_owned()), ..Workspace::default() })
    }

    #[test]
    fn what_is_named_is_there() {
        assert!(says("## Bytes\n\n- Kept\n  (`it_is_kept_for_ever`).\n- Also (`scripts/kill-rounds`).\n").is_empty());
        assert!(says("- Kept (`it_is_so_on_each`).\n- Kept (`it_is_so_there_too`).").is_empty());
        assert!(says("- Kept (`nor_is_it_one_here`).")[0].ends_with("is no test"));
        assert_eq!(
            says("- Kept (`it_is_not_run_at_all`, `scripts/kill-rounds`)."),
            ["docs/semantics.md:1 names it_is_not_run_at_all, which is ignored"]
        );
        assert_eq!(
            says("A text.\n\nSee `it_is_no_test_either` and `scripts/none`."),
            [
                "docs/semantics.md:3 names it_is_no_test_either, which is no test",
                "docs/semantics.md:3 names scripts/none, which is not there",
            ]
        );
    }

    #[test]
    fn a_claim_without_a_test_is_named() {
        let page = "# What\n\n## Bytes\n\n- Kept by `copy_file_range`.\n\n## Known defects\n\n- One.\n";
        assert_eq!(says(page), ["docs/semantics.md:5 makes a claim and names no test of it"]);
        assert_eq!(
            says("| call | x |\n| --- | --- |\n| `write` | lost |"),
            ["docs/semantics.md:3 makes a claim and names no test of it"]
        );
    }
}
