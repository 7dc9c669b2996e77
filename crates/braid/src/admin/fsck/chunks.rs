//! Chunk rows against files, containers, and what data servers have.
//!
//! Not judged: chunk rows wholly beyond the size and without bytes, which fallocate with KEEP_SIZE leaves; a size
//! beyond all data, which is a sparse file. A chunk row costs 32 bytes.

use super::ask::Ask;
use super::finding::{Fault, Finding, Remedy};
use super::held::{Listings, damage, stat};
use super::kept::Kept;
use super::pending::Pending;
use super::tally::Tally;
use braid_api::admin::{ChunkCheck, ContainerStatus, Repair};
use braid_api::{DataPeers, Namespace, Result};
use braid_env::Env;
use braid_types::{ChunkId, ChunkIndex, ContainerId, InodeId, ServerId, SessionId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

#[derive(Clone, Copy)]
pub struct Use {
    pub chunk: ChunkId,
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub container: ContainerId,
}

/// All rows of one pass, and what the data servers had before it.
pub struct Chunks<'a, N, P> {
    pub env: &'a Env,
    pub ask: &'a Ask<'a, N>,
    pub peers: &'a P,
    /// How long a writer may take to report a size.
    pub settle: Duration,
    pub tally: &'a Tally,
    /// In order of chunks.
    pub uses: Vec<Use>,
    /// And what snapshots alone have.
    pub kept: Kept,
    pub containers: HashMap<ContainerId, ContainerStatus>,
    pub servers: HashSet<ServerId>,
    pub listings: &'a Listings,
    /// Before and after the chunk rows were read.
    pub pending: [Pending; 2],
    pub findings: Vec<Finding>,
    pub unchecked: Vec<String>,
}

pub async fn read_uses<N: Namespace>(ask: &Ask<'_, N>, seen: &dyn Fn(u64)) -> Result<Vec<Use>> {
    let (mut uses, mut after) = (Vec::new(), None);
    loop {
        let page = ask.chunk_rows(after).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.inode, last.index));
        seen(page.len() as u64);
        let row = |r: &braid_api::admin::ChunkRow| Use {
            chunk: r.chunk,
            inode: r.inode,
            index: r.index,
            container: r.container,
        };
        uses.extend(page.iter().map(row));
    }
    uses.sort_unstable_by_key(|u| (u.chunk, u.inode, u.index));
    Ok(uses)
}

pub async fn read_containers<N: Namespace>(ask: &Ask<'_, N>) -> Result<HashMap<ContainerId, ContainerStatus>> {
    let (mut all, mut after) = (HashMap::new(), ContainerId(0));
    loop {
        let page = ask.containers(after).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = last.id;
        all.extend(page.into_iter().map(|c| (c.id, c)));
    }
}

const NO_SESSION: SessionId = SessionId(0);

