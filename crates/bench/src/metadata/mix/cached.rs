//! The client that mounts use, with its caches and its early answers: one for each client of the benchmark, or one for all of them, as programs
//! have it that work on one mount.

use super::cluster::{Cluster, text};
use super::plain::{Connection, components};
use super::plan::{Op, SMALL_BYTES, Step};
use super::run::{Result, Target, Work};
use crate::report::Counters;
use braid_api::{Caller, DirEntry, FileSystem, HandleId, NewNode, NodeKind, OpenFlags, RenameMode, SetAttr, XattrMode};
use braid_client::{Client, ClientConfig};
use braid_types::*;
use braid_wire::WirePeers;
use bytes::Bytes;
use std::sync::Arc;

/// What clients send beside their operations.
const BESIDE: &[&str] = &["OpenSession", "RenewSession", "Listen", "Acknowledge"];

/// Who has a cache together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounts {
    One,
    OneEach,
}

pub struct Cached {
    cluster: Arc<Cluster>,
    mounts: Mounts,
    clients: Vec<Arc<Client>>,
    /// For what no client asks for by itself: it has chunks in advance.
    plain: Vec<Arc<Connection>>,
}

const ENTRIES: usize = 1000;

impl Cached {
    pub async fn start(cluster: Arc<Cluster>, plain: Vec<Arc<Connection>>, mounts: Mounts) -> Result<Cached> {
        let mut clients = Vec::new();
        let wanted = if mounts == Mounts::One { 1 } else { plain.len() };
        for _ in 0..wanted {
            let config =
                ClientConfig { description: "benchmark".into(), host: "here".into(), ..ClientConfig::default() };
            let peers = WirePeers::new(&cluster.clients);
            let started = Client::start(cluster.env.clone(), cluster.stub(), cluster.stub(), peers, config).await;
            clients.push(started.map_err(text)?);
        }
        Ok(Cached { cluster, mounts, clients, plain })
    }

    pub async fn stop(&self) -> Result<()> {
        for client in &self.clients {
            client.shutdown().await.map_err(text)?;
        }
        Ok(())
    }

    /// Of this client of the benchmark.
    fn mount(&self, client: usize) -> &Client {
        &self.clients[client % self.clients.len()]
    }

    async fn do_step(&self, client: usize, step: &Step) -> Result<()> {
        let (c, cx, path) = (self.mount(client), Caller::default(), step.path.as_str());
        let write = OpenFlags { write: true, exclusive: true, ..OpenFlags::READ };
        match step.op {
            Op::Read => {
                let (_, opened) =
                    c.open_at(&cx, InodeId::ROOT, &components(path)?, OpenFlags::READ).await.map_err(text)?;
                c.release(opened.handle).await;
                Ok(())
            }
            Op::Stat => c.stat(InodeId::ROOT, &components(path)?).await.map(drop).map_err(text),
            Op::List => list(c, find(c, path).await?).await.map(drop),
            Op::AddBlock => self.plain[client].step(step).await,
            Op::Move => {
                let (from, from_name) = place(c, path).await?;
                let (to, to_name) = place(c, &step.to).await?;
                c.rename(&cx, (from, &from_name), (to, &to_name), RenameMode::NoReplace).await.map_err(text)
            }
            Op::Create => {
                let (parent, name) = place(c, path).await?;
                let (_, opened) = c.create(&cx, parent, &name, Mode(0o755), write).await.map_err(text)?;
                close(c, opened.handle).await
            }
            Op::Delete => {
                let (parent, name) = place(c, path).await?;
                c.unlink(&cx, parent, &name).await.map_err(text)
            }
            Op::SetOwner => {
                let set = SetAttr { uid: Some(1000), gid: Some(1000), ..SetAttr::default() };
                let id = find(c, path).await?;
                c.set_attr(&cx, id, None, set).await.map(drop).map_err(text)
            }
            Op::SetPermission => {
                let set = SetAttr { mode: Some(Mode(0o640)), ..SetAttr::default() };
                let id = find(c, path).await?;
                c.set_attr(&cx, id, None, set).await.map(drop).map_err(text)
            }
            Op::SetReplication => {
                let (id, value) = (find(c, path).await?, Bytes::from_static(b"2"));
                c.set_xattr(&cx, id, b"user.replication", value, XattrMode::Any).await.map_err(text)
            }
            Op::Mkdirs => {
                let (parent, name) = place(c, path).await?;
                let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
                c.make_node(&cx, parent, &name, node).await.map(drop).map_err(text)
            }
            Op::Summary => {
                let (mut waiting, mut bytes) = (vec![find(c, path).await?], 0);
                while let Some(dir) = waiting.pop() {
                    for entry in list(c, dir).await? {
                        match entry.kind {
                            FileKind::Directory => waiting.push(entry.id),
                            _ => bytes += entry.attr.map_or(0, |(attr, _)| attr.size),
                        }
                    }
                }
                if bytes == 0 { Err("no file has bytes".to_owned()) } else { Ok(()) }
            }
            Op::PutSmall => {
                let (parent, name) = place(c, path).await?;
                let (_, opened) = c.create(&cx, parent, &name, Mode(0o755), write).await.map_err(text)?;
                c.write(opened.handle, 0, Bytes::from(vec![7; SMALL_BYTES])).await.map_err(text)?;
                close(c, opened.handle).await
            }
            Op::GetSmall => {
                let (_, opened) =
                    c.open_at(&cx, InodeId::ROOT, &components(path)?, OpenFlags::READ).await.map_err(text)?;
                let pieces = c.read(opened.handle, 0, SMALL_BYTES as u32).await.map_err(text)?;
                c.release(opened.handle).await;
                let bytes: usize = pieces.iter().map(Bytes::len).sum();
                if bytes == SMALL_BYTES { Ok(()) } else { Err(format!("{bytes} bytes")) }
            }
        }
    }
}

