//! A configuration file: taken, or refused in one line that names it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;

#[allow(dead_code, unused_imports)]
#[path = "../../../crates/braid/src/config/mod.rs"]
mod config;

fuzz_target!(|bytes: &[u8]| {
    // A file of its own for each job, in memory.
    let path = std::path::PathBuf::from(format!("/dev/shm/braid-fuzz-{}.toml", std::process::id()));
    let mut file = std::fs::File::create(&path).expect("a file");
    file.write_all(bytes).expect("room in memory");
    if let Err(error) = config::Config::load(Some(&path), &[]) {
        let text = format!("{error:#}");
        assert!(text.contains("braid-fuzz") && !text.contains('\n'), "{text:?}");
    }
});
