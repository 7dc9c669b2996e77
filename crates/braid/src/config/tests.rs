use super::*;

fn parse(bytes: impl AsRef<[u8]>) -> Result<Config> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("braid.toml");
    std::fs::write(&path, bytes)?;
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
fn mistakes_name_the_file_the_line_the_setting_and_what_would_be_right() {
    for (text, words) in [
        ("[metadata]\ncolour = \"red\"", vec!["line 2", "metadata.colour is not a setting"]),
        ("# one\n[client]\ndeadlin = \"5s\"", vec!["line 3", "client.deadlin", "is client.deadline meant?"]),
        ("[client]\ndeadline='9s'\n[mount]\nthread = 4", vec!["line 4", "is mount.threads meant?"]),
        ("[data]\nsession_lease = \"5s\"", vec!["line 2", "is metadata.session_lease meant?"]),
        ("client.atimes = true", vec!["line 1", "is client.atime meant?"]),
        ("[nonsense]\n", vec!["line 1", "nonsense is not a section"]),
        ("[foo]\n", vec!["line 1", "foo is not a section (braid config"]),
        ("\n\n[Metadata]\n", vec!["line 3", "is section [metadata] meant?"]),
        ("deadline = \"5s\"\n", vec!["line 1", "deadline in section [client]"]),
        ("[metadata]\nsession_lease = \"10 parsecs\"", vec!["line 2, session_lease = ", "10 parsecs", "10s"]),
        ("[client]\n\nwrite_buffer = \"lots\"", vec!["line 3, write_buffer", "lots", "64MiB"]),
        ("[client]\nwrite_buffer = 5", vec!["client.write_buffer: 5 is out of its range, 1MiB to 1TiB"]),
        ("[client]\nwrite_buffer = -5", vec!["line 2, write_buffer = -5", "below zero"]),
        ("[client]\ndeadline = 5", vec!["line 2, deadline = 5", "5s"]),
        ("[metadata]\npolicy = \"raid5\"", vec!["raid5", "plain"]),
        ("[metadata]\nlisten = [\"nowhere\"]", vec!["nowhere", "host:port"]),
        ("[metadata]\nsession_lease = \"1s\"", vec!["renewals"]),
        ("[metadata\n", vec!["line 1"]),
        ("[data]\nio_threads = -1", vec!["line 2, io_threads = -1"]),
        ("[data]\nio_threads = 4\nio_threads = 5", vec!["line 3", "duplicate"]),
    ] {
        let error = format!("{:#}", parse(text).unwrap_err());
        assert!(words.iter().all(|w| error.contains(w)) && error.contains("braid.toml: "), "{text}: {error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
    let error = format!("{:#}", parse(b"[data]\n# \xff\n").unwrap_err());
    assert!(error.contains("it is not text") && !error.contains('\n'), "{error}");
}

/// A value that is not of the default's kind, or far from it: refused with the setting's name, or taken as it is. What is
/// taken, servers and clients work with: the ranges are those of `ranges`.
#[test]
fn every_setting_at_odd_values_is_taken_or_refused_by_its_name() {
    let odd = [
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "1.5",
        "true",
        "[]",
        "[1]",
        "[\"\"]",
        "\"\"",
        "\"0\"",
        "\"1KiB\"",
        "\"0ms\"",
        "\"1ms\"",
        "\"999999h\"",
        "\"16777215TiB\"",
        "\"loud\"",
        "\"servers\"",
        "\"127.0.0.1\"",
        "\"127.0.0.1:99999\"",
        "{}",
    ];
    let mut refused = 0;
    for (section, keys) in &toml::Table::try_from(Config::default()).unwrap() {
        for key in keys.as_table().unwrap().keys() {
            for value in odd {
                let Err(error) = parse(format!("[{section}]\n{key} = {value}")) else { continue };
                let error = format!("{error:#}");
                let is_named =
                    error.contains(&format!("{section}.{key}: ")) || error.contains(&format!("line 2, {key} = "));
                let is_rule = error.contains("metadata: ") && section == "metadata";
                assert!((is_named || is_rule) && !error.contains('\n'), "{section}.{key} = {value}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn what_would_break_a_command_is_refused_and_what_works_is_taken() {
    let set = |s: &str| Config::load(None, &[s.to_owned()]);
    for (setting, words) in [
        ("client.prefetch_window=128KiB", "256KiB to 1GiB"),
        ("client.write_buffer=\"0\"", "1MiB to 1TiB"),
        ("client.cache_entries=0", "1000 to"),
        ("client.write_back_after=0ms", "10ms to 1h"),
        ("client.deadline=500ms", "1s to 24h"),
        ("metadata.map=1KiB", "4MiB to 64TiB"),
        ("metadata.listen=[]", "needs an address"),
        ("metadata.together_listen=[\"tcp:h:7500\"]", "only over a database"),
        ("metadata.together_listen=[\"tcp:0.0.0.0:7500\"]", "others reach this one"),
        ("cluster.metadata=[]", "needs an address"),
        ("cluster.host=a b", "no name of a machine"),
        ("data.http=17402", "string"),
        ("data.http=:17402", "127.0.0.1:7480"),
        ("mount.locks=mine", "neither \"servers\" nor \"kernel\""),
        ("log.level=loud", "off, error, warn, info, debug or trace"),
        ("log.level=info,braid_client", "CRATE=debug"),
        ("log.level=braid_client=loud", "CRATE=debug"),
    ] {
        let error = format!("{:#}", set(setting).unwrap_err());
        assert!(error.starts_with(&format!("--set {setting}: ")) && error.contains(words), "{setting}: {error}");
    }
    for setting in ["log.level=info,braid_client=debug", "log.level=OFF", "data.http=127.0.0.1:0", "data.http=[::1]:7"]
    {
        set(setting).unwrap();
    }
    assert_eq!(set("client.write_buffer=1048576").unwrap(), set("client.write_buffer=1MiB").unwrap());
}

#[test]
fn settings_can_be_given_on_the_command_line() {
    let set = |s: &str| Config::load(None, &[s.to_owned()]);
    assert_eq!(set("data.dir=/x").unwrap().data.dir, Path::new("/x"));
    assert_eq!(set("mount.threads=2").unwrap().mount.threads, 2);
    assert!(set("data.dir").is_err());
    assert!(set("dir=/x").is_err());
    for (setting, words) in [
        ("client.deadlin=5s", vec!["--set client.deadlin=5s", "is client.deadline meant?"]),
        ("client.deadline=5 parsecs", vec!["--set client.deadline=5 parsecs", "write 500ms"]),
        ("clients.deadline=5s", vec!["clients is not a section", "[client]"]),
    ] {
        let error = format!("{:#}", set(setting).unwrap_err());
        assert!(words.iter().all(|w| error.contains(w)) && !error.contains('\n'), "{error}");
    }
}

/// Splitmix64.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as usize
}

/// Whatever a file holds: no panic, and if it is refused, one line that names the file.
fn is_taken_or_refused(bytes: &[u8]) -> bool {
    match parse(bytes) {
        Ok(_) => true,
        Err(error) => {
            let text = format!("{error:#}");
            assert!(text.contains("braid.toml") && !text.contains('\n'), "{text:?} for {:?}", bytes.escape_ascii());
            false
        }
    }
}

#[test]
fn garbage_never_panics() {
    // Bytes that look like TOML more often than chance would make them.
    let alphabet: &[u8] = b"[]{}=\"'\n.#abcmetadtliv0159-_, \xff\x00";
    let mut state = 1u64;
    for _ in 0..2_000 {
        let bytes: Vec<u8> = (0..60).map(|_| alphabet[random(&mut state) % alphabet.len()]).collect();
        is_taken_or_refused(&bytes);
    }
}

/// The documented file with a few mistakes, as a person or a broken disk makes them: what most probably gets past the
/// first lines of a reader.
#[test]
fn a_file_with_mistakes_is_taken_or_refused_in_one_line() {
    let (mut state, mut taken, mut refused) = (2u64, 0, 0);
    for _ in 0..3_000 {
        let mut bytes = DEFAULT_TEXT.as_bytes().to_vec();
        for _ in 0..=random(&mut state) % 3 {
            if bytes.is_empty() {
                break;
            }
            let (at, with) = (random(&mut state) % bytes.len(), random(&mut state));
            let end = (at + with % 40).min(bytes.len());
            match with % 7 {
                0 => bytes[at] ^= 1 << (with >> 8 & 7),
                1 => drop(bytes.drain(at..end)),
                2 => bytes.truncate(at.max(1)),
                3 => bytes.insert(at, (with >> 16) as u8),
                4 => bytes.extend_from_within(at..end),
                5 => bytes.splice(at..at, b"\"]}='\n".iter().copied().take(1 + with % 6)).for_each(drop),
                _ => bytes[at] = b"0129eE-+.\n"[(with >> 8) % 10],
            }
        }
        if is_taken_or_refused(&bytes) { taken += 1 } else { refused += 1 }
    }
    assert!(taken > 300 && refused > 300, "both ways are tried: {taken} taken, {refused} refused");
}
