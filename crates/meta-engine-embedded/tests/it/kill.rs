//! A process that is killed in the middle of its commits. It finds torn groups and answers before the commit;
//! it cannot find a missing sync, as the page cache outlives the process (see the power-cut disk for that).

use braid_meta_engine::Engine;
use braid_meta_engine::conformance::Ledger;
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const DIR: &str = "BRAID_TEST_KILL_DIR";

/// The process to be killed: commits entries, several at a time, and prints the number of each when answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run, and killed, by the test below"]
async fn victim() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let engine = EmbeddedEngine::open(dir.as_ref(), EmbeddedOptions::default()).expect("it opens");
    for number in (0..1_000_000).step_by(4) {
        // Joined in this order, so that they are also queued in it.
        let (a, b, c, d) = tokio::join!(
            engine.transact(0, Ledger::entry(number)),
            engine.transact(0, Ledger::entry(number + 1)),
            engine.transact(0, Ledger::entry(number + 2)),
            engine.transact(0, Ledger::entry(number + 3)),
        );
        assert!(a.is_ok() && b.is_ok() && c.is_ok() && d.is_ok());
        let mut out = std::io::stdout();
        writeln!(out, "acknowledged {}", number + 4).expect("the parent reads");
        out.flush().expect("the parent reads");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_keeps_its_word() {
    for round in 0..5 {
        let dir = TempDir::new().expect("a directory");
        let mut victim = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "kill::victim", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(victim.stdout.take().expect("a pipe")).lines();
        let mut acknowledged = 0;
        // Killed at another place in each round, and what it said before it died is counted as well.
        for line in &mut lines {
            let line = line.expect("text");
            if let Some((_, number)) = line.split_once("acknowledged ") {
                acknowledged = number.parse().expect("a number");
                if acknowledged >= 40 + round * 36 {
                    victim.kill().expect("it is ours");
                }
            }
        }
        victim.wait().expect("it has ended");
        let engine = EmbeddedEngine::open(dir.path(), EmbeddedOptions::default()).expect("it opens again");
        let survived = Ledger::check(&engine, acknowledged).await.expect("the promise is kept");
        assert!(survived >= 40, "{survived} entries of {acknowledged}");
    }
}
