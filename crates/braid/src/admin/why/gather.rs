//! Asks all who know of something that waits.

use super::called::{Called, Names, condition, path_name, session_name};
use super::follow::{File, Mount, Node, Place};
use crate::admin::status::look_within;
use crate::admin::{Cluster, members, strange};
use crate::cli::ClusterArgs;
use crate::local::process;
use crate::roles::predecessor;
use crate::roles::why::{Report, all_dirs, reports};
use anyhow::{Result, anyhow, bail};
use braid_api::Manner;
use braid_api::admin::{AdminAnswer, AdminQuery, SessionStatus, Waiting};
use braid_types::{ChunkIndex, InodeId, Name};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who asks may be waiting for a server that stands still: the others say so.
const ONE_SERVER: Duration = Duration::from_secs(3);
/// Files of which paths are asked for: one message each.
const PATHS_MAX: usize = 64;
/// Chunks of a file by which what data servers do for it is known.
const CHUNKS_PAGE: u32 = 4096;
const CHUNKS_MAX: usize = 1 << 20;

/// All that waits, and how everybody is called.
#[derive(Default)]
pub struct Gathered {
    pub nodes: Vec<Node>,
    pub reports: Vec<Report>,
    pub sessions: Vec<SessionStatus>,
    pub called: Called,
    pub names: Names,
    /// The metadata server answers.
    answers: bool,
}

impl Gathered {
    pub async fn of(cluster: &Cluster, args: &ClusterArgs) -> Result<Gathered> {
        let mut all = Gathered::default();
        let run = run_dir(args);
        // The mounts first: asking a server that stands still takes a while, and what waits now may be over by then.
        all.reports = mounts_here(run.as_deref(), &cluster.config.cluster.metadata);
        for report in &all.reports {
            let Report { process, place: at, session, .. } = report;
            let state = condition(process::state(*process));
            let name = format!("mount {} (process {process}{state})", at.display());
            let place = Place::Mount { at: at.clone(), process: *process, session: *session };
            all.nodes.extend(nodes(&place, &name, report.waiting.clone()));
        }
        // One that does not run is not waited for: that is what was asked.
        let servers = match cluster.call(AdminQuery::Why, Manner::Once).await {
            Ok(AdminAnswer::Why(list)) => {
                all.answers = true;
                match members::seats(cluster).await {
                    Ok(seats) if seats.len() > 1 => all.ask_members(cluster, &seats).await,
                    _ => all.nodes.extend(nodes(&Place::Metadata, "metadata server", list)),
                }
                look_within(cluster, ONE_SERVER).await
            }
            Ok(_) => return strange(),
            Err(e) => Err(e),
        };
        let servers = servers.unwrap_or_else(|e| {
            eprintln!("braid: {e:#}");
            Vec::new()
        });
        for seen in servers {
            let at = format!("data server {} on {}", seen.info.id, seen.info.host);
            all.called.add(&format!("data server {}", seen.info.id), &at, &seen.info.addresses);
            match seen.status {
                Some(Ok(status)) => all.nodes.extend(nodes(&Place::Data(seen.info.id), &at, status.waiting)),
                Some(Err(why)) => eprintln!("braid: {at}: {why}"),
                None => eprintln!("braid: {at} is down"),
            }
        }
        if let (true, Some(run)) = (all.called.is_empty(), &run) {
            all.called.add_local(run);
        }
        if all.answers
            && let Ok(AdminAnswer::Sessions(sessions)) = cluster.call(AdminQuery::Sessions, Manner::Once).await
        {
            all.names.sessions = sessions.iter().map(|session| (session.session, session_name(session))).collect();
            all.sessions = sessions;
        }
        Ok(all)
    }

    /// Each of several metadata servers knows what waits for it.
    async fn ask_members(&mut self, cluster: &Cluster, seats: &[members::Seat]) {
        for (seat, answer) in members::ask_each(cluster, seats, AdminQuery::Why).await {
            let at = format!("metadata server {}", seat.id);
            match answer {
                Ok(AdminAnswer::Why(list)) => self.nodes.extend(nodes(&Place::Metadata, &at, list)),
                Ok(_) => eprintln!("braid: {at}: it answered something else"),
                Err(why) => eprintln!("braid: {at} at {}: {why}", seat.addresses.join(", ")),
            }
        }
    }

