//! `braid fs trash`: what is removed and may come back (`braid_api::trash` says where it lies).

use super::attributes::print_json;
use super::path::{ClusterPath, Step};
use super::session::{Last, Paths, Session, brief, brief_of_tree};
use crate::config::Span;
use crate::output::{self, Table};
use anyhow::{Result, anyhow, bail};
use braid_api::trash::{FROM, PLACE};
use braid_api::{Caller, Code, NewNode, NodeKind, RenameMode, XattrMode};
use braid_types::{Attr, InodeId, Mode, Name, Timestamp};
use bytes::Bytes;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(Subcommand)]
#[command(after_help = "Examples:\n  braid fs trash put /projects/old\n  braid fs trash restore /projects/old")]
pub enum TrashCommand {
    /// Move files and directories into the trash, whatever their size in one step; prints the name of each item.
    #[command(after_help = "Example:\n  braid fs trash put /projects/old")]
    Put {
        #[arg(required = true)]
        paths: Vec<ClusterPath>,
    },
    /// Show what is in the trash, the oldest first.
    #[command(after_help = "Example:\n  braid fs trash list --json")]
    List {
        #[command(flatten)]
        whose: Whose,
        /// One object a line.
        #[arg(long)]
        json: bool,
    },
    /// Move something back to where it was.
    #[command(after_help = "Examples:\n  braid fs trash restore /projects/old\n  \
                            braid fs trash restore 20261126T093801.123456Z --to /projects/older")]
    Restore {
        #[command(flatten)]
        whose: Whose,
        /// The name of an item, or the path it had: of several with that path the newest.
        item: String,
        /// To this path instead.
        #[arg(long, value_name = "PATH")]
        to: Option<ClusterPath>,
    },
    /// Remove what is in the trash for good.
    #[command(after_help = "Example:\n  braid fs trash empty --older-than 24h")]
    Empty {
        #[command(flatten)]
        whose: Whose,
        /// Only what has been there for longer.
        #[arg(long, value_name = "TIME")]
        older_than: Option<Span>,
    },
}

#[derive(Args)]
pub struct Whose {
    /// What all users have put there.
    #[arg(long)]
    all: bool,
}

/// Something in the trash.
struct Item {
    user: InodeId,
    uid: String,
    id: Name,
    dir: Attr,
    /// The path it had.
    from: Bytes,
    /// Its name and what it is; none if its putting was not ended.
    what: Option<(Name, Attr)>,
}

#[derive(Serialize)]
struct ItemJson<'a> {
    item: &'a str,
    user: &'a str,
    since_ns: i64,
    kind: &'static str,
    from: String,
}

