//! Leases on the namespace at the slot holder: who may cache which entry, listing and attributes.
//!
//! A change is announced, the leases it touches are revoked, it is transacted, it is released. While a key is announced
//! nobody is granted a lease on it; a lease is claimed for what was read only if no change of it was released since the
//! ask, which is the same as registering the lease before reading, and works for keys that only the row names.
//!
//! Announcements do not exclude each other, so they cannot wait in a circle. A revocation ends with the session's
//! acknowledgement or with its term, whichever comes first.

mod changes;

use crate::alone::Alone;
use crate::command::{Command, Refusal};
use crate::few::Few;
use crate::holder::Waits;
use crate::key::{AnnouncementId, AskId, Key, KeyRef, RevocationId};
use crate::limits::Limits;
use crate::slots::Slots;
use crate::table::Table;
use crate::terms::Terms;
use crate::time::Moment;
use braid_types::{InodeId, MemberId, SessionId, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What all parts of a holder look at.
pub struct View<'a> {
    pub now: Moment,
    pub limits: &'a Limits,
    pub terms: &'a Terms,
    pub slots: &'a Slots,
    pub alone: &'a Alone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ask {
    session: SessionId,
    seq: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Announcement {
    session: SessionId,
    keys: Vec<Key>,
    seq: u64,
    since: Moment,
    /// Revocations that are not acknowledged.
    waiting: BTreeSet<RevocationId>,
    open: BTreeSet<SessionId>,
    unsure: bool,
    unlinks: Option<InodeId>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Waiting,
    Ready,
    Void,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cause {
    Change(AnnouncementId),
    /// A file lease that comes with size and times.
    Bar(InodeId),
    /// The oldest makes room.
    Room,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Revocation {
    session: SessionId,
    keys: Vec<Arc<Key>>,
    unlinked: Option<InodeId>,
    cause: Cause,
    first: Moment,
    sent: Moment,
}

/// Nobody but `keep` may cache an inode's attributes: it has a file lease under which they change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Bar {
    keep: Option<SessionId>,
    waiting: BTreeSet<RevocationId>,
}

/// The last change of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Changed {
    by: SessionId,
    at: Moment,
    /// Two sessions changed it within `quiet`; it counts as busy until then.
    busy_until: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    leases_max: usize,
    /// Counts asks, announcements, releases and grants.
    seq: u64,
    /// The grant's number, by key and session. Keys are shared: a lease costs about 250 bytes.
    held: Table<Arc<Key>, Few<u64>>,
    by_age: BTreeMap<u64, (SessionId, Arc<Key>)>,
    by_session: BTreeMap<SessionId, Table<Arc<Key>>>,
    /// How many leases a session has in a slot, if it has any there.
    in_slots: BTreeMap<(Slot, SessionId), u32>,
    asks: BTreeMap<AskId, Ask>,
    /// When a change of the key was last released; kept while asks or announcements are under way.
    released: Table<Key, u64>,
    /// Asks before this are void: `released` was cut short.
    void_before: u64,
    announced: Table<Key, BTreeSet<AnnouncementId>>,
    announcements: BTreeMap<AnnouncementId, Announcement>,
    /// Who may announce. Not known where there is one server.
    members: Option<BTreeSet<MemberId>>,
    /// The highest number that each server has announced or released.
    heard: BTreeMap<MemberId, u64>,
    bars: BTreeMap<InodeId, Bar>,
    revocations: BTreeMap<RevocationId, Revocation>,
    /// Keys on their way to be dropped, by session.
    revoking: BTreeMap<SessionId, Table<Arc<Key>, u32>>,
    next_revocation: u64,
    changed: BTreeMap<InodeId, Changed>,
}

/// Released keys remembered for asks under way; more void the asks, which costs them a lease and no more.
const RELEASED_MAX: usize = 16 << 10;
/// At each multiple those are forgotten that are older than all that is under way: on a busy server something always is.
const RELEASED_LOOK: usize = 1 << 10;
/// Directories whose last change is remembered.
const CHANGED_MAX: usize = 16 << 10;
/// Leases revoked together when memory is full, if that is a small part of what there is: a listing of 1,024 names with their
/// attributes asks for 2,048, and what is refused costs a message each time it is looked at.
const ROOM_BATCH: usize = 4096;
const ROOM_BATCH_MIN: usize = 64;
/// Leases in one revocation: with the longest names 150 KiB, with usual ones 20.
const A_REVOCATION: usize = 512;

impl Names {
    pub fn new(leases_max: usize) -> Self {
        Names {
            leases_max: leases_max.max(ROOM_BATCH_MIN),
            seq: 0,
            held: Table::default(),
            by_age: BTreeMap::new(),
            by_session: BTreeMap::new(),
            in_slots: BTreeMap::new(),
            asks: BTreeMap::new(),
            released: Table::default(),
            void_before: 0,
            announced: Table::default(),
            announcements: BTreeMap::new(),
            members: None,
            heard: BTreeMap::new(),
            bars: BTreeMap::new(),
            revocations: BTreeMap::new(),
            revoking: BTreeMap::new(),
            next_revocation: 0,
            changed: BTreeMap::new(),
        }
    }

    fn tick(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub fn leases(&self) -> usize {
        self.by_age.len()
    }

    pub fn has(&self, session: SessionId, key: &Key) -> bool {
        self.held.get(&KeyRef::from(key)).is_some_and(|holders| holders.contains_key(&session))
    }

    // --- granting ---

    pub fn ask(&mut self, ask: AskId, session: SessionId) {
        let seq = self.tick();
        self.asks.insert(ask, Ask { session, seq });
    }

    pub fn abandon(&mut self, ask: AskId) {
        self.asks.remove(&ask);
        self.forget_released();
    }

    pub fn claim(&mut self, view: &View<'_>, ask: AskId, keys: Vec<Key>, out: &mut Vec<Command>) {
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        let Some(Ask { session, seq }) = self.asks.remove(&ask) else {
            // The session's term ran out in between, or a membership change took the ask away.
            let refused = keys.into_iter().map(|key| (key, Refusal::NoTerm)).collect();
            return out.push(Command::Claimed { ask, granted, refused });
        };
        for key in keys {
            match self.refusal(view, session, &key, seq, None) {
                Some(why) => refused.push((key, why)),
                None => {
                    self.grant(session, &key);
                    granted.push(key);
                }
            }
        }
        self.forget_released();
        out.push(Command::Claimed { ask, granted, refused });
        self.make_room(view, out);
    }

    /// What speaks against a lease on `key` for what the session has learned since `since`. `own` is the announcement
    /// it learned it by.
    fn refusal(
        &self,
        view: &View<'_>,
        session: SessionId,
        key: &Key,
        since: u64,
        own: Option<AnnouncementId>,
    ) -> Option<Refusal> {
        let slot_known = |id: InodeId| !view.slots.is_settling(id);
        if !view.slots.holds(key.slot()) {
            return Some(Refusal::NotHere);
        }
        if !view.terms.is_live(session, view.now) {
            return Some(Refusal::NoTerm);
        }
        if view.alone.other(session, key.slot()).is_some() {
            return Some(Refusal::Alone);
        }
        let others = |ids: &BTreeSet<AnnouncementId>| ids.iter().any(|id| Some(*id) != own);
        if self.announced.get(key).is_some_and(others)
            || since < self.void_before
            || self.released.get(key).is_some_and(|released| *released > since)
        {
            return Some(Refusal::Changing);
        }
        if self.revoking.get(&session).is_some_and(|keys| keys.has(&KeyRef::from(key))) {
            return Some(Refusal::Revoking);
        }
        match key {
            Key::Dir(dir) if self.is_busy(*dir, view.now) => return Some(Refusal::Busy),
            Key::Attr(id) if self.bars.get(id).is_some_and(|bar| bar.keep != Some(session)) => {
                return Some(Refusal::Elsewhere);
            }
            Key::Attr(id) if !slot_known(*id) => return Some(Refusal::Settling),
            _ => {}
        }
        // Room was asked for when the bound was reached; until it is there a batch more is the most.
        (self.by_age.len() >= self.leases_max + self.room_batch() && !self.has(session, key)).then_some(Refusal::Full)
    }

    fn grant(&mut self, session: SessionId, key: &Key) {
        let seq = self.tick();
        let (shared, before) = match self.held.get_key_value_mut(&KeyRef::from(key)) {
            // Each later grant has a later number, so this one is in the last quarter of the line already. To move it to the very end
            // would cost more than all else of a grant.
            Some((_, holders)) if holders.get(&session).is_some_and(|at| seq - at < self.leases_max as u64 / 4) => {
                return;
            }
            Some((shared, holders)) => (shared.clone(), holders.insert(session, seq)),
            None => {
                let (shared, mut holders) = (Arc::new(key.clone()), Few::default());
                holders.insert(session, seq);
                self.held.insert(shared.clone(), holders);
                (shared, None)
            }
        };
        if let Some(before) = before {
            self.by_age.remove(&before);
        } else {
            *self.in_slots.entry((key.slot(), session)).or_default() += 1;
            self.by_session.entry(session).or_default().insert(shared.clone(), ());
        }
        self.by_age.insert(seq, (session, shared));
    }

    fn drop_lease(&mut self, session: SessionId, key: &Key) {
        let key = KeyRef::from(key);
        let Some(holders) = self.held.get_mut(&key) else { return };
        if let Some(seq) = holders.remove(&session) {
            self.by_age.remove(&seq);
            let at = (key.slot(), session);
            if let Some(count) = self.in_slots.get_mut(&at) {
                *count -= 1;
                if *count == 0 {
                    self.in_slots.remove(&at);
                }
            }
        }
        if holders.is_empty() {
            self.held.remove(&key);
        }
        if let Some(keys) = self.by_session.get_mut(&session) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    fn make_room(&mut self, view: &View<'_>, out: &mut Vec<Command>) {
        if self.by_age.len() <= self.leases_max || self.revocations.values().any(|r| r.cause == Cause::Room) {
            return;
        }
        let mut oldest: BTreeMap<SessionId, Vec<Arc<Key>>> = BTreeMap::new();
        for (session, key) in self.by_age.values().take(self.room_batch()) {
            oldest.entry(*session).or_default().push(key.clone());
        }
        for (session, keys) in oldest {
            for part in keys.chunks(A_REVOCATION) {
                self.revoke(view, session, part.to_vec(), None, Cause::Room, out);
            }
        }
    }

    fn room_batch(&self) -> usize {
        (self.leases_max / 16).clamp(ROOM_BATCH_MIN, ROOM_BATCH)
    }

    fn is_busy(&self, dir: InodeId, now: Moment) -> bool {
        self.changed.get(&dir).is_some_and(|changed| now < changed.busy_until)
    }

    fn note_change(&mut self, view: &View<'_>, dir: InodeId, by: SessionId) {
        let (now, quiet) = (view.now, view.limits.quiet);
        if self.changed.len() >= CHANGED_MAX {
            self.changed.retain(|_, changed| now < changed.at.max(changed.busy_until) + quiet);
            if self.changed.len() >= CHANGED_MAX {
                self.changed.pop_first();
            }
        }
        let changed = self.changed.entry(dir).or_insert(Changed { by, at: now, busy_until: Moment::default() });
        if changed.by != by && now.since(changed.at) < quiet {
            changed.busy_until = now + quiet;
        }
        (changed.by, changed.at) = (by, now);
    }

    /// Another session changes something in the slot.
    pub fn is_changed_by_others(&self, session: SessionId, slot: Slot) -> bool {
        let touches = |a: &Announcement| {
            a.keys.iter().map(Key::slot).chain(a.unlinks.map(|inode| inode.slot())).any(|touched| touched == slot)
        };
        self.announcements.values().any(|a| a.session != session && touches(a))
    }

    /// What others may show of the slot. Looks through all leases of those who have one there.
    pub fn shown_by_others(&self, session: SessionId, slot: Slot) -> Vec<Key> {
        let mut found = BTreeSet::new();
        let others = self.in_slots.range((slot, SessionId(0))..=(slot, SessionId(u64::MAX)));
        for (_, other) in others.map(|(at, _)| *at).filter(|(_, other)| *other != session) {
            let keys = self.by_session.get(&other).into_iter().flat_map(Table::keys);
            found.extend(keys.filter(|key| key.slot() == slot).map(|key| (**key).clone()));
        }
        found.into_iter().collect()
    }

    // --- endings ---

    /// The session's term is over, or it has ended. Gives the inodes whose bars may be complete.
    pub fn session_over(&mut self, view: &View<'_>, session: SessionId, out: &mut Vec<Command>) -> Vec<InodeId> {
        let keys = self.by_session.remove(&session).unwrap_or_default();
        keys.keys().for_each(|key| self.drop_lease(session, key));
        self.asks.retain(|_, ask| ask.session != session);
        self.forget_released();
        let pending: Vec<RevocationId> =
            self.revocations.iter().filter(|(_, r)| r.session == session).map(|(id, _)| *id).collect();
        pending.into_iter().filter_map(|id| self.finish(view, id, None, out)).collect()
    }

    /// Slots went to another holder, which waits for what was granted here.
    pub fn slots_lost(&mut self, lost: impl Fn(Slot) -> bool, out: &mut Vec<Command>) {
        let keys: Vec<Arc<Key>> = self.held.keys().filter(|key| lost(key.slot())).cloned().collect();
        for key in keys {
            let holders: Vec<SessionId> = self.held.get(&*key).into_iter().flat_map(|h| h.keys().copied()).collect();
            holders.into_iter().for_each(|holder| self.drop_lease(holder, &key));
        }
        let void: Vec<AnnouncementId> = self
            .announcements
            .iter()
            .filter(|(_, a)| a.keys.iter().any(|k| lost(k.slot())))
            .map(|(id, _)| *id)
            .collect();
        for id in void {
            // Kept until it is released: keys that stay here may still be changed by it, if it was ready. But never again does
            // this holder say that it is.
            if let Some(announcement) = self.announcements.get_mut(&id)
                && announcement.stage != Stage::Void
            {
                announcement.stage = Stage::Void;
                out.push(Command::Void { announcement: id });
            }
        }
        self.bars.retain(|inode, _| !lost(inode.slot()));
        self.changed.retain(|dir, _| !lost(dir.slot()));
    }

    /// Slots came here. Asks of before may be about them, from when they were here before: what was changed since is not known.
    pub fn slots_gained(&mut self) {
        self.void_before = self.tick();
    }

    /// Another epoch: what others had announced is over, by an end that has come before it.
    pub fn members_are(&mut self, view: &View<'_>, members: BTreeSet<MemberId>, out: &mut Vec<Command>) {
        let is_gone = |id: &&AnnouncementId| !members.contains(&id.server);
        let gone: Vec<AnnouncementId> = self.announcements.keys().filter(is_gone).copied().collect();
        gone.into_iter().for_each(|id| self.release(view, id, Vec::new(), out));
        self.heard.retain(|server, _| members.contains(server));
        self.members = Some(members);
    }

    /// There are several servers, and each epoch is told.
    pub fn knows_members(&self) -> bool {
        self.members.is_some()
    }

    /// The number is above all that its server has announced or released here. Else it comes late: it was released, and nobody
    /// would do that again, or others overtook it, and it is made again.
    fn is_news(&mut self, id: AnnouncementId) -> bool {
        let last = self.heard.entry(id.server).or_default();
        let news = id.number > *last;
        *last = id.number.max(*last);
        news
    }

    /// Repeats what is not acknowledged. Gives the sessions whose patience is over.
    pub fn pass(&mut self, view: &View<'_>, out: &mut Vec<Command>) -> Vec<SessionId> {
        let mut slow = Vec::new();
        for (id, revocation) in &mut self.revocations {
            if view.now >= revocation.first + view.limits.acknowledge {
                slow.push(revocation.session);
            }
            if view.now >= revocation.sent + view.limits.resend {
                revocation.sent = view.now;
                out.push(revocation.told(*id));
            }
        }
        let unready: Vec<AnnouncementId> =
            self.announcements.iter().filter(|(_, a)| a.stage == Stage::Waiting).map(|(id, _)| *id).collect();
        unready.into_iter().for_each(|id| self.settle(view, id, out));
        slow
    }

    /// When [`Names::pass`] has something to repeat.
    pub fn next(&self, limits: &Limits) -> Option<Moment> {
        self.revocations.values().map(|revocation| revocation.sent + limits.resend).min()
    }

    /// Announcements that wait: for each session what it has not dropped.
    pub fn waits(&self) -> impl Iterator<Item = Waits> + '_ {
        self.announcements.iter().filter(|(_, a)| a.stage == Stage::Waiting).flat_map(|(id, announcement)| {
            let mut sessions: BTreeMap<Option<SessionId>, BTreeSet<&Key>> = BTreeMap::new();
            for revocation in announcement.waiting.iter().filter_map(|id| self.revocations.get(id)) {
                sessions.entry(Some(revocation.session)).or_default().extend(revocation.keys.iter().map(|key| &**key));
            }
            if sessions.is_empty() {
                sessions.insert(None, announcement.keys.iter().collect());
            }
            sessions.into_iter().map(|(session, keys)| Waits::Change {
                announcement: *id,
                by: announcement.session,
                since: announcement.since,
                session,
                keys: keys.into_iter().cloned().collect(),
            })
        })
    }

    /// Sessions that are to drop an inode's attributes before a lease of the file is given.
    pub fn barred_by(&self, inode: InodeId) -> Vec<SessionId> {
        let waiting = self.bars.get(&inode).into_iter().flat_map(|bar| &bar.waiting);
        let sessions: BTreeSet<SessionId> =
            waiting.filter_map(|id| self.revocations.get(id)).map(|revocation| revocation.session).collect();
        sessions.into_iter().collect()
    }

    /// What must hold between the tables at every moment.
    pub fn audit(&self, view: &View<'_>) -> Result<(), String> {
        for (key, holders) in self.held.in_order() {
            for (session, seq) in holders.iter() {
                let known = self.by_session.get(session).is_some_and(|keys| keys.has(key));
                if !known || self.by_age.get(seq).is_none_or(|(s, k)| s != session || k != key) {
                    return Err(format!("{key:?} of {session}: the tables disagree"));
                }
            }
        }
        if self.by_age.len() != self.held.values().map(Few::len).sum::<usize>() {
            return Err("a lease is in one table alone".into());
        }
        if self.by_age.len() != self.in_slots.values().map(|count| *count as usize).sum::<usize>() {
            return Err("leases are counted wrongly by slot".into());
        }
        for (id, revocation) in &self.revocations {
            if view.terms.end(revocation.session).is_none_or(|end| end <= view.now) {
                return Err(format!("{id:?} waits for {} beyond its term", revocation.session));
            }
        }
        for (id, announcement) in
            self.announcements.iter().filter(|(_, announcement)| announcement.stage == Stage::Ready)
        {
            for key in &announcement.keys {
                let holders = self.held.get(&KeyRef::from(key)).into_iter().flat_map(Few::keys);
                if let Some(other) = holders.into_iter().find(|holder| **holder != announcement.session) {
                    return Err(format!("{id:?} is ready, but {other} has a lease on {key:?}"));
                }
            }
        }
        Ok(())
    }
}
