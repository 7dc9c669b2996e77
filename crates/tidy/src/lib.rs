//! The rules of the house that no single file can show, as tests.
//!
//! `cargo test -p braid-tidy` reads every manifest and source file of the workspace and fails with the sentence that was broken.
//! Each check is a small file in `checks/` and is itself tested with a planted violation. What a check lets pass is listed in it,
//! with the reason.

mod checks;
mod code;
mod storeys;
mod workspace;

pub use checks::{Check, all};
pub use workspace::{Crate, Source, Workspace};
