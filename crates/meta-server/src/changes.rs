//! What a change makes old: announced before it is transacted, released after (docs/design/0005-leases.md *Names*).

use crate::announcing::UnderWay;
use crate::call::Call;
use crate::server::MetaServer;
use crate::settling::{UntilSettled, is_open};
use braid_api::admin::Repair;
use braid_api::meta::*;
use braid_api::{Code, Context, Error, Result};
use braid_lease::Key;
use braid_meta_namespace::ops::stand_for::StandFor;
use braid_types::{FileKind, InodeId, Name, SessionId};

/// How often a change is announced anew because a name it touches stood for something else each time.
const ATTEMPTS: u32 = 64;

/// Released when the engine has settled.
const GIVEN_UP: &str = "a change that was given up";

/// What a change makes old.
#[derive(Default)]
pub(crate) struct Scope {
    pub keys: Vec<Key>,
    /// The names that lose what they stand for: its attributes change as well.
    names: Vec<(InodeId, Name)>,
    /// Nothing is announced: it changes nothing that is ever granted.
    nothing: bool,
}

impl Scope {
    fn attr(id: InodeId) -> Self {
        Scope { keys: vec![Key::Attr(id)], ..Scope::default() }
    }

    fn entry(mut self, dir: InodeId, name: &Name) -> Self {
        self.keys.extend([Key::Dir(dir), Key::Name(dir, name.clone()), Key::Attr(dir)]);
        self
    }

    fn child(mut self, dir: InodeId, name: &Name) -> Self {
        self.names.push((dir, name.clone()));
        self.entry(dir, name)
    }

    fn of(request: &MetaRequest) -> Self {
        match request {
            MetaRequest::ChangeAttr(m) => Scope::attr(m.inode.id),
            MetaRequest::OpenFile(m) => Scope::attr(m.inode.id),
            MetaRequest::CommitFile(m) => Scope::attr(m.inode.id),
            MetaRequest::DropChunks(m) => Scope::attr(m.inode.id),
            MetaRequest::SetXattr(m) => Scope::attr(m.inode.id),
            MetaRequest::RemoveXattr(m) => Scope::attr(m.inode.id),
            MetaRequest::SetPolicy(m) => Scope::attr(m.inode.id),
            MetaRequest::SealFile(m) => Scope::attr(m.inode.id),
            MetaRequest::MakeNode(m) => Scope::default().entry(m.parent.id, &m.name),
            MetaRequest::CreateFile(m) if m.truncate => Scope::default().child(m.parent.id, &m.name),
            MetaRequest::CreateFile(m) => Scope::default().entry(m.parent.id, &m.name),
            MetaRequest::PutFile(m) if m.replace => Scope::default().child(m.parent.id, &m.name),
            MetaRequest::PutFile(m) => Scope::default().entry(m.parent.id, &m.name),
            MetaRequest::Link(m) => Scope::attr(m.inode.id).entry(m.parent.id, &m.name),
            MetaRequest::Unlink(m) => Scope::default().child(m.parent.id, &m.name),
            MetaRequest::RemoveDir(m) => Scope::default().child(m.parent.id, &m.name),
            MetaRequest::Rename(m) => Scope::default().child(m.from.id, &m.from_name).child(m.to.id, &m.to_name),
            MetaRequest::ChangeTree(m) => Scope::attr(m.dir.id),
            MetaRequest::CreateTemporary(_) => Scope::default(),
            _ => Scope { nothing: true, ..Scope::default() },
        }
    }
}

/// The place a request makes something at.
fn place_of(request: &MetaRequest) -> Option<(InodeId, Name)> {
    match request {
        MetaRequest::MakeNode(m) => Some((m.parent.id, m.name.clone())),
        MetaRequest::CreateFile(m) => Some((m.parent.id, m.name.clone())),
        MetaRequest::PutFile(m) => Some((m.parent.id, m.name.clone())),
        MetaRequest::Link(m) => Some((m.parent.id, m.name.clone())),
        MetaRequest::Rename(m) => Some((m.to.id, m.to_name.clone())),
        _ => None,
    }
}

