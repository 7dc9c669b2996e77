//! The operations as HDFS has them.

use crate::mix::plan::{Op, SMALL_BYTES, Step, Tree};
use crate::mix::run::{Result, Target, Work};
use crate::report::Counters;
use crate::rpc::{Connection, Fields, Message};
use bytes::Bytes;
use hdfs_native::{Client, ClientBuilder, WriteOptions};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::Mutex;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Small, because a block that was added and is not written counts as full, of the size of the next: thousands would leave no room.
const BLOCK_BYTES: u64 = 1 << 20;

struct Way {
    connection: Connection,
    name: String,
    /// Files that were made and are going to get a block, by path; their numbers.
    open: HashMap<String, u64>,
}

pub struct Hdfs {
    /// A connection for each client: Hadoop's own would share one, and wait for each other in it.
    ways: Vec<Mutex<Way>>,
    /// For bytes; each has its own connections.
    bytes: Vec<Client>,
    replication: u32,
    calls: AtomicU64,
}

impl Hdfs {
    pub async fn open(namenode: &str, clients: usize, replication: u32) -> Result<Hdfs> {
        let user = std::env::var("HADOOP_USER_NAME").unwrap_or_else(|_| "root".to_owned());
        let (mut ways, mut bytes) = (Vec::new(), Vec::new());
        for number in 0..clients as u64 {
            let connection = Connection::open(namenode, &user, number).await?;
            let name = format!("hdfs-mix-{}-{number}", std::process::id());
            ways.push(Mutex::new(Way { connection, name, open: HashMap::new() }));
            let built = ClientBuilder::new().with_url(format!("hdfs://{namenode}")).with_user(user.as_str()).build();
            bytes.push(built.map_err(text)?);
        }
        Ok(Hdfs { ways, bytes, replication, calls: AtomicU64::new(0) })
    }

    async fn call(&self, way: &mut Way, method: &str, request: Message) -> Result<Vec<u8>> {
        self.calls.fetch_add(1, Relaxed);
        way.connection.call(method, &request).await
    }

    /// Left open; its number.
    async fn create(&self, way: &mut Way, path: &str) -> Result<u64> {
        let request = Message::new()
            .text(1, path)
            .message(2, &Message::new().number(1, 0o755))
            .text(3, &way.name)
            // Create, and fail if it exists.
            .number(4, 1)
            .number(5, 0)
            .number(6, u64::from(self.replication))
            .number(7, BLOCK_BYTES);
        let answer = self.call(way, "create", request).await?;
        Fields(&answer).message(1).and_then(|status| status.number(13)).ok_or_else(|| "a file has a number".to_owned())
    }

    async fn create_and_close(&self, way: &mut Way, path: &str) -> Result<()> {
        let file = self.create(way, path).await?;
        let request = Message::new().text(1, path).text(2, &way.name).number(4, file);
        is_true("complete", &self.call(way, "complete", request).await?)
    }

    async fn delete(&self, way: &mut Way, path: &str) -> Result<()> {
        is_true("delete", &self.call(way, "delete", Message::new().text(1, path).number(2, 0)).await?)
    }

