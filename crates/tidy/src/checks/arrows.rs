//! Dependencies point down, along the arrows of `storeys.rs` alone.

use crate::storeys::place_of;
use crate::workspace::Workspace;

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        let Some(place) = place_of(&krate.name) else {
            broken.push(format!("{} has no storey: give it a row in crates/tidy/src/storeys.rs", krate.name));
            continue;
        };
        let mut sections = vec!["dependencies", "build-dependencies"];
        if place.tests_too {
            sections.push("dev-dependencies");
        }
        for (name, _) in sections.iter().flat_map(|section| krate.dependencies(section)) {
            if let Some(other) = name.strip_prefix("braid-")
                && !place.knows.contains(&other)
            {
                broken.push(format!("{} must not depend on {other}: {}", krate.name, place.rule));
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
    fn an_arrow_that_points_up_is_named() {
        let door = "[dependencies]\nbraid-api.workspace = true\nbraid-client.workspace = true";
        assert_eq!(
            says(check, "front-fuse", door, &[]),
            [
                "front-fuse must not depend on client: a door knows only api::FileSystem, neither the client behind it nor a server"
            ]
        );
        let server = "[dependencies]\nbraid-meta-server = { workspace = true }";
        assert!(says(check, "data-server", server, &[])[0].contains("servers never name each other"));
        assert!(says(check, "attic", "", &[])[0].contains("has no storey"));
    }

    #[test]
    fn tests_may_look_further_but_not_those_of_who_stands_alone() {
        let model = "[dev-dependencies]\nbraid-model.workspace = true";
        assert!(says(check, "front-fuse", model, &[]).is_empty());
        assert!(says(check, "fuse-kernel", model, &[])[0].contains("imports nothing of BraidFS"));
    }
}
