//! Looks at names, with the attributes of what they stand for: where another session owns a file, it is asked first.

use crate::alone::Touched;
use crate::call::Call;
use crate::complete::{claim, claim_attrs, claim_page};
use crate::server::MetaServer;
use braid_api::meta::{
    Content, DirPage, FileLease, FileWant, InodeRef, LeaseState, LookToOpen, LookedToOpen, Lookup, LookupAnswer,
    OpenAhead, OpenAnswer, OpenFile, ReadDir, Resolve, Resolved, StatFsAnswer, StatNames,
};
use braid_api::{Code, Error, Result};
use braid_lease::{Key, Want};
use braid_meta_namespace::ops::lookup::ResolveAlong;
use braid_meta_namespace::ops::open::OfEach;
use braid_meta_namespace::ops::quota::{Left, LeftTo};
use braid_types::{Attr, FileKind, InodeId, SessionId};
use std::collections::HashMap;

/// Of files that are opened together, those of which a database is asked at once: 64 are four round trips, and where files turn out to be larger
/// than was thought, 15 of 64 KiB are read in vain.
const READ_AT_ONCE: usize = 16;

impl MetaServer {
    pub(crate) async fn lookup(&self, call: &mut Call, session: SessionId, m: Lookup) -> Result<LookupAnswer> {
        let (parent, name) = (m.parent, m.name.clone());
        let mut ask = self.leases.ask(session);
        let mut answer = self.ask(call, parent, m.clone()).await?;
        if let Some(attr) = answer.attr.filter(|attr| self.may_be_old(session, attr)) {
            self.refresh_file(session, attr.id).await?;
            ask = self.leases.ask(session);
            answer = self.ask(call, parent, m).await?;
        }
        match &answer.attr {
            Some(attr) => {
                self.hints.note(attr, parent, &name);
                answer.grant = claim(ask, Some(Key::Name(parent, name)), Some(attr.id));
            }
            None => match self.shown_in(parent, &name).await? {
                // Of which snapshots there are nobody is told when that changes.
                Some(attr) => answer.attr = Some(attr),
                None => answer.grant = claim(ask, Some(Key::Dir(parent)), None),
            },
        }
        Ok(answer)
    }

    pub(crate) async fn look_to_open(
        &self,
        call: &mut Call,
        session: SessionId,
        m: LookToOpen,
    ) -> Result<LookedToOpen> {
        let found = self.lookup(call, session, Lookup { parent: m.parent, name: m.name }).await?;
        let file = found.attr.filter(|attr| attr.is_file() && attr.nlink > 0 && !attr.id.is_in_snapshot());
        // Where others serve, a client takes no lease of another slot than the one it asked about; of that who holds it gives one.
        let may_grant = |attr: &Attr| !self.has_others() || (call.at_holder && attr.id.slot() == m.parent.slot());
        let opened = match file.filter(may_grant) {
            // Whatever is wrong with it is said to who opens it.
            Some(attr) => self.open_if_free(call, session, attr.id).await.unwrap_or_default(),
            None => None,
        };
        Ok(LookedToOpen { found, opened })
    }

    pub(crate) async fn open_ahead(
        &self,
        call: &mut Call,
        session: SessionId,
        m: OpenAhead,
    ) -> Result<Vec<Option<Box<OpenAnswer>>>> {
        if m.inodes.len() > OpenAhead::MAX {
            return Err(Error::new(Code::Invalid, "OpenAhead", format_args!("{} files", m.inodes.len())));
        }
        let (mut opened, mut bytes) = (Vec::with_capacity(m.inodes.len()), 0);
        for inodes in m.inodes.chunks(READ_AT_ONCE) {
            let mut files = Vec::with_capacity(inodes.len());
            for inode in inodes {
                // Nobody leaves a slot because of a guess; for the first it is waited as for any that is opened.
                let is_in_the_way = || self.leases.is_in_the_way(session, &Touched::of([*inode]));
                let is_told = bytes < OpenAhead::BYTES_MAX && !inode.is_in_snapshot() && !is_in_the_way();
                files.extend(match is_told {
                    true => self.lease_if_free(session, *inode).await.unwrap_or_default().map(|lease| (*inode, lease)),
                    false => None,
                });
            }
            let mut answers = self.open_files(call, session, files).await.unwrap_or_default();
            opened.extend(inodes.iter().map(|inode| {
                let answer =
                    answers.remove(inode).filter(|answer| answer.attr.nlink > 0 && bytes < OpenAhead::BYTES_MAX);
                bytes += match answer.as_ref().map(|answer| &answer.map.content) {
                    Some(Content::Inline(inline)) => inline.len(),
                    // At most about so many bytes each.
                    Some(Content::Chunked(page)) => 32 * page.chunks.len() + 64 * page.containers.len(),
                    None => 0,
                };
                answer
            }));
        }
        Ok(opened)
    }

    /// The lease for reading, if it is given here, the session does not hold the file, and no other has to give anything up for that.
    async fn lease_if_free(&self, session: SessionId, inode: InodeId) -> Result<Option<FileLease>> {
        if self.foreign(inode).is_some() || !self.leases.may_be_read(session, inode) {
            return Ok(None);
        }
        let lease = self.leases.take_file(session, inode, Want::Read).await?;
        Ok(Some(lease).filter(|lease| lease.state != LeaseState::None))
    }

    /// What an open for reading would be told, if it is free.
    async fn open_if_free(
        &self,
        call: &mut Call,
        session: SessionId,
        inode: InodeId,
    ) -> Result<Option<Box<OpenAnswer>>> {
        let Some(lease) = self.lease_if_free(session, inode).await? else { return Ok(None) };
        Ok(self.open_files(call, session, vec![(inode, lease)]).await?.remove(&inode))
    }

