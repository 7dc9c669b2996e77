//! Which settings there are, and which one somebody may have meant who wrote another.

use super::Config;
use std::fmt;
use toml::{Table, Value};

/// What is no setting, and the nearest that is.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    section: String,
    /// `None` if there is no such section.
    key: Option<String>,
    nearest: Option<String>,
}

/// Looks for the first section or key that does not exist.
pub fn check(table: &Table) -> Result<(), Unknown> {
    let Ok(known) = Table::try_from(Config::default()) else { return Ok(()) };
    for (section, keys) in table {
        let Some(known_keys) = known.get(section).and_then(Value::as_table) else {
            // A key without its section is a common slip: `session_lease = "5s"` at the top of the file.
            let of_key = known.iter().find(|(_, keys)| keys.as_table().is_some_and(|keys| keys.contains_key(section)));
            let nearest = match of_key {
                Some((of, _)) => Some(format!("{section} in section [{of}]")),
                None => nearest(section, known.keys()).map(|name| format!("section [{name}]")),
            };
            return Err(Unknown { section: section.clone(), key: None, nearest });
        };
        let Some(keys) = keys.as_table() else { continue };
        if let Some(key) = keys.keys().find(|key| !known_keys.contains_key(*key)) {
            let elsewhere = known
                .iter()
                .find(|(_, keys)| keys.as_table().is_some_and(|keys| keys.contains_key(key)))
                .map(|(section, _)| format!("{section}.{key}"));
            let nearest = elsewhere.or_else(|| nearest(key, known_keys.keys()).map(|key| format!("{section}.{key}")));
            return Err(Unknown { section: section.clone(), key: Some(key.clone()), nearest });
        }
    }
    Ok(())
}

impl Unknown {
    /// Where it stands in the file, as far as lines show it: `[section]`, and `key =` below.
    pub fn line(&self, text: &str) -> Option<usize> {
        let is_key = |line: &str, key: &str| {
            let name = line.split('=').next().unwrap_or_default().trim();
            line.contains('=') && name.trim_matches(['"', '\'']) == key
        };
        let is_section = |line: &str| {
            line.strip_prefix('[')
                .and_then(|rest| rest.split(']').next())
                .is_some_and(|name| name.trim().split('.').next() == Some(self.section.as_str()))
        };
        let mut inside = false;
        for (at, line) in text.lines().map(str::trim).enumerate() {
            let found = match &self.key {
                None => is_section(line) || is_key(line, &self.section),
                Some(key) => inside && is_key(line, key) || is_key(line, &format!("{}.{key}", self.section)),
            };
            if found {
                return Some(at + 1);
            }
            if line.starts_with('[') {
                inside = is_section(line);
            }
        }
        None
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{}.{} is not a setting", self.section.escape_debug(), key.escape_debug())?,
            None => write!(f, "{} is not a section", self.section.escape_debug())?,
        }
        match &self.nearest {
            Some(nearest) => write!(f, "; is {nearest} meant?"),
            None => Ok(()),
        }
    }
}

/// The known name that differs least from `word`, if it is not another word altogether: in at most a third of its letters.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let (distance, name) = known.map(|name| (distance(word, name), name)).min()?;
    (distance <= word.chars().count().div_ceil(3)).then_some(name.as_str())
}

/// Letters to change, add or take away (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (a, b, d) in [("", "", 0), ("abc", "abc", 0), ("kitten", "sitting", 3), ("", "abc", 3), ("é", "e", 1)] {
            assert_eq!((distance(a, b), distance(b, a)), (d, d), "{a} {b}");
        }
    }
}
