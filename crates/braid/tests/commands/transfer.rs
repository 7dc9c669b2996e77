//! The metadata as a whole: into a database and back while a mount writes; saved in a file, lost, and fetched back.

use super::database::{Machine, writer};
use super::mounted::eventually;
#[cfg(feature = "planted")]
use super::together::{three, until_members};
use super::{Cluster, pattern};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// With the embedded engine, or over the database.
fn configure(m: &Machine, metadata: &str) {
    let at = m.path("metadata-1.sock");
    m.configure(&format!("[cluster]\nmetadata = [\"unix:{}\"]\n[metadata]\n{metadata}\n", at.display()));
}

/// A metadata server with its directory, and so many data servers.
fn started_in_a_directory(data_servers: u32) -> Machine {
    let mut m = Machine::with_database();
    configure(&m, &format!("dir = \"{}\"", m.path("metadata").display()));
    m.serve("metadata", 1);
    m.until("it serves", || m.is_ready("metadata-1"));
    (1..=data_servers).for_each(|n| m.serve("data", n));
    m.until("data servers serve", || (1..=data_servers).all(|n| m.is_ready(&format!("data-{n}"))));
    m
}

/// What the command says, and why if it fails.
fn migrate(m: &Machine, to: &[&str]) -> Result<String, String> {
    let ran = m.braid(&[&["admin", "metadata", "migrate"], to].concat()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match ran.status.success() {
        true => Ok(text(&ran.stdout)),
        false => Err(text(&ran.stderr)),
    }
}

#[test]
fn metadata_goes_into_a_database_and_back_while_a_mount_writes() {
    let mut m = started_in_a_directory(2);
    let (dir, url) = (m.path("metadata"), m.database());
    let in_dir = format!("dir = \"{}\"", dir.display());
    m.put("large", 3_000_000);
    m.put("small", 300);
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let stop = m.path("stop");
    let writer = writer(&at, &stop);
    std::thread::sleep(Duration::from_secs(1));

    let refused = migrate(&m, &["--to-dir", m.path("data-1").to_str().unwrap()]).unwrap_err();
    assert!(refused.contains("data server"), "{refused}");
    let told = migrate(&m, &["--to-database", &url]).unwrap();
    assert!(told.contains("rows (") && told.contains("metadata.database"), "{told}");
    assert_ne!(m.ended("metadata-1"), 0);
    assert!(m.log("metadata-1").contains("is served from mysql://"), "{}", m.log("metadata-1"));
    // The old place is served by nobody any more, not even by mistake.
    m.serve("metadata", 1);
    assert_ne!(m.ended("metadata-1"), 0);
    assert!(m.log("metadata-1").contains("its rows have gone to mysql://"), "{}", m.log("metadata-1"));
    // As after an interruption at the last moment, but that there is nothing left to be done.
    let refused = migrate(&m, &["--finish", "--to-database", &url]).unwrap_err();
    assert!(refused.contains("does not wait for anything"), "{refused}");

    configure(&m, &format!("database = \"{url}\""));
    m.serve("metadata", 1);
    m.until("it serves from the database", || m.is_ready("metadata-1"));
    m.all_there(&[("large", 3_000_000), ("small", 300)]);
    m.put("in-database", 2_000_000);
    // Data servers find the next one within seconds: until then all is not well, which `status` says.
    m.is_clean();
    let status = String::from_utf8(m.says("admin status --json")).unwrap();
    assert!(status.contains("\"engine\": \"sql\""), "{status}");

    // What is left in the old directory is replaced.
    let told = migrate(&m, &["--to-dir", dir.to_str().unwrap()]).unwrap();
    assert!(told.contains("metadata.dir"), "{told}");
    assert_ne!(m.ended("metadata-1"), 0);
    m.serve("metadata", 1);
    assert_ne!(m.ended("metadata-1"), 0, "the database is the old place now");
    configure(&m, &in_dir);
    m.serve("metadata", 1);
    m.until("it serves from the directory", || m.is_ready("metadata-1"));
    m.put("back", 300);
    m.all_there(&[("large", 3_000_000), ("small", 300), ("in-database", 2_000_000), ("back", 300)]);

    m.has_all_of(writer, &stop);
    m.is_clean();
}

/// Of several that serve at once one serves alone while changes wait. Where that comes to nothing the others serve again; when the rows have gone
/// none of them serves any more.
#[cfg(feature = "planted")]
#[test]
fn metadata_that_several_serve_goes_into_a_directory_while_a_mount_writes() {
    let mut m = three();
    m.put("large", 3_000_000);
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let stop = m.path("stop");
    let writer = writer(&at, &stop);
    let dir = m.path("metadata");
    let words = ["admin", "metadata", "migrate", "--to-dir", dir.to_str().unwrap()];
    let died = m.braid(&words).env("BRAID_PLANTED", "migrate-held").output().unwrap();
    assert_eq!(died.status.code(), Some(9), "{}", String::from_utf8_lossy(&died.stderr));
    until_members(&m, 1, &[1]);
    until_members(&m, 1, &[1, 2, 3]);
    m.put("between", 1_000_000);

    migrate(&m, &["--to-dir", dir.to_str().unwrap()]).unwrap();
    for name in ["metadata-1", "metadata-2", "metadata-3"] {
        assert_ne!(m.ended(name), 0);
        let log = m.log(name);
        assert!(log.contains("is served from") || log.contains("its rows have gone to"), "{log}");
    }
    let all =
        ["metadata-1", "metadata-2"].map(|name| format!("\"unix:{}\"", m.path(&format!("{name}.sock")).display()));
    m.configure(&format!("[cluster]\nmetadata = [{}]\n[metadata]\ndir = \"{}\"\n", all.join(", "), dir.display()));
    m.serve("metadata", 1);
    m.until("it serves from the directory", || m.is_ready("metadata-1"));
    m.put("after", 300);
    m.has_all_of(writer, &stop);
    m.all_there(&[("large", 3_000_000), ("between", 1_000_000), ("after", 300)]);
    m.is_clean();
}

/// A command that is killed leaves either the old place, as it was, or two that nobody serves until it is finished.
#[cfg(feature = "planted")]
#[test]
fn a_move_that_is_interrupted_can_be_gone_on_with() {
    let mut m = started_in_a_directory(1);
    let (dir, url) = (m.path("metadata"), m.database());
    m.put("file", 3_000_000);
    let dies = |at: &str| {
        let words = ["admin", "metadata", "migrate", "--to-database", &url];
        let ran = m.braid(&words).env("BRAID_PLANTED", at).output().unwrap();
        assert_eq!(ran.status.code(), Some(9), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    // While changes wait: they go on when nobody has said for a while that they are to.
    dies("migrate-held");
    assert!(migrate(&m, &["--to-database", &url]).unwrap_err().contains("within the last minute"));
    m.put("waited", 1_000_000);
    let refused = migrate(&m, &["--to-database", &url, "--finish"]).unwrap_err();
    assert!(refused.contains("cannot open the metadata"), "it is served: {refused}");

    dies("migrate-left");
    assert_ne!(m.ended("metadata-1"), 0);
    configure(&m, &format!("database = \"{url}\""));
    m.serve("metadata", 1);
    assert_ne!(m.ended("metadata-1"), 0);
    assert!(m.log("metadata-1").contains("its rows are not complete"), "{}", m.log("metadata-1"));
    configure(&m, &format!("dir = \"{}\"", dir.display()));
    m.serve("metadata", 1);
    assert_ne!(m.ended("metadata-1"), 0);
    assert!(m.log("metadata-1").contains("its rows have gone to mysql://"), "{}", m.log("metadata-1"));
    let elsewhere = m.path("elsewhere");
    let refused = migrate(&m, &["--to-dir", elsewhere.to_str().unwrap(), "--finish"]).unwrap_err();
    assert!(refused.contains("and not to"), "{refused}");
    migrate(&m, &["--to-database", &url, "--finish"]).unwrap();
    configure(&m, &format!("database = \"{url}\""));
    m.serve("metadata", 1);
    m.until("it serves from the database", || m.is_ready("metadata-1"));
    m.all_there(&[("file", 3_000_000), ("waited", 1_000_000)]);
    m.is_clean();
}

fn put(c: &Cluster, name: &str, bytes: usize) {
    let file = c.root().with_file_name("to-put");
    std::fs::write(&file, pattern(bytes)).unwrap();
    c.says(&format!("fs put {} /{name}", file.display()));
}

fn has(c: &Cluster, name: &str, bytes: usize) {
    assert!(c.bytes(&format!("fs cat /{name}")) == pattern(bytes), "{name}");
}

/// Chunks at all data servers.
fn chunks(c: &Cluster) -> u64 {
    let text = c.says("admin servers --json");
    let count = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["chunks"].as_u64().unwrap();
    text.lines().map(count).sum()
}

fn restore(c: &Cluster, file: &Path) {
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
    // The disk with the metadata is lost.
    std::fs::remove_dir_all(c.root().join("metadata")).unwrap();
    let told = c.says(&format!("admin metadata restore {}", file.display()));
    assert!(told.contains("each row was compared"), "{told}");
    let up = c.up();
    assert_eq!(up.code, 0, "{}", up.err);
}

/// With copies of the metadata on data servers, whose rows are of later than the backup.
#[test]
fn what_was_backed_up_comes_back_beside_servers_that_went_on() {
    let c = Cluster::start_with(&["--data-servers=4"]);
    put(&c, "large", 3_000_000);
    put(&c, "small", 300);
    c.says("fs mkdir /dir");
    let file = c.root().with_file_name("saved.meta");
    let told = c.says(&format!("admin metadata backup {}", file.display()));
    assert!(told.contains(" rows of cluster "), "{told}");
    assert!(c.fails(&format!("admin metadata backup {}", file.display())).contains("is there already"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "it has what is in small files");
    let streamed = c.bytes("admin metadata backup -");
    assert!(streamed.starts_with(b"BRAIDMD\n"), "{} bytes", streamed.len());
    let told = c.says(&format!("admin metadata restore {} --check", file.display()));
    assert!(told.contains("a whole backup"), "{told}");
    assert!(c.fails(&format!("admin metadata restore {}", file.display())).contains("serves this cluster"));

    // Chains change, and files come and go, after it was taken.
    put(&c, "later", 2_000_000);
    c.kill("data-4");
    put(&c, "much-later", 2_000_000);
    eventually("chains are without the one that is down", LIMIT, || {
        let status: serde_json::Value = serde_json::from_str(&c.run("admin status --json").out).unwrap();
        status["copies"]["containers_changing"] == 0 && status["copies"]["containers_short"] == 0
    });
    let cut = c.root().with_file_name("cut.meta");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    let elsewhere =
        format!("--set metadata.dir={} --set cluster.metadata=[\"unix:/none\"]", c.root().join("new").display());
    let refused = c.fails(&format!("admin metadata restore {} {elsewhere}", cut.display()));
    assert!(refused.contains("before its last piece") && !c.root().join("new").exists(), "{refused}");

    restore(&c, &file);
    assert!(
        c.fails(&format!("admin metadata restore {} --set cluster.metadata=[\"unix:/none\"]", file.display()))
            .contains("metadata")
    );
    has(&c, "large", 3_000_000);
    has(&c, "small", 300);
    let names = c.says("fs ls /");
    assert!(names.contains("dir") && !names.contains("later"), "{names}");
    let status = c.run("admin status");
    assert!(status.out.contains("comes from a backup of"), "{}{}", status.out, status.err);
    put(&c, "new", 2_000_000);
    has(&c, "new", 2_000_000);
    // Once more the same one: what was given since is not given again.
    restore(&c, &file);
    put(&c, "newer", 3_000_000);
    has(&c, "newer", 3_000_000);
    has(&c, "large", 3_000_000);
    assert!(c.run("fs cat /new").code != 0);

    // What the backup does not know is kept until somebody says that it is right, whatever else is done.
    eventually("the data servers are known again", LIMIT, || c.says("admin servers").matches(" up ").count() == 4);
    std::thread::sleep(Duration::from_secs(2));
    let before = chunks(&c);
    c.says("fs rm /newer");
    let refused = c.run("admin fsck --repair");
    assert!(refused.code == 2 && refused.err.contains("admin metadata confirm"), "{}{}", refused.out, refused.err);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(chunks(&c), before, "nothing was deleted");
    assert!(c.says("admin metadata confirm").contains("confirmed"));
    assert!(c.says("admin metadata confirm").contains("nothing to confirm"));
    eventually("it is deleted", LIMIT, || chunks(&c) < before);
    eventually("clean", LIMIT, || c.run("admin fsck --repair").out.starts_with("clean: "));
    has(&c, "large", 3_000_000);
    // And the copies of the metadata are of what is there now.
    eventually("the metadata has its copies", LIMIT, || {
        let status: serde_json::Value = serde_json::from_str(&c.run("admin status --json").out).unwrap();
        status["metadata_copies"] == 3
    });
}

/// Backups know no engine: one of a directory comes back in a database, and one of that in a directory.
#[test]
fn what_was_backed_up_comes_back_in_a_store_of_another_kind() {
    let mut m = started_in_a_directory(1);
    let url = m.database();
    m.put("large", 3_000_000);
    m.put("small", 300);
    m.says("fs mkdir /dir");
    m.says("fs policy set /dir plain,inline=0");
    let saved = |m: &Machine, name: &str| {
        let file = m.path(name);
        m.says(&format!("admin metadata backup {}", file.display()));
        file
    };
    let first = saved(&m, "first.meta");
    m.put("later", 300);
    let end = |m: &mut Machine| {
        m.signal("metadata-1", rustix::process::Signal::TERM);
        assert_eq!(m.ended("metadata-1"), 0);
    };
    end(&mut m);

    configure(&m, &format!("database = \"{url}\""));
    let told = String::from_utf8(m.says(&format!("admin metadata restore {}", first.display()))).unwrap();
    assert!(told.contains("each row was compared") && told.contains("mysql://"), "{told}");
    m.serve("metadata", 1);
    m.until("it serves from the database", || m.is_ready("metadata-1"));
    m.all_there(&[("large", 3_000_000), ("small", 300)]);
    let names = String::from_utf8(m.says("fs ls /")).unwrap();
    assert!(names.contains("dir") && !names.contains("later"), "{names}");
    assert!(String::from_utf8(m.says("fs policy get /dir")).unwrap().contains("inline=0"));
    m.says("admin metadata confirm");
    m.put("in-database", 2_000_000);
    let second = saved(&m, "second.meta");
    end(&mut m);

    let elsewhere = m.path("elsewhere");
    configure(&m, &format!("dir = \"{}\"", elsewhere.display()));
    m.says(&format!("admin metadata restore {}", second.display()));
    m.serve("metadata", 1);
    m.until("it serves from the directory", || m.is_ready("metadata-1"));
    m.all_there(&[("large", 3_000_000), ("small", 300), ("in-database", 2_000_000)]);
    m.says("admin metadata confirm");
    m.is_clean();
}
