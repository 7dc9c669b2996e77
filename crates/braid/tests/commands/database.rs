//! Metadata in a database: of two metadata servers one serves, and the other goes on when that is killed, or stands still.

use super::{Ends, pattern};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Processes that go with the test.
pub struct Machine {
    dir: tempfile::TempDir,
    children: Vec<(String, Child)>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Of a test that failed, it may stand still: nobody else would end it then.
        if let Some(mount) = self.mount() {
            let _ = kill_process(mount, Signal::KILL);
        }
        let _ = Command::new("umount").arg("-l").arg(self.mount_point()).output();
        for (_, child) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Machine {
    /// A MariaDB of its own, and a configuration for two metadata servers over it.
    pub fn new() -> Machine {
        let machine = Machine::with_database();
        machine.configure(&format!(
            "[cluster]\nmetadata = [\"unix:{}\", \"unix:{}\"]\n[metadata]\ndatabase = \"{}\"\n",
            machine.path("metadata-1.sock").display(),
            machine.path("metadata-2.sock").display(),
            machine.database()
        ));
        machine
    }

    pub fn configure(&self, text: &str) {
        std::fs::write(self.path("braid.toml"), text).unwrap();
    }

    /// The address of its database.
    pub fn database(&self) -> String {
        let escaped = self.path("db.sock").display().to_string().replace('/', "%2F");
        format!("mysql://root@{escaped}/braid")
    }

    /// A MariaDB of its own, and nothing else.
    pub fn with_database() -> Machine {
        let found = Command::new("mariadbd").arg("--version").stdout(Stdio::null()).status();
        assert!(found.is_ok(), "mariadbd is missing: apt-get install -y mariadb-server-core");
        let mut machine = Machine { dir: tempfile::tempdir().unwrap(), children: Vec::new() };
        let data = machine.path("db");
        let user = rustix::process::geteuid().is_root().then_some("--user=root");
        let made = Command::new("mariadb-install-db")
            // Each its own: when it starts a server removes what it takes for left behind by one before it.
            .env("TMPDIR", machine.dir.path())
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(user)
            .arg(format!("--datadir={}", data.display()))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        machine.start_database();
        std::fs::create_dir(machine.mount_point()).unwrap();
        machine
    }

    fn start_database(&mut self) {
        let (data, socket) = (self.path("db"), self.path("db.sock"));
        let user = rustix::process::geteuid().is_root().then_some("--user=root");
        let mut database = Command::new("mariadbd");
        database
            .env("TMPDIR", self.dir.path())
            .args(["--no-defaults", "--skip-networking", "--innodb-buffer-pool-size=64M"])
            .args(user)
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", self.path("db.pid").display()));
        self.spawn("database", database);
        self.until("the database listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn mount_point(&self) -> PathBuf {
        self.path("mount")
    }

    /// The process that serves the mount point, if there is one.
    pub fn mount(&self) -> Option<Pid> {
        let at = self.mount_point();
        let is_it = |id: &i32| {
            let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let mut words = words.split(|byte| *byte == 0);
            words.nth(1) == Some(b"mount") && words.any(|word| word == at.as_os_str().as_encoded_bytes())
        };
        let all = std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        { all }.find(is_it).and_then(Pid::from_raw)
    }

    fn spawn(&mut self, name: &str, mut command: Command) {
        let log = std::fs::File::options().create(true).append(true).open(self.path(&format!("{name}.log"))).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.children.push((name.to_owned(), child));
    }

    pub fn braid(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.args(words).env("BRAID_CONFIG", self.path("braid.toml")).stdin(Stdio::null());
        command
    }

    pub fn serve(&mut self, role: &str, number: u32) {
        self.serve_with(role, number, &[]);
    }

    pub fn serve_with(&mut self, role: &str, number: u32, more: &[String]) {
        let name = format!("{role}-{number}");
        let settings = match role {
            "metadata" => vec![
                format!("metadata.listen=[\"unix:{}\"]", self.path(&format!("{name}.sock")).display()),
                "metadata.session_lease=\"6s\"".to_owned(),
                "metadata.session_renew=\"2s\"".to_owned(),
            ],
            _ => vec![format!("data.dir=\"{}\"", self.path(&name).display())],
        };
        let mut command = self.braid(&["serve", role]);
        settings.iter().chain(more).for_each(|setting| _ = command.args(["--set", setting]));
        command.arg("--ready-file").arg(self.path(&format!("{name}.ready")));
        self.spawn(&name, command);
    }

    pub fn is_ready(&self, name: &str) -> bool {
        self.path(&format!("{name}.ready")).exists()
    }

    fn child(&mut self, name: &str) -> &mut Child {
        &mut self.children.iter_mut().find(|(of, _)| of == name).unwrap().1
    }

    pub fn signal(&mut self, name: &str, signal: Signal) {
        let id = Pid::from_child(self.child(name));
        kill_process(id, signal).unwrap();
    }

    /// Until it has ended by itself; with what.
    pub fn ended(&mut self, name: &str) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child(name).try_wait().unwrap() {
                let at = self.children.iter().position(|(of, _)| of == name).unwrap();
                self.children.remove(at);
                let _ = std::fs::remove_file(self.path(&format!("{name}.ready")));
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{name} goes on\n{}", self.log(name));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            let logs: Vec<String> =
                self.children.iter().map(|(name, _)| format!("{name}:\n{}", self.log(name))).collect();
            assert!(begun.elapsed() < Duration::from_secs(40), "not {what}\n{}", logs.join("\n"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn says(&self, line: &str) -> Vec<u8> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ran = self.braid(&words).output().unwrap();
        let [out, err] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(ran.status.success(), "{line}: {err}{out}");
        ran.stdout
    }

    pub fn put(&self, name: &str, bytes: usize) {
        let file = self.path("to-put");
        std::fs::write(&file, pattern(bytes)).unwrap();
        self.says(&format!("fs put {} /{name}", file.display()));
    }

    /// Ends the writer: nothing failed, and all that it has written is there, on its mount and past it.
    pub fn has_all_of(&self, mut writer: Ends, stop: &Path) {
        let at = self.mount_point();
        std::fs::write(stop, "").unwrap();
        let mount_log = || std::fs::read_to_string(self.path("mount.log")).unwrap_or_default();
        assert!(writer.0.wait().unwrap().success(), "{}", mount_log());
        let log = std::fs::read(at.join("log")).unwrap();
        let lines = log.len() / 1000;
        let expected: Vec<u8> = (0..lines).flat_map(|n| format!("{n:0999}\n").into_bytes()).collect();
        assert!(lines > 50, "the writer did {lines} lines only");
        assert!(log == expected, "{lines} lines, {} bytes, are not what was written", log.len());
        assert!(self.says("fs cat /log") == log, "{lines} lines are not seen past the mount");
        for n in (10..=lines).step_by(10) {
            assert_eq!(std::fs::read_to_string(at.join(format!("file-{n}"))).unwrap(), format!("{n}\n"));
        }
    }

    /// As soon as all data servers have found the metadata server.
    pub fn is_clean(&self) {
        self.until("clean, with all data servers", || {
            let fsck = self.braid(&["admin", "fsck", "--data"]).output().unwrap();
            fsck.status.success() && fsck.stdout.starts_with(b"clean: ")
        });
    }

    pub fn all_there(&self, names: &[(&str, usize)]) {
        for (name, bytes) in names {
            assert!(self.says(&format!("fs cat /{name}")) == pattern(*bytes), "{name}");
        }
    }
}

/// A line each few milliseconds, in a process of its own, and a file with each tenth.
pub fn writer(at: &Path, stop: &Path) -> Ends {
    let script = format!(
        "cd {at}; i=0; while [ ! -e {stop} ]; do printf '%0999d\\n' $i || exit 7; i=$((i+1)); \
         [ $((i % 10)) != 0 ] || {{ echo $i > file-$i && sync log; }} || exit 7; sleep 0.01; done > log",
        at = at.display(),
        stop = stop.display()
    );
    Ends(Command::new("sh").args(["-c", &script]).spawn().unwrap())
}

#[test]
fn of_two_metadata_servers_over_a_database_one_goes_on_when_the_other_is_killed_or_stands_still() {
    let mut m = Machine::new();
    m.serve("metadata", 1);
    m.until("the first serves", || m.is_ready("metadata-1"));
    m.serve("metadata", 2);
    m.serve("data", 1);
    m.serve("data", 2);
    m.until("data servers serve", || m.is_ready("data-1") && m.is_ready("data-2"));
    m.until("the second stands by", || m.log("metadata-2").contains("this one stands by"));
    m.put("before", 3_000_000);
    m.put("small", 300);
    let query = "SELECT path, size FROM files WHERE path IN ('/before', '/small') ORDER BY path";
    let asked = m.braid(&["admin", "sql", "--csv", query]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "path,size\n/before,3000000\n/small,300\n", "{asked:?}");
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let stop = m.path("stop");
    let writer = writer(&at, &stop);
    std::thread::sleep(Duration::from_secs(1));

    m.signal("metadata-1", Signal::KILL);
    m.ended("metadata-1");
    m.until("the second serves", || m.is_ready("metadata-2"));
    m.put("killed", 2_000_000);
    m.all_there(&[("before", 3_000_000), ("small", 300), ("killed", 2_000_000)]);

    // One that stands still is taken for dead. When it goes on it must see that it is not the leader any more, and may change nothing.
    m.serve("metadata", 1);
    m.until("the first stands by", || m.log("metadata-1").contains("this one stands by"));
    m.signal("metadata-2", Signal::STOP);
    m.until("the first serves again", || m.is_ready("metadata-1"));
    m.put("stopped", 1_000_000);
    m.signal("metadata-2", Signal::CONT);
    m.until("the second begins anew", || m.log("metadata-2").contains("this server begins anew"));
    m.until("the second stands by", || m.log("metadata-2").matches("this one stands by").count() == 2);
    assert!(!m.is_ready("metadata-2"));
    m.put("after", 300);
    m.all_there(&[("before", 3_000_000), ("killed", 2_000_000), ("stopped", 1_000_000), ("after", 300)]);

    // One that ends in order hands over at once: the next has no lease to wait for.
    m.signal("metadata-1", Signal::TERM);
    assert_eq!(m.ended("metadata-1"), 0, "{}", m.log("metadata-1"));
    m.until("the second serves again", || m.is_ready("metadata-2"));

    m.has_all_of(writer, &stop);
    m.is_clean();
}

/// For longer than a leader leads without it, again and again, and then it is killed: nobody has to start a metadata server again, a mount
/// waits and loses nothing.
#[test]
fn a_database_that_stands_still_or_is_started_again_ends_no_metadata_server() {
    let mut m = Machine::new();
    m.serve("metadata", 1);
    m.until("the first serves", || m.is_ready("metadata-1"));
    m.serve("metadata", 2);
    m.serve("data", 1);
    m.until("the data server serves", || m.is_ready("data-1"));
    m.until("the second stands by", || m.log("metadata-2").contains("this one stands by"));
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let stop = m.path("stop");
    let writer = writer(&at, &stop);
    let anew = |m: &Machine| -> usize {
        ["metadata-1", "metadata-2"].iter().map(|name| m.log(name).matches("this server begins anew").count()).sum()
    };
    for round in 0..3 {
        let before = anew(&m);
        m.signal("database", if round < 2 { Signal::STOP } else { Signal::KILL });
        m.until("the one that leads gives up", || anew(&m) > before);
        match round < 2 {
            true => m.signal("database", Signal::CONT),
            false => {
                m.ended("database");
                std::fs::remove_file(m.path("db.sock")).unwrap();
                m.start_database();
            }
        }
        m.until("one serves", || m.is_ready("metadata-1") || m.is_ready("metadata-2"));
        m.put(&format!("after-{round}"), 100_000);
        let written = || std::fs::metadata(at.join("log")).map_or(0, |log| log.len());
        let before = written();
        m.until("the writer goes on", || written() > before + 20_000);
    }
    m.has_all_of(writer, &stop);
    m.all_there(&[("after-0", 100_000), ("after-1", 100_000), ("after-2", 100_000)]);
    // What the mount says when it is told that its session has ended.
    let mount = std::fs::read_to_string(m.path("mount.log")).unwrap();
    assert!(mount.contains("the session was not renewed") && !mount.contains("the session was lost"), "{mount}");
    m.is_clean();
    for name in ["metadata-1", "metadata-2"] {
        m.signal(name, Signal::TERM);
        assert_eq!(m.ended(name), 0, "{}", m.log(name));
    }
}
