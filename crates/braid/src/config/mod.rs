//! Configuration: one TOML file for all roles of a machine, every setting with a default, unknown keys refused.
//!
//! `config/default.toml` documents each setting; a test compares it with the defaults in code.

mod known;
mod ranges;
mod settings;
#[cfg(test)]
mod tests;
mod units;

pub use ranges::{NAME_MAX, is_name, log_level, port};
pub use settings::{Config, parse_addresses};
pub use units::{ByteSize, Span};

use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;

/// The documented default, as `braid config` prints it.
pub const DEFAULT_TEXT: &str = include_str!("../../config/default.toml");

/// Longer lines of a file are shown cut.
const SHOWN_CHARS: usize = 60;

impl Config {
    /// Reads `path` (defaults only, if `None`) and applies `key=value` overrides, as `--set` takes them.
    pub fn load(path: Option<&Path>, overrides: &[String]) -> Result<Config> {
        let mut table = match path {
            None => toml::Table::new(),
            Some(path) => {
                let bytes =
                    std::fs::read(path).with_context(|| format!("cannot read the configuration {}", path.display()))?;
                let text = String::from_utf8(bytes)
                    .map_err(|e| anyhow!("{}: it is not text: {}", path.display(), e.utf8_error()))?;
                parse(&text).map_err(|why| anyhow!("{}: {why}", path.display()))?
            }
        };
        for setting in overrides {
            // Alone, so that a mistake is told with the words it was made in.
            let mut alone = toml::Table::new();
            set(&mut alone, setting)?;
            read(&alone).map_err(|why| anyhow!("--set {setting}: {why}"))?;
            set(&mut table, setting)?;
        }
        let shown = path.unwrap_or(Path::new("--set"));
        let config = read(&table).map_err(|why| anyhow!("{}: {why}", shown.display()))?;
        config.check().map_err(|bad| {
            // Said where it was said, the last time if there were several.
            let begins = format!("{}=", bad.setting);
            match overrides.iter().rfind(|setting| setting.starts_with(&begins)) {
                Some(setting) => anyhow!("--set {setting}: {bad}"),
                None => anyhow!("{}: {bad}", shown.display()),
            }
        })?;
        Ok(config)
    }
}

/// The tables of a file that holds nothing but settings, each of its kind. Otherwise one line that tells where the
/// mistake is and what would be right.
fn parse(text: &str) -> Result<toml::Table, String> {
    let table: toml::Table = text.parse().map_err(|e| bad(text, &e))?;
    if let Err(unknown) = known::check(&table) {
        let line = unknown.line(text).map_or(String::new(), |line| format!("line {line}: "));
        return Err(format!("{line}{unknown} ({HINT})"));
    }
    match toml::from_str::<Config>(text) {
        Ok(_) => Ok(table),
        Err(e) => Err(bad(text, &e)),
    }
}

const HINT: &str = "braid config prints every setting with its default";

fn read(table: &toml::Table) -> Result<Config, String> {
    known::check(table).map_err(|unknown| format!("{unknown} ({HINT})"))?;
    table.clone().try_into().map_err(|e: toml::de::Error| format!("{} ({HINT})", e.message().replace('\n', " ")))
}

/// One clear line instead of a drawing of the file.
fn bad(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return format!("{message} ({HINT})");
    };
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default().trim();
    let mut shown: String = line.escape_debug().take(SHOWN_CHARS).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    // Quotes are read easier as they were written.
    let shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    format!("line {}, {shown}: {message} ({HINT})", number + 1)
}

/// Applies `section.key=value`. The value is TOML, or a plain text where that is no TOML.
fn set(table: &mut toml::Table, setting: &str) -> Result<()> {
    let Some((path, value)) = setting.split_once('=') else {
        bail!("--set takes section.key=value, not {setting:?}");
    };
    let Some((section, key)) = path.split_once('.') else {
        bail!("--set takes section.key=value; {path:?} names no section");
    };
    let value = format!("v = {value}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let entry = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    match entry.as_table_mut() {
        Some(section) => {
            section.insert(key.to_owned(), value);
            Ok(())
        }
        None => bail!("{section} is not a section"),
    }
}
