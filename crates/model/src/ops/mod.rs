//! The operations, each as methods of the state: a check of everything first, then the change, so that what fails
//! changes nothing.

mod attr;
mod create;
mod data;
mod dir;
mod link;
mod open;
mod remove;
mod rename;
mod seal;
mod xattr;