/// Where a request makes a file, if that is what it does.
pub(crate) fn makes_file_in(request: &MetaRequest) -> Option<InodeId> {
    match request {
        MetaRequest::CreateFile(m) => Some(m.parent.id),
        MetaRequest::CreateTemporary(m) => Some(m.parent.id),
        MetaRequest::PutFile(m) => Some(m.parent.id),
        MetaRequest::MakeNode(m) if m.spec.kind == FileKind::File => Some(m.parent.id),
        _ => None,
    }
}

/// The inode whose attributes an answer tells, and where it says what of it is granted.
fn told_by(answer: &mut MetaAnswer) -> Option<(InodeId, &mut Grant)> {
    match answer {
        MetaAnswer::ChangeAttr(a) | MetaAnswer::SealFile(a) => Some((a.attr.id, &mut a.grant)),
        MetaAnswer::MakeNode(a) | MetaAnswer::Link(a) | MetaAnswer::PutFile(a) => Some((a.attr.id, &mut a.grant)),
        MetaAnswer::CreateFile(a) | MetaAnswer::CreateTemporary(a) | MetaAnswer::OpenFile(a) => {
            Some((a.attr.id, &mut a.grant))
        }
        MetaAnswer::Rename(a) => Some((a.moved.id, &mut a.grant)),
        MetaAnswer::CommitFile(a) | MetaAnswer::DropChunks(a) => Some((a.attr.id, &mut a.grant)),
        _ => None,
    }
}

/// The announced change has ended; see [`UnderWay::release`].
fn release(under_way: UntilSettled<UnderWay>, keep: Vec<Key>) -> Vec<Key> {
    under_way.end().map(|mut announced| announced.release(keep)).unwrap_or_default()
}

impl MetaServer {
    /// Announces what the request changes, runs it with what its names stand for, releases, and says what is granted.
    pub(crate) async fn announced<F, R>(
        &self,
        call: &mut Call,
        cx: Context,
        request: &MetaRequest,
        mut change: F,
    ) -> Result<MetaAnswer>
    where
        F: FnMut(Option<[InodeId; 2]>) -> R,
        R: Future<Output = (Call, Result<MetaAnswer>)>,
    {
        let session = cx.token.session;
        let begun = self.beside.as_ref().map(|_| self.leases.epoch());
        if begun.is_some_and(|epoch| cx.is_under_older_than(epoch)) {
            // As below; and whoever it was sent to may be another than this start of the server.
            return Err(Error::new(
                Code::HeldElsewhere,
                request.name(),
                "it was sent under an older roster than this server's",
            ));
        }
        for _ in 0..ATTEMPTS {
            if begun.is_some_and(|epoch| self.leases.epoch() != epoch) {
                // Whoever asked may have asked another meanwhile, and been told that it fails.
                let cause = "who holds what has changed before it was made";
                return Err(Error::new(Code::HeldElsewhere, request.name(), cause));
            }
            let Scope { mut keys, names, nothing } = Scope::of(request);
            if nothing {
                let (after, answer) = change(None).await;
                *call = after;
                return answer;
            }
            let mut children = None;
            let all_named = names.is_empty() || self.leases.others_cache(session);
            if all_named && !names.is_empty() {
                let mut found = [InodeId(0); 2];
                let first = names.first().map_or(InodeId(0), |(parent, _)| *parent);
                // `..` of a directory that moves is another.
                let moves = matches!(request, MetaRequest::Rename(m) if m.from.id != m.to.id);
                for (place, id) in found.iter_mut().zip(self.ask(call, first, StandFor { names }).await?) {
                    *place = id.unwrap_or_default();
                    keys.extend(id.map(Key::Attr));
                    keys.extend(id.filter(|_| moves).map(Key::Dir));
                }
                children = Some(found);
            }
            keys.sort();
            keys.dedup();
            let Some(announced) = self.leases.announce(session, keys, all_named).await? else { continue };
            let open = self.gate().await;
            if open.is_some() && !announced.is_current() {
                continue;
            }
            let under_way = UntilSettled::new(self, GIVEN_UP, announced);
            let (after, answer) = change(children).await;
            *call = after;
            match answer {
                Ok(mut answer) => {
                    let place = place_of(request);
                    let attr = told_by(&mut answer).map(|(id, _)| Key::Attr(id));
                    let entry = place.map(|(dir, name)| Key::Name(dir, name));
                    let dirs: Vec<Key> = answer.dirs_mut().filter_map(|dir| Some(Key::Attr(dir.attr?.id))).collect();
                    // Nobody knew of it, or has announced a change of it since.
                    let empty = match &answer {
                        MetaAnswer::MakeNode(a) if a.attr.is_dir() => Some(Key::Dir(a.attr.id)),
                        _ => None,
                    };
                    let keys = attr.iter().chain(&entry).chain(&empty).chain(&dirs);
                    // What was answered before others may have changed since: it was announced anew now, and they were not.
                    let keep = keys.filter(|_| !call.repeated).cloned().collect();
                    let kept = release(under_way, keep);
                    if let MetaAnswer::MakeNode(a) = &mut answer {
                        a.empty = empty.is_some_and(|key| kept.contains(&key));
                    }
                    for dir in answer.dirs_mut() {
                        dir.granted = dir.attr.is_some_and(|attr| kept.contains(&Key::Attr(attr.id)));
                    }
                    if let Some((_, grant)) = told_by(&mut answer) {
                        let has = |key: &Option<Key>| key.as_ref().is_some_and(|key| kept.contains(key));
                        *grant = Grant { entry: has(&entry), attr: has(&attr) };
                    }
                    return Ok(answer);
                }
                // Somebody changed what a name stands for in between.
                Err(error) if error.code == Code::StaleLease && children.is_some() => {
                    drop(release(under_way, Vec::new()))
                }
                Err(error) if is_open(&error) => return Err(error),
                Err(error) => {
                    release(under_way, Vec::new());
                    return Err(error);
                }
            }
        }
        Err(Error::new(Code::Busy, request.name(), "what its names stand for changes all the time"))
    }

