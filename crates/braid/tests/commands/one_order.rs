//! Names in two directories, and directories in each other, that several clients work in at once, over a database, while metadata servers are killed: there is one order
//! of it all that explains every answer. Of the servers one serves and the other stands by, or both serve at once.

use super::Cluster;
use super::database::Machine;
use braid_api::meta::MetaRequest;
use braid_api::{Caller, Code, FileSystem, NewNode, NodeKind};
use braid_client::{Client, ClientConfig, Ways};
use braid_env::Env;
use braid_model::linear::Linear;
use braid_model::objects::{NestPlay, Play, Plays};
use braid_types::{ClusterId, InodeId, Mode, ServerId};
use braid_wire::{Endpoint, Identity, Limits, Remote, RemoteNamespace, Role, WireMetaPeers, WirePeers};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CLIENTS: usize = 3;
/// More at once have more orders than can be tried.
const TASKS: usize = 4;

/// A small generator.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

/// What all tasks share.
struct Work<P: Plays> {
    dirs: [InodeId; 2],
    linear: Mutex<(Linear<P::Object>, VecDeque<String>)>,
    play: P,
    done: AtomicU32,
    /// Calls whose end nobody knows.
    unknown: AtomicU32,
    /// Directories were not moved into what is in them.
    loops: AtomicU32,
    is_over: AtomicBool,
}

impl<P: Plays> Work<P> {
    async fn run(&self, who: usize, client: Arc<Client>) {
        let mut dice = Dice(who as u64 + 1);
        while !self.is_over.load(SeqCst) {
            let op = self.play.draw(|sides| dice.throw(sides));
            let id = {
                let mut judged = self.linear.lock().unwrap();
                judged.1.push_back(format!("{who} {op:?} …"));
                judged.0.begin(op)
            };
            let answer = self.play.perform(&*client, self.dirs, op).await;
            let mut judged = self.linear.lock().unwrap();
            let (linear, log) = &mut *judged;
            log.push_back(format!("{who} {op:?} = {answer:?}"));
            while log.len() > 300 {
                log.pop_front();
            }
            match answer {
                Ok((answer, why)) => {
                    self.loops.fetch_add(u32::from(why == Some(Code::Invalid)), SeqCst);
                    let last = || log.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
                    assert!(linear.end(id, &answer), "no order explains the last of these:\n{}", last());
                    self.done.fetch_add(1, SeqCst);
                }
                // It may take effect yet: it stays among those that run.
                Err(_) => _ = self.unknown.fetch_add(1, SeqCst),
            }
        }
    }
}

async fn client(sockets: &[String]) -> Arc<Client> {
    let env = Env::os();
    let cluster = ClusterId::default();
    let identity = Identity { role: Role::Client, cluster, server: ServerId(0), incarnation: env.random.u64() };
    let endpoint = Endpoint::new(env.clone(), identity, Limits::default());
    let addresses: Vec<_> = sockets.iter().map(|socket| socket.parse().unwrap()).collect();
    let ways = || {
        let remote = Remote::new(&endpoint, Role::Metadata, ServerId(0), MetaRequest::NAMES, addresses.clone());
        Ways { any: RemoteNamespace(remote), each: Some(Arc::new(WireMetaPeers::new(&endpoint))) }
    };
    Client::start_among(env, ways(), ways(), WirePeers::new(&endpoint), ClientConfig::default()).await.unwrap()
}

/// The metadata server that serves, by its files.
fn leader(root: &Path) -> Option<(String, Pid)> {
    let names = ["metadata", "metadata-2"].into_iter();
    let mut serving = names.filter(|name| root.join(format!("run/{name}.ready")).exists());
    let name = serving.next()?;
    let pid = std::fs::read_to_string(root.join(format!("run/{name}.pid"))).ok()?.trim().parse().ok()?;
    Some((name.to_owned(), Pid::from_raw(pid)?))
}

#[test]
fn names_of_several_clients_have_one_order_over_a_database_whose_metadata_servers_are_killed() {
    assert_eq!(have_one_order::<Play>(&[]), 0);
}

#[test]
fn names_of_several_clients_have_one_order_where_metadata_servers_serve_at_once_and_are_killed() {
    assert_eq!(have_one_order::<Play>(&["--together"]), 0);
}

/// Two that are moved into each other at once make no loop, and what is moved into one that is removed at once is not lost with it.
#[test]
fn directories_that_several_clients_move_into_each_other_have_one_order_where_metadata_servers_are_killed() {
    let into_themselves = have_one_order::<NestPlay>(&["--together"]);
    assert!(into_themselves >= 5, "{into_themselves} moves would have made a loop: nothing was tried");
}

