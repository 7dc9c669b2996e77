//! `braid admin why`: who is waited for, while processes stand still that others need.

use super::mounted::{eventually, mounted, process_of};
use super::two_mounts::Two;
use super::{Cluster, pattern, stands_still};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than the slowest machine takes to ask four times.
const LEASES: &[&str] = &["--set", "metadata.session_lease=40s", "--set", "metadata.session_expiry=120s"];
const SOON: Duration = Duration::from_secs(30);

/// Goes on when this is dropped, so that a test that fails leaves nothing that hangs.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: Pid) -> Stopped {
        kill_process(pid, Signal::STOP).unwrap();
        while !stands_still(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Stopped(pid)
    }

    fn number(&self) -> i32 {
        self.0.as_raw_nonzero().get()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A program of its own: one that has files of a stopped mount open can start no other.
fn program(words: &[&str], path: &Path) -> Child {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Has the file open for writing, with bytes that nobody else has seen.
fn writer(path: &Path) -> Child {
    let script = r#"exec 3<>"$1" && head -c 300000 /dev/zero >&3 && echo done && read -r line"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    child
}

fn rows(c: &Cluster, asked: &str) -> Vec<serde_json::Value> {
    let ran = c.run(&format!("admin why --json {asked}"));
    assert_eq!(ran.code, 0, "{asked}: {}", ran.err);
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn why_names_the_stopped_mount_its_lease_and_since_when_for_a_path_a_process_and_a_mount() {
    let Some(two) = Two::with(LEASES) else { return };
    std::fs::create_dir(two.at[0].join("d")).unwrap();
    let mut writer = writer(&two.at[1].join("d/f"));
    let stopped = Stopped::stop(process_of(&two.at[1]));
    let begun = Instant::now();
    let mut reader = program(&["cat"], &two.at[0].join("d/f"));
    let holder = format!("mount {} on host ", two.at[1].display());
    let process = format!("(process {}, which is stopped), to give up the exclusive lease of /d/f", stopped.number());
    let places = [
        "/d/f".to_owned(),
        format!("--process {}", reader.id()),
        format!("--mount {}", two.at[0].display()),
        format!("--mount {}", two.at[1].display()),
        format!("--process {}", stopped.number()),
    ];
    let by = format!("by process {} (cat)", reader.id());
    eventually("a word of the reader", SOON, || two.c.says("admin why").contains(&by));
    for (n, asked) in places.iter().enumerate() {
        let said = two.c.says(&format!("admin why {asked}"));
        let names_it =
            |line: &str| line.contains("metadata server") && line.contains(&holder) && line.contains(&process);
        assert!(said.lines().any(names_it), "{asked}:\n{said}");
        // Who waits for it is on the reader's mount, and leads to it.
        let follows = said.lines().any(|line| line.contains("-> metadata server"));
        assert!(n > 2 || (said.contains(&by) && follows), "{asked}:\n{said}");
        let rows = rows(&two.c, asked);
        let row = rows.iter().find(|row| row["lease"] == "exclusive").unwrap_or_else(|| panic!("{asked}: {rows:?}"));
        let since = Duration::from_millis(row["since_ms"].as_u64().unwrap());
        let waited = begun.elapsed();
        assert!(since <= waited && since + Duration::from_secs(8) > waited, "{asked}: {since:?} of {waited:?}");
        assert!(row["holder_of"].as_str().unwrap().starts_with(&holder), "{row}");
        assert!(row["session_of"].as_str().unwrap().contains(&*two.at[0].to_string_lossy()), "{row}");
        assert!(row["epoch"].as_u64().is_some_and(|epoch| epoch > 0), "{row}");
    }
    let of_reader = rows(&two.c, &places[1]);
    let first = &of_reader[0];
    assert_eq!((&first["process"], &first["depth"]), (&reader.id().into(), &0.into()), "{first}");
    assert_eq!(
        (&first["mount"], &first["metadata"]),
        (&(&*two.at[0].to_string_lossy()).into(), &true.into()),
        "{first}"
    );
    drop(stopped);
    assert!(reader.wait().unwrap().success());
    drop(writer.stdin.take());
    writer.wait().unwrap();
    eventually("the end of all waits", SOON, || two.c.says("admin why /d/f") == "nothing waits\n");
}

#[test]
fn a_change_that_waits_for_a_stopped_mount_is_named_by_its_path() {
    let Some(two) = Two::with(LEASES) else { return };
    let dir = two.at[0].join("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("f"), "bytes").unwrap();
    std::fs::write(dir.join("other"), "bytes").unwrap();
    for path in ["d", "d/f", "d/other"] {
        std::fs::metadata(two.at[1].join(path)).unwrap();
    }
    let stopped = Stopped::stop(process_of(&two.at[1]));
    let mut change = program(&["chmod", "600"], &dir.join("f"));
    let holder = format!("(process {}, which is stopped), to drop what it caches: ", stopped.number());
    let by = format!("chmod of /d/f by process {} (chmod)", change.id());
    eventually("a word of the change", SOON, || two.c.says("admin why /d/f").contains(&by));
    let said = two.c.says("admin why /d/f");
    let line = said.lines().find(|line| line.contains(&holder)).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("the attributes of /d/f") && line.contains("a change by mount "), "{said}");
    assert_eq!(two.c.says("admin why /d/other"), "nothing waits\n");
    // A rename is found by either of its names.
    let mut rename = {
        let mut command = Command::new("mv");
        command.args([dir.join("other"), dir.join("renamed")]).stdin(Stdio::null());
        command.spawn().unwrap()
    };
    eventually("a word of the rename", SOON, || {
        let said = two.c.says("admin why /d/other");
        said.lines().any(|line| line.contains(&holder) && line.contains("the name other in /d"))
    });
    drop(stopped);
    assert!(change.wait().unwrap().success() && rename.wait().unwrap().success());
    eventually("the end of all waits", SOON, || two.c.says("admin why") == "nothing waits\n");
}

/// Of two servers one orders the file's writes: it is asked by the mount, and asks the other. When it stands still the other takes its
/// place, so that the same server is another the next time.
#[test]
fn an_fsync_that_waits_for_copies_is_named_with_server_container_and_epoch() {
    let Some((c, at)) = mounted(&[]) else { return };
    let path = at.join("f");
    std::fs::write(&path, pattern(400_000)).unwrap();
    assert!(Command::new("sync").arg(&path).status().unwrap().success());
    let mut told = String::new();
    for _ in 0..2 {
        c.signal("data-1", Signal::STOP);
        let stopped = Stopped(c.pid("data-1"));
        let of = format!("of={}", path.display());
        let dd = ["if=/dev/zero", "bs=300000", "count=1", "conv=notrunc,fsync", &of];
        let mut writer = Command::new("dd").args(dd).stderr(Stdio::null()).spawn().unwrap();
        // A process that has not opened anything yet uses no mount.
        let output = format!("/proc/{}/fd/1", writer.id());
        eventually("a file open for writing", SOON, || std::fs::read_link(&output).is_ok_and(|to| to == path));
        for asked in [format!("--process {}", writer.id()), "/f".to_owned(), format!("--mount {}", at.display())] {
            let mut last = Vec::new();
            eventually(&format!("a word of {asked}"), Duration::from_secs(50), || {
                last = rows(&c, &asked);
                told.extend(last.iter().map(|row| format!("{} | {} | {}\n", row["at"], row["who"], row["for_what"])));
                let names = |row: &serde_json::Value| {
                    let is_server = row["servers"].as_array().unwrap().iter().any(|server| *server == 1);
                    is_server && row["container"].is_u64() && row["epoch"].as_u64().is_some_and(|epoch| epoch > 0)
                };
                last.iter().any(names)
            });
            let fsync = last.iter().find(|row| row["process"] == writer.id()).unwrap_or_else(|| panic!("{last:?}"));
            assert!(fsync["who"].as_str().unwrap().starts_with("fsync of /f by process "), "{fsync}");
            let since = fsync["since_ms"].as_u64().unwrap();
            assert!((1_000..60_000).contains(&since), "{fsync}");
        }
        drop(stopped);
        assert!(writer.wait().unwrap().success());
        eventually("the end of all waits", SOON, || c.run("admin why").out == "nothing waits\n");
    }
    // The one that was asked; and the one that it asks, by whom the mount is answered.
    let asked =
        told.lines().any(|line| line.contains("data server 1 on ") && line.contains("no answer yet (container "));
    let asks = told.lines().any(|line| {
        line.contains("data server 2 on ")
            && line.contains(" of container ")
            && line.contains("1 of data servers 1 to have them")
    });
    assert!(asked && asks, "{told}");
}

#[test]
fn where_nothing_waits_it_is_said_and_what_is_no_mount_or_no_process_of_one_too() {
    let Some((c, at)) = mounted(&[]) else { return };
    std::fs::write(at.join("f"), "bytes").unwrap();
    let mut user = Command::new("sleep").arg("600").current_dir(&at).spawn().unwrap();
    assert_eq!(c.says("admin why /f"), "nothing waits\n");
    assert_eq!(c.says(&format!("admin why --mount {}", at.display())), "nothing waits\n");
    assert_eq!(c.says(&format!("admin why --process {}", c.pid("mount").as_raw_nonzero())), "nothing waits\n");
    let ran = c.run(&format!("admin why --process {}", user.id()));
    assert_eq!((ran.code, ran.out.as_str()), (0, "nothing waits\n"));
    assert!(ran.err.contains(&format!("no request of process {} (sleep) waits; it uses {}", user.id(), at.display())));
    user.kill().unwrap();
    user.wait().unwrap();
    let said = c.fails(&format!("admin why --process {}", std::process::id()));
    assert!(said.contains("uses no BraidFS mount"), "{said}");
    assert!(c.fails("admin why --process 4194305").contains("there is no process 4194305"));
    assert!(c.fails("admin why --mount /tmp").contains("/tmp is not a BraidFS mount"));
    assert!(c.fails("admin why /missing").contains("no such file or directory"));
    assert!(c.run("admin why --help").out.contains("braid admin why --process 4711"));
}

/// It has no run directory beside its configuration: `why` looks where all mounts of the machine say what waits.
#[test]
fn a_mount_that_only_knows_the_address_of_its_cluster_is_found() {
    let Some((c, _)) = mounted(&[]) else { return };
    if !rustix::process::getuid().is_root() {
        return super::say_skipped("only the administrator has /run/braid");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let (config, at) = (elsewhere.path().join("braid.toml"), elsewhere.path().join("m"));
    std::fs::copy(c.root().join("braid.toml"), &config).unwrap();
    std::fs::create_dir(&at).unwrap();
    let log = elsewhere.path().join("log");
    c.says(&format!("mount {} --config {} --log {}", at.display(), config.display(), log.display()));
    let process = process_of(&at);
    c.signal("metadata", Signal::STOP);
    let stopped = Stopped(c.pid("metadata"));
    let mut maker = program(&["mkdir"], &at.join("d"));
    let by = format!("by process {} (mkdir)", maker.id());
    eventually("a word of the mount", Duration::from_secs(50), || {
        let said = c.run(&format!("admin why --process {}", maker.id())).out;
        let wanted = format!("mount {} (process {})", at.display(), process.as_raw_nonzero());
        said.lines().any(|line| line.contains(&wanted) && line.contains(&by) && line.contains("metadata server"))
    });
    drop(stopped);
    assert!(maker.wait().unwrap().success());
    c.says(&format!("umount {}", at.display()));
}
