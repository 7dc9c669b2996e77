//! `braid admin metadata backup`: all rows of one moment in a file.

use super::rows::ServedRows;
use crate::admin::Cluster;
use crate::fs::progress::Counting;
use crate::output::bytes;
use anyhow::{Context, Result, bail};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_meta_namespace::ops::handover::stays;
use braid_meta_transfer::{About, BackupWriter, FORMAT, RowSource};
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
#[command(after_help = "\
Names, owners, times, small files and where the chunks of large ones are; not their content, which is on the data servers.
Example:
  braid admin metadata backup /backup/braid-$(date +%F).meta
  braid admin metadata backup - | zstd > braid.meta.zst")]
pub struct BackupArgs {
    /// A new file; `-`: the standard output.
    file: PathBuf,
    /// What was written, as an object, at the standard error if the backup goes to the standard output.
    #[arg(long)]
    json: bool,
}

impl BackupArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        let begun = Instant::now();
        let AdminAnswer::Status(status) = cluster.ask(AdminQuery::Status).await? else { return super::strange() };
        let to_stdout = self.file.as_os_str() == "-";
        if !to_stdout && self.file.exists() {
            bail!("{} is there already: name a new file", self.file.display());
        }
        let taken = cluster.env.clock.wall();
        let mut rows = ServedRows::begin(cluster).await?;
        let (cluster_id, version) = (status.cluster, env!("CARGO_PKG_VERSION").to_owned());
        let about = About { format: FORMAT, cluster: cluster_id, taken, version, engine: status.engine };
        let written = match to_stdout {
            true => write(&mut rows, BufWriter::new(std::io::stdout().lock()), &about).await.map(|(_, counts)| counts),
            false => write_file(&mut rows, &self.file, &about).await,
        };
        rows.end().await;
        let (rows, size) = written?;
        let seconds = begun.elapsed().as_secs_f64();
        let said = match self.json {
            true => serde_json::json!({
                "cluster": about.cluster.to_string(),
                "rows": rows,
                "bytes": size,
                "seconds": seconds,
            })
            .to_string(),
            false => format!("{rows} rows of cluster {} in {}, {seconds:.1} s", about.cluster, bytes(size)),
        };
        match to_stdout {
            true => eprintln!("{said}"),
            false => println!("{said}"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn write<W: Write>(rows: &mut ServedRows<'_>, to: W, about: &About) -> Result<(W, (u64, u64))> {
    let counting = Counting::start();
    counting.of("rows");
    let mut writer = BackupWriter::begin(to, about)?;
    while let Some(batch) = rows.next().await? {
        counting.more(batch.len() as u64);
        for (key, row) in batch.iter().filter(|(key, _)| !stays(key)) {
            writer.row(key, row)?;
        }
    }
    let counts = (writer.rows(), writer.bytes());
    Ok((writer.end()?, counts))
}

/// Under another name until it is whole and on the disk.
async fn write_file(rows: &mut ServedRows<'_>, file: &Path, about: &About) -> Result<(u64, u64)> {
    let mut part = OsString::from(file.as_os_str());
    part.push(format!(".part-{}", std::process::id()));
    let part = PathBuf::from(part);
    // Small files and xattrs are in it: it is not for everybody.
    let made = File::options().write(true).create_new(true).mode(0o600).open(&part);
    let made = made.with_context(|| format!("cannot write {}", part.display()))?;
    let written = write(rows, BufWriter::new(made), about).await.and_then(|(to, counts)| {
        let made = to.into_inner().map_err(|error| error.into_error())?;
        made.sync_all().with_context(|| format!("cannot sync {}", part.display()))?;
        // Replaces nothing that has come to be there meanwhile.
        std::fs::hard_link(&part, file).with_context(|| format!("cannot name it {}", file.display()))?;
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| format!("cannot sync {}", dir.display()))?;
        Ok(counts)
    });
    let _ = std::fs::remove_file(&part);
    written
}
