//! `braid mount`: a client with a FUSE door. Goes to the background when the mount serves.

use super::mount_pages::MountPages;
use super::mount_waits::MountWaits;
use super::ready::ReadyFile;
use super::signals::Asked;
use super::{predecessor, why};
use crate::cli::ClusterArgs;
use crate::local::{Layout, process};
use crate::{connect, http, output};
use anyhow::{Context, Result, bail};
use braid_api::Code;
use braid_env::Env;
use braid_front_fuse::mount as mount_fuse;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Example:\n  braid mount /mnt/braid --cluster ./var")]
pub struct MountArgs {
    /// An empty directory. A mount that a killed client left there is replaced.
    pub mount_point: PathBuf,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[arg(long)]
    pub read_only: bool,
    /// Stay in the foreground.
    #[arg(long)]
    pub foreground: bool,
    /// Where the client in the background logs; default: log/mount-PID.log of a cluster on this machine, else
    /// /tmp/braid-mount-PID.log.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    #[arg(long, value_name = "FILE", hide = true)]
    pub ready_file: Option<PathBuf>,
}

/// How long a mount may take to serve before the command gives up.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A metadata server that is not reached for so long is not there: whoever waits for the mount is told.
const FIRST_ANSWER: Duration = Duration::from_secs(25);

impl MountArgs {
    pub fn run(self) -> Result<ExitCode> {
        let mount_point = check_mount_point(&self.mount_point)?;
        if self.foreground {
            return self.serve(&mount_point);
        }
        let mut arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
        arguments.push("--foreground".into());
        // Beside the processes of a cluster on this machine, so that `braid down` ends this mount before the servers.
        let name = format!("mount-{}", std::process::id());
        let local = self.run_dir().and_then(|run| Layout::at(run.parent()?, false).ok());
        let log = match (&self.log, &local) {
            (Some(log), _) => log.clone(),
            (None, Some(layout)) => layout.log(&name),
            (None, None) => std::env::temp_dir().join(format!("braid-{name}.log")),
        };
        match local {
            Some(layout) => process::ensure(&layout, &name, arguments, &log, READY_TIMEOUT).map(drop)?,
            None => process::Spawned::start(&arguments, &log)?.wait_ready(READY_TIMEOUT).map(drop)?,
        }
        println!("mounted at {}; log in {}", mount_point.display(), log.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Where the processes of a cluster on this machine have their run files, if it is one.
    fn run_dir(&self) -> Option<PathBuf> {
        self.cluster.dir().map(|dir| dir.join("run")).filter(|run| run.is_dir())
    }

    /// What this process is called among those of the cluster on this machine.
    fn name(&self) -> String {
        let stem = self.ready_file.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
        stem.unwrap_or_else(|| format!("mount-{}", std::process::id()))
    }

    /// Says what waits where `braid admin why` looks: beside the other run files of a local cluster, or where mounts of this machine do.
    fn reporter(&self, waits: MountWaits, place: &Path, cluster: Vec<String>) -> Option<why::Reporter> {
        let name = self.name();
        let (dir, name) = match self.run_dir() {
            Some(run) => (run, name),
            // There are mounts of other clusters.
            None => (why::own_dir()?, format!("mount-{}", std::process::id())),
        };
        let place = place.to_owned();
        Some(why::spawn_reporter(dir.join(format!("{name}{}", why::SUFFIX)), move || waits.report(&place, &cluster)))
    }

    fn serve(self, mount_point: &Path) -> Result<ExitCode> {
        let config = self.cluster.load()?;
        output::start_log(&config.log.level);
        let runtime = connect::runtime()?;
        let ready = ReadyFile::new(self.ready_file.clone());
        let description = predecessor::description(mount_point);
        let result = runtime.block_on(async {
            let own = connect::namespace(&connect::endpoint(&Env::os(), braid_wire::Role::Client), &config);
            let dir = self.cluster.dir();
            let patience = FIRST_ANSWER.min(config.client.deadline.0);
            match predecessor::end(&own, mount_point, patience).await {
                Err(error) if error.code == Code::Unreachable => {
                    return Err(connect::unanswered(&config, &error, dir.as_deref()));
                }
                // It ends by itself when it has been silent for long enough.
                Err(error) => tracing::info!("a client that was here before, if any, is not ended: {error}"),
                Ok(()) => {}
            }
            own.0.disconnect();
            let (endpoint, client) = connect::client(Env::os(), &config, description, true, dir.as_deref()).await?;
            let source = config.cluster.metadata.first().cloned().unwrap_or_default();
            let mut settings = config.mount.mount(source, self.read_only);
            settings.kept_bytes = config.client.write_buffer.0.saturating_add(config.client.retained.0);
            let handle = tokio::runtime::Handle::current();
            // A signal that ended the process at once would leave a dead mount behind.
            let asked = Asked::listen()?;
            let mut mount = tokio::task::block_in_place(|| mount_fuse(client.clone(), handle, mount_point, &settings))
                .with_context(|| format!("cannot mount at {}", mount_point.display()))?;
            tracing::info!("mounted at {}", mount_point.display());
            let (requests, messages) = (mount.waiting(), endpoint.waits().clone());
            let waits = MountWaits { requests, client: client.clone(), messages };
            let _why = self.reporter(waits.clone(), mount_point, config.cluster.metadata.clone());
            let (place, passed) = (mount_point.to_owned(), Box::new(mount.passed_through()));
            let pages = MountPages { place, client: client.clone(), waiting: Box::new(move || waits.list()), passed };
            match http::serve("mount.control", &config.mount.control, Arc::new(pages)).await {
                Ok(at) => ready.write_pages(at)?,
                // Of two mounts with one configuration one has the port, and both are mounted.
                Err(error) => tracing::warn!("the mount has no health page: {error:#}"),
            }
            ready.write_identity(braid_fuse_kernel::mount_identity(mount_point).as_deref())?;
            ready.write(&mount_point.display().to_string())?;
            wait_for_end(mount_point, asked).await;
            ready.withdraw();
            tracing::info!("the mount ends: what was written is sent");
            // The mount goes first, so that nothing new comes while the client sends what it has.
            tokio::task::block_in_place(|| mount.unmount()).ok();
            client.shutdown().await.map_err(anyhow::Error::from)
        });
        // Made by `braid mount`, its name is not used again. What `braid up` started is its to forget.
        let name = self.name();
        if let Some(run) = self.run_dir().filter(|_| name.starts_with("mount-")) {
            let _ = std::fs::remove_file(run.join(format!("{name}.pid")));
        }
        runtime.shutdown_background();
        result.map(|()| ExitCode::SUCCESS)
    }
}

/// Until a signal, or until somebody unmounts.
async fn wait_for_end(mount_point: &Path, mut asked: Asked) {
    let gone = async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if !matches!(is_braid_mount(mount_point), Ok(true)) {
                return;
            }
        }
    };
    tokio::select! {
        () = asked.wait() => {}
        () = gone => {}
    }
}

