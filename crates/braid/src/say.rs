//! The standard output and error of every command. Here are `println!` and its kin for the whole crate, in place of
//! those of the standard library, which panic where nobody reads.
//!
//! Promises: no closed pipe and no full disk behind the output makes a command panic. What becomes of the command is
//! [`Unheard`]. The standard error is never worth ending for.
//!
//! SIGPIPE stays ignored, as the standard library has it: it would also end a command whose server goes away in the middle
//! of a message, which is to be tried again.

use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write};
use std::sync::OnceLock;
use tokio::sync::Notify;

macro_rules! print {
    ($($words:tt)*) => { $crate::say::out(format_args!($($words)*)) };
}

macro_rules! println {
    () => { $crate::say::out(format_args!("\n")) };
    ($($words:tt)*) => { $crate::say::out(format_args!("{}\n", format_args!($($words)*))) };
}

macro_rules! eprintln {
    ($($words:tt)*) => { $crate::say::error(format_args!("{}\n", format_args!($($words)*))) };
}

/// What a command does when its output cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unheard {
    /// It ends at once, as programs do that SIGPIPE ends. For what only shows something.
    End,
    /// It has something to put in order first: see [`unheard`].
    Leave,
    /// It goes on: half a cluster stopped helps nobody.
    GoOn,
}

/// The exit code that a shell shows for a program that SIGPIPE has ended.
const PIPE_EXIT: u8 = 128 + 13;

static MANNER: OnceLock<Unheard> = OnceLock::new();
/// The first error of the output.
static LOST: OnceLock<Error> = OnceLock::new();
static TOLD: Notify = Notify::const_new();

/// Said once, before the command says anything.
pub fn when_unheard(manner: Unheard) {
    let _ = MANNER.set(manner);
}

pub fn out(words: Arguments<'_>) {
    if let Err(error) = std::io::stdout().lock().write_fmt(words) {
        lost(error);
    }
}

/// Bytes as they are, for other programs.
pub fn out_bytes(pieces: &[&[u8]]) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = pieces.iter().try_for_each(|piece| out.write_all(piece)) {
        drop(out);
        lost(error);
    }
}

pub fn error(words: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(words);
}

/// Takes note of an output that cannot be written.
pub fn lost(error: Error) {
    let _ = LOST.set(error);
    TOLD.notify_one();
    if MANNER.get().copied().unwrap_or(Unheard::End) == Unheard::End {
        std::process::exit(lost_exit().map_or(0, i32::from));
    }
}

/// Returns when the output cannot be written any more.
pub async fn unheard() {
    if LOST.get().is_none() {
        TOLD.notified().await;
    }
}

/// The exit code of a command whose output could not be written. A closed pipe is somebody who has read enough, which is
/// not worth a word; a full disk is.
pub fn lost_exit() -> Option<u8> {
    let error = LOST.get()?;
    if error.kind() == ErrorKind::BrokenPipe {
        return Some(PIPE_EXIT);
    }
    eprintln!("braid: cannot write the output: {error}");
    Some(1)
}
