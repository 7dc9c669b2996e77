//! This workspace against the rules of the house.

use braid_tidy::{Workspace, all};
use std::path::Path;

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = Workspace::read(&root).expect("the workspace");
    assert!(workspace.crates.len() > 10, "this is not the workspace");
    let mut broken = String::new();
    for check in all() {
        for sentence in (check.run)(&workspace) {
            broken.push_str(&format!("\n  [{}] {sentence}", check.name));
        }
    }
    assert!(broken.is_empty(), "the rules of the house are broken:{broken}");
}
