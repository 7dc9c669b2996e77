//! What snapshots show: below a directory that has some, `.braid/snapshots/NAME` is the directory as it was. The name `.braid` is not
//! listed, as long as nobody has made a directory of that name; then `snapshots` is not listed in that one.
//!
//! Ids of inodes say in which snapshot they are ([`InodeId::in_snapshot`]), so that all that is asked by an id comes here, and whoever
//! caches by ids never takes one for the other. What is read is what a query would have answered then. Nothing changes.

use super::gone;
use crate::call::Call;
use crate::complete::{claim, claim_page};
use crate::server::MetaServer;
use braid_api::meta::*;
use braid_api::snapshots::{PLACE, is_unlisted};
use braid_api::{Code, Error, Result};
use braid_lease::Key;
use braid_meta_engine::Engine;
use braid_meta_namespace::Query;
use braid_meta_namespace::ops::snapshot::handle_of;
use braid_meta_namespace::snapshots::{AtSnapshot, Moment};
use braid_types::{Attr, FileKind, InodeId, Mode, Name, SessionId, SnapshotHandle};

/// Stands for a root's `.braid`.
const BRAID: SnapshotHandle = SnapshotHandle(0);
/// And for the directory of its snapshots.
const SNAPSHOTS: SnapshotHandle = SnapshotHandle(SnapshotHandle::MAX);

/// What an id of that kind stands for.
enum Shown {
    /// `.braid` of this root.
    Braid(InodeId),
    Snapshots(InodeId),
    Then {
        moment: Moment,
        handle: SnapshotHandle,
        inode: InodeId,
    },
}

/// The inode of a snapshot that a request is about, if it is about one.
pub(crate) fn asks_of(request: &MetaRequest) -> Option<InodeId> {
    let first = match request {
        MetaRequest::Lookup(m) => m.parent,
        MetaRequest::StatNames(m) => m.parent,
        MetaRequest::ReadDir(m) => m.inode,
        MetaRequest::GetPlace(m) => m.id,
        MetaRequest::GetAttr(m) => m.inode.id,
        MetaRequest::ReadLink(m) => m.inode.id,
        MetaRequest::OpenFile(m) => m.inode.id,
        MetaRequest::GetMap(m) => m.inode.id,
        MetaRequest::GetXattr(m) => m.inode.id,
        MetaRequest::ListXattr(m) => m.inode.id,
        MetaRequest::GetPolicy(m) => m.inode.id,
        MetaRequest::ChangeAttr(m) => m.inode.id,
        MetaRequest::CommitFile(m) => m.inode.id,
        MetaRequest::DropChunks(m) => m.inode.id,
        MetaRequest::SetXattr(m) => m.inode.id,
        MetaRequest::RemoveXattr(m) => m.inode.id,
        MetaRequest::SetPolicy(m) => m.inode.id,
        MetaRequest::SealFile(m) => m.inode.id,
        MetaRequest::HoldSealed(m) => m.inode.id,
        MetaRequest::MoveChunk(m) => m.inode.id,
        MetaRequest::TakeRoom(m) => m.inode.id,
        MetaRequest::ChangeTree(m) => m.dir.id,
        MetaRequest::MakeNode(m) => m.parent.id,
        MetaRequest::CreateFile(m) => m.parent.id,
        MetaRequest::CreateTemporary(m) => m.parent.id,
        MetaRequest::PutFile(m) => m.parent.id,
        MetaRequest::Unlink(m) => m.parent.id,
        MetaRequest::RemoveDir(m) => m.parent.id,
        MetaRequest::Link(m) if m.inode.id.is_in_snapshot() => m.inode.id,
        MetaRequest::Link(m) => m.parent.id,
        MetaRequest::Rename(m) if m.from.id.is_in_snapshot() => m.from.id,
        MetaRequest::Rename(m) => m.to.id,
        _ => return None,
    };
    first.is_in_snapshot().then_some(first)
}

impl Shown {
    /// The attributes as they are shown.
    fn attr(&self, attr: Attr) -> Result<Attr> {
        let Shown::Then { handle, .. } = self else { return Ok(attr) };
        Ok(Attr { id: self.id(attr.id, *handle)?, ..attr })
    }

    fn id(&self, inode: InodeId, handle: SnapshotHandle) -> Result<InodeId> {
        inode.in_snapshot(handle).ok_or_else(|| {
            let cause = "its number is too large to be shown in a snapshot";
            Error::new(Code::NotSupported, format_args!("inode {inode}"), cause)
        })
    }
}

