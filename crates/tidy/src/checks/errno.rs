//! Error numbers of the operating system are made at one door.

use super::{Allowed, is_allowed};
use crate::workspace::Workspace;

const RULE: &str = "errno lives in front-fuse: the rest has error codes of its own";

const ALLOWED: &[Allowed] = &[
    ("front-fuse", "", "the door where errors become errno"),
    ("fuse-kernel", "", "speaks the kernel's protocol, which has errno in it"),
    ("powercut", "", "is a file system to the kernel"),
    ("env", "src/os", "hears the operating system"),
    ("env", "src/simdisk", "fails as the operating system does"),
];

pub fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        for source in krate.production() {
            if is_allowed(ALLOWED, krate, source) {
                continue;
            }
            for (line, path) in source.code.paths().into_iter().filter(|(_, path)| is_errno(path)) {
                broken.push(format!("{}/{}:{line} names {path}: {RULE}", krate.name, source.path));
            }
        }
    }
    broken
}

/// `libc::ENOENT` and the like, not `libc::EXIT_SUCCESS`.
fn is_errno(path: &str) -> bool {
    let number = |name: &str| {
        name.starts_with('E')
            && name.len() > 1
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    path.strip_prefix("libc::").is_some_and(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::planted::says;

    #[test]
    fn errno_in_a_server_is_named() {
        let text = "fn f() -> i32 { libc::ENOENT }\nfn g() -> i32 { libc::EXIT_SUCCESS }";
        assert_eq!(
            says(check, "meta-server", "", &[("src/a.rs", text)]),
            [format!("meta-server/src/a.rs:1 names libc::ENOENT: {RULE}")]
        );
        assert!(says(check, "front-fuse", "", &[("src/errno.rs", text)]).is_empty());
    }
}
