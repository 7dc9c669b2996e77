//! The command line.

use crate::say::{self, Unheard};
use crate::{admin, bench, config, fs, local, roles};
use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// BraidFS: one name space over local-write, striped, erasure-coded and in-memory files.
#[derive(Parser)]
#[command(name = "braid", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  braid up ./var --mount ./mnt        start a small cluster here and mount it
  braid admin status --cluster ./var  what runs, and is it well
  braid down ./var                    stop it";

/// Where a command finds its cluster.
#[derive(Args, Clone, Default)]
pub struct ClusterArgs {
    /// Configuration file (TOML).
    #[arg(long, short, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Override a setting, e.g. --set client.deadline=10s.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", global = true)]
    pub set: Vec<String>,
    /// A cluster made by `braid up DIR`: the same as --config DIR/braid.toml.
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "config")]
    pub cluster: Option<PathBuf>,
}

impl ClusterArgs {
    pub fn load(&self) -> Result<config::Config> {
        config::Config::load(self.path().as_deref(), &self.set)
    }

    fn path(&self) -> Option<PathBuf> {
        match (&self.config, &self.cluster) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(dir)) => Some(dir.join(local::CONFIG_FILE)),
            (None, None) => std::env::var_os("BRAID_CONFIG").map(PathBuf::from),
        }
    }

    /// Where the configuration lies: of a local cluster, the directory of everything.
    pub fn dir(&self) -> Option<PathBuf> {
        self.path()?.parent().map(Into::into)
    }
}

#[derive(Subcommand)]
enum Command {
    /// Start a small cluster on this machine and mount it; safe to run again.
    Up(local::UpArgs),
    /// Unmount and stop what `up` started; nothing is lost.
    Down(local::DownArgs),
    /// Run one role: metadata or data.
    Serve(roles::ServeArgs),
    /// Mount a cluster at a directory.
    Mount(roles::MountArgs),
    /// Unmount.
    Umount(roles::UmountArgs),
    /// Work on files without a mount.
    Fs(fs::FsArgs),
    /// Look at a cluster, check and repair it.
    Admin(admin::AdminArgs),
    /// Measure this machine: native clients against the engine and the disk below them.
    Bench(bench::BenchArgs),
    /// Print every setting with its default and meaning.
    #[command(after_help = "Example:\n  braid config > braid.toml")]
    Config,
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  braid completion bash > /etc/bash_completion.d/braid")]
    Completion { shell: clap_complete::Shell },
}

impl Command {
    fn unheard(&self) -> Unheard {
        match self {
            Command::Up(_) | Command::Down(_) | Command::Serve(_) | Command::Mount(_) | Command::Umount(_) => {
                Unheard::GoOn
            }
            // The server would go on for nobody.
            Command::Admin(args) if args.ends_in_order() => Unheard::Leave,
            // Its session ends first: others would wait for what it holds.
            Command::Fs(_) => Unheard::Leave,
            Command::Admin(_) | Command::Bench(_) | Command::Config | Command::Completion { .. } => Unheard::End,
        }
    }
}

impl Cli {
    pub fn run(self) -> Result<ExitCode> {
        say::when_unheard(self.command.unheard());
        match self.command {
            Command::Up(args) => args.run(),
            Command::Down(args) => args.run(),
            Command::Serve(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::Umount(args) => args.run(),
            Command::Fs(args) => args.run(),
            Command::Admin(args) => args.run(),
            Command::Bench(args) => args.run(),
            Command::Config => {
                print!("{}", config::DEFAULT_TEXT);
                Ok(ExitCode::SUCCESS)
            }
            Command::Completion { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "braid", &mut script);
                say::out_bytes(&[&script]);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command with the words that lead to it.
    fn all(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
        let words = format!("{words} {}", command.get_name()).trim().to_owned();
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            all(sub, &words, found);
        }
        found.push((words, command.clone()));
    }

    fn commands() -> Vec<(String, clap::Command)> {
        let mut found = Vec::new();
        all(&Cli::command(), "", &mut found);
        found
    }

    /// The example begins with the command's own words, so that it is one of this command.
    #[test]
    fn every_help_has_an_example() {
        let commands = commands();
        assert!(commands.len() > 30, "{}", commands.len());
        for (words, command) in commands {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = help.lines().skip_while(|line| !line.starts_with("Example")).nth(1).unwrap_or_default();
            let begin = format!("  {words} ");
            assert!(format!("{example} ").starts_with(&begin), "{words}: {help:?}");
            assert!(command.get_about().is_some(), "{words} says nothing of itself");
        }
    }

    #[test]
    fn what_scripts_read_is_there_as_json() {
        let commands = commands();
        for words in [
            "admin status",
            "admin servers",
            "admin sessions",
            "admin containers",
            "admin sql",
            "admin fsck",
            "admin scrub",
            "admin drain",
            "admin decommission",
            "admin metadata recover",
            "admin why",
            "fs stat",
            "fs ls",
            "fs find",
            "fs du",
            "fs df",
            "fs policy get",
        ] {
            let command = commands.iter().find(|(found, _)| *found == format!("braid {words}"));
            let (_, command) = command.unwrap_or_else(|| panic!("there is no braid {words}"));
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some("json")), "{words}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
