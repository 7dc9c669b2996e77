//! The data servers of a local cluster: `data-1`, `data-2`, … What one has of its own (a directory elsewhere, a rack, that it was
//! decommissioned) is in `DIR/data-N.toml`, if anything; all else is in `braid.toml`.

use super::layout::Layout;
use super::process;
use crate::config::{Config, port};
use anyhow::{Context, Result, bail};
use braid_data_store::StoreIdentity;
use braid_env::os::OsDisk;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const MOST: u32 = 64;
const START_LIMIT: Duration = Duration::from_secs(30);

/// What a data server has of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Own {
    /// Where its chunks are; else in the cluster's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// It is no more: never started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub decommissioned: bool,
}

fn own_file(layout: &Layout, name: &str) -> PathBuf {
    layout.root.join(format!("{name}.toml"))
}

impl Own {
    pub fn read(layout: &Layout, name: &str) -> Result<Own> {
        let path = own_file(layout, name);
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Own::default()),
            text => {
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                toml::from_str(&text).with_context(|| format!("{} is not what a data server has", path.display()))
            }
        }
    }

    /// Whole, by rename, and only if there is anything to be said.
    pub fn write(&self, layout: &Layout, name: &str) -> Result<()> {
        if *self == Own::default() {
            return Ok(());
        }
        let (path, text) = (own_file(layout, name), toml::to_string(self).context("cannot write it")?);
        let text = format!("# What this data server has of its own; all else is in braid.toml.\n{text}");
        let new = path.with_extension("toml.new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn forget(layout: &Layout, name: &str) {
        let _ = std::fs::remove_file(own_file(layout, name));
    }
}

pub fn name(number: u32) -> String {
    format!("data-{number}")
}

pub fn dir(layout: &Layout, name: &str, own: &Own) -> PathBuf {
    own.dir.clone().unwrap_or_else(|| layout.dir(name))
}

/// It has been started before.
pub fn is_made(layout: &Layout, name: &str) -> bool {
    let own = Own::read(layout, name).unwrap_or_default();
    dir(layout, name, &own).join("store.toml").exists() || own_file(layout, name).exists()
}

/// The highest number of a data server that there is, or was.
pub fn known(layout: &Layout) -> u32 {
    (1..=MOST).rev().find(|n| is_made(layout, &name(*n))).unwrap_or(0)
}

/// Whose chunks lie in a directory, if anybody's.
pub fn identity(dir: &Path) -> Result<Option<StoreIdentity>> {
    Ok(StoreIdentity::read(&OsDisk, dir)?)
}

/// The name of the one with this id, if it is one of this directory.
pub fn with_id(layout: &Layout, id: braid_types::ServerId) -> Option<String> {
    let is_it = |name: &String| {
        let own = Own::read(layout, name).unwrap_or_default();
        identity(&dir(layout, name, &own)).ok().flatten().is_some_and(|known| known.server == id)
    };
    (1..=known(layout)).map(name).find(is_it)
}

/// Starts it unless it runs; answers whether it was started.
pub fn start(layout: &Layout, config: &Config, name: &str, own: &Own) -> Result<bool> {
    let dir = dir(layout, name, own);
    let mut set = vec![
        format!("data.dir={}", dir.display()),
        format!("data.listen=[\"unix:{}\", \"tcp:127.0.0.1:0\"]", layout.socket(name).display()),
    ];
    // Quoted: "2" is a name too.
    let quoted = |name: &String| toml::Value::String(name.clone());
    set.extend(own.rack.iter().map(|rack| format!("data.rack={}", quoted(rack))));
    set.extend(own.disk.iter().map(|disk| format!("data.disk={}", quoted(disk))));
    if let Some(at) = pages_of(config, name) {
        set.push(format!("data.http={at}"));
    }
    let mut arguments: Vec<OsString> = vec!["serve".into(), "data".into()];
    for setting in set {
        arguments.extend(["--set".into(), setting.into()]);
    }
    arguments.extend(["--config".into(), layout.config().into_os_string()]);
    process::ensure(layout, name, arguments, &layout.log(name), START_LIMIT)
}

/// A directory elsewhere that is empty now is a disk that is not mounted: a server with nothing would begin there.
pub fn check_mounted(layout: &Layout, name: &str, own: &Own) -> Result<()> {
    if let Some(dir) = own.dir.as_ref().filter(|dir| !own.decommissioned && !dir.join("store.toml").exists()) {
        let file = own_file(layout, name);
        bail!(
            "{name} has its chunks in {}, and nothing of them is there: is its disk mounted? ({} says where they are)",
            dir.display(),
            file.display()
        );
    }
    Ok(())
}

/// `data.http` of one of several data servers on this machine: a fixed port is that of the first, the others follow.
fn pages_of(config: &Config, name: &str) -> Option<String> {
    let number: u16 = name.strip_prefix("data-")?.parse().ok()?;
    let (host, port) = config.data.http.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    Some(format!("{host}:{}", port.checked_add(number - 1)?))
}

/// Ports that servers of one machine would take from each other are told before any of them starts.
pub fn check_pages(config: &Config, count: u32) -> Result<()> {
    let fixed = |at: &str| port(at).filter(|port| *port != 0).map(u32::from);
    let Some(first) = fixed(&config.data.http) else { return Ok(()) };
    let last = first + count - 1;
    if last > u16::MAX.into() {
        bail!(
            "data.http: {count} data servers take the ports {first} to {last}, and {} is the last there is",
            u16::MAX
        );
    }
    for (setting, at) in [("metadata.http", &config.metadata.http), ("mount.control", &config.mount.control)] {
        if fixed(at).is_some_and(|port| (first..=last).contains(&port)) {
            bail!("data.http: {count} data servers take the ports {first} to {last}, {setting} = {at:?} is among them");
        }
    }
    Ok(())
}