impl TrashCommand {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        match self {
            TrashCommand::Put { paths } => {
                for path in &paths {
                    match put(s, path).await {
                        Ok(item) => println!("{item}"),
                        Err(e) => s.note(&e),
                    }
                }
                return Ok(s.exit_code());
            }
            TrashCommand::List { whose, json } => list(&items(s, &whose).await?, json)?,
            TrashCommand::Restore { whose, item, to } => restore(s, &whose, &item, to).await?,
            TrashCommand::Empty { whose, older_than } => {
                let now = now();
                let is_old = |item: &Item| older_than.is_none_or(|Span(least)| item.dir.btime.until(now) >= least);
                for item in items(s, &whose).await?.iter().filter(|item| is_old(item)) {
                    let gone = s.fs.remove_tree(&s.caller, item.user, &item.id).await;
                    if let Err(e) = gone.or_else(missing) {
                        s.note(&anyhow!("{}: {}", output::shown(&item.from), brief_of_tree(&e)));
                    }
                }
                return Ok(s.exit_code());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

fn missing(error: braid_api::Error) -> braid_api::Result<()> {
    if error.code == Code::NotFound { Ok(()) } else { Err(error) }
}

fn name(text: &str) -> Result<Name> {
    text.parse().map_err(|e| anyhow!("{text}: {e}"))
}

/// `20261126T093801.123456Z`, which sorts by time.
fn stamp(at: Timestamp) -> String {
    let digits: String = output::time(at).chars().filter(|c| *c != '-' && *c != ':').collect();
    format!("{}.{:06}Z", digits.replace(' ', "T"), at.subsec_nanos() / 1000)
}

/// The directory `name` in `dir`, made if it is not there; one that is there must be `owner`'s, and others may do no more in it than in a
/// new one.
async fn dir_in<F: Paths>(s: &Session<F>, owner: &Caller, dir: InodeId, name: &Name, mode: u32) -> Result<InodeId> {
    let place = output::shown(name.as_bytes());
    let at = |e: braid_api::Error| anyhow!("the trash, {place}: {}", brief(&e));
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(mode) };
    match s.fs.make_node(owner, dir, name, node).await {
        Ok(made) => return Ok(made.attr.id),
        Err(e) if e.code == Code::Exists => {}
        Err(e) => return Err(at(e)),
    }
    let Some(attr) = s.fs.lookup(owner, dir, name).await.map_err(at)?.attr.filter(Attr::is_dir) else {
        bail!("the trash: {place} is no directory");
    };
    // Where everybody may make names, nobody may take those of others.
    let open = attr.mode.0 & !mode & 0o077 != 0 || (attr.mode.0 & 0o022 != 0 && attr.mode.0 & 0o1000 == 0);
    if attr.uid != owner.uid || open {
        let (uid, mode) = (owner.uid, mode & 0o1777);
        bail!(
            "the trash: {place} must belong to user {uid} with the mode {mode:04o}; somebody else made it, or opened it"
        );
    }
    Ok(attr.id)
}

async fn put<F: Paths>(s: &Session<F>, path: &ClusterPath) -> Result<String> {
    let mut from = Vec::new();
    for step in &path.steps {
        let Step::Down(name) = step else {
            bail!("{path}: write it without `..`, so that the trash knows where it was")
        };
        from.push(b'/');
        from.extend_from_slice(name.as_bytes());
    }
    let Some((above, last)) = path.split() else { bail!("{path}: the root directory stays") };
    let found = s.find(path, Last::Keep).await?;
    let above = s.find_dir(&above).await?.id;
    let root = Caller { umask: 0, ..Caller::default() };
    let own = Caller { umask: 0, ..s.caller.clone() };
    let braid = dir_in(s, &root, InodeId::ROOT, &name(PLACE[0])?, 0o755).await?;
    let trash = dir_in(s, &root, braid, &name(PLACE[1])?, 0o1777).await?;
    let user = dir_in(s, &own, trash, &name(&s.caller.uid.to_string())?, 0o700).await?;
    let is_in = matches!(path.steps.first(), Some(Step::Down(first)) if first.as_bytes() == PLACE[0].as_bytes());
    if is_in || [braid, trash, user].contains(&found.id) {
        bail!("{path}: is in the trash, or has it in it");
    }
    let (id, item) = new_item(s, &own, user).await?;
    let moved = async {
        s.fs.set_xattr(&own, item, FROM, from.into(), XattrMode::Any).await?;
        s.fs.rename(&own, (above, &last), (item, &last), RenameMode::NoReplace).await
    };
    if let Err(e) = moved.await {
        let _ = s.fs.remove_dir(&own, user, &id).await;
        bail!("{path}: {}", brief(&e));
    }
    Ok(output::shown(id.as_bytes()))
}

/// Two that are put there in the same microsecond have different names.
async fn new_item<F: Paths>(s: &Session<F>, own: &Caller, user: InodeId) -> Result<(Name, InodeId)> {
    let mut at = now();
    loop {
        let id = name(&stamp(at))?;
        let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o700) };
        match s.fs.make_node(own, user, &id, node).await {
            Ok(made) => return Ok((id, made.attr.id)),
            Err(e) if e.code == Code::Exists => at = Timestamp(at.0 + 1000),
            Err(e) => bail!("the trash: {}", brief(&e)),
        }
    }
}

