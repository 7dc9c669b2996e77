//! fsck: is every row, and every chunk at every data server, what the others say it is?
//!
//! Promises:
//! - It is safe, and quiet, on a cluster at work. Rows are read page by page; what does not fit between two pages is
//!   asked about again, alone, in one snapshot, before it is reported. A repair looks once more, inside its own
//!   transaction. A chunk that no row names is reported only if it lay at its data server before any row was read:
//!   ids are never used twice and a chunk never becomes named again.
//! - Nothing that holds bytes of a file is dropped. What is lost or damaged is reported; what hangs in the air gets a name
//!   in the root directory; files of damaged chunks that belong to nobody are moved aside.
//! - What could not be looked at (a data server that is down, or all of them because that was wanted) is said, and the
//!   verdict is not "clean". One damaged chunk hides no other.
//! - Memory: 55 to 110 MB a million inodes (see [`tally`]), 32 bytes a chunk row, 16 a chunk at a data server, and the
//!   lists of spares and of what is to be freed.
//!
//! Not looked at: the bytes themselves (scrub does that; the blocks that it, or a reader, found bad are reported), what attributes and policies say, remembered requests.

pub mod ask;
mod chunks;
mod confirm;
pub mod finding;
pub mod held;
mod kept;
mod names;
mod pending;
pub mod report;
mod side;
mod tally;
#[cfg(test)]
pub mod tests;
mod usage;

use ask::Ask;
use braid_api::{DataPeers, Namespace, Result};
use braid_env::Env;
use braid_types::{ChunkId, ServerId};
use chunks::{Chunks, read_containers, read_uses};
use finding::{Fault, Finding, Remedy};
use held::{Listings, delete, set_aside};
use kept::Kept;
use report::{Report, Seen};
use std::collections::BTreeMap;
use std::time::Duration;
use tally::Tally;

/// Repairs may uncover what was hidden: so many times all is looked at again.
const ROUNDS_MAX: usize = 6;

pub struct Options {
    pub repair: bool,
    /// Compare with what the data servers have.
    pub data: bool,
    /// How long a writer may take to report a size: clients do so every second.
    pub settle: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { repair: false, data: true, settle: Duration::from_secs(4) }
    }
}

pub struct Fsck<'a, N, P> {
    pub env: &'a Env,
    pub namespace: &'a N,
    pub peers: &'a P,
    pub options: Options,
    /// Told what is being read, and how many rows more have been.
    pub progress: &'a (dyn Fn(&'static str, u64) + Sync),
}

/// One look at everything.
struct Look {
    report: Report,
    listings: Listings,
}