impl<N: Namespace, P: DataPeers> Chunks<'_, N, P> {
    /// Compares; the findings and what could not be checked are in `self` afterwards.
    pub async fn check(&mut self) -> Result<()> {
        let twice = self.twice().await?;
        self.without_file(&twice).await?;
        self.used_and_freed().await?;
        self.chains().await?;
        if !self.listings.is_empty() {
            self.lost().await?;
            self.lost_to_snapshots().await?;
            self.damaged().await?;
            self.beyond_size().await?;
            self.not_named().await?;
        }
        Ok(())
    }

    /// The row, if it is still there and names the same chunk.
    async fn still(&self, used: &Use, session: SessionId) -> Result<Option<ChunkCheck>> {
        let found = self.ask.chunk(used.inode, used.index, session).await?;
        let same = found.row.as_ref().is_some_and(|row| row.chunk == used.chunk);
        // The rows of a file that is being freed will go.
        Ok(Some(found).filter(|f| same && !f.reclaim_inode))
    }

    async fn place(&self, used: &Use) -> Result<String> {
        let path = self.ask.path(used.inode).await?;
        Ok(format!("{path} chunk {}", used.index.0))
    }

    /// Two rows that name one chunk; answers these chunks.
    async fn twice(&mut self) -> Result<HashSet<ChunkId>> {
        let pairs: Vec<(Use, Use)> =
            self.uses.windows(2).filter(|w| w[0].chunk == w[1].chunk).map(|w| (w[0], w[1])).collect();
        let mut twice = HashSet::new();
        for (one, other) in pairs {
            let (Some(a), Some(b)) = (self.still(&one, NO_SESSION).await?, self.still(&other, NO_SESSION).await?)
            else {
                continue;
            };
            twice.insert(one.chunk);
            // If one of the files does not exist, its row can go.
            let remedy = match (&a.file, &b.file) {
                (None, _) => Remedy::Row(Repair::ForgetChunkRow { inode: one.inode, index: one.index }),
                (_, None) => Remedy::Row(Repair::ForgetChunkRow { inode: other.inode, index: other.index }),
                _ => Remedy::ByHand("copy both files to new ones and remove these"),
            };
            let what = format!("it is chunk {}, as is {}", one.chunk, self.place(&other).await?);
            let place = self.place(&one).await?;
            self.findings.push(Finding::new(Fault::ChunkTwice, place, what, remedy));
        }
        Ok(twice)
    }

    async fn without_file(&mut self, twice: &HashSet<ChunkId>) -> Result<()> {
        let doubtful: Vec<Use> = self
            .uses
            .iter()
            .filter(|u| self.tally.file(u.inode).is_none() && !twice.contains(&u.chunk))
            .filter(|u| !self.kept.inodes.contains(&u.inode))
            .copied()
            .collect();
        for used in doubtful {
            let Some(found) = self.still(&used, NO_SESSION).await? else { continue };
            if found.file.is_none() {
                let what = format!("inode {} is no file; the row names chunk {}", used.inode, used.chunk);
                let repair = Repair::DropChunkRow { inode: used.inode, index: used.index };
                let place = self.place(&used).await?;
                self.findings.push(Finding::new(Fault::ChunkWithoutFile, place, what, Remedy::Row(repair)));
            }
        }
        Ok(())
    }

    fn use_of(&self, chunk: ChunkId) -> Option<Use> {
        let at = self.uses.binary_search_by_key(&chunk, |u| u.chunk).ok()?;
        Some(self.uses[at])
    }

    async fn used_and_freed(&mut self) -> Result<()> {
        let after = &self.pending[1];
        let spares = after.spares.iter().copied();
        let reclaims = after.chunks.iter().map(|chunk| (*chunk, NO_SESSION));
        let doubtful: Vec<(Use, SessionId)> =
            spares.chain(reclaims).filter_map(|(chunk, session)| Some((self.use_of(chunk)?, session))).collect();
        for (used, session) in doubtful {
            let Some(found) = self.still(&used, session).await?.filter(|f| f.file.is_some()) else { continue };
            let what = match (found.spare, found.reclaim) {
                (true, _) => format!("chunk {} is still a spare of session {session}", used.chunk),
                (_, true) => format!("chunk {} waits to be freed", used.chunk),
                _ => continue,
            };
            let repair = Repair::KeepChunk { inode: used.inode, index: used.index, session };
            let place = self.place(&used).await?;
            self.findings.push(Finding::new(Fault::ChunkToBeFreed, place, what, Remedy::Row(repair)));
        }
        Ok(())
    }

    /// Containers exist, and so do the servers of their chains. One finding a container.
    async fn chains(&mut self) -> Result<()> {
        let mut first_use: BTreeMap<ContainerId, Use> = BTreeMap::new();
        for used in &self.uses {
            first_use.entry(used.container).or_insert(*used);
        }
        for (id, used) in first_use {
            if let Some(container) = self.containers.get(&id) {
                let unknown: Vec<ServerId> =
                    container.chain.iter().filter(|s| !self.servers.contains(s)).copied().collect();
                for server in unknown {
                    let what = format!("its chain names data server {server}, which does not exist");
                    let remedy = Remedy::ByHand("start a data server on the directory that had this id");
                    let place = format!("container {id}");
                    self.findings.push(Finding::new(Fault::NoServer, place, what, remedy));
                }
            } else if let Some(now) = self.ask.container(id).await? {
                // Made since the containers were read.
                self.containers.insert(id, now);
            } else if self.still(&used, NO_SESSION).await?.is_some() {
                let what = format!("its container {id} has no row, so nobody knows where chunk {} is", used.chunk);
                let remedy = Remedy::ByHand("if the file is not needed, remove it");
                let place = self.place(&used).await?;
                self.findings.push(Finding::new(Fault::NoContainer, place, what, remedy));
            }
        }
        Ok(())
    }

    pub(super) fn chain(&self, container: ContainerId) -> &[ServerId] {
        self.containers.get(&container).map_or(&[], |c| &c.chain)
    }

    /// Chunks that rows name and their servers lack. A row is committed after its bytes were written, so this is data
    /// that was there.
    async fn lost(&mut self) -> Result<()> {
        let mut doubtful = Vec::new();
        for used in &self.uses {
            for server in self.chain(used.container) {
                if self.listings.get(server).is_some_and(|l| !l.has(used.chunk)) {
                    doubtful.push((*used, *server));
                }
            }
        }
        let mut waited = false;
        for (used, server) in doubtful {
            let Some(listing) = self.listings.get(&server) else { continue };
            let mut found = stat(self.peers, &listing.info, used.chunk, used.container).await;
            // Of several copies only the owner's is there at first; the others hear of it within a second.
            if matches!(found, Ok(None)) && self.chain(used.container).len() > 1 {
                if !std::mem::replace(&mut waited, true) {
                    self.env.sleep(self.settle).await;
                }
                found = stat(self.peers, &listing.info, used.chunk, used.container).await;
            }
            match found {
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(e) => {
                    self.unchecked.push(format!("chunk {} at data server {server}: {e}", used.chunk));
                    continue;
                }
            }
            if self.still(&used, NO_SESSION).await?.is_some_and(|f| f.file.is_some()) {
                let what = format!("data server {server} does not have chunk {}: these bytes are lost", used.chunk);
                let remedy = Remedy::ByHand("restore the file, or remove it");
                let place = self.place(&used).await?;
                self.findings.push(Finding::new(Fault::ChunkLost, place, what, remedy));
            }
        }
        Ok(())
    }

    /// What data servers themselves know to be damaged.
    async fn damaged(&mut self) -> Result<()> {
        let freed: HashSet<ChunkId> = self.known();
        for (server, listing) in self.listings {
            for chunk in listing.damaged.keys() {
                let used = self.use_of(*chunk);
                if used.is_none() && freed.contains(chunk) {
                    continue;
                }
                // It may have been written anew, mended from another copy, or deleted.
                let now = match damage(self.peers, &listing.info, *chunk).await {
                    Ok(Some(now)) => now,
                    Ok(None) => continue,
                    Err(e) => {
                        self.unchecked.push(format!("chunk {chunk} at data server {server}: {e}"));
                        continue;
                    }
                };
                let fault = if now.header { Fault::HeaderDamaged } else { Fault::ChunkDamaged };
                let Some(used) = used else {
                    let what = format!("no file has this chunk, and {}", now.cause);
                    let place = format!("data server {server} chunk {chunk}");
                    self.findings.push(Finding::new(fault, place, what, Remedy::SetAside(*server, *chunk)));
                    continue;
                };
                if self.still(&used, NO_SESSION).await?.is_none_or(|f| f.file.is_none()) {
                    continue;
                }
                let others = self.chain(used.container).iter().filter(|s| *s != server);
                let elsewhere = others.filter_map(|s| self.listings.get(s)).any(|l| l.has_sound(*chunk));
                let remedy = Remedy::ByHand(match (elsewhere, now.header) {
                    (true, _) => "another data server has it: the file can be read, copy it and remove the damaged one",
                    (false, true) => "restore that file of the data server, or restore the file, or remove it",
                    (false, false) => "the file's other bytes can be read: restore the file, or remove it",
                });
                let what = format!("data server {server}: {}", now.cause);
                let place = self.place(&used).await?;
                self.findings.push(Finding::new(fault, place, what, remedy));
            }
        }
        Ok(())
    }

    /// Spares, what waits to be freed, and what snapshots have.
    fn known(&self) -> HashSet<ChunkId> {
        let spares = self.pending.iter().flat_map(|p| p.spares.iter().map(|(chunk, _)| *chunk));
        let reclaims = self.pending.iter().flat_map(|p| p.chunks.iter().copied());
        spares.chain(reclaims).chain(self.kept.chunks.iter().map(|used| used.chunk)).collect()
    }

    /// Bytes beyond the size: they would show if the file grew. A writer reports its size within seconds, so this is
    /// looked at twice.
    async fn beyond_size(&mut self) -> Result<()> {
        let mut doubtful = Vec::new();
        for used in &self.uses {
            let Some(file) = self.tally.file(used.inode) else { continue };
            for server in self.chain(used.container) {
                let held = self.listings.get(server).and_then(|l| l.get(used.chunk));
                if held.is_some_and(|h| h.len > 0 && end_of(used.index, h.len, file.chunk_bytes) > file.size) {
                    doubtful.push((*used, *server));
                }
            }
        }
        let mut waited = false;
        let mut furthest: BTreeMap<InodeId, Beyond> = BTreeMap::new();
        for (used, server) in doubtful {
            if self.beyond(&used, server).await?.is_none() {
                continue;
            }
            if !std::mem::replace(&mut waited, true) {
                self.env.sleep(self.settle).await;
            }
            if let Some(beyond) = self.beyond(&used, server).await? {
                let known = furthest.entry(used.inode).or_insert(beyond);
                if beyond.end > known.end {
                    *known = beyond;
                }
            }
        }
        for (inode, Beyond { check, end }) in furthest {
            let what = format!("its size is {}, its data servers hold bytes up to {end}", check.size);
            let repair = Repair::RaiseSize { inode, from: check.size, to: end, trunc_gen: check.trunc_gen };
            let place = self.ask.path(inode).await?;
            self.findings.push(Finding::new(Fault::BeyondSize, place, what, Remedy::Row(repair)));
        }
        Ok(())
    }

    async fn beyond(&self, used: &Use, server: ServerId) -> Result<Option<Beyond>> {
        let Some(listing) = self.listings.get(&server) else { return Ok(None) };
        // First the bytes, then the size: a size that was committed in between counts.
        let status = match stat(self.peers, &listing.info, used.chunk, used.container).await {
            Ok(Some(status)) if status.len > 0 => status,
            // Gone or out of reach meanwhile: the other checks say so.
            _ => return Ok(None),
        };
        let Some(check) = self.still(used, NO_SESSION).await?.and_then(|f| f.file) else { return Ok(None) };
        // A truncation that the server has not made yet will take these bytes.
        if check.cuts > 0 || status.trunc_gen > check.trunc_gen {
            return Ok(None);
        }
        let end = end_of(used.index, status.len, check.chunk_bytes);
        Ok((end > check.size).then_some(Beyond { check, end }))
    }

    /// Chunks at servers that no row names, or that belong elsewhere.
    async fn not_named(&mut self) -> Result<()> {
        let known = self.known();
        let mut doubtful = Vec::new();
        for (server, listing) in self.listings {
            for held in listing.chunks.iter().filter(|h| !listing.damaged.contains_key(&h.chunk)) {
                match self.use_of(held.chunk) {
                    Some(used) if !self.chain(used.container).contains(server) => {
                        doubtful.push((*server, *held, Some(used)))
                    }
                    None if !known.contains(&held.chunk) => doubtful.push((*server, *held, None)),
                    _ => {}
                }
            }
        }
        for (server, held, used) in doubtful {
            match used {
                Some(used) => self.wrong_server(server, &used).await?,
                None => self.garbage(server, held.chunk).await,
            }
        }
        Ok(())
    }

    async fn garbage(&mut self, server: ServerId, chunk: ChunkId) {
        let Some(listing) = self.listings.get(&server) else { return };
        match stat(self.peers, &listing.info, chunk, ContainerId(0)).await {
            Ok(Some(status)) => {
                let what = format!("no file has this chunk of {} bytes", status.len);
                let place = format!("data server {server} chunk {chunk}");
                self.findings.push(Finding::new(Fault::Garbage, place, what, Remedy::Delete(server, chunk)));
            }
            // Freed since it was listed.
            Ok(None) => {}
            Err(e) => self.unchecked.push(format!("chunk {chunk} at data server {server}: {e}")),
        }
    }

    async fn wrong_server(&mut self, server: ServerId, used: &Use) -> Result<()> {
        // Without a container nobody knows where the chunk belongs: this may be the only copy.
        let chain = self.chain(used.container);
        if chain.is_empty() || self.still(used, NO_SESSION).await?.is_none() {
            return Ok(());
        }
        let elsewhere = chain.iter().any(|s| self.listings.get(s).is_some_and(|l| l.has_sound(used.chunk)));
        let remedy = if elsewhere {
            Remedy::Delete(server, used.chunk)
        } else {
            Remedy::ByHand("this may be the only copy: save it first")
        };
        let names: Vec<String> = chain.iter().map(ToString::to_string).collect();
        let what = format!("chunk {} is at data server {server}, it belongs to {}", used.chunk, names.join(", "));
        let place = self.place(used).await?;
        self.findings.push(Finding::new(Fault::WrongServer, place, what, remedy));
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Beyond {
    check: braid_api::admin::FileCheck,
    end: u64,
}

fn end_of(index: ChunkIndex, len: u64, chunk_bytes: u64) -> u64 {
    index.0.saturating_mul(chunk_bytes).saturating_add(len)
}
