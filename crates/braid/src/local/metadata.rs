//! The metadata servers of a local cluster: `metadata`, and where the metadata is in a database `metadata-2`, … which stand by, or serve at
//! once.

use super::layout::Layout;
use super::process;
use crate::config::{Config, port};
use crate::roles::ready;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// More would only wait.
pub const MOST: u32 = 8;
/// Where one may go on when the other is killed.
pub const OVER_A_DATABASE: u32 = 2;

const START_LIMIT: Duration = Duration::from_secs(30);
/// One that was killed leads for a lease after its end, of 4 s, or longer where the database is slow.
const LEAD_LIMIT: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub fn name(number: u32) -> String {
    match number {
        1 => "metadata".to_owned(),
        number => format!("metadata-{number}"),
    }
}

pub fn is_one(name: &str) -> bool {
    name == "metadata" || name.starts_with("metadata-")
}

pub fn address(layout: &Layout, name: &str) -> String {
    format!("unix:{}", layout.socket(name).display())
}

/// Where one of several that serve at once answers for its part.
pub fn own_address(layout: &Layout, name: &str) -> String {
    address(layout, &format!("{name}-together"))
}

/// Those that the configuration names and that are processes of this directory. One at the least: `metadata`.
pub fn names(layout: &Layout, config: &Config) -> Vec<String> {
    // Over a store of its own directory there is one.
    let is_shared = !config.metadata.database.is_empty();
    let known = |name: &String| is_shared && config.cluster.metadata.contains(&address(layout, name));
    let more = (2..=MOST).map(name).take_while(known);
    std::iter::once(name(1)).chain(more).collect()
}

/// Whether any of them runs.
pub fn any_runs(layout: &Layout, config: &Config) -> bool {
    names(layout, config).iter().any(|name| process::running(layout, name).is_some())
}

/// What the one that serves says of where it does.
pub fn served_at(layout: &Layout, config: &Config) -> Option<String> {
    let runs = |name: &String| process::running(layout, name).is_some();
    names(layout, config).iter().filter(|name| runs(name)).find_map(|name| ready::read(&layout.ready(name)))
}

/// Starts it unless it runs; answers whether it was started. It serves then, or stands by.
pub fn start(layout: &Layout, config: &Config, name: &str) -> Result<bool> {
    let mut arguments: Vec<OsString> = vec!["serve".into(), "metadata".into()];
    if name != self::name(1) {
        let listen = format!("metadata.listen=[\"{}\"]", address(layout, name));
        // A fixed port is that of the first.
        let is_fixed = port(&config.metadata.http).is_some_and(|port| port != 0);
        let no_pages = is_fixed.then(|| "metadata.http=\"\"".to_owned());
        let together = !config.metadata.together_listen.is_empty();
        let together = together.then(|| format!("metadata.together_listen=[\"{}\"]", own_address(layout, name)));
        for setting in std::iter::once(listen).chain(no_pages).chain(together) {
            arguments.extend(["--set".into(), setting.into()]);
        }
    }
    arguments.extend(["--config".into(), layout.config().into_os_string()]);
    process::ensure(layout, name, arguments, &layout.log(name), START_LIMIT)
}

/// Waits until one of them serves.
pub fn wait_served(layout: &Layout, config: &Config) -> Result<()> {
    let begun = Instant::now();
    while served_at(layout, config).is_none() {
        if !any_runs(layout, config) {
            bail!("no metadata server runs any more; the log is {}", layout.log(&name(1)).display());
        }
        if begun.elapsed() > LEAD_LIMIT {
            let log = layout.log(&name(1));
            bail!("no metadata server serves after {} s; the log is {}", LEAD_LIMIT.as_secs(), log.display());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}