    /// A mount of this machine.
    pub fn mount(&self, at: &Path) -> Mount {
        let is_it = |session: &&SessionStatus| {
            let place = predecessor::mount_of(&session.description).map(|(place, _)| Path::new(place));
            place == Some(at) && predecessor::is_here(&session.description)
        };
        // The last, if one before it has not ended yet.
        let session = self.sessions.iter().filter(is_it).map(|session| session.session).max();
        let said = self.reports.iter().find(|report| report.place == at).map(|report| report.session);
        Mount { at: at.to_owned(), session: said.or(session) }
    }

    /// The mounts that a process serves.
    pub fn served_by(&self, pid: u32) -> Vec<Mount> {
        let described = self.sessions.iter().filter(|session| predecessor::is_here(&session.description));
        let described = described.filter_map(|session| predecessor::mount_of(&session.description));
        let said = self.reports.iter().map(|report| (report.place.clone(), report.process));
        let all = described.map(|(place, process)| (PathBuf::from(place), process)).chain(said);
        let places: BTreeSet<PathBuf> = all.filter(|(_, process)| *process == pid).map(|(place, _)| place).collect();
        places.iter().map(|place| self.mount(place)).collect()
    }

    /// Asks what the files are called that are spoken of.
    pub async fn learn_paths(&mut self, cluster: &Cluster, nodes: &[(usize, Node)]) {
        let inodes: BTreeSet<InodeId> =
            nodes.iter().flat_map(|(_, node)| node.waiting.inodes.iter().copied()).collect();
        for id in inodes.into_iter().take(PATHS_MAX).filter(|_| self.answers) {
            // One whose path nobody knows keeps its number.
            let Ok(AdminAnswer::PathOf(check)) = cluster.call(AdminQuery::PathOf { id }, Manner::Once).await else {
                return;
            };
            self.names.paths.extend(path_name(&check).map(|path| (id, path)));
        }
    }
}

fn nodes(place: &Place, at: &str, list: Vec<Waiting>) -> Vec<Node> {
    list.into_iter().map(|waiting| Node { place: place.clone(), at: at.to_owned(), waiting }).collect()
}

/// What mounts of this cluster on this machine say: those beside its other run files, and those that only know its address.
fn mounts_here(run: Option<&Path>, metadata: &[String]) -> Vec<Report> {
    let own = run.map(reports).unwrap_or_default();
    let others = all_dirs().iter().flat_map(|dir| reports(dir)).collect::<Vec<_>>();
    let is_of_cluster = |report: &Report| report.cluster.iter().any(|address| metadata.contains(address));
    let others = others.into_iter().filter(|(_, report)| is_of_cluster(report));
    own.into_iter().chain(others).map(|(_, report)| report).collect()
}

/// Where the mounts of a cluster made by `braid up` say what they wait for.
fn run_dir(args: &ClusterArgs) -> Option<PathBuf> {
    args.dir().map(|dir| dir.join("run"))
}

/// The file at a path, without asking mounts that may write it: they may be what is waited for.
pub async fn find(cluster: &Cluster, path: &str) -> Result<File> {
    if !path.starts_with('/') {
        bail!("{path}: paths of the cluster begin with /");
    }
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let names: Vec<Name> = parts.map(str::parse).collect::<Result<_, _>>().map_err(|e| anyhow!("{path}: {e}"))?;
    let mut file = File { id: InodeId::ROOT, ..File::default() };
    for name in names {
        let query = AdminQuery::Entry { parent: file.id, name: name.as_bytes().to_vec() };
        let AdminAnswer::Entry(found) = cluster.call(query, Manner::Once).await? else { return strange() };
        let Some(entry) = found.entry else { bail!("{path}: no such file or directory") };
        (file.name, file.id) = (Some((file.id, name)), entry.id);
    }
    learn_chunks(cluster, &mut file).await?;
    Ok(file)
}

async fn learn_chunks(cluster: &Cluster, file: &mut File) -> Result<()> {
    let mut after = Some((InodeId(file.id.0.saturating_sub(1)), ChunkIndex(u64::MAX)));
    while file.chunks.len() < CHUNKS_MAX {
        let query = AdminQuery::ChunkRows { after, limit: CHUNKS_PAGE };
        let AdminAnswer::ChunkRows(rows) = cluster.call(query, Manner::Once).await? else { return strange() };
        let own: Vec<_> = rows.iter().filter(|row| row.inode == file.id).collect();
        file.chunks.extend(own.iter().map(|row| row.chunk));
        file.containers.extend(own.iter().map(|row| row.container));
        let is_over = own.len() < rows.len() || rows.len() < CHUNKS_PAGE as usize;
        after = rows.last().map(|row| (row.inode, row.index));
        if is_over || after.is_none() {
            break;
        }
    }
    Ok(())
}
