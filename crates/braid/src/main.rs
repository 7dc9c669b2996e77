//! `braid`: every role of BraidFS in one program.
//!
//! `braid up DIR` starts a cluster on this machine and mounts it; `serve` runs one role; `mount` is a client;
//! `fs` works on files without a mount; `admin` looks and repairs; `bench` measures.
//!
//! This crate is the hands: it reads configuration, wires crates together and talks to people. It decides nothing
//! about files, data or protocols.

// First: its macros hold for the modules below.
#[macro_use]
mod say;

mod admin;
mod bench;
mod cli;
mod config;
mod connect;
mod fs;
mod http;
mod local;
mod metrics;
mod output;
#[cfg(feature = "planted")]
mod planted;
mod quota;
mod roles;

use clap::Parser;
use std::process::ExitCode;

/// What a message takes is given back by another thread than took it, which glibc's allocator is slow at (an eighth of what the metadata server
/// does); and a mount whose threads take and give back buffers of 1 MiB keeps fewer of them: 55 MiB where glibc's, with one pool for each of two
/// processors, took 75 (`the_memory_of_a_mount_is_bounded_by_its_settings`). Without its huge pages, with which that was 140.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            // One line that says what to do; causes are part of it.
            eprintln!("braid: {error:#}");
            ExitCode::FAILURE
        }
    }
}
