//! Configuration: one TOML file for all roles of a machine, every setting with a default, unknown keys refused.
//!
//! `config/default.toml` documents each setting; a test compares it with the defaults in code.

mod settings;
mod units;

pub use settings::{Config, parse_addresses};

use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;

/// The documented default, as `braid config` prints it.
pub const DEFAULT_TEXT: &str = include_str!("../../config/default.toml");

impl Config {
    /// Reads `path` (defaults only, if `None`) and applies `key=value` overrides, as `--set` takes them.
    pub fn load(path: Option<&Path>, overrides: &[String]) -> Result<Config> {
        let mut table = match path {
            None => toml::Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the configuration {}", path.display()))?;
                text.parse::<toml::Table>().map_err(|e| bad(path, &e))?
            }
        };
        for setting in overrides {
            set(&mut table, setting)?;
        }
        let shown = path.unwrap_or(Path::new("--set"));
        let config: Config = table.try_into().map_err(|e| bad(shown, &e))?;
        config.check().map_err(|e| anyhow!("{}: {e}", shown.display()))?;
        Ok(config)
    }
}

/// One clear line instead of a drawing of the file.
fn bad(path: &Path, error: &toml::de::Error) -> anyhow::Error {
    let message = error.message().replace('\n', " ");
    anyhow!("{}: {message} (braid config prints every setting with its default)", path.display())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("braid.toml");
        std::fs::write(&path, text)?;
        Config::load(Some(&path), &[])
    }

    #[test]
    fn the_documented_default_is_the_default_and_names_every_setting() {
        let documented: Config = toml::from_str(DEFAULT_TEXT).unwrap();
        assert_eq!(documented, Config::default());
        let all = toml::Table::try_from(Config::default()).unwrap();
        let written: toml::Table = DEFAULT_TEXT.parse().unwrap();
        for (section, keys) in &all {
            for key in keys.as_table().unwrap().keys() {
                assert!(written[section].as_table().unwrap().contains_key(key), "{section}.{key} is not documented");
            }
        }
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn mistakes_name_the_file_the_setting_and_what_would_be_right() {
        for (text, words) in [
            ("[metadata]\ncolour = \"red\"", vec!["braid.toml", "colour"]),
            ("[nonsense]\n", vec!["braid.toml", "nonsense"]),
            ("[metadata]\nsession_lease = \"10 parsecs\"", vec!["braid.toml", "parsecs", "10s"]),
            ("[client]\nwrite_buffer = \"lots\"", vec!["braid.toml", "lots", "64MiB"]),
            ("[metadata]\npolicy = \"raid5\"", vec!["braid.toml", "raid5", "plain"]),
            ("[metadata]\nlisten = [\"nowhere\"]", vec!["braid.toml", "nowhere", "host:port"]),
            ("[metadata]\nsession_lease = \"1s\"", vec!["braid.toml", "renewals"]),
            ("[metadata\n", vec!["braid.toml"]),
            ("[data]\nio_threads = -1", vec!["braid.toml"]),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(words.iter().all(|w| error.contains(w)), "{text}: {error}");
            assert!(!error.contains('\n'), "one line: {error}");
        }
    }

    #[test]
    fn settings_can_be_given_on_the_command_line() {
        let set = |s: &str| Config::load(None, &[s.to_owned()]);
        assert_eq!(set("data.dir=/x").unwrap().data.dir, Path::new("/x"));
        assert_eq!(set("mount.threads=2").unwrap().mount.threads, 2);
        assert!(set("data.dir").is_err());
        assert!(set("dir=/x").is_err());
    }

    #[test]
    fn garbage_never_panics() {
        // A fixed seed of bytes that look like TOML more often than chance would make them.
        let alphabet: &[u8] = b"[]{}=\"'\n.#abcmetadtliv0159-_, \xff\x00";
        let mut state = 1u64;
        for _ in 0..2_000 {
            let mut bytes = Vec::new();
            for _ in 0..60 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bytes.push(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
