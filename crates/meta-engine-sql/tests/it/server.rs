//! A MariaDB of the tests' own, in a directory of its own, that goes when they do.

use braid_meta_engine_sql::{Address, SqlEngine, SqlOptions};
use mysql_async::prelude::Queryable;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Server {
    dir: TempDir,
    child: Option<Child>,
    arguments: Vec<String>,
}

impl Server {
    /// Makes an empty server and starts it.
    pub fn start(arguments: &[&str]) -> Server {
        for program in ["mariadb-install-db", "mariadbd", "my_print_defaults"] {
            let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            assert!(found.is_ok(), "{program} is missing: apt-get install -y mariadb-server-core mariadb-client-core");
        }
        // In memory where there is room: hundreds of tables are made, each with a sync. What a *process* that is killed loses
        // is the same there.
        let shared_memory = Path::new("/dev/shm");
        let dir = match shared_memory.is_dir() {
            true => TempDir::with_prefix_in("braid-sql-", shared_memory),
            false => TempDir::with_prefix("braid-sql-"),
        };
        let dir = dir.expect("a directory");
        let data = dir.path().join("data");
        let made = Command::new("mariadb-install-db")
            // Each its own: when it starts a server removes what it takes for left behind by one before it.
            .env("TMPDIR", dir.path())
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(user())
            .arg(format!("--datadir={}", data.display()))
            .output()
            .expect("mariadb-install-db runs");
        assert!(made.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&made.stderr));
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = Server { dir, child: None, arguments };
        server.run();
        server
    }

    /// Starts the process and waits until it listens.
    pub fn run(&mut self) {
        let (socket, data) = (self.socket(), self.dir.path().join("data"));
        let log = std::fs::File::options().create(true).append(true).open(self.log()).expect("a log");
        let child = Command::new("mariadbd")
            .env("TMPDIR", self.dir.path())
            .args(["--no-defaults", "--skip-networking", "--innodb-buffer-pool-size=64M", "--max-connections=500"])
            // One file a partition of every table: more than most are allowed to have open.
            .args(["--innodb-log-file-size=32M", "--table-open-cache=2000", "--innodb-open-files=2000"])
            .args(user())
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", self.dir.path().join("pid").display()))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("mariadbd starts");
        self.child = Some(child);
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            let ended = self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()));
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(!ended, "mariadbd ended: {}", log());
            assert!(begun.elapsed() < Duration::from_secs(60), "mariadbd does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it has ended");
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Options for this database of the server.
    pub fn options(&self, database: &str) -> SqlOptions {
        // Files of partitions are most of what a database costs to make.
        SqlOptions { partitions: 4, ..SqlOptions::new(vec![Address::Socket(self.socket())], "root", database) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn user() -> Option<&'static str> {
    let id = Command::new("id").arg("-u").output().expect("id runs").stdout;
    (id.starts_with(b"0\n")).then_some("--user=root")
}

/// The server that tests share which do it no harm. Its process ends with this one (`guard`).
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| {
        let server = Server::start(&[]);
        guard(&server);
        server
    })
}

#[allow(clippy::zombie_processes, reason = "it outlives this process")]
/// A static is never dropped: a shell waits for the end of this process, kills the server and removes its directory.
fn guard(server: &Server) {
    let id = server.child.as_ref().expect("it runs").id();
    let script = format!(
        "while kill -0 {} 2>/dev/null; do sleep 0.2; done; kill -9 {id}; rm -rf '{}'",
        std::process::id(),
        server.dir.path().display()
    );
    let quiet = || Stdio::null();
    Command::new("sh").args(["-c", &script]).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().expect("sh runs");
}

/// The name of a database that nobody else uses.
pub fn database() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("test_{}", NUMBER.fetch_add(1, Relaxed))
}

pub async fn open(options: SqlOptions) -> SqlEngine {
    SqlEngine::open(options).await.expect("the database opens")
}

/// A connection of the test itself.
pub struct Sql(mysql_async::Conn);

/// What the server says it will do for one statement.
#[derive(Debug)]
pub struct Plan {
    pub partitions: usize,
    pub kind: String,
    pub key: String,
    pub rows: u64,
    pub extra: String,
}

impl Sql {
    pub async fn connect(options: &SqlOptions) -> Sql {
        let Address::Socket(socket) = &options.addresses[0] else { panic!("the tests' server has a socket") };
        let opts = mysql_async::OptsBuilder::default()
            .socket(Some(socket.to_string_lossy()))
            .user(Some("root"))
            .db_name(Some(options.database.as_str()));
        Sql(mysql_async::Conn::new(opts).await.expect("it connects"))
    }

    /// The rows of one statement, as text.
    pub async fn rows(&mut self, statement: &str) -> Vec<Vec<String>> {
        let rows: Vec<mysql_async::Row> = self.0.query(statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        let text = |value: mysql_async::Value| match value {
            mysql_async::Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            mysql_async::Value::NULL => String::new(),
            other => other.as_sql(true),
        };
        rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect()
    }

    /// The plans of the statements of a message that have one.
    pub async fn plans(&mut self, message: &str) -> Vec<Plan> {
        let mut plans = Vec::new();
        let has_plan = |text: &&str| text.starts_with("SELECT") || text.starts_with('(') || text.starts_with("DELETE");
        for statement in message.split(';').filter(has_plan) {
            // id, select_type, table, partitions, type, possible_keys, key, key_len, ref, rows, Extra
            for row in self.rows(&format!("EXPLAIN PARTITIONS {statement}")).await {
                plans.push(Plan {
                    partitions: row[3].split(',').filter(|name| !name.is_empty()).count(),
                    kind: row[4].clone(),
                    key: row[6].clone(),
                    rows: row[9].parse().unwrap_or(0),
                    extra: row[10].clone(),
                });
            }
        }
        plans
    }
}
