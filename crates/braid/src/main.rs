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
mod arenas;
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
