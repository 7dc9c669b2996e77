//! Control from outside: one command a line over a Unix socket, one line back, which begins with `ok` or `error`.

use crate::disk::PowerCutDisk;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Nobody waits longer than this for a disk that does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// The socket of a disk.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// A socket that a killed process left is replaced.
    pub fn listen(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_err() && fs::symlink_metadata(path).is_ok() {
            fs::remove_file(path)?;
        }
        Ok(Self { listener: UnixListener::bind(path)?, path: path.to_owned() })
    }

    /// Obeys until somebody says `unmount`, one connection after the other.
    pub fn serve(&self, disk: &PowerCutDisk) -> io::Result<()> {
        loop {
            let (stream, _) = self.listener.accept()?;
            stream.set_read_timeout(Some(ANSWER_LIMIT))?;
            match converse(stream, disk) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "a control connection broke"),
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// True when the disk is to end.
fn converse(stream: UnixStream, disk: &PowerCutDisk) -> io::Result<bool> {
    let mut answers = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let command = Command::parse(&line);
        let answer = match &command {
            Ok(command) => format!("ok {}\n", command.run(disk)),
            Err(reason) => format!("error {reason}\n"),
        };
        answers.write_all(answer.as_bytes())?;
        if command == Ok(Command::Unmount) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sends one command to the disk behind `socket` and gives what it says behind `ok`.
pub fn ask(socket: &Path, command: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    writeln!(stream, "{command}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
        ("ok", rest) => Ok(rest.to_owned()),
        (_, reason) => Err(io::Error::other(format!("the power-cut disk says: {reason}"))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Cut(u64),
    LoseSyncs(bool),
    FailWrites(u64),
    FailSyncs(u64),
    Capacity(Option<u64>),
    SlowSyncs(Duration),
    StopAfter(Option<u64>),
    Stats,
    Unmount,
}

const COMMANDS: &str = "cut SEED, lose-syncs on|off, fail-writes COUNT, fail-syncs COUNT, capacity BYTES|none, \
                        slow-syncs MILLISECONDS, stop-after CHANGES|none, stats, unmount";

impl Command {
    fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unknown = || format!("\"{line}\" is none of: {COMMANDS}");
        let number = |word: &str| word.parse::<u64>().map_err(|_| unknown());
        let optional = |word: &str| if word == "none" { Ok(None) } else { number(word).map(Some) };
        match words[..] {
            ["cut", seed] => Ok(Self::Cut(number(seed)?)),
            ["lose-syncs", "on"] => Ok(Self::LoseSyncs(true)),
            ["lose-syncs", "off"] => Ok(Self::LoseSyncs(false)),
            ["fail-writes", count] => Ok(Self::FailWrites(number(count)?)),
            ["fail-syncs", count] => Ok(Self::FailSyncs(number(count)?)),
            ["capacity", bytes] => Ok(Self::Capacity(optional(bytes)?)),
            ["slow-syncs", ms] => Ok(Self::SlowSyncs(Duration::from_millis(number(ms)?))),
            ["stop-after", changes] => Ok(Self::StopAfter(optional(changes)?)),
            ["stats"] => Ok(Self::Stats),
            ["unmount"] => Ok(Self::Unmount),
            _ => Err(unknown()),
        }
    }

    fn run(self, disk: &PowerCutDisk) -> String {
        match self {
            Self::Cut(seed) => return disk.cut(seed).to_string(),
            Self::Stats => return disk.stats().to_string(),
            Self::LoseSyncs(on) => disk.lose_syncs(on),
            Self::FailWrites(count) => disk.fail_writes(count),
            Self::FailSyncs(count) => disk.fail_syncs(count),
            Self::Capacity(bytes) => disk.set_capacity(bytes),
            Self::SlowSyncs(delay) => disk.slow_syncs(delay),
            Self::StopAfter(changes) => disk.stop_after(changes),
            Self::Unmount => {}
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_understood_or_listed() {
        assert_eq!(Command::parse(" cut  7 "), Ok(Command::Cut(7)));
        assert_eq!(Command::parse("lose-syncs on"), Ok(Command::LoseSyncs(true)));
        assert_eq!(Command::parse("capacity none"), Ok(Command::Capacity(None)));
        assert_eq!(Command::parse("slow-syncs 5"), Ok(Command::SlowSyncs(Duration::from_millis(5))));
        for wrong in ["", "cut", "cut x", "lose-syncs", "stats now"] {
            assert!(Command::parse(wrong).unwrap_err().contains("stop-after"), "{wrong}");
        }
    }
}
