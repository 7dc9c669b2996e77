//! `braid up`.

use super::layout::Layout;
use super::point::{self, Point};
use super::process;
use crate::roles;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Example:\n  braid up ./var --mount ./mnt")]
pub struct UpArgs {
    /// Where the cluster lies; made if it does not exist.
    pub dir: PathBuf,
    /// Where to mount it; default: where it is mounted, else DIR/mnt.
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Data servers; default: those the cluster has, 3 in a new one.
    #[arg(long, value_name = "N")]
    pub data_servers: Option<u32>,
    /// Do not mount.
    #[arg(long, conflicts_with = "mount")]
    pub no_mount: bool,
    /// Override a setting when the cluster is made, e.g. --set metadata.policy=plain,inline=4KiB.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

const DATA_SERVERS: u32 = 3;
const DATA_SERVERS_MAX: u32 = 64;
const START_LIMIT: Duration = Duration::from_secs(30);

impl UpArgs {
    pub fn run(self) -> Result<ExitCode> {
        if self.data_servers.is_some_and(|count| !(1..=DATA_SERVERS_MAX).contains(&count)) {
            bail!("--data-servers takes 1 to {DATA_SERVERS_MAX}");
        }
        roles::place::writable(&self.dir)?;
        let point = (!self.no_mount).then(|| Point::find(&self.dir, self.mount.as_deref())).transpose()?;
        let planned = Layout::planned(&self.dir)?;
        let is_new = !planned.config().exists();
        if is_new {
            roles::place::for_cluster(&planned.root, point.as_ref().map(|point| point.place.as_path()))?;
            let text = self.first_config(&planned)?;
            let layout = Layout::at(&self.dir, true)?;
            let path = layout.config();
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let layout = Layout::at(&self.dir, true)?;
        let config = layout.config();
        self.say_what_is_ignored(&layout, is_new);
        say_started("metadata", self.start(&layout, "metadata", vec!["serve".into(), "metadata".into()])?)?;
        self.start_data_servers(&layout)?;
        let Some(point) = point else {
            println!("\nBraidFS runs in {}; its configuration is {}.", layout.root.display(), config.display());
            return Ok(ExitCode::SUCCESS);
        };
        if point.is_served {
            say_started(point::NAME, false)?;
        } else {
            point.make()?;
            let arguments = vec!["mount".into(), point.place.clone().into_os_string(), "--foreground".into()];
            say_started(point::NAME, self.start(&layout, point::NAME, arguments)?)?;
        }
        self.say_what_next(&layout, &point.place);
        Ok(ExitCode::SUCCESS)
    }

    /// New ones one after the other, so that their ids are in the order of their names; others all at once: after a crash
    /// each has its log to go through.
    fn start_data_servers(&self, layout: &Layout) -> Result<()> {
        let known = known_data_servers(layout);
        let default = if known == 0 { DATA_SERVERS } else { known };
        // Fewer would leave files without the servers they lie on.
        let count = self.data_servers.unwrap_or(default).max(known);
        let names: Vec<String> = (1..=count).map(|n| format!("data-{n}")).collect();
        if names.iter().any(|name| !is_made(layout, name)) {
            return names.iter().try_for_each(|name| say_started(name, self.start_data_server(layout, name)?));
        }
        std::thread::scope(|scope| {
            let starts: Vec<_> =
                names.iter().map(|name| scope.spawn(move || self.start_data_server(layout, name))).collect();
            // All are waited for, also if one fails, and told in their order.
            let results: Vec<Result<bool>> = starts
                .into_iter()
                .map(|start| start.join().unwrap_or_else(|_| bail!("starting a data server panicked")))
                .collect();
            names.iter().zip(results).map(|(name, started)| say_started(name, started?)).collect()
        })
    }

    fn start_data_server(&self, layout: &Layout, name: &str) -> Result<bool> {
        let set = [
            format!("data.dir={}", layout.dir(name).display()),
            format!("data.listen=[\"unix:{}\", \"tcp:127.0.0.1:0\"]", layout.socket(name).display()),
        ];
        let mut arguments: Vec<OsString> = vec!["serve".into(), "data".into()];
        for setting in set {
            arguments.extend(["--set".into(), setting.into()]);
        }
        self.start(layout, name, arguments)
    }

    /// Starts it unless it runs; answers whether it was started.
    fn start(&self, layout: &Layout, name: &str, mut arguments: Vec<OsString>) -> Result<bool> {
        arguments.extend(["--config".into(), layout.config().into_os_string()]);
        process::ensure(layout, name, arguments, &layout.log(name), START_LIMIT)
    }

    /// The configuration of a new cluster. A later `up` keeps what people changed in it.
    fn first_config(&self, layout: &Layout) -> Result<String> {
        let socket = layout.socket("metadata");
        let base = [
            format!("cluster.metadata=[\"unix:{}\"]", socket.display()),
            format!("metadata.dir={}", layout.dir("metadata").display()),
            format!("metadata.listen=[\"unix:{}\", \"tcp:127.0.0.1:0\"]", socket.display()),
        ];
        let overrides: Vec<String> = base.into_iter().chain(self.set.iter().cloned()).collect();
        let config = crate::config::Config::load(None, &overrides)?;
        let text = toml::to_string(&config).context("cannot write the configuration")?;
        Ok(format!("# Made by `braid up`. `braid config` says what each setting means.\n{text}"))
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
        let known = known_data_servers(layout);
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

fn say_started(name: &str, started: bool) -> Result<()> {
    println!("{name:<10} {}", if started { "started" } else { "runs already" });
    Ok(())
}

fn is_made(layout: &Layout, name: &str) -> bool {
    layout.dir(name).join("store.toml").exists()
}

/// The highest number of a data server that has its directory.
fn known_data_servers(layout: &Layout) -> u32 {
    (1..=DATA_SERVERS_MAX).rev().find(|n| is_made(layout, &format!("data-{n}"))).unwrap_or(0)
}
