//! `braid down`: the mounts first, which send what they have, also those made by `braid mount` on this machine; then the
//! metadata server (those that stand by first), whose last changes data servers keep copies of; then these, which sync. What somebody has stopped
//! (SIGSTOP) goes on before that.
//! Where a mount was killed, every access to its mount point fails until somebody unmounts it: `down` does.

use super::layout::Layout;
use super::{metadata, point, process};
use crate::roles::ready;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Example:\n  braid down ./var")]
pub struct DownArgs {
    /// The directory given to `braid up`.
    pub dir: PathBuf,
}

/// A mount may have its whole write buffer to send.
const STOP_LIMIT: Duration = Duration::from_secs(90);

impl DownArgs {
    pub fn run(self) -> Result<ExitCode> {
        let layout = Layout::at(&self.dir, false)?;
        let mut names = layout.names()?;
        names.sort_by_cached_key(|name| {
            let rank = match name.as_str() {
                name if name.starts_with("mount") => 0,
                // Who stands by would else begin to serve when the other stops.
                name if metadata::is_one(name) && ready::read(&layout.ready(name)).is_none() => 1,
                name if metadata::is_one(name) => 2,
                _ => 3,
            };
            // By their numbers: data-2 before data-10.
            let number: Option<u32> = name.rsplit('-').next().and_then(|number| number.parse().ok());
            (rank, number, name.clone())
        });
        // A mount sends what it has to servers, and one that stands still cannot end.
        names.iter().for_each(|name| process::resume(&layout, name));
        let mut ran = false;
        for name in names {
            let has_stopped = process::stop(&layout, &name, STOP_LIMIT)?;
            if has_stopped {
                println!("{name:<10} stopped");
            }
            let dead = point::clear_dead(&layout, &name);
            if let Some(place) = &dead {
                println!("{name:<10} had been killed: unmounted {}", place.display());
            }
            ran |= has_stopped || dead.is_some();
        }
        if !ran {
            println!("nothing runs in {}", layout.root.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}