    async fn do_step(&self, client: usize, step: &Step) -> Result<()> {
        let way = &mut *self.ways[client].lock().await;
        let path = step.path.as_str();
        let src = Message::new().text(1, path);
        match step.op {
            Op::Read => {
                let answer = self.call(way, "getBlockLocations", src.number(2, 0).number(3, i64::MAX as u64)).await?;
                let located = Fields(&answer).message(1).ok_or("it is not there")?;
                let places = located.messages(2).map(|block| block.messages(3).count()).sum::<usize>();
                if places == 0 { Err("nobody has its block".to_owned()) } else { Ok(()) }
            }
            Op::Stat => {
                let answer = self.call(way, "getFileInfo", src).await?;
                Fields(&answer).message(1).map(drop).ok_or_else(|| "it is not there".to_owned())
            }
            Op::List => {
                let mut after: Vec<u8> = Vec::new();
                loop {
                    let request = src.clone().bytes(2, &after).number(3, 0);
                    let answer = self.call(way, "getListing", request).await?;
                    let list = Fields(&answer).message(1).ok_or("it is not there")?;
                    let last = list.messages(1).last().and_then(|status| status.message(2));
                    after = last.map_or(Vec::new(), |name| name.0.to_vec());
                    if list.number(2).unwrap_or(0) == 0 {
                        return Ok(());
                    }
                }
            }
            Op::AddBlock => {
                let file = way.open.remove(path).ok_or("it is not open")?;
                let request = src.text(2, &way.name).number(5, file);
                let answer = self.call(way, "addBlock", request).await?;
                Fields(&answer).message(1).map(drop).ok_or_else(|| "no block".to_owned())
            }
            Op::Move => self.call(way, "rename2", src.text(2, &step.to).number(3, 0)).await.map(drop),
            Op::Create => self.create_and_close(way, path).await,
            Op::Delete => self.delete(way, path).await,
            Op::SetOwner => self.call(way, "setOwner", src.text(2, "somebody").text(3, "some")).await.map(drop),
            // To what it is: the edit is logged all the same, and no block is copied beside what comes next.
            Op::SetReplication => {
                let request = src.number(2, u64::from(self.replication));
                is_true("setReplication", &self.call(way, "setReplication", request).await?)
            }
            Op::SetPermission => {
                let permission = Message::new().number(1, 0o640);
                self.call(way, "setPermission", src.message(2, &permission)).await.map(drop)
            }
            Op::Mkdirs => {
                let request = src.message(2, &Message::new().number(1, 0o755)).number(3, 0);
                is_true("mkdirs", &self.call(way, "mkdirs", request).await?)
            }
            Op::Summary => {
                let answer = self.call(way, "getContentSummary", src).await?;
                let bytes = Fields(&answer).message(1).and_then(|summary| summary.number(1)).unwrap_or(0);
                if bytes == 0 { Err("no file has bytes".to_owned()) } else { Ok(()) }
            }
            Op::PutSmall => self.put(client, path, SMALL_BYTES).await,
            Op::GetSmall => {
                let mut reader = self.bytes[client].read(path).await.map_err(text)?;
                let found = reader.read_bytes(SMALL_BYTES).await.map_err(text)?.len();
                if found == SMALL_BYTES { Ok(()) } else { Err(format!("{found} bytes")) }
            }
        }
    }

    async fn put(&self, client: usize, path: &str, bytes: usize) -> Result<()> {
        let options =
            WriteOptions::default().replication(self.replication).create_parent(false).block_size(BLOCK_BYTES);
        let mut writer = self.bytes[client].create(path, options).await.map_err(text)?;
        writer.write_bytes(Bytes::from(vec![7; bytes])).await.map_err(text)?;
        writer.close().await.map_err(text)
    }

    /// The namespace, where it is not there yet: every file has a block with one byte, so that there is a place to tell.
    pub async fn fill(self: &Arc<Self>, tree: &Tree) -> Result<()> {
        let of = |op, path| Step { op, path, to: String::new() };
        if self.do_step(0, &of(Op::Stat, tree.file(tree.files - 1))).await.is_ok() {
            return Ok(());
        }
        for dir in 0..tree.dirs() {
            self.do_step(0, &of(Op::Mkdirs, tree.dir(dir))).await?;
        }
        let (next, mut tasks) = (Arc::new(AtomicU64::new(0)), Vec::new());
        // Several at a time for each client: closing a file may have to wait for what a DataNode reports.
        for client in (0..self.bytes.len()).cycle().take(64) {
            let (hdfs, next, tree) = (self.clone(), next.clone(), tree.clone());
            tasks.push(tokio::spawn(async move {
                loop {
                    let file = next.fetch_add(1, Relaxed);
                    if file >= tree.files {
                        return Ok(());
                    }
                    hdfs.put(client, &tree.file(file), 1).await?;
                }
            }));
        }
        for task in tasks {
            task.await.map_err(text)?.map_err(|e: String| format!("filling: {e}"))?;
        }
        Ok(())
    }
}

fn is_true(what: &str, answer: &[u8]) -> Result<()> {
    match Fields(answer).number(1) {
        Some(1) => Ok(()),
        _ => Err(format!("{what} was not done")),
    }
}

impl Target for Hdfs {
    fn name(&self) -> String {
        match self.replication {
            1 => "HDFS".to_owned(),
            copies => format!("HDFS, {copies} copies"),
        }
    }

    fn conditions(&self) -> String {
        format!(
            "TCP over loopback, nothing cached at clients, names in the NameNode's memory; edits synced when it returned, blocks of {} \
             copies in the DataNodes' page cache",
            self.replication
        )
    }

    fn step<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(self.do_step(client, step))
    }

    fn prepare<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(async move {
            if step.op != Op::AddBlock {
                return self.do_step(client, step).await;
            }
            let way = &mut *self.ways[client].lock().await;
            let file = self.create(way, &step.path).await?;
            way.open.insert(step.path.clone(), file);
            Ok(())
        })
    }

    /// Files and empty directories go by the same call.
    fn clear<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(async move { self.delete(&mut *self.ways[client].lock().await, &step.path).await })
    }

    /// Without those of bytes, which hdfs-native does not count.
    fn counters(&self) -> Counters {
        Counters { messages: self.calls.load(Relaxed) as f64, ..Counters::default() }
    }
}
