//! Every dependency is named once, with its version, in the workspace's manifest.

use crate::workspace::Workspace;
use toml::Value;

const RULE: &str = "every dependency is named once, with its version, in [workspace.dependencies]";

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        for (name, asked) in sections.iter().flat_map(|section| krate.dependencies(section)) {
            if asked.get("workspace").and_then(Value::as_bool) != Some(true) {
                broken.push(format!("{} asks for {name} by itself: {RULE}", krate.name));
            }
        }
    }
    let pinned = workspace.manifest.get("workspace").and_then(|table| table.get("dependencies"));
    for (name, asked) in pinned.and_then(Value::as_table).into_iter().flatten() {
        let version = asked.as_str().or_else(|| asked.get("version").and_then(Value::as_str));
        if asked.get("path").is_none() && version.is_none_or(|version| version.contains('*')) {
            broken.push(format!("the workspace asks for any {name}: {RULE}"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::planted::says;

    #[test]
    fn a_version_of_ones_own_is_named() {
        let own =
            "[dependencies]\nbytes = \"1\"\nserde = { workspace = true }\n[dev-dependencies]\nrand.workspace = true";
        assert_eq!(says(check, "wire", own, &[]), [format!("wire asks for bytes by itself: {RULE}")]);
        let manifest = "[workspace.dependencies]\na = \"*\"\nb = \"1.2\"\nc = { path = \"c\" }".parse().unwrap();
        let workspace = Workspace { manifest, ..Workspace::default() };
        assert_eq!(check(&workspace), [format!("the workspace asks for any a: {RULE}")]);
    }
}
