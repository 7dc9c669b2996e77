//! `braid up`.

use super::copies;
use super::layout::Layout;
use super::metadata;
use super::point::{self, Point};
use super::process;
use super::servers::{self, Own};
use crate::config::Config;
use crate::roles;
use anyhow::{Context, Result, bail};
use braid_types::Layout::Replica;
use braid_types::Policy;
use clap::Args;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "\
Examples:
  braid up ./var --mount ./mnt
  braid up ./one --data-servers 1 --no-mount
  braid up ./fast --set metadata.policy=plain --set metadata.copies=0
  braid up ./many --database mysql://braid:secret@db-host/braid
  braid up ./wide --database mysql://braid:secret@db-host/braid --metadata-servers 4 --together")]
pub struct UpArgs {
    /// Where the cluster lies; made if it does not exist.
    pub dir: PathBuf,
    /// Where to mount it; default: where it is mounted, else DIR/mnt.
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Data servers; default: those the cluster has, 4 in a new one.
    #[arg(long, value_name = "N")]
    pub data_servers: Option<u32>,
    /// Keep the metadata of a new cluster in this database: mysql://USER:PASSWORD@HOST:PORT/NAME (docs/sql.md). The password is
    /// kept in DIR/braid.toml, which only its owner can read.
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Metadata servers of a new cluster over a database, of which one serves and the others stand by; default: 2.
    #[arg(long, value_name = "N", requires = "database")]
    pub metadata_servers: Option<u32>,
    /// All of them serve at once, each for a part of the directories and files (docs/sql.md).
    #[arg(long, requires = "database")]
    pub together: bool,
    /// Do not mount.
    #[arg(long, conflicts_with = "mount")]
    pub no_mount: bool,
    /// Override a setting when the cluster is made, e.g. --set metadata.policy=plain,inline=4KiB. The policy of its root
    /// directory is else replica:3, or with two data servers replica:2, or with one plain.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

/// Three copies, and one more server that takes the place of any of them.
const DATA_SERVERS: u32 = 4;
const START_LIMIT: Duration = Duration::from_secs(30);

impl UpArgs {
    pub fn run(self) -> Result<ExitCode> {
        if self.data_servers.is_some_and(|count| !(1..=servers::MOST).contains(&count)) {
            bail!("--data-servers takes 1 to {}", servers::MOST);
        }
        if self.metadata_servers.is_some_and(|count| !(1..=metadata::MOST).contains(&count)) {
            bail!("--metadata-servers takes 1 to {}", metadata::MOST);
        }
        roles::place::writable(&self.dir)?;
        let point = (!self.no_mount).then(|| Point::find(&self.dir, self.mount.as_deref())).transpose()?;
        let planned = Layout::planned(&self.dir)?;
        let is_new = !planned.config().exists();
        if is_new {
            roles::place::for_cluster(&planned.root, point.as_ref().map(|point| point.place.as_path()))?;
        }
        let config = if is_new { self.first_config(&planned)? } else { Config::load(Some(&planned.config()), &[])? };
        servers::check_pages(&config, self.count(&planned))?;
        let layout = Layout::at(&self.dir, true)?;
        if is_new {
            write_config(&layout, &config)?;
        }
        self.say_what_is_ignored(&layout, is_new);
        let begun = start_metadata(&layout, &config);
        if begun.is_err() && is_new && self.database.is_some() {
            // With another address it is made anew.
            let _ = std::fs::remove_file(layout.config());
        }
        begun?;
        self.start_data_servers(&layout, &config)?;
        // A database keeps copies as it does.
        if is_new && config.metadata.database.is_empty() {
            copies::wait(&config, self.count(&layout))?;
        }
        let Some(point) = point else {
            println!(
                "\nBraidFS runs in {}; its configuration is {}.",
                layout.root.display(),
                layout.config().display()
            );
            return Ok(ExitCode::SUCCESS);
        };
        if point.is_served {
            say_started(&layout, point::NAME, false);
        } else {
            point.make()?;
            let arguments = vec!["mount".into(), point.place.clone().into_os_string(), "--foreground".into()];
            let started = self.start(&layout, point::NAME, arguments)?;
            say_started(&layout, point::NAME, started);
        }
        self.say_what_next(&layout, &point.place);
        Ok(ExitCode::SUCCESS)
    }

    /// New ones one after the other, so that their ids are in the order of their names; others all at once: after a crash
    /// each has its log to go through.
    fn start_data_servers(&self, layout: &Layout, config: &Config) -> Result<()> {
        let mut known = Vec::new();
        for name in (1..=self.count(layout)).map(servers::name) {
            let own = Own::read(layout, &name)?;
            servers::check_mounted(layout, &name, &own)?;
            match own.decommissioned {
                true => println!("{name:<10} was decommissioned"),
                false => known.push((name, own)),
            }
        }
        if known.iter().any(|(name, _)| !servers::is_made(layout, name)) {
            return known.iter().try_for_each(|(name, own)| {
                say_started(layout, name, servers::start(layout, config, name, own)?);
                Ok(())
            });
        }
        std::thread::scope(|scope| {
            let starts: Vec<_> = known
                .iter()
                .map(|(name, own)| scope.spawn(move || servers::start(layout, config, name, own)))
                .collect();
            // All are waited for, also if one fails, and told in their order.
            let results: Vec<Result<bool>> = starts
                .into_iter()
                .map(|start| start.join().unwrap_or_else(|_| bail!("starting a data server panicked")))
                .collect();
            known.iter().zip(results).try_for_each(|((name, _), started)| {
                say_started(layout, name, started?);
                Ok(())
            })
        })
    }