impl MetaServer {
    fn shown_at(&self, id: InodeId) -> Result<Shown> {
        match id.of_snapshot() {
            // Also of one that is no root any more: whoever has found them a moment ago finds nothing in them.
            Some((BRAID, root)) => Ok(Shown::Braid(root)),
            Some((SNAPSHOTS, root)) => Ok(Shown::Snapshots(root)),
            Some((handle, inode)) => {
                let moment = self.snapshots.moment(handle).ok_or_else(|| gone(id))?;
                Ok(Shown::Then { moment, handle, inode })
            }
            None => Err(gone(id)),
        }
    }

    async fn ask_then<Q: Query>(&self, moment: &Moment, query: Q) -> Result<Q::Answer> {
        let then = AtSnapshot { moment: *moment, query };
        self.engine.read(moment.root.0, then).await.map_err(Error::from)
    }

    /// One of the two directories that nobody made. It has the owner and the times of the directory that has the snapshots.
    async fn attr_of_dir(&self, root: InodeId, which: SnapshotHandle) -> Result<Attr> {
        let own = self.ask(&mut Call::new(None), root, GetAttr { inode: root.into() }).await?.attr;
        let id = root.in_snapshot(which).ok_or_else(|| gone(root))?;
        Ok(Attr { id, mode: Mode(0o555), nlink: 2, xattrs: false, ..own })
    }

    /// The directory as it was, under the name of its snapshot.
    async fn attr_of_snapshot(&self, root: InodeId, name: &Name) -> Result<Option<Attr>> {
        let kept = self.snapshots.kept(root);
        let Some(found) = kept.iter().find(|snapshot| snapshot.name == name.as_bytes()) else { return Ok(None) };
        let id = root.in_snapshot(handle_of(found.number)).ok_or_else(|| gone(root))?;
        self.attr_then(&self.shown_at(id)?).await.map(Some)
    }

    async fn attr_then(&self, shown: &Shown) -> Result<Attr> {
        match shown {
            Shown::Braid(root) => self.attr_of_dir(*root, BRAID).await,
            Shown::Snapshots(root) => self.attr_of_dir(*root, SNAPSHOTS).await,
            Shown::Then { moment, inode, .. } => {
                shown.attr(self.ask_then(moment, GetAttr { inode: (*inode).into() }).await?.attr)
            }
        }
    }

    async fn lookup_then(&self, shown: &Shown, name: &Name) -> Result<Option<Attr>> {
        match shown {
            Shown::Braid(root) if name.as_bytes() == PLACE[1].as_bytes() => {
                self.attr_of_dir(*root, SNAPSHOTS).await.map(Some)
            }
            Shown::Braid(_) => Ok(None),
            Shown::Snapshots(root) => self.attr_of_snapshot(*root, name).await,
            Shown::Then { moment, inode, .. } => {
                let found = self.ask_then(moment, Lookup { parent: *inode, name: name.clone() }).await?;
                found.attr.map(|attr| shown.attr(attr)).transpose()
            }
        }
    }

    /// What is under a name in a directory of now where nothing is.
    pub(crate) async fn shown_in(&self, dir: InodeId, name: &Name) -> Result<Option<Attr>> {
        if !is_unlisted(name) {
            return Ok(None);
        }
        self.look_at_snapshots().await?;
        if !self.snapshots.has_roots() {
            return Ok(None);
        }
        if name.as_bytes() == PLACE[0].as_bytes() && self.snapshots.is_root(dir) {
            return self.attr_of_dir(dir, BRAID).await.map(Some);
        }
        if name.as_bytes() != PLACE[1].as_bytes() {
            return Ok(None);
        }
        // Somebody has made a directory `.braid`.
        let place = self.ask(&mut Call::new(None), dir, GetPlace { id: dir }).await?;
        let is_braid = place.name.is_some_and(|name| name.as_bytes() == PLACE[0].as_bytes());
        if !is_braid || !self.snapshots.is_root(place.parent) {
            return Ok(None);
        }
        self.attr_of_dir(place.parent, SNAPSHOTS).await.map(Some)
    }