    /// The server's own change of what these keys cover. `of`: a session that has gone and whose work is being finished, which
    /// nobody waits for; else 0.
    pub(crate) async fn announced_keys<T>(
        &self,
        of: SessionId,
        keys: Vec<Key>,
        change: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        for _ in 0..ATTEMPTS {
            let Some(announced) = self.leases.announce(of, keys.clone(), true).await? else { continue };
            let open = self.gate().await;
            if open.is_some() && !announced.is_current() {
                continue;
            }
            let under_way = UntilSettled::new(self, GIVEN_UP, announced);
            let done = change.await;
            match &done {
                // It may still happen.
                Err(error) if is_open(error) => drop(under_way),
                _ => drop(release(under_way, Vec::new())),
            }
            return done;
        }
        Err(Error::new(Code::Busy, "a change of the server's own", "who holds what it changes is another all the time"))
    }
}

/// What a repair may change of what mounts cache. What cannot be reached gets a name in the root directory.
pub(crate) fn repaired(repair: &Repair) -> Vec<Key> {
    let root = [Key::Dir(InodeId::ROOT), Key::Attr(InodeId::ROOT)];
    let own = match repair {
        Repair::Links { inode, .. }
        | Repair::IdRow { inode, .. }
        | Repair::DropIdRow { inode }
        | Repair::DropChunkRow { inode, .. }
        | Repair::Reattach { inode }
        | Repair::Size { inode, .. }
        | Repair::FileLinks { inode, .. }
        | Repair::MakeOrphan { inode }
        | Repair::DropOrphan { inode }
        | Repair::KeepChunk { inode, .. }
        | Repair::ForgetChunkRow { inode, .. }
        | Repair::RaiseSize { inode, .. } => vec![Key::Attr(*inode)],
        Repair::DropEntry { parent, name }
        | Repair::MoveEntry { parent, name }
        | Repair::Duplicate { parent, name } => match Name::new(name) {
            Ok(name) => vec![Key::Dir(*parent), Key::Name(*parent, name), Key::Attr(*parent)],
            // No mount has asked for what cannot be a name.
            Err(_) => vec![Key::Dir(*parent), Key::Attr(*parent)],
        },
        Repair::DropSideRows(_) | Repair::Usage(_) => Vec::new(),
    };
    own.into_iter().chain(root).collect()
}
