//! `braid fs cat`.

use super::local::{read_pieces, write_all};
use super::path::ClusterPath;
use super::session::{Last, Paths, Session};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs cat /logs/today.log | grep error")]
pub struct CatArgs {
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
}

impl CatArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let mut out = std::io::stdout();
        for path in &self.paths {
            let done = async {
                let attr = s.find(path, Last::Follow).await?;
                read_pieces(s, path, attr.id, |pieces| write_all(&mut out, pieces)).await
            };
            match done.await {
                Ok(()) => {}
                // Who reads has seen enough.
                Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(is_closed) => return Ok(s.exit_code()),
                Err(e) => s.note(&e),
            }
        }
        Ok(s.exit_code())
    }
}

fn is_closed(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}