    /// Goes on with a path where it leads into snapshots.
    pub(crate) async fn walk_then(&self, m: &Resolve, mut found: Resolved) -> Result<Resolved> {
        if m.from.is_in_snapshot() {
            self.look_at_snapshots().await?;
        }
        while let Some(name) = m.path.len().checked_sub(found.rest as usize).and_then(|at| m.path.get(at)) {
            let (dir, is_dir) = match found.attrs.last() {
                Some(attr) => (attr.id, attr.kind == FileKind::Directory),
                None => (m.from, true),
            };
            let next = match dir.is_in_snapshot() {
                true if is_dir => self.lookup_then(&self.shown_at(dir)?, name).await?,
                false if is_dir && found.attrs.len() + found.rest as usize == m.path.len() => {
                    self.shown_in(dir, name).await?
                }
                _ => None,
            };
            let Some(attr) = next else { break };
            found.attrs.push(attr);
            found.rest -= 1;
        }
        Ok(found)
    }

    /// Answers a request about something in a snapshot; one that would change it is refused before anybody is asked for anything.
    pub(crate) async fn show(
        &self,
        session: SessionId,
        id: InodeId,
        lease: FileLease,
        request: MetaRequest,
    ) -> Result<MetaAnswer> {
        self.look_at_snapshots().await?;
        let shown = self.shown_at(id)?;
        let ask = self.leases.ask(session);
        let lasts = matches!(shown, Shown::Then { .. });
        Ok(match (request, &shown) {
            (MetaRequest::Lookup(m), _) => {
                let attr = self.lookup_then(&shown, &m.name).await?;
                // Of which snapshots there are nobody is told when that changes.
                let grant = match &attr {
                    Some(attr) if lasts => claim(ask, Some(Key::Name(id, m.name)), Some(attr.id)),
                    None if lasts => claim(ask, Some(Key::Dir(id)), None),
                    _ => Grant::default(),
                };
                MetaAnswer::Lookup(LookupAnswer { attr, grant })
            }
            (MetaRequest::StatNames(m), _) => {
                let mut attrs = Vec::with_capacity(m.names.len());
                for name in m.names.iter().take(StatNames::MAX) {
                    attrs.push(self.lookup_then(&shown, name).await?);
                }
                MetaAnswer::StatNames(attrs)
            }
            (MetaRequest::GetAttr(_), _) => {
                let attr = self.attr_then(&shown).await?;
                let grant = if lasts { claim(ask, None, Some(id)) } else { Grant::default() };
                MetaAnswer::GetAttr(AttrAnswer { attr, cuts: Vec::new(), grant, place: None })
            }
            (MetaRequest::ReadDir(m), _) => MetaAnswer::ReadDir(self.read_dir_then(&shown, ask, m).await?),
            (MetaRequest::GetPlace(_), _) => MetaAnswer::GetPlace(self.place_then(&shown).await?),
            (MetaRequest::HoldSealed(_), _) => MetaAnswer::HoldSealed(None),
            (MetaRequest::ReadLink(_), Shown::Then { moment, inode, .. }) => {
                MetaAnswer::ReadLink(self.ask_then(moment, ReadLink { inode: (*inode).into() }).await?)
            }
            (MetaRequest::OpenFile(mut m), Shown::Then { moment, inode, .. }) => {
                m.inode = (*inode).into();
                let mut answer = self.ask_then(moment, self.opening(m)).await?;
                answer.attr = shown.attr(answer.attr)?;
                answer.grant = claim(ask, None, Some(id));
                answer.lease = lease;
                self.complete_map(&mut answer.map).await?;
                MetaAnswer::OpenFile(answer)
            }
            (MetaRequest::GetMap(mut m), Shown::Then { moment, inode, .. }) => {
                m.inode = (*inode).into();
                let mut answer = self.ask_then(moment, m).await?;
                answer.attr = shown.attr(answer.attr)?;
                self.complete_map(&mut answer.map).await?;
                MetaAnswer::GetMap(answer)
            }
            (MetaRequest::GetXattr(mut m), Shown::Then { moment, inode, .. }) => {
                m.inode = (*inode).into();
                MetaAnswer::GetXattr(self.ask_then(moment, m).await?)
            }
            (MetaRequest::ListXattr(mut m), Shown::Then { moment, inode, .. }) => {
                m.inode = (*inode).into();
                MetaAnswer::ListXattr(self.ask_then(moment, m).await?)
            }
            (MetaRequest::GetPolicy(mut m), Shown::Then { moment, inode, .. }) => {
                m.inode = (*inode).into();
                MetaAnswer::GetPolicy(self.ask_then(moment, m).await?)
            }
            (MetaRequest::GetXattr(_), _) => return Err(Code::NoXattr.into()),
            (MetaRequest::ListXattr(_), _) => MetaAnswer::ListXattr(Vec::new()),
            (MetaRequest::OpenFile(_), _) => return Err(Code::IsDirectory.into()),
            (request, _) => return Err(read_only(request.name(), id)),
        })
    }

