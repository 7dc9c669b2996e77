//! `braid-powercut`: a power-cut disk for shell scripts and programs of any language.
//!
//! `braid-powercut MOUNTPOINT --control SOCKET` mounts an empty disk, prints `ready` and serves it until `unmount` is said at
//! the socket, its standard input ends (with `--while-stdin`), or it gets SIGINT or SIGTERM. `braid-powercut ctl SOCKET
//! COMMAND...` says something at the socket and prints the answer.

mod signals;

use braid_powercut::{Control, Options, Order, PowerCutDisk, ask};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::{env, fs, io, thread};

const USAGE: &str = "\
usage: braid-powercut MOUNTPOINT --control SOCKET [--capacity BYTES] [--order journal|posix] [--while-stdin]
       braid-powercut ctl SOCKET COMMAND...
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
        _ => match parse(&words) {
            Some(arguments) => serve(&arguments),
            None => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
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
