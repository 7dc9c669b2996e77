//! A small cluster on this machine: `braid up DIR` and `braid down DIR`.
//!
//! Everything lies below DIR: `braid.toml`, `metadata/` (unless it is in a database), `data-N/` (or what `data-N.toml` says), `run/` (sockets, pids, who is ready), `log/`.
//! Each server is a process of its own, so that any of them can be killed, looked at or upgraded alone.

mod copies;
mod died;
mod down;
mod layout;
pub mod metadata;
mod point;
pub mod process;
pub mod servers;
mod up;

pub use died::died;
pub use down::DownArgs;
pub use layout::{CONFIG_FILE, Layout};
pub use up::UpArgs;
