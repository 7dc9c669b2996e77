//! Operations on chunks with several copies; the same as of chunks with one, but ordered by the chain.

mod change;
mod clone;
mod cut;
mod list;
mod peer;
mod punch;
mod read;
mod reserve;
mod stat;
mod wait;
mod write;

pub(super) use read::Look;
