//! Looks at names, with the attributes of what they stand for: where another session owns a file, it is asked first.

use crate::complete::{claim, claim_page};
use crate::dispatch::Call;
use crate::server::MetaServer;
use braid_api::meta::{DirPage, Lookup, LookupAnswer, ReadDir, Resolve, Resolved, StatNames};
use braid_api::{DataPeers, Result};
use braid_lease::Key;
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::ResolveAhead;
use braid_types::{Attr, FileKind, InodeId, SessionId};

impl<E: Engine, P: DataPeers> MetaServer<E, P> {
    pub(crate) async fn lookup(&self, call: &mut Call, session: SessionId, m: Lookup) -> Result<LookupAnswer> {
        let (parent, name) = (m.parent, m.name.clone());
        let mut ask = self.leases.ask(session);
        let mut answer = self.ask(call, parent, m.clone()).await?;
        if let Some(attr) = answer.attr.filter(|attr| self.may_be_old(session, attr)) {
            self.leases.refresh_file(session, attr.id).await?;
            ask = self.leases.ask(session);
            answer = self.ask(call, parent, m).await?;
        }
        match &answer.attr {
            Some(attr) => {
                self.hints.set(attr.id, parent, &name);
                answer.grant = claim(ask, Some(Key::Name(parent, name)), Some(attr.id));
            }
            None => answer.grant = claim(ask, Some(Key::Dir(parent)), None),
        }
        Ok(answer)
    }

    pub(crate) async fn read_dir(&self, call: &mut Call, session: SessionId, m: ReadDir) -> Result<DirPage> {
        let (dir, is_first, plus) = (m.inode, m.after.is_none(), m.plus);
        let ask = self.leases.ask(session).filter(|_| plus || is_first);
        let mut page = self.ask(call, dir, m).await?;
        for (name, id, _, _) in &page.entries {
            self.hints.set(*id, dir, name);
        }
        if let Some(ask) = ask {
            claim_page(ask, dir, &mut page, is_first, plus);
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
        let ahead = ResolveAhead { dirs: self.dirs.guess(m.from, &m.path), resolve: m };
        let answer = self.ask(call, ahead.resolve.from, ahead.clone()).await?;
        let ResolveAhead { dirs, resolve: m } = &ahead;
        let mut at = m.from;
        // In what the last name stands for nothing was looked for.
        let inner = m.path.len().saturating_sub(1);
        for (i, (name, attr)) in m.path.iter().zip(&answer.attrs).enumerate().take(inner) {
            if attr.is_dir() && dirs.get(i + 1) != Some(&attr.id) {
                self.dirs.set(at, name, attr.id);
            }
            at = attr.id;
        }
        match self.refresh_files(session, answer.attrs.iter()).await? {
            true => self.ask(call, at, ahead).await,
            false => Ok(answer),
        }
    }

    /// Only files are owned; after a start of this server others are not waited for.
    fn may_be_old(&self, session: SessionId, attr: &Attr) -> bool {
        attr.kind == FileKind::File && self.leases.is_owned_elsewhere(session, attr.id)
    }

    /// True if one of these was owned elsewhere: what was read of it is of before.
    async fn refresh_files(&self, session: SessionId, found: impl Iterator<Item = &Attr>) -> Result<bool> {
        let owned: Vec<InodeId> = found.filter(|attr| self.may_be_old(session, attr)).map(|attr| attr.id).collect();
        for id in &owned {
            self.leases.refresh_file(session, *id).await?;
        }
        Ok(!owned.is_empty())
    }
}