/// The oldest first.
async fn items<F: Paths>(s: &Session<F>, whose: &Whose) -> Result<Vec<Item>> {
    let place = ClusterPath::new(format!("/{}", PLACE.join("/")).as_bytes()).map_err(|e| anyhow!(e))?;
    let mut trash = InodeId::ROOT;
    for part in PLACE {
        let found = s.fs.lookup(&s.caller, trash, &name(part)?).await.map_err(|e| anyhow!("{place}: {}", brief(&e)))?;
        let Some(attr) = found.attr.filter(Attr::is_dir) else { return Ok(Vec::new()) };
        trash = attr.id;
    }
    let own = s.caller.uid.to_string();
    let mut found = Vec::new();
    let users = s.list(&place, trash).await?.rest().await?;
    for (uid, user) in users.into_iter().filter(|(_, attr)| attr.is_dir()) {
        let text = output::shown(uid.as_bytes());
        if !whose.all && text == own && (user.uid != s.caller.uid || user.mode.0 & 0o077 != 0) {
            bail!("the trash: {} is not yours alone: somebody else made it, or opened it", place.join(&uid));
        }
        if whose.all || text == own {
            items_of(s, &place.join(&uid), &text, user.id, &mut found).await?;
        }
    }
    found.sort_by(|a, b| (a.dir.btime, &a.id).cmp(&(b.dir.btime, &b.id)));
    Ok(found)
}

async fn items_of<F: Paths>(
    s: &Session<F>,
    place: &ClusterPath,
    uid: &str,
    user: InodeId,
    found: &mut Vec<Item>,
) -> Result<()> {
    let items = s.list(place, user).await?.rest().await?;
    for (id, dir) in items.into_iter().filter(|(_, attr)| attr.is_dir()) {
        let at = |e: braid_api::Error| anyhow!("{}: {}", place.join(&id), brief(&e));
        let from = match s.fs.get_xattr(&s.caller, dir.id, FROM).await {
            Ok(from) => from,
            // Somebody made it by hand, or it has gone meanwhile.
            Err(e) if matches!(e.code, Code::NoXattr | Code::NotFound | Code::Stale) => continue,
            Err(e) => return Err(at(e)),
        };
        // One that is taken back meanwhile has nothing in it.
        let what = only_entry(s, &place.join(&id), dir.id).await.unwrap_or_default();
        found.push(Item { user, uid: uid.to_owned(), id, dir, from, what });
    }
    Ok(())
}

async fn only_entry<F: Paths>(s: &Session<F>, path: &ClusterPath, dir: InodeId) -> Result<Option<(Name, Attr)>> {
    Ok(s.list(path, dir).await?.rest().await?.into_iter().next())
}

fn list(items: &[Item], json: bool) -> Result<()> {
    let mut table = Table::new(&["item", "user", "since", "kind", "from"]);
    for item in items {
        let kind = item.what.as_ref().map_or("nothing", |(_, attr)| attr.kind.word());
        let (id, from) = (output::shown(item.id.as_bytes()), output::shown(&item.from));
        if json {
            print_json(&ItemJson { item: &id, user: &item.uid, since_ns: item.dir.btime.0, kind, from })?;
        } else {
            table.row([id, item.uid.clone(), output::time(item.dir.btime), kind.to_owned(), from]);
        }
    }
    if !json {
        table.print();
    }
    Ok(())
}

async fn restore<F: Paths>(s: &Session<F>, whose: &Whose, wanted: &str, to: Option<ClusterPath>) -> Result<()> {
    let wanted = if wanted.starts_with('/') { wanted.trim_end_matches('/') } else { wanted };
    let is_it = |item: &Item| item.id.as_bytes() == wanted.as_bytes() || item.from == wanted.as_bytes();
    let found = items(s, whose).await?.into_iter().rfind(|item| item.what.is_some() && is_it(item));
    let Some(Item { user, id, dir, from, what: Some((last, _)), .. }) = found else {
        bail!("{wanted}: is not in the trash; braid fs trash list shows what is");
    };
    let to = match to {
        Some(to) => to,
        None => ClusterPath::new(&from).map_err(|e| anyhow!("{}: {e}", output::shown(&from)))?,
    };
    let (above, new) = s.place(&to).await?;
    s.fs.rename(&s.caller, (dir.id, &last), (above, &new), RenameMode::NoReplace).await.map_err(|e| match e.code {
        Code::Exists => anyhow!("{to}: is there; --to PATH restores to another place"),
        _ => anyhow!("{to}: {}", brief(&e)),
    })?;
    s.fs.remove_dir(&s.caller, user, &id).await.or_else(missing).map_err(|e| anyhow!("the trash: {}", brief(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_named_by_when_they_came() {
        assert_eq!(stamp(Timestamp(1_795_685_881_123_456_789)), "20261126T093801.123456Z");
        assert_eq!(stamp(Timestamp(0)), "19700101T000000.000000Z");
    }
}
