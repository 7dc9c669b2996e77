//! The specification, explored.

mod explore;
mod sizes;
