//! `braid admin sql`.

use super::sql_print::{Form, Printer};
use super::{Cluster, strange};
use crate::config::Span;
use crate::say;
use anyhow::{Context, Result, anyhow};
use braid_api::Manner;
use braid_api::admin::{AdminAnswer, AdminQuery, SqlBegun, SqlPage, SqlValue};
use clap::Args;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(Args)]
#[command(after_help = "\
Examples:
  braid admin sql \"SELECT path, size FROM files WHERE kind = 'file' ORDER BY size DESC LIMIT 10\"
  braid admin sql --json \"SELECT uid, sum(size) AS bytes FROM inodes GROUP BY uid\"
  braid admin sql --schema
More of them, and what the columns mean: docs/sql-metadata.md.")]
pub struct SqlArgs {
    /// One SELECT, in SQLite's words; - reads it from the standard input.
    #[arg(required_unless_present = "schema")]
    query: Option<String>,
    /// One object a line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Comma-separated values, with a line of names.
    #[arg(long)]
    csv: bool,
    /// The query ends after so long: 500ms, 10s, 5min or 2h.
    #[arg(long, value_name = "SPAN", default_value = "10min")]
    timeout: Span,
    /// Print the tables and their columns, and ask nothing.
    #[arg(long, conflicts_with_all = ["query", "json", "csv"])]
    schema: bool,
}

/// Pages that are fetched and not printed yet.
const PAGES_AHEAD: usize = 2;
/// While the output is not read, the server is told so often that it still will be.
const STILL_THERE: Duration = Duration::from_millis(SqlBegun::UNASKED_MS_MAX / 3);
/// The exit code that a shell shows for what Ctrl-C has ended.
const INTERRUPTED: u8 = 128 + 2;

impl SqlArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        if self.schema {
            return show_schema();
        }
        let begin = AdminQuery::SqlBegin { query: self.query()?, timeout_ms: self.timeout.0.as_millis() as u64 };
        // Once: a second attempt would be a second query.
        let AdminAnswer::SqlBegin(begun) = cluster.call(begin, Manner::Once).await? else { return strange() };
        let ended = tokio::select! {
            done = self.print(cluster, &begun) => done.map(|()| ExitCode::SUCCESS),
            () = say::unheard() => Ok(ExitCode::SUCCESS),
            _ = tokio::signal::ctrl_c() => Ok(INTERRUPTED.into()),
        };
        // Whether it hears of this or not: it finds out within a minute.
        let _ = cluster.ask(AdminQuery::SqlEnd { cursor: begun.cursor }).await;
        match say::lost_exit() {
            Some(code) => Ok(code.into()),
            None => ended,
        }
    }

    fn query(&self) -> Result<String> {
        let query = self.query.clone().unwrap_or_default();
        if query != "-" {
            return Ok(query);
        }
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read the query from the standard input")?;
        Ok(text)
    }

    /// Fetches pages while others are printed.
    async fn print(&self, cluster: &Cluster, begun: &SqlBegun) -> Result<()> {
        let form = match (self.json, self.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Table,
        };
        let (pages, mut fetched) = mpsc::channel::<Vec<Vec<SqlValue>>>(PAGES_AHEAD);
        let mut printer = Printer::new(form, begun.columns.clone());
        let printing = tokio::task::spawn_blocking(move || {
            while let Some(rows) = fetched.blocking_recv() {
                printer.rows(&rows);
            }
        });
        let result = fetch(cluster, begun.cursor, pages).await;
        printing.await.map_err(|_| anyhow!("the answer cannot be printed"))?;
        result
    }
}

async fn fetch(cluster: &Cluster, cursor: u64, pages: mpsc::Sender<Vec<Vec<SqlValue>>>) -> Result<()> {
    let mut number = 0;
    loop {
        let SqlPage { rows, more } = page(cluster, cursor, number).await?;
        if !rows.is_empty() || !more {
            let place = loop {
                tokio::select! {
                    place = pages.reserve() => break place.map_err(|_| anyhow!("the answer cannot be printed"))?,
                    () = tokio::time::sleep(STILL_THERE) => drop(page(cluster, cursor, number).await?),
                }
            };
            place.send(rows);
            number += 1;
        }
        if !more {
            return Ok(());
        }
    }
}

async fn page(cluster: &Cluster, cursor: u64, page: u64) -> Result<SqlPage> {
    match cluster.ask(AdminQuery::SqlNext { cursor, page }).await? {
        AdminAnswer::SqlNext(page) => Ok(page),
        _ => strange(),
    }
}

fn show_schema() -> Result<ExitCode> {
    for table in braid_meta_query::schema() {
        println!("{}: {}", table.name, table.about);
        let wide = table.columns.iter().map(|column| column.name.len()).max().unwrap_or(0);
        for column in table.columns {
            let hidden = if column.is_hidden { " (not in *)" } else { "" };
            println!("  {:wide$}  {:7}  {}{hidden}", column.name, column.kind.word(), column.about);
        }
    }
    Ok(ExitCode::SUCCESS)
}
