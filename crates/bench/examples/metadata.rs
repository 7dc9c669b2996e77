//! `cargo run --release -p braid-bench --example metadata [FILES]`: native clients against the bare engine; with FILES,
//! what so many files cost.

use braid_bench::metadata::{Settings, compare, measure_size};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    match std::env::args().nth(1).and_then(|n| n.parse().ok()) {
        Some(files) => println!("{:#?}", measure_size(dir.path(), 10_000, files, Duration::from_secs(2)).await?),
        None => println!("{}", compare(dir.path(), Settings::default()).await?.markdown()),
    }
    Ok(())
}