impl<N: Namespace, P: DataPeers> Fsck<'_, N, P> {
    pub async fn run(&self) -> Result<Report> {
        let mut repaired: Vec<Finding> = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let mut look = self.look().await?;
            let done = if self.options.repair { self.mend(&mut look).await? } else { 0 };
            if done == 0 {
                let Report { findings, unchecked, seen } = look.report;
                repaired.extend(findings);
                return Ok(Report { findings: repaired, unchecked, seen });
            }
            repaired.extend(look.report.findings.into_iter().filter(|f| f.done.is_some()));
        }
        // Something breaks as fast as it is mended: what is found now is left.
        let last = self.look().await?.report;
        repaired.extend(last.findings);
        Ok(Report { findings: repaired, ..last })
    }

    async fn look(&self) -> Result<Look> {
        let ask = Ask::new(self.namespace);
        let progress = self.progress;
        // The order matters: see `held`.
        let (listings, unchecked) = match self.options.data {
            true => held::list(self.peers, ask.servers().await?, &|n| progress("chunks at data servers", n)).await,
            false => (Listings::new(), Vec::new()),
        };
        let unfreed = |n| progress("what waits to be freed", n);
        let before = pending::read(&ask, &unfreed).await?;
        let mut tally = self.read_inodes(&ask).await?;
        let mut seen = Seen { inodes: tally.inodes(), names: tally.names, ..Seen::default() };
        if !tally.has_root() {
            let remedy = Remedy::ByHand("recover the metadata from a copy");
            let finding = Finding::new(Fault::NoRoot, "/", "the root directory has no row", remedy);
            return Ok(Look { report: Report { findings: vec![finding], unchecked, seen }, listings });
        }
        let uses = read_uses(&ask, &|n| progress("chunk rows", n)).await?;
        // After the files: what leaves one for a snapshot is not missed.
        let kept = Kept::read(&ask).await?;
        let after = pending::read(&ask, &unfreed).await?;
        let containers = read_containers(&ask).await?;
        let servers = ask.servers().await?.iter().map(|s| s.id).collect();
        seen.chunk_rows = uses.len() as u64;
        seen.containers = containers.len() as u64;
        seen.chunks_held = self.options.data.then(|| listings.values().map(|l| l.chunks.len() as u64).sum());

        progress("doubts", 0);
        let doubts = tally.doubts(&after.orphans);
        seen.doubts = doubts.len() as u64;
        let mut findings = confirm::confirm(&ask, doubts).await?;
        findings.append(&mut side::check(&ask, &tally, &|n| progress("rows beside inodes", n)).await?);
        let mut chunks = Chunks {
            env: self.env,
            ask: &ask,
            peers: self.peers,
            settle: self.options.settle,
            tally: &tally,
            uses,
            kept,
            containers,
            servers,
            listings: &listings,
            pending: [before, after],
            findings: Vec::new(),
            unchecked,
        };
        chunks.check().await?;
        findings.append(&mut chunks.findings);
        findings.sort_by(|a, b| (a.fault, &a.place, &a.what).cmp(&(b.fault, &b.place, &b.what)));
        let mut unchecked = chunks.unchecked;
        if findings.is_empty() {
            progress("quotas", 0);
            let (found, why_not) = usage::check(&ask).await?;
            findings.extend(found);
            unchecked.extend(why_not);
        }
        Ok(Look { report: Report { findings, unchecked, seen }, listings })
    }

    async fn read_inodes(&self, ask: &Ask<'_, N>) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut after = None;
        loop {
            let page = ask.inode_rows(after).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.parent, last.name.clone()));
            (self.progress)("names", page.len() as u64);
            page.iter().for_each(|row| tally.entry(row));
        }
        let mut after = None;
        loop {
            let page = ask.id_rows(after).await?;
            let Some(last) = page.last() else { return Ok(tally) };
            after = Some(last.id);
            (self.progress)("inodes", page.len() as u64);
            page.iter().for_each(|row| tally.id_row(row));
        }
    }

    /// Repairs what can be; answers how much was.
    async fn mend(&self, look: &mut Look) -> Result<usize> {
        let ask = Ask::new(self.namespace);
        let mut deletions: BTreeMap<ServerId, Vec<(ChunkId, usize)>> = BTreeMap::new();
        let mut done = 0;
        for (i, finding) in look.report.findings.iter_mut().enumerate() {
            match &finding.remedy {
                Remedy::Row(repair) => match ask.repair(repair.clone()).await {
                    Ok(what) => {
                        done += usize::from(what.is_some());
                        finding.done = what;
                    }
                    // The others can still be repaired.
                    Err(e) => finding.what.push_str(&format!(" (repair failed: {e})")),
                },
                Remedy::Delete(server, chunk) => deletions.entry(*server).or_default().push((*chunk, i)),
                Remedy::SetAside(server, chunk) => {
                    let Some(listing) = look.listings.get(server) else { continue };
                    match set_aside(self.peers, &listing.info, *chunk).await {
                        Ok(()) => {
                            done += 1;
                            let files = format!("moved the files of chunk {chunk}");
                            finding.done = Some(format!("{files} to `aside` in the directory of data server {server}"));
                        }
                        Err(e) => finding.what.push_str(&format!(" (repair failed: {e})")),
                    }
                }
                Remedy::ByHand(_) => {}
            }
        }
        for (server, chunks) in deletions {
            let Some(listing) = look.listings.get(&server) else { continue };
            let ids: Vec<ChunkId> = chunks.iter().map(|(chunk, _)| *chunk).collect();
            let deleted = delete(self.peers, &listing.info, &ids).await;
            done += if deleted.is_ok() { chunks.len() } else { 0 };
            for (chunk, i) in chunks {
                let finding = &mut look.report.findings[i];
                match &deleted {
                    Ok(()) => finding.done = Some(format!("deleted chunk {chunk} at data server {server}")),
                    Err(e) => finding.what.push_str(&format!(" (repair failed: {e})")),
                }
            }
        }
        Ok(done)
    }
}
