//! Where several metadata servers serve at once: who they are, and what each of them says.

use super::{Cluster, LOOK};
use crate::output::{Table, brief, millis};
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery, MemberStatus};
use braid_api::erased::MetaPeers;
use braid_api::meta::GetRoster;
use braid_api::{Carries, Context, Manner};
use braid_types::MemberId;
use serde::Serialize;

/// Where a metadata server serves beside others.
#[derive(Clone)]
pub struct Seat {
    pub id: MemberId,
    pub addresses: Vec<String>,
}

/// What is known of one.
pub struct Member {
    pub seat: Seat,
    /// What it says of itself, or why it says nothing.
    pub status: Result<MemberStatus, String>,
}

impl Member {
    pub fn at(&self) -> &str {
        self.seat.addresses.first().map_or("", String::as_str)
    }
}

/// Who serves; nobody where one metadata server serves alone.
pub async fn seats(cluster: &Cluster) -> Result<Vec<Seat>> {
    let roster = cluster.call(GetRoster {}, Manner::Once).await?;
    let members = roster.map(|roster| roster.members).unwrap_or_default();
    Ok(members.into_iter().map(|seat| Seat { id: seat.id, addresses: seat.addresses }).collect())
}

/// Asks all at once: one that does not answer costs its patience, and not once for each.
pub async fn ask_each(
    cluster: &Cluster,
    seats: &[Seat],
    query: AdminQuery,
) -> Vec<(Seat, Result<AdminAnswer, String>)> {
    let asked = seats.iter().map(|seat| {
        let (way, request) = (cluster.meta_peers.meta(&seat.addresses), query.clone().wrap());
        let cx = Context { deadline: LOOK, manner: Manner::Once, ..Context::default() };
        (seat.clone(), tokio::spawn(async move { way.execute(cx, request).await }))
    });
    let mut all = Vec::new();
    for (seat, answer) in asked.collect::<Vec<_>>() {
        let answer = match answer.await {
            Ok(Ok((answer, _))) => AdminQuery::unwrap(answer).ok_or_else(|| "it answered something else".to_owned()),
            Ok(Err(e)) => Err(brief(&e)),
            Err(ended) => Err(ended.to_string()),
        };
        all.push((seat, answer));
    }
    all
}

pub async fn look(cluster: &Cluster) -> Result<Vec<Member>> {
    let seats = seats(cluster).await?;
    let all = ask_each(cluster, &seats, AdminQuery::Member).await;
    let status = |answer| match answer {
        Ok(AdminAnswer::Member(status)) => Ok(status),
        Ok(_) => Err("it answered something else".to_owned()),
        Err(why) => Err(why),
    };
    Ok(all.into_iter().map(|(seat, answer)| Member { seat, status: status(answer) }).collect())
}

/// What is not well.
pub fn problems(members: &[Member]) -> impl Iterator<Item = String> + '_ {
    members.iter().filter_map(|member| {
        let why = member.status.as_ref().err()?;
        Some(format!(
            "metadata server {} at {} cannot be reached from here: {why}; what it holds waits until it answers or is counted out",
            member.seat.id,
            member.at()
        ))
    })
}

pub fn table(members: &[Member]) -> Table {
    let mut table = Table::new(&["metadata", "", "slots", "sessions", "up for", "address"]);
    for member in members {
        let (id, at) = (member.seat.id.to_string(), member.at().to_owned());
        table.row(match &member.status {
            Ok(status) => [
                id,
                if status.leads { "leads" } else { "serves" }.to_owned(),
                status.slots.to_string(),
                status.sessions.to_string(),
                millis(status.uptime_ms),
                at,
            ],
            Err(_) => [id, "no answer".to_owned(), String::new(), String::new(), String::new(), at],
        });
    }
    table
}

#[derive(Serialize)]
pub struct MemberJson<'a> {
    id: u64,
    addresses: &'a [String],
    #[serde(flatten)]
    own: Option<OwnJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// As it says itself.
#[derive(Serialize)]
struct OwnJson<'a> {
    version: &'a str,
    leads: bool,
    epoch: u64,
    /// Of 4,096.
    slots: u32,
    sessions: u32,
    uptime_ms: u64,
    transactions: u64,
    reads: u64,
}

pub fn json(member: &Member) -> MemberJson<'_> {
    let own = member.status.as_ref().ok().map(|status| OwnJson {
        version: &status.version,
        leads: status.leads,
        epoch: status.epoch.0,
        slots: status.slots,
        sessions: status.sessions,
        uptime_ms: status.uptime_ms,
        transactions: status.transactions,
        reads: status.reads,
    });
    MemberJson {
        id: member.seat.id.0,
        addresses: &member.seat.addresses,
        own,
        error: member.status.as_ref().err().map(String::as_str),
    }
}