    async fn read_dir_then(&self, shown: &Shown, ask: Option<crate::leases::Ask<'_>>, m: ReadDir) -> Result<DirPage> {
        let after = |name: &Name| m.after.as_ref().is_none_or(|after| name.as_bytes() > after.as_bytes());
        let names: Vec<Name> = match shown {
            Shown::Braid(_) => Name::new(PLACE[1].as_bytes()).into_iter().collect(),
            Shown::Snapshots(root) => {
                self.snapshots.kept(*root).iter().filter_map(|snapshot| Name::new(&snapshot.name).ok()).collect()
            }
            Shown::Then { moment, handle, inode } => {
                let (dir, is_first, plus) = (m.inode, m.after.is_none(), m.plus);
                let mut page = self.ask_then(moment, ReadDir { inode: *inode, knows: Vec::new(), ..m }).await?;
                for (_, id, _, attr) in &mut page.entries {
                    *id = shown.id(*id, *handle)?;
                    if let Some(attr) = attr {
                        attr.id = *id;
                    }
                }
                if let Some(ask) = ask.filter(|_| plus || is_first) {
                    claim_page(ask, dir, &mut page, is_first, |_| plus);
                }
                return Ok(page);
            }
        };
        let mut page = DirPage { entries: Vec::new(), more: false, grants: Vec::new(), listing: false };
        let mut names: Vec<Name> = names.into_iter().filter(after).collect();
        names.sort();
        for name in names {
            if page.entries.len() >= m.limit.max(1) as usize {
                page.more = true;
                break;
            }
            if let Some(attr) = self.lookup_then(shown, &name).await? {
                page.entries.push((name, attr.id, attr.kind, m.plus.then_some(attr)));
                page.grants.extend(m.plus.then(Grant::default));
            }
        }
        Ok(page)
    }

    async fn place_then(&self, shown: &Shown) -> Result<Place> {
        let of = |root: InodeId, which: SnapshotHandle| root.in_snapshot(which).ok_or_else(|| gone(root));
        let name = |text: &str| Name::new(text.as_bytes()).ok();
        Ok(match shown {
            Shown::Braid(root) => Place { parent: *root, name: name(PLACE[0]) },
            Shown::Snapshots(root) => Place { parent: of(*root, BRAID)?, name: name(PLACE[1]) },
            Shown::Then { moment, inode, .. } if *inode == moment.root => {
                let kept = self.snapshots.kept(moment.root);
                let own = kept.iter().find(|snapshot| snapshot.number == moment.number);
                let name = own.and_then(|snapshot| Name::new(&snapshot.name).ok());
                Place { parent: of(moment.root, SNAPSHOTS)?, name }
            }
            Shown::Then { moment, handle, inode } => {
                let place = self.ask_then(moment, GetPlace { id: *inode }).await?;
                Place { parent: shown.id(place.parent, *handle)?, name: place.name }
            }
        })
    }
}

/// Does it only read? What does not is refused before other sessions are asked for anything.
pub(crate) fn expect_reading(request: &MetaRequest, id: InodeId) -> Result<()> {
    let reads = match request {
        MetaRequest::OpenFile(m) => !m.truncate && matches!(m.want, FileWant::Read | FileWant::ReadDirect),
        MetaRequest::Lookup(_)
        | MetaRequest::StatNames(_)
        | MetaRequest::ReadDir(_)
        | MetaRequest::GetPlace(_)
        | MetaRequest::GetAttr(_)
        | MetaRequest::ReadLink(_)
        | MetaRequest::GetMap(_)
        | MetaRequest::GetXattr(_)
        | MetaRequest::ListXattr(_)
        | MetaRequest::GetPolicy(_)
        | MetaRequest::HoldSealed(_) => true,
        _ => false,
    };
    if reads { Ok(()) } else { Err(read_only(request.name(), id)) }
}

fn read_only(what: &str, id: InodeId) -> Error {
    Error::new(Code::ReadOnly, format_args!("inode {id}"), format_args!("it is in a snapshot, and {what} changes it"))
}
