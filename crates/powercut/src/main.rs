//! `braid-powercut`: a power-cut disk for shell scripts and programs of any language.
//!
//! `braid-powercut MOUNTPOINT --control SOCKET` mounts an empty disk, prints `ready` and serves it until `unmount` is said at
//! the socket, its standard input ends (with `--while-stdin`), or it gets SIGINT or SIGTERM. `braid-powercut ctl SOCKET
//! COMMAND...` says something at the socket and prints the answer.
//!
//! `braid-powercut load` and `check` are what runs on the system under test: calls whose promises are recorded, and the
//! comparison after the crash.

mod signals;

use braid_powercut::{Control, Expect, Load, Options, Order, PowerCutDisk, ask};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::{env, fs, io, thread};

const USAGE: &str = "\
usage: braid-powercut MOUNTPOINT --control SOCKET [--capacity BYTES] [--order journal|posix] [--while-stdin]
       braid-powercut ctl SOCKET COMMAND...
       braid-powercut load DIR --record DIR --stop FILE --seed NUMBER [--workers NUMBER] [--also DIR]...
       braid-powercut check DIR --record DIR [--everything | --beginning]
commands: cut SEED | lose-syncs on|off | fail-writes COUNT | fail-syncs COUNT | capacity BYTES|none |
          slow-syncs MILLISECONDS | stop-after CHANGES|none | stats | unmount";

struct Arguments {
    mount_point: PathBuf,
    control: PathBuf,
    while_stdin: bool,
    options: Options,
}

fn parse(words: &[String]) -> Option<Arguments> {
    let (mut mount_point, mut control, mut while_stdin, mut options) = (None, None, false, Options::default());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--control" => control = Some(words.next()?.into()),
            "--capacity" => options.capacity = Some(words.next()?.parse().ok()?),
            "--order" => {
                options.order = Some(match words.next()?.as_str() {
                    "journal" => Order::Journal,
                    "posix" => Order::Posix,
                    _ => return None,
                });
            }
            "--while-stdin" => while_stdin = true,
            flag if flag.starts_with('-') => return None,
            path if mount_point.is_none() => mount_point = Some(path.into()),
            _ => return None,
        }
    }
    Some(Arguments { mount_point: mount_point?, control: control?, while_stdin, options })
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((first, [socket, command @ ..])) if first == "ctl" && !command.is_empty() => {
            ask(Path::new(socket), &command.join(" ")).map(|answer| println!("ok {answer}"))
        }
        Some((first, rest)) if first == "load" => match parse_load(rest) {
            Some(load) => run_load(&load),
            None => return usage(),
        },
        Some((first, rest)) if first == "check" => match parse_check(rest) {
            Some((dir, record, expect)) => run_check(&dir, &record, expect),
            None => return usage(),
        },
        _ => match parse(&words) {
            Some(arguments) => serve(&arguments),
            None => return usage(),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("braid-powercut: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn parse_load(words: &[String]) -> Option<Load> {
    let (dir, words) = words.split_first()?;
    let (mut record, mut stop, mut seed, mut workers) = (None, None, None, 4);
    let mut also = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--record" => record = Some(words.next()?.into()),
            "--stop" => stop = Some(words.next()?.into()),
            "--seed" => seed = Some(words.next()?.parse().ok()?),
            "--workers" => workers = words.next()?.parse().ok()?,
            "--also" => also.push(words.next()?.into()),
            _ => return None,
        }
    }
    Some(Load { dir: dir.into(), also, record: record?, stop: stop?, seed: seed?, workers })
}

fn parse_check(words: &[String]) -> Option<(PathBuf, PathBuf, Expect)> {
    match words {
        [dir, flag, record] if flag == "--record" => Some((dir.into(), record.into(), Expect::Promised)),
        [dir, flag, record, how] if flag == "--record" && how == "--beginning" => {
            Some((dir.into(), record.into(), Expect::Beginning))
        }
        [dir, flag, record, all] if flag == "--record" && all == "--everything" => {
            Some((dir.into(), record.into(), Expect::Everything))
        }
        _ => None,
    }
}

/// Fails when a file reads wrong; calls that failed are the caller's to judge, who may have killed the mount.
fn run_load(load: &Load) -> io::Result<()> {
    let report = braid_powercut::load(load)?;
    report.failed.iter().for_each(|what| println!("failed: {what}"));
    report.wrong.iter().for_each(|what| println!("wrong: {what}"));
    println!("load {report}");
    if report.wrong.is_empty() { Ok(()) } else { Err(io::Error::other("files read otherwise than they were written")) }
}

fn run_check(dir: &Path, record: &Path, expect: Expect) -> io::Result<()> {
    let verdict = braid_powercut::check(dir, record, expect)?;
    verdict.problems.iter().for_each(|what| println!("broken promise: {what}"));
    println!("check {verdict}");
    match verdict.problems.len() {
        0 => Ok(()),
        n => Err(io::Error::other(format!("{n} promises are broken"))),
    }
}

fn serve(arguments: &Arguments) -> io::Result<()> {
    // Before any thread begins, so that all of them leave the signals to the one that waits.
    signals::block()?;
    let control = Control::listen(&arguments.control)?;
    let disk = PowerCutDisk::mount(&arguments.mount_point, &arguments.options)?;
    println!("ready");
    let (end, ended) = mpsc::channel();
    let by_signal = end.clone();
    thread::spawn(move || {
        signals::wait();
        by_signal.send(Ok(()))
    });
    if arguments.while_stdin {
        let by_stdin = end.clone();
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            by_stdin.send(Ok(()))
        });
    }
    // What ends the wait first ends the disk. The other threads end with the process.
    let disk = Arc::new(disk);
    let served = disk.clone();
    let socket = arguments.control.clone();
    thread::spawn(move || end.send(control.serve(&served)));
    let outcome = ended.recv().unwrap_or(Ok(()));
    disk.end()?;
    let _ = fs::remove_file(socket);
    outcome
}