    /// Starts it unless it runs; answers whether it was started.
    fn start(&self, layout: &Layout, name: &str, mut arguments: Vec<OsString>) -> Result<bool> {
        arguments.extend(["--config".into(), layout.config().into_os_string()]);
        process::ensure(layout, name, arguments, &layout.log(name), START_LIMIT)
    }

    /// How many data servers run. Fewer than there are would leave files without the servers they lie on.
    fn count(&self, layout: &Layout) -> u32 {
        let known = servers::known(layout);
        self.data_servers.unwrap_or(if known == 0 { DATA_SERVERS } else { known }).max(known)
    }

    /// The configuration of a new cluster. A later `up` keeps what people changed in it.
    fn first_config(&self, layout: &Layout) -> Result<Config> {
        let first = metadata::name(1);
        let many = self.database.as_ref().map_or(1, |_| self.metadata_servers.unwrap_or(metadata::OVER_A_DATABASE));
        let all: Vec<String> =
            (1..=many).map(|n| format!("\"{}\"", metadata::address(layout, &metadata::name(n)))).collect();
        let base = [
            format!("cluster.metadata=[{}]", all.join(", ")),
            format!("metadata.dir={}", layout.dir(&first).display()),
            format!("metadata.listen=[\"{}\", \"tcp:127.0.0.1:0\"]", metadata::address(layout, &first)),
            format!("metadata.policy={}", policy_for(self.count(layout))),
        ];
        // Quoted, since a URL may hold anything.
        let database =
            self.database.as_ref().map(|url| format!("metadata.database={}", toml::Value::String(url.clone())));
        let own = format!("metadata.together_listen=[\"{}\"]", metadata::own_address(layout, &first));
        let together = self.together.then_some(own);
        let overrides: Vec<String> =
            base.into_iter().chain(database).chain(together).chain(self.set.iter().cloned()).collect();
        Config::load(None, &overrides)
    }

    /// What was asked for and holds for new clusters only.
    fn say_what_is_ignored(&self, layout: &Layout, is_new: bool) {
        if !is_new && !self.set.is_empty() {
            let config = layout.config();
            println!(
                "note: --set is for a new cluster; this one has its settings in {}, change them there",
                config.display()
            );
        }
        if !is_new && self.database.is_some() {
            println!(
                "note: --database is for a new cluster; `braid admin metadata migrate --to-database` moves the metadata of this one"
            );
        }
        let known = servers::known(layout);
        if let Some(wanted) = self.data_servers.filter(|wanted| *wanted < known) {
            println!("note: --data-servers {wanted} is fewer than the {known} that hold its files: all of them run");
        }
    }

    fn say_what_next(&self, layout: &Layout, point: &std::path::Path) {
        let dir = self.dir.display();
        println!(
            "\nBraidFS is mounted at {}\n\n  cp -r some/files {}/     use it like any directory\n  \
             braid admin status --cluster {dir}    what runs, and is it well\n  \
             braid fs policy get / --cluster {dir}  how files are laid out\n  \
             braid down {dir}                      stop it; nothing is lost\n\nLogs are in {}.",
            point.display(),
            point.display(),
            layout.root.join("log").display()
        );
    }
}

fn start_metadata(layout: &Layout, config: &Config) -> Result<()> {
    for name in metadata::names(layout, config) {
        say_started(layout, &name, metadata::start(layout, config, &name)?);
    }
    metadata::wait_served(layout, config)
}

/// As many copies as there can be, up to three.
fn policy_for(data_servers: u32) -> Policy {
    match data_servers {
        0 | 1 => Policy::PLAIN,
        2 => Policy { layout: Replica { copies: 2 }, ..Policy::PLAIN },
        _ => Policy { layout: Replica { copies: 3 }, ..Policy::PLAIN },
    }
}

fn write_config(layout: &Layout, config: &Config) -> Result<()> {
    let (path, text) = (layout.config(), toml::to_string(config).context("cannot write the configuration")?);
    let text = format!("# Made by `braid up`. `braid config` says what each setting means.\n{text}");
    // The address of a database has its password in it.
    let mode = if config.metadata.database.is_empty() { 0o644 } else { 0o600 };
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn say_started(layout: &Layout, name: &str, started: bool) {
    let pages = process::pages(layout, name).map_or(String::new(), |at| format!("  health and metrics at {at}"));
    println!("{name:<10} {:<12}{pages}", if started { "started" } else { "runs already" });
}
