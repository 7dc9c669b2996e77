//! Processes of our own in the background: started, waited for, found again, stopped.

use super::layout::Layout;
use crate::roles::ready;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a wait looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process that was started and is not ready yet.
pub struct Spawned {
    child: Child,
    log: PathBuf,
    ready_file: PathBuf,
}

impl Spawned {
    /// Starts this program again with `arguments`, in a group of its own, logging to `log`.
    pub fn start(arguments: &[OsString], log: &Path) -> Result<Spawned> {
        let ready_file = log.with_extension(format!("ready-{}", std::process::id()));
        let mut arguments = arguments.to_vec();
        arguments.extend(["--ready-file".into(), ready_file.clone().into_os_string()]);
        Spawned::with_ready_file(&arguments, log, ready_file)
    }

    pub fn with_ready_file(arguments: &[OsString], log: &Path, ready_file: PathBuf) -> Result<Spawned> {
        let _ = std::fs::remove_file(&ready_file);
        let _ = std::fs::remove_file(ready_file.with_extension(ready::STANDS_BY));
        let open = || {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
                .with_context(|| format!("cannot write the log {}", log.display()))
        };
        let program = std::env::current_exe().context("cannot find the braid program")?;
        let child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Spawned { child, log: log.to_owned(), ready_file })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process says that it serves, or stands by for another; answers what it said.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<String> {
        let begun = Instant::now();
        loop {
            if let Some(line) = ready::said(&self.ready_file) {
                return Ok(line);
            }
            if let Some(status) = self.child.try_wait().context("cannot wait for the process")? {
                let last = last_line(&self.log);
                bail!("it ended ({status}): {last} (log: {})", self.log.display());
            }
            if begun.elapsed() > limit {
                let last = last_line(&self.log);
                let _ = self.child.kill();
                bail!("it was not ready after {} s: {last} (log: {})", limit.as_secs(), self.log.display());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("its log is empty");
    last.strip_prefix("braid: ").unwrap_or(last).to_owned()
}

/// The process of `name`, if it runs: its pid file names a live process that is a braid with that name's files.
pub fn running(layout: &Layout, name: &str) -> Option<Pid> {
    let text = std::fs::read_to_string(layout.pid(name)).ok()?;
    let raw: i32 = text.trim().parse().ok()?;
    let pid = Pid::from_raw(raw)?;
    // A pid may have been given to another program since: its command line must name our ready file.
    let command = std::fs::read(format!("/proc/{raw}/cmdline")).ok()?;
    let ours = layout.ready(name);
    let ours = ours.as_os_str().as_encoded_bytes();
    let alive = command.windows(ours.len()).any(|w| w == ours) && !is_zombie(raw) && !is_killed(raw);
    alive.then_some(pid)
}

/// Where `name` has its health page and metrics, if it runs and has them.
pub fn pages(layout: &Layout, name: &str) -> Option<String> {
    running(layout, name)?;
    ready::read(&layout.pages(name))
}

/// The words a process was started with.
pub fn command_line(pid: Pid) -> Option<Vec<OsString>> {
    use std::os::unix::ffi::OsStringExt;
    let text = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    let words = text.strip_suffix(b"\0").unwrap_or(&text).split(|&byte| byte == 0);
    Some(words.map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// Dead to its last thread. While the first is a zombie and others are still ending, files and locks are held.
fn is_zombie(pid: i32) -> bool {
    first_thread_ended(pid) && threads(pid) <= 1
}

fn first_thread_ended(pid: i32) -> bool {
    state(pid) == Some('Z')
}

/// The letter for the state of a process's first thread, as proc(5) has it; `None` if there is no such process.
pub fn state(pid: impl std::fmt::Display) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; the state is the word after it.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn threads(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// SIGKILL is on its way to it: on a busy machine it can be a while before its first thread has a turn to end in.
fn is_killed(pid: i32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = status.lines().filter_map(|line| {
        let (key, mask) = line.split_once(':')?;
        matches!(key, "SigPnd" | "ShdPnd").then(|| u64::from_str_radix(mask.trim(), 16).ok())?
    });
    // Signal n is bit n - 1.
    pending.fold(0, |all, mask| all | mask) & 1 << (Signal::KILL.as_raw() - 1) != 0
}

/// It runs no more and is not gone yet: its words are the first that the kernel takes from it, its files come later.
fn is_ending(pid: i32) -> bool {
    let has_no_words = || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.is_empty());
    state(pid).is_some() && !is_zombie(pid) && (first_thread_ended(pid) || has_no_words() || is_killed(pid))
}

/// Waits until nothing is left of a killed process. Its first thread may have ended while others are in the kernel, in
/// a sync for instance, and until they are out its locks are held.
fn wait_gone(layout: &Layout, name: &str, limit: Duration) {
    let text = std::fs::read_to_string(layout.pid(name)).unwrap_or_default();
    let Ok(raw) = text.trim().parse::<i32>() else { return };
    let begun = Instant::now();
    while is_ending(raw) && begun.elapsed() < limit {
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Whether it runs, and serves or stands by. One that is beginning or ending is waited for.
fn serves(layout: &Layout, name: &str, limit: Duration) -> Result<bool> {
    let (ready, begun) = (layout.ready(name), Instant::now());
    while running(layout, name).is_some() {
        if ready::said(&ready).is_some() {
            return Ok(true);
        }
        if begun.elapsed() > limit {
            let (last, log) = (last_line(&layout.log(name)), layout.log(name));
            bail!("{name} runs and does not serve, since {} s: {last} (log: {})", limit.as_secs(), log.display());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(false)
}

/// Starts `name`, logging to `log`, unless it runs; answers whether it was started.
pub fn ensure(layout: &Layout, name: &str, arguments: Vec<OsString>, log: &Path, limit: Duration) -> Result<bool> {
    if serves(layout, name, limit)? {
        return Ok(false);
    }
    wait_gone(layout, name, limit);
    let ready_file = layout.ready(name);
    let mut arguments = arguments;
    arguments.extend(["--ready-file".into(), ready_file.clone().into_os_string()]);
    let _ = std::fs::remove_file(layout.pages(name));
    let mut spawned = Spawned::with_ready_file(&arguments, log, ready_file)?;
    let pid_file = layout.pid(name);
    std::fs::write(&pid_file, format!("{}\n", spawned.pid()))
        .with_context(|| format!("cannot write {}", pid_file.display()))?;
    spawned.wait_ready(limit).with_context(|| format!("{name} does not start"))?;
    Ok(true)
}

/// One that somebody has stopped (SIGSTOP) goes on.
pub fn resume(layout: &Layout, name: &str) {
    if let Some(pid) = running(layout, name) {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, Signal::CONT);
    }
}

/// Ends `name` by SIGTERM and waits; answers whether it ran.
pub fn stop(layout: &Layout, name: &str, limit: Duration) -> Result<bool> {
    let Some(pid) = running(layout, name) else {
        let _ = std::fs::remove_file(layout.pid(name));
        return Ok(false);
    };
    rustix::process::kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop {name}"))?;
    let begun = Instant::now();
    // To its end: what it had open, its disk may be wanted for something else.
    while running(layout, name).is_some() || is_ending(pid.as_raw_nonzero().get()) {
        if begun.elapsed() > limit {
            bail!(
                "{name} (process {}) did not stop within {} s; its log is {}",
                pid.as_raw_nonzero(),
                limit.as_secs(),
                layout.log(name).display()
            );
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let _ = std::fs::remove_file(layout.pid(name));
    Ok(true)
}
