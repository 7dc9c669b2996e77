//! `braid admin metadata restore`: an empty store is filled from a backup.

use super::target::{self, Arrival, Filled, Place};
use crate::admin::Cluster;
use crate::config::Config;
use crate::fs::progress::Counting;
use crate::output;
use anyhow::{Context, Result, bail};
use braid_env::Env;
use braid_meta_transfer::{BackupReader, Counts, bring, compare, settle_restored};
use braid_types::Timestamp;
use clap::Args;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Files are as they were at the time of the backup, as far as the data servers still have their chunks: what was overwritten since is as it is now, what was deleted or moved to other servers since has lost its content (it may read as zeros: braid admin fsck names it),
and what was made since is not there. Data servers delete nothing that the
backup does not know until you say `braid admin metadata confirm`.
Example:
  braid admin metadata restore /backup/braid.meta --set metadata.dir=/new/metadata
  braid admin metadata restore /backup/braid.meta --check")]
pub struct RestoreArgs {
    /// A file that `braid admin metadata backup` wrote.
    file: PathBuf,
    /// Also where metadata was that has gone to another store, and is not served there.
    #[arg(long)]
    replace_left: bool,
    /// Only look whether the file is whole, and say what it is of.
    #[arg(long)]
    check: bool,
    /// An object.
    #[arg(long)]
    json: bool,
}

fn open(file: &Path) -> Result<BackupReader<BufReader<File>>> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    BackupReader::open(BufReader::with_capacity(1 << 20, opened)).with_context(|| file.display().to_string())
}

impl RestoreArgs {
    pub async fn run(self, cluster: &Cluster, config: &Config) -> Result<ExitCode> {
        // All of it, before anything is written anywhere.
        let mut backup = open(&self.file)?;
        let about = backup.about().clone();
        let mut rows = 0;
        let counting = Counting::start();
        counting.of("rows of the backup are looked at");
        while let Some(batch) = backup.read().with_context(|| self.file.display().to_string())? {
            rows += batch.len() as u64;
            counting.more(batch.len() as u64);
        }
        drop(counting);
        let place = Place::of(config);
        if !self.check {
            not_served(cluster).await?;
            match &place {
                Place::Dir(dir) => self.fill(&cluster.env, about.taken, &target::make_dir(dir, config)?).await?,
                Place::Database(url) => {
                    self.fill(&cluster.env, about.taken, &target::open_database(url).await?).await?
                }
            };
        }
        if self.json {
            let text = serde_json::json!({
                "cluster": about.cluster.to_string(),
                "taken": output::time(about.taken),
                "engine": about.engine,
                "version": about.version,
                "rows": rows,
                "restored_to": (!self.check).then(|| place.to_string()),
            });
            println!("{text:#}");
            return Ok(ExitCode::SUCCESS);
        }
        println!(
            "a whole backup of cluster {}, taken {} by version {}: {rows} rows",
            about.cluster,
            output::time(about.taken),
            about.version
        );
        if !self.check {
            println!(
                "restored to {place}; each row was compared.\nStart the metadata server (braid serve metadata, or braid up DIR), \
                 look at your files, then say: braid admin metadata confirm"
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn fill<E: Filled>(&self, env: &Env, taken: Timestamp, target: &E) -> Result<Counts> {
        let from = format!("the backup {}", self.file.display());
        let arrival = Arrival::begin(target, env, from, self.replace_left).await?;
        let counting = Counting::start();
        counting.of("rows are written");
        bring(&mut open(&self.file)?, target, |counts| counting.at(counts.rows)).await?;
        counting.of("rows are compared");
        let counts = compare(&mut open(&self.file)?, target, |counts| counting.at(counts.rows)).await?;
        settle_restored(target, taken, env.clock.wall()).await?;
        arrival.end().await?;
        Ok(counts)
    }
}

/// Two stores of one cluster would take its data servers from each other.
async fn not_served(cluster: &Cluster) -> Result<()> {
    if cluster.answers().await {
        bail!("a metadata server serves this cluster: stop it, or name another cluster.metadata");
    }
    Ok(())
}
