//! A server that has lost what it knew begins anew in its own process: the same program, with the same words. Nothing of what it was
//! doing goes on, which a new start within the program could not promise; whoever looks after the process (a service manager,
//! `braid up` with its pid file) sees the same one go on.

use anyhow::anyhow;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// With this word a server has begun before: what it needs has been there, and is waited for. Hidden from who starts servers.
pub const WORD: &str = "anew";

/// How a server's work has ended.
pub enum End {
    /// As it was asked to.
    Asked,
    /// It is to begin anew: why.
    Anew(String),
}

/// Returns only if that cannot be.
pub fn begin() -> anyhow::Error {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| "braid".into());
    let flag = OsString::from(format!("--{WORD}"));
    let words: Vec<OsString> = words.filter(|word| *word != flag).chain([flag.clone()]).collect();
    // Replaced by an upgrade meanwhile: then that one. Removed: what runs is still there.
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let program = program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let error = Command::new(program).arg0(name).args(words).exec();
    anyhow!("this server cannot begin anew: {error}; start it again")
}
