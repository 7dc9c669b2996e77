use crate::{MODE_MASK, Mode};
use serde::{Deserialize, Serialize};

/// What chmod does to a mode: octal digits, or clauses as in `g+w,o-rwx,a=rX`, which depend on the mode that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModeChange {
    Octal(u32),
    Clauses(Vec<ModeClause>),
}

/// `ug+rw`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeClause {
    /// Bits of those named: user, group, others, with their special bit.
    who: u32,
    how: char,
    what: String,
}

impl std::str::FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(bits) = u32::from_str_radix(text, 8) {
            return if bits <= MODE_MASK {
                Ok(ModeChange::Octal(bits))
            } else {
                Err(format!("{text} is more than 7777"))
            };
        }
        text.split(',')
            .map(clause)
            .collect::<Option<Vec<_>>>()
            .map(ModeChange::Clauses)
            .ok_or_else(|| format!("{text:?} is no mode; use octal digits, or [ugoa][+-=][rwxXst] with commas between"))
    }
}

fn clause(text: &str) -> Option<ModeClause> {
    let at = text.find(['+', '-', '='])?;
    let (who, rest) = text.split_at(at);
    let how = rest.chars().next()?;
    let what = &rest[1..];
    let mut mask = if who.is_empty() { MODE_MASK } else { 0 };
    for ch in who.chars() {
        mask |= match ch {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => MODE_MASK,
            _ => return None,
        };
    }
    what.chars().all(|ch| "rwxXst".contains(ch)).then(|| ModeClause { who: mask, how, what: what.to_owned() })
}

impl ModeChange {
    pub fn apply(&self, mode: Mode, is_dir: bool) -> Mode {
        match self {
            ModeChange::Octal(bits) => Mode(*bits & MODE_MASK),
            ModeChange::Clauses(clauses) => Mode(clauses.iter().fold(mode.0, |mode, c| c.apply(mode, is_dir))),
        }
    }
}

impl ModeClause {
    fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        let bits = self.what.chars().fold(0, |bits, ch| {
            bits | match ch {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                // For directories, and for what somebody may execute already.
                'X' if is_dir || mode & 0o111 != 0 => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                _ => 0,
            }
        });
        // The sticky bit belongs to nobody in particular.
        let who = if self.what.contains('t') { self.who | 0o1000 } else { self.who } & MODE_MASK;
        match self.how {
            '+' => mode | (bits & who),
            '-' => mode & !(bits & who),
            // Special bits that are not named stay.
            _ => (mode & !(who & 0o777)) | (bits & who),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_by_chmod() {
        let apply = |text: &str, mode, dir| text.parse::<ModeChange>().unwrap().apply(Mode(mode), dir).0;
        assert_eq!(apply("750", 0, false), 0o750);
        assert_eq!(apply("g+w,o-rwx", 0o755, false), 0o770);
        assert_eq!(apply("a=rX", 0o640, false), 0o444);
        assert_eq!(apply("a=rX", 0o640, true), 0o555);
        assert_eq!(apply("u+s", 0o755, false), 0o4755);
        assert_eq!(apply("+t", 0o777, true), 0o1777);
        assert_eq!(apply("g=", 0o777, false), 0o707);
        assert!("77777".parse::<ModeChange>().is_err() && "z+r".parse::<ModeChange>().is_err());
    }
}
