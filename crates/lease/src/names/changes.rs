//! Changes of the namespace: announced, waited for, released. And bars, which a file lease puts on attributes.

use super::{Announcement, Bar, Cause, Names, RELEASED_LOOK, RELEASED_MAX, Revocation, Stage, View};
use crate::command::Command;
use crate::key::{AnnouncementId, Key, KeyRef, RevocationId};
use braid_types::{InodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Names {
    /// `openers` may have open what is unlinked and are to be asked.
    pub fn announce(
        &mut self,
        view: &View<'_>,
        id: AnnouncementId,
        session: SessionId,
        keys: Vec<Key>,
        unlinks: Option<(InodeId, Vec<SessionId>)>,
        out: &mut Vec<Command>,
    ) {
        if let Some(known) = self.announcements.get(&id) {
            return match known.stage {
                Stage::Waiting => {}
                Stage::Ready => out.push(known.told(id, view)),
                Stage::Void => out.push(Command::Void { announcement: id }),
            };
        }
        let is_member = self.members.as_ref().is_none_or(|members| members.contains(&id.server));
        let mut slots = keys.iter().map(Key::slot).chain(unlinks.iter().map(|(inode, _)| inode.slot()));
        let all_here = slots.all(|slot| view.slots.holds(slot));
        // Of who is a member no more nobody would release it.
        if !is_member || !self.is_news(id) || !all_here {
            out.push(Command::Void { announcement: id });
            return;
        }
        let seq = self.tick();
        let mut asked: BTreeMap<SessionId, Vec<Arc<Key>>> = BTreeMap::new();
        for key in &keys {
            self.announced.get_or_default(key.clone()).insert(id);
            if let Key::Dir(dir) = key {
                self.note_change(view, *dir, session);
            }
            if let Some((shared, holders)) = self.held.get_key_value(&KeyRef::from(key)) {
                for holder in holders.keys().filter(|holder| **holder != session) {
                    asked.entry(*holder).or_default().push(shared.clone());
                }
            }
        }
        let unlinked = unlinks.as_ref().map(|(inode, _)| *inode);
        let openers: BTreeSet<SessionId> = unlinks.into_iter().flat_map(|(_, openers)| openers).collect();
        for opener in openers.iter().filter(|opener| **opener != session) {
            asked.entry(*opener).or_default();
        }
        let announcement = Announcement {
            session,
            keys,
            seq,
            since: view.now,
            waiting: BTreeSet::new(),
            open: BTreeSet::new(),
            unsure: false,
            unlinks: unlinked,
            stage: Stage::Waiting,
        };
        self.announcements.insert(id, announcement);
        for (holder, keys) in asked {
            let question = unlinked.filter(|_| openers.contains(&holder));
            if let Some(revocation) = self.revoke(view, holder, keys, question, Cause::Change(id), out)
                && let Some(announcement) = self.announcements.get_mut(&id)
            {
                announcement.waiting.insert(revocation);
            }
        }
        self.settle(view, id, out);
    }

    /// The session opens a file that may be about to lose its last name. True if that cannot be taken into account any
    /// more, because the change is being transacted.
    pub fn opens_unlinked(&mut self, inode: InodeId, session: SessionId) -> bool {
        let mut too_late = false;
        for announcement in self.announcements.values_mut().filter(|a| a.unlinks == Some(inode)) {
            match announcement.stage {
                Stage::Waiting => _ = announcement.open.insert(session),
                Stage::Ready => too_late = true,
                Stage::Void => {}
            }
        }
        too_late
    }

    /// `None` if the session's term is over: there is nobody to tell.
    pub(super) fn revoke(
        &mut self,
        view: &View<'_>,
        session: SessionId,
        keys: Vec<Arc<Key>>,
        unlinked: Option<InodeId>,
        cause: Cause,
        out: &mut Vec<Command>,
    ) -> Option<RevocationId> {
        if view.terms.has_lapsed(session) {
            if let (Cause::Change(id), Some(_)) = (cause, unlinked)
                && let Some(announcement) = self.announcements.get_mut(&id)
            {
                announcement.unsure = true;
            }
            return None;
        }
        self.next_revocation += 1;
        let id = RevocationId(self.next_revocation);
        let revoking = self.revoking.entry(session).or_default();
        for key in &keys {
            *revoking.get_or_default(key.clone()) += 1;
        }
        let revocation = Revocation { session, keys, unlinked, cause, first: view.now, sent: view.now };
        out.push(revocation.told(id));
        self.revocations.insert(id, revocation);
        Some(id)
    }

    /// Gives the inode whose bar may be complete now.
    pub fn acknowledge(
        &mut self,
        view: &View<'_>,
        session: SessionId,
        id: RevocationId,
        open: bool,
        out: &mut Vec<Command>,
    ) -> Option<InodeId> {
        // A late or repeated acknowledgement speaks of what has been dropped before: what was granted since stays.
        if self.revocations.get(&id).is_none_or(|revocation| revocation.session != session) {
            return None;
        }
        self.finish(view, id, Some(open), out)
    }

    /// A revocation is over: acknowledged with an answer, or with the session's term.
    pub(super) fn finish(
        &mut self,
        view: &View<'_>,
        id: RevocationId,
        open: Option<bool>,
        out: &mut Vec<Command>,
    ) -> Option<InodeId> {
        let revocation = self.revocations.remove(&id)?;
        let session = revocation.session;
        for key in &revocation.keys {
            self.drop_lease(session, key);
            if let Some(keys) = self.revoking.get_mut(&session)
                && let Some(count) = keys.get_mut(key)
            {
                *count -= 1;
                if *count == 0 {
                    keys.remove(key);
                }
                if keys.is_empty() {
                    self.revoking.remove(&session);
                }
            }
        }
        match revocation.cause {
            Cause::Change(announcement) => {
                if let Some(change) = self.announcements.get_mut(&announcement) {
                    change.waiting.remove(&id);
                    match (revocation.unlinked, open) {
                        (Some(_), Some(true)) => _ = change.open.insert(session),
                        (Some(_), None) => change.unsure = true,
                        _ => {}
                    }
                }
                self.settle(view, announcement, out);
                None
            }
            Cause::Bar(inode) => {
                let bar = self.bars.get_mut(&inode)?;
                bar.waiting.remove(&id);
                bar.waiting.is_empty().then_some(inode)
            }
            Cause::Room => None,
        }
    }

    /// Says that an announcement is ready, if it is.
    pub(super) fn settle(&mut self, view: &View<'_>, id: AnnouncementId, out: &mut Vec<Command>) {
        let Some(announcement) = self.announcements.get_mut(&id) else { return };
        let clear = announcement.waiting.is_empty()
            && !announcement.keys.iter().any(|key| view.slots.may_be_leased(key, announcement.session, view.now));
        if clear && announcement.stage == Stage::Waiting {
            announcement.stage = Stage::Ready;
            announcement.unsure |= announcement.unlinks.is_some() && view.terms.any_unsettled();
            out.push(announcement.told(id, view));
        }
    }

    pub fn release(&mut self, view: &View<'_>, id: AnnouncementId, keep: Vec<Key>, out: &mut Vec<Command>) {
        let Some(announcement) = self.announcements.remove(&id) else {
            // It may have overtaken its announcement, which is then not to be taken for new.
            self.is_news(id);
            return;
        };
        let session = announcement.session;
        // One that was not ready has changed nothing, and what it would say was read under no protection.
        let keep = if announcement.stage == Stage::Ready { keep } else { Vec::new() };
        let keeps = |key: &Key| self.refusal(view, session, key, announcement.seq, Some(id)).is_none();
        let granted: Vec<Key> = keep.into_iter().filter(keeps).collect();
        let seq = self.tick();
        for key in announcement.keys {
            if let Some(ids) = self.announced.get_mut(&key) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.announced.remove(&key);
                }
            }
            self.note_released(key, seq);
        }
        granted.iter().for_each(|key| self.grant(session, key));
        self.forget_released();
        if !granted.is_empty() {
            out.push(Command::Kept { announcement: id, session, granted });
            self.make_room(view, out);
        }
    }

    pub(super) fn note_released(&mut self, key: Key, seq: u64) {
        if self.asks.is_empty() && self.announcements.is_empty() {
            return;
        }
        if self.released.len() >= RELEASED_LOOK && self.released.len().is_multiple_of(RELEASED_LOOK) {
            let since = self.asks.values().map(|ask| ask.seq).chain(self.announcements.values().map(|a| a.seq));
            let oldest = since.min().unwrap_or_default();
            self.released.retain(|_, released| *released > oldest);
        }
        if self.released.len() >= RELEASED_MAX {
            self.released.clear();
            self.void_before = seq;
        }
        self.released.insert(key, seq);
    }

    pub(super) fn forget_released(&mut self) {
        if self.asks.is_empty() && self.announcements.is_empty() {
            self.released.clear();
        }
    }

    /// Lets nobody but `keep` cache the inode's attributes. True if that is so already.
    pub fn bar(&mut self, view: &View<'_>, inode: InodeId, keep: Option<SessionId>, out: &mut Vec<Command>) -> bool {
        if let Some(bar) = self.bars.get(&inode)
            && bar.keep == keep
        {
            return bar.waiting.is_empty();
        }
        self.unbar(inode);
        let holders = self.held.get_key_value(&KeyRef::Attr(inode));
        let others: Vec<(SessionId, Arc<Key>)> = holders
            .into_iter()
            .flat_map(|(key, holders)| holders.keys().map(|holder| (*holder, key.clone())))
            .filter(|(holder, _)| Some(*holder) != keep)
            .collect();
        self.bars.insert(inode, Bar { keep, waiting: BTreeSet::new() });
        let mut waiting = BTreeSet::new();
        for (holder, key) in others {
            waiting.extend(self.revoke(view, holder, vec![key], None, Cause::Bar(inode), out));
        }
        let done = waiting.is_empty();
        if let Some(bar) = self.bars.get_mut(&inode) {
            bar.waiting = waiting;
        }
        done
    }

    /// The attributes are in the row; what was read of it before is old.
    pub fn unbar(&mut self, inode: InodeId) {
        if self.bars.remove(&inode).is_some() {
            let seq = self.tick();
            self.note_released(Key::Attr(inode), seq);
        }
    }
}

impl Announcement {
    pub(super) fn told(&self, id: AnnouncementId, view: &View<'_>) -> Command {
        let open = self.open.iter().copied().collect();
        Command::Ready { announcement: id, epoch: view.slots.epoch, open, unsure: self.unsure }
    }
}

impl Revocation {
    pub(super) fn told(&self, id: RevocationId) -> Command {
        let keys = self.keys.iter().map(|key| Key::clone(key)).collect();
        Command::Revoke { session: self.session, revocation: id, keys, unlinked: self.unlinked }
    }
}