    /// What opens for reading are told under these leases, of one moment and by one round trip to a database. No handle of a file that is marked
    /// for several writers is cached, so nothing is told of those; what was granted for nothing is given up when it is recalled.
    async fn open_files(
        &self,
        call: &mut Call,
        session: SessionId,
        files: Vec<(InodeId, FileLease)>,
    ) -> Result<HashMap<InodeId, Box<OpenAnswer>>> {
        let Some((first, _)) = files.first() else { return Ok(HashMap::new()) };
        let ask = self.leases.ask(session);
        let opens = files.iter().map(|(inode, _)| {
            let mut open = OpenFile { inode: (*inode).into(), want: FileWant::Read, truncate: false };
            self.hint(&mut open.inode);
            self.opening(open)
        });
        let answers = self.ask(call, *first, OfEach(opens.collect())).await?;
        let found = answers.into_iter().zip(files).filter_map(|(answer, (inode, lease))| Some((inode, lease, answer?)));
        let found: Vec<_> = found.filter(|(.., answer)| !answer.shared).collect();
        let granted = claim_attrs(ask, found.iter().map(|(inode, ..)| *inode));
        let mut opened = HashMap::with_capacity(found.len());
        for (inode, lease, mut answer) in found {
            answer.grant.attr = granted.contains(&inode);
            answer.lease = lease;
            if self.complete_map(&mut answer.map).await.is_ok() {
                opened.insert(inode, Box::new(answer));
            }
        }
        Ok(opened)
    }

    pub(crate) async fn read_dir(&self, call: &mut Call, session: SessionId, m: ReadDir) -> Result<DirPage> {
        let (dir, is_first, plus) = (m.inode, m.after.is_none(), m.plus);
        let ask = self.leases.ask(session).filter(|_| plus || is_first);
        let known = m.knows.clone();
        let mut page = self.ask(call, dir, m).await?;
        for (name, id, _, _) in &page.entries {
            self.hints.set(*id, dir, name);
        }
        if let Some(ask) = ask {
            claim_page(ask, dir, &mut page, is_first, |id| plus && known.binary_search(&id).is_err());
        }
        Ok(page)
    }

    pub(crate) async fn stat_names(
        &self,
        call: &mut Call,
        session: SessionId,
        m: StatNames,
    ) -> Result<Vec<Option<Attr>>> {
        let answer = self.ask(call, m.parent, m.clone()).await?;
        match self.refresh_files(session, answer.iter().flatten()).await? {
            true => self.ask(call, m.parent, m).await,
            false => Ok(answer),
        }
    }

    pub(crate) async fn resolve(&self, call: &mut Call, session: SessionId, m: Resolve) -> Result<Resolved> {
        let answer = self.walk(call, &m).await?;
        match self.refresh_files(session, answer.attrs.iter()).await? {
            true => self.walk(call, &m).await,
            false => Ok(answer),
        }
    }

    /// As the rows say it: of files that others own, attributes may be old.
    pub(crate) async fn walk(&self, call: &mut Call, m: &Resolve) -> Result<Resolved> {
        if m.from.is_in_snapshot() {
            return self.walk_then(m, Resolved { attrs: Vec::new(), rest: m.path.len() as u32 }).await;
        }
        let way = self.hints.way_down(m.from, &m.path);
        let found = self.ask(call, m.from, ResolveAlong { resolve: m.clone(), way }).await?;
        // What was not as it was known is known now.
        let parents = std::iter::once(m.from).chain(found.attrs.iter().map(|attr| attr.id));
        for ((attr, parent), name) in found.attrs.iter().zip(parents).zip(&m.path) {
            self.hints.note(attr, parent, name);
        }
        self.walk_then(m, found).await
    }

    pub(crate) async fn statfs(&self, call: &mut Call, of: InodeId) -> Result<StatFsAnswer> {
        let (bytes_total, bytes_free) = self.servers.space();
        // Inodes are rows: there is no table to fill up, so as many are free as 4 KiB of free space would hold.
        let files_free = bytes_free / 4096;
        let (files, limited) = (self.inodes().await? + files_free, self.are_limits());
        let all = StatFsAnswer { bytes_total, bytes_free, files, files_free, limited };
        if of == InodeId(0) || !limited {
            return Ok(all);
        }
        let mut of = InodeRef::from(of);
        self.hint(&mut of);
        let left = match self.ask(call, of.id, LeftTo(of)).await {
            // It has gone while a program was in it.
            Err(error) if error.code == Code::Stale => return Ok(all),
            left => left?,
        };
        let within = |of: Option<Left>, total: u64, free: u64| match of {
            Some(of) => (total.min(of.limit), free.min(of.left)),
            None => (total, free),
        };
        let (bytes_total, bytes_free) = within(left.bytes, all.bytes_total, all.bytes_free);
        let (files, files_free) = within(left.inodes, all.files, all.files_free);
        Ok(StatFsAnswer { bytes_total, bytes_free, files, files_free, limited })
    }

    /// Only files are owned; after a start of this server others are not waited for.
    fn may_be_old(&self, session: SessionId, attr: &Attr) -> bool {
        let owned = || self.foreign(attr.id).is_some() || self.leases.is_owned_elsewhere(session, attr.id);
        attr.kind == FileKind::File && owned()
    }

    /// True if one of these was owned elsewhere: what was read of it is of before.
    pub(crate) async fn refresh_files(&self, session: SessionId, found: impl Iterator<Item = &Attr>) -> Result<bool> {
        let owned: Vec<InodeId> = found.filter(|attr| self.may_be_old(session, attr)).map(|attr| attr.id).collect();
        for id in &owned {
            self.refresh_file(session, *id).await?;
        }
        Ok(!owned.is_empty())
    }
}