/// As close(2) does.
async fn close(c: &Client, handle: HandleId) -> Result<()> {
    let flushed = c.flush(handle).await.map_err(text);
    c.release(handle).await;
    flushed
}

/// What is known of a path costs no message.
async fn find(c: &Client, path: &str) -> Result<InodeId> {
    c.walk(InodeId::ROOT, &components(path)?).await.map_err(text)
}

async fn place(c: &Client, path: &str) -> Result<(InodeId, Name)> {
    let (dir, name) = path.rsplit_once('/').ok_or("a path begins with /")?;
    Ok((find(c, dir).await?, name.parse().map_err(text)?))
}

async fn list(c: &Client, dir: InodeId) -> Result<Vec<DirEntry>> {
    let cx = Caller::default();
    let handle = c.open_dir(&cx, dir).await.map_err(text)?.handle;
    let mut all: Vec<DirEntry> = Vec::new();
    loop {
        let offset = all.last().map_or(0, |entry| entry.offset);
        let page = c.read_dir(&cx, handle, offset, ENTRIES, true).await.map_err(text)?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    c.release(handle).await;
    Ok(all)
}

impl Target for Cached {
    fn name(&self) -> String {
        match self.mounts {
            Mounts::One => "BraidFS, one mount".to_owned(),
            Mounts::OneEach => "BraidFS, caching clients".to_owned(),
        }
    }

    fn conditions(&self) -> String {
        let whose = match self.mounts {
            Mounts::One => "in one cache for all clients",
            Mounts::OneEach => "in a cache of each client",
        };
        format!(
            "{}, names and attributes {whose}, under leases, rows in memory; ordered when it returned, durable within 20 ms",
            self.cluster.way()
        )
    }

    fn step<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(self.do_step(client, step))
    }

    fn prepare<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        match step.op {
            Op::AddBlock => Box::pin(self.plain[client].prepare(step)),
            _ => Box::pin(self.do_step(client, step)),
        }
    }

    fn clear<'a>(&'a self, client: usize, step: &'a Step) -> Work<'a> {
        Box::pin(async move {
            if step.op != Op::Mkdirs {
                return self.do_step(client, step).await;
            }
            let c = self.mount(client);
            let (parent, name) = place(c, &step.path).await?;
            c.remove_dir(&Caller::default(), parent, &name).await.map_err(text)
        })
    }

    fn counters(&self) -> Counters {
        let stats = self.cluster.stats();
        let of = |c: &Client| -> u64 {
            let sent = c.stats().messages;
            sent.iter().filter(|(name, _)| !BESIDE.contains(name)).map(|(_, count)| count).sum()
        };
        let messages = self.clients.iter().map(|c| of(c)).sum::<u64>()
            + self.plain.iter().map(|plain| plain.messages()).sum::<u64>();
        Counters {
            engine_round_trips: stats.round_trips as f64,
            messages: messages as f64,
            payload_bytes: 0.0,
            syncs: stats.syncs as f64,
        }
    }
}