/// Whether `path` is a BraidFS mount, dead or alive.
pub fn is_braid_mount(path: &Path) -> Result<bool> {
    Ok(mounted_at(path)?.is_some_and(|kind| kind == "fuse.braid"))
}

/// The kind of file system mounted at exactly `path`, the uppermost if there are several. Reads the mount table only:
/// asking the path itself would wait for a dead daemon.
fn mounted_at(path: &Path) -> Result<Option<String>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let wanted = path.to_string_lossy();
    let kind_there = |line: &str| {
        let mut fields = line.split(' ');
        let point = fields.nth(4).map(unescape);
        let kind = fields.skip_while(|f| *f != "-").nth(1);
        kind.filter(|_| point.as_deref() == Some(&*wanted)).map(str::to_owned)
    };
    Ok(table.lines().filter_map(kind_there).next_back())
}

/// The places of BraidFS mounts in a mount table.
pub fn braid_mounts(table: &str) -> Vec<PathBuf> {
    let place = |line: &str| {
        let mut fields = line.split(' ');
        let point = fields.nth(4).map(unescape);
        let kind = fields.skip_while(|f| *f != "-").nth(1);
        point.filter(|_| kind == Some("fuse.braid")).map(PathBuf::from)
    };
    table.lines().filter_map(place).collect()
}

/// The kernel writes spaces and the like as `\040`.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal =
            rest.get(1..4).and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The absolute path of a directory that can be mounted on. A dead BraidFS mount there is fine: it is replaced.
pub fn check_mount_point(path: &Path) -> Result<PathBuf> {
    let absolute = absolute(path)?;
    if is_braid_mount(&absolute)? {
        braid_fuse_kernel::clear_stale_mount(&absolute)
            .with_context(|| format!("cannot look at the mount at {}", absolute.display()))?;
        if is_braid_mount(&absolute)? {
            bail!("{} is mounted already; braid umount {0} ends it", absolute.display());
        }
    }
    if let Some(kind) = mounted_at(&absolute)? {
        bail!("{} is a mount already ({kind}): umount it, or choose an empty directory", absolute.display());
    }
    let what = std::fs::metadata(&absolute).map_err(|e| {
        anyhow::anyhow!("the mount point {} cannot be used: {e}; make it with mkdir -p", absolute.display())
    })?;
    if !what.is_dir() {
        bail!("the mount point {} is not a directory", absolute.display());
    }
    let mut entries = std::fs::read_dir(&absolute).with_context(|| format!("cannot read {}", absolute.display()))?;
    if entries.next().is_some() {
        bail!("the mount point {} is not empty; choose an empty directory", absolute.display());
    }
    Ok(absolute)
}

/// `path` from the root, without asking the last component, which may be a dead mount.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    let whole = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = parent.canonicalize().with_context(|| format!("{} cannot be reached", parent.display()))?;
            Ok(parent.join(name))
        }
        _ => Ok(whole),
    }
}

#[derive(Args)]
#[command(after_help = "Example:\n  braid umount /mnt/braid")]
pub struct UmountArgs {
    pub mount_point: PathBuf,
}

impl UmountArgs {
    pub fn run(self) -> Result<ExitCode> {
        let mount_point = absolute(&self.mount_point)?;
        if !is_braid_mount(&mount_point)? {
            bail!("{} is not a BraidFS mount", mount_point.display());
        }
        unmount(&mount_point)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Unmounts; where programs still use the mount, takes it out of sight and serves them to their end.
pub fn unmount(mount_point: &Path) -> Result<()> {
    use rustix::mount::UnmountFlags;
    match rustix::mount::unmount(mount_point, UnmountFlags::empty()) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => rustix::mount::unmount(mount_point, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount {}", mount_point.display())),
        Err(e) => Err(e).with_context(|| format!("cannot unmount {}", mount_point.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_escapes_are_read() {
        assert_eq!(unescape("/a\\040b\\134"), "/a b\\");
        assert_eq!(unescape("/plain\\"), "/plain\\");
    }

    #[test]
    fn bad_mount_points_say_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let say = |path: &Path| format!("{:#}", check_mount_point(path).unwrap_err());
        assert!(say(&dir.path().join("missing")).contains("mkdir -p"));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(say(&file).contains("not a directory"));
        assert!(say(dir.path()).contains("not empty"));
        assert!(!is_braid_mount(dir.path()).unwrap());
    }
}