/// Gives how many moves were refused because they would have made a loop.
fn have_one_order<P: Plays>(how: &[&str]) -> u32 {
    let m = Machine::with_database();
    let c = Cluster::unmade();
    // Sessions outlive the change of the leader.
    let database = m.database();
    let more: Vec<&str> =
        ["--database", &database, "--data-servers=1"].into_iter().chain(how.iter().copied()).collect();
    let up = c.up_with(&more);
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let sockets =
        ["metadata", "metadata-2"].map(|name| format!("unix:{}", c.root().join(format!("run/{name}.sock")).display()));

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (clients, dirs) = runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(client(&sockets).await);
        }
        let mut dirs = Vec::new();
        for dir in ["a", "b"] {
            let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
            let made = clients[0].make_node(&Caller::default(), InodeId::ROOT, &dir.parse().unwrap(), node).await;
            dirs.push(made.unwrap().attr.id);
        }
        (clients, [dirs[0], dirs[1]])
    });
    let work = Arc::new(Work::<P> {
        dirs,
        linear: Mutex::new((Linear::new(P::Object::default()), VecDeque::new())),
        play: P::default(),
        done: AtomicU32::new(0),
        unknown: AtomicU32::new(0),
        loops: AtomicU32::new(0),
        is_over: AtomicBool::new(false),
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|who| {
            let (work, client) = (work.clone(), clients[who % CLIENTS].clone());
            runtime.spawn(async move { work.run(who, client).await })
        })
        .collect();
    let served = |beyond: u32| {
        let begun = Instant::now();
        while work.done.load(SeqCst) < beyond && !tasks.iter().any(|task| task.is_finished()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} operations", work.done.load(SeqCst));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    served(300);
    for _ in 0..2 {
        let (killed, pid) = leader(&c.root()).unwrap();
        let before = work.done.load(SeqCst);
        kill_process(pid, Signal::KILL).unwrap();
        std::fs::remove_file(c.root().join(format!("run/{killed}.ready"))).unwrap();
        served(before + 300);
        assert_ne!(leader(&c.root()).map(|(name, _)| name), Some(killed), "the other serves");
        let up = c.up();
        assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    }
    work.is_over.store(true, SeqCst);
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        for client in clients {
            client.shutdown().await.unwrap();
        }
    });
    assert!(work.done.load(SeqCst) >= 900 && work.unknown.load(SeqCst) <= 4, "{:?} unknown", work.unknown);
    assert!(c.says("admin fsck").starts_with("clean: "));
    work.loops.load(SeqCst)
}

#[test]
fn up_makes_a_cluster_over_a_database_and_down_stops_it() {
    use std::os::unix::fs::PermissionsExt;
    let m = Machine::with_database();
    let c = Cluster::unmade();
    let up = c.up_with(&["--database", &m.database(), "--metadata-servers=3"]);
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let lines = |word: &str| up.out.lines().filter(|line| line.contains(word)).count();
    assert_eq!((lines("metadata"), lines("started")), (3, 5), "{}", up.out);
    let mode = std::fs::metadata(c.root().join("braid.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the address of a database has a password in it");
    assert!(!c.root().join("metadata").exists(), "nothing of it lies here");
    std::fs::write(c.root().join("file"), super::pattern(300_000)).unwrap();
    c.says(&format!("fs put {} /file", c.root().join("file").display()));
    assert!(c.says("admin status").contains("in a database"));
    // Who is killed is started again beside the one that serves by then.
    let (killed, pid) = leader(&c.root()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let status = c.run("admin status");
    let problem = format!("NOT WELL: {killed} has ended and nobody has stopped it: braid up ");
    assert!(status.code == 1 && status.out.contains(&problem), "{}{}", status.out, status.err);
    let up = c.up();
    assert!(
        up.code == 0 && up.out.lines().any(|line| line.starts_with(&killed) && line.contains("started")),
        "{}",
        up.out
    );
    c.says("fs get /file /dev/null");
    assert!(c.says(&format!("down {}", c.root().display())).matches("stopped").count() == 5);
    let up = c.up();
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    assert!(c.says("admin fsck --data").starts_with("clean: "));
    let again = c.up_with(&["--database", "mysql://nobody@nowhere/braid"]);
    assert!(again.code == 0 && again.out.contains("note: --database is for a new cluster"), "{}", again.out);
}
