#![allow(clippy::unwrap_used)]

mod file;
mod merge;
