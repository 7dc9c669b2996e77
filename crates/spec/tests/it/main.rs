//! The specification, explored.

mod explore;
