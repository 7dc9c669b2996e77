//! The record of a worker: `+ call` when it begins, `= milliseconds` when it was acknowledged, `! error` when it was not.

use super::op::Op;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

pub struct Record(File);

impl Record {
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(File::options().create_new(true).append(true).open(path)?))
    }

    pub fn begins(&mut self, op: &Op) -> io::Result<()> {
        self.0.write_all(format!("+ {op}\n").as_bytes())
    }

    pub fn ends(&mut self, outcome: &io::Result<()>, took: Duration) -> io::Result<()> {
        let line = match outcome {
            Ok(()) => format!("= {}\n", took.as_millis()),
            Err(error) => format!("! {error} after {} ms\n", took.as_millis()),
        };
        self.0.write_all(line.as_bytes())
    }
}

/// What a record says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// In order.
    pub acknowledged: Vec<Op>,
    /// The last call, if nobody knows whether it took effect: it was under way, or failed.
    pub unknown: Option<Op>,
}

pub fn read(path: &Path) -> io::Result<Told> {
    parse(&std::fs::read_to_string(path)?)
}

fn parse(text: &str) -> io::Result<Told> {
    let mut told = Told::default();
    for (number, line) in text.lines().enumerate() {
        let wrong = || io::Error::other(format!("line {} of the record is not understood: {line}", number + 1));
        match line.split_once(' ') {
            Some(("+", call)) if told.unknown.is_none() => told.unknown = Some(Op::parse(call).ok_or_else(wrong)?),
            Some(("=", _)) => told.acknowledged.push(told.unknown.take().ok_or_else(wrong)?),
            // A worker ends at its first error.
            Some(("!", _)) if told.unknown.is_some() => {}
            _ => return Err(wrong()),
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_when_it_was_acknowledged() {
        let told = parse("+ mkdir a\n= 3\n+ fsync 1\n").unwrap();
        assert_eq!(told.acknowledged, [Op::Mkdir { name: "a".into() }]);
        assert_eq!(told.unknown, Some(Op::Fsync { file: 1 }));
        assert_eq!(parse("+ fsync 1\n! gone after 3 ms\n").unwrap().unknown, Some(Op::Fsync { file: 1 }));
        assert!(parse("= 3\n").is_err() && parse("+ fsync 1\n+ fsync 2\n").is_err() && parse("+ dance\n").is_err());
    }
}
