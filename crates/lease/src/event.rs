//! What happens to a slot holder.

use crate::files::{Generation, Handles, HeldLock, Mode, Reasserted, Want};
use crate::key::{AnnouncementId, AskId, Key, RevocationId};
use crate::locks::{LockOwner, LockSpec, Space};
use crate::time::Moment;
use braid_types::{ByteRange, InodeId, MemberId, MembershipEpoch, SessionId, SlotSet, Timestamp};
use std::collections::BTreeSet;

/// What happened. Messages of clients come in as they are, in whatever order and as often as the network likes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time passed; see [`crate::Holder::wakeup`].
    Tick,

    // --- membership and sessions ---
    /// These slots are held here from now on, if this is the epoch that was told last. To be told only when the former holder can renew and
    /// grant no more; `sessions` are the rows of the `sessions` table, read after that.
    Gained {
        epoch: MembershipEpoch,
        slots: SlotSet,
        sessions: Vec<SessionId>,
    },
    /// Another membership epoch has begun. To be told only when the engine's fence stands at it: what was announced by who is not
    /// among `members` has been committed before that, or never will be, and is released. Slots among `keeps` that are held here
    /// stay, with leases and announcements; all others are lost, and all are for who missed an epoch in between.
    Epoch {
        epoch: MembershipEpoch,
        members: BTreeSet<MemberId>,
        keeps: SlotSet,
    },
    /// A session was opened or renewed.
    Renew {
        session: SessionId,
    },
    /// Its process is known to have gone: what it cached is gone with it. Files it may have been writing, and locks, wait for
    /// `Ended` all the same: what it sent may still be on its way.
    Gone {
        session: SessionId,
    },
    /// It is being ended, for what it has or has not said elsewhere: it is renewed no more. Where its term still runs it may still show
    /// what was granted, so that it has ended when it is live at no holder ([`crate::Holder::is_live`]) and fenced.
    Ending {
        session: SessionId,
    },
    /// It is over: it closed, or every data server has acknowledged its fence (or lost its own lease).
    Ended {
        session: SessionId,
    },

    // --- leases of the namespace ---
    /// A row is about to be read for the session, which wants to keep what it says.
    Ask {
        ask: AskId,
        session: SessionId,
    },
    /// These keys cover what was read since the ask.
    Claim {
        ask: AskId,
        keys: Vec<Key>,
    },
    /// The ask ends without a claim, or the request for a file lease or lock is not wanted any more, or the session has heard
    /// that its lock was granted: until then it is not let grant itself locks on the file, because it could leave this one out.
    Abandon {
        ask: AskId,
    },
    /// A change of what `keys` cover is to be made for the session. `unlinks` may lose its last name with it.
    Announce {
        announcement: AnnouncementId,
        session: SessionId,
        keys: Vec<Key>,
        unlinks: Option<InodeId>,
    },
    /// The change is committed, or will never be. `keep` covers what the answer tells the session.
    Release {
        announcement: AnnouncementId,
        keep: Vec<Key>,
    },
    /// The session has dropped what a revocation named. `open`: it has open what was to be unlinked.
    Acknowledge {
        session: SessionId,
        revocation: RevocationId,
        open: bool,
    },

    // --- file leases ---
    /// What the session has open on a file, told with the open or close that changes it. An open is told before its row
    /// is read, and read when [`crate::Command::Registered`] says so: what is unlinked meanwhile knows of it.
    Opened {
        ask: AskId,
        session: SessionId,
        inode: InodeId,
        handles: Handles,
    },
    Take {
        ask: AskId,
        session: SessionId,
        inode: InodeId,
        want: Want,
    },
    /// The inode's row is about to be read for the session: what others keep of size and times must be in it.
    Refresh {
        ask: AskId,
        session: SessionId,
        inode: InodeId,
    },
    /// Nobody is to write the file: whoever could gives that up, and what it knows is in the row when [`crate::Command::Fresh`] answers.
    /// So it stays until the ask is abandoned; who wants to write waits for that, and nobody else.
    Still {
        ask: AskId,
        inode: InodeId,
    },
    /// From now on nobody gets the right to write who does not have it, until as many have let go of that as wanted it.
    HoldWrites {
        on: bool,
    },
    /// A file lease is given up, wholly or down to `mode`: of one's own accord under the present generation, or as
    /// answer to a recall under the recall's. Size and times it carries have been stored by the caller before.
    Yield {
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        mode: Mode,
        locks: Vec<HeldLock>,
    },
    /// A write under `sync` extended the file; it returns when this is accepted.
    Extend {
        ask: AskId,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        size: u64,
        mtime: Timestamp,
    },
    /// A data server has begun anew, or a chain goes on with another owner: see `files::Files::end_sync`.
    EndSync,
    /// Numbers given out from here on are above this one, and `sync` with a token up to it is over: the last numbers of several
    /// holders differ, and the data servers know one bound for all.
    Above {
        floor: Generation,
    },
    /// What [`crate::Command::Store`] asked for is in the row.
    Stored {
        inode: InodeId,
        size: u64,
        mtime: Timestamp,
    },
    /// What a session says it holds, after a change of holder or after it was out of touch: all it holds here. `round` is
    /// that of the [`crate::Command::Renewed`] which asked for it.
    Reassert {
        session: SessionId,
        round: u64,
        files: Vec<Reasserted>,
    },

    // --- locks ---
    /// `until` ends the wait; `None` does not wait. The same ask again prolongs its wait.
    Lock {
        ask: AskId,
        inode: InodeId,
        space: Space,
        lock: LockSpec,
        until: Option<Moment>,
    },
    Unlock {
        inode: InodeId,
        space: Space,
        owner: LockOwner,
        range: ByteRange,
    },
    /// The owner's last handle is closed.
    LocksClosed {
        inode: InodeId,
        space: Space,
        owner: LockOwner,
    },
    /// Who is in the way? (F_GETLK)
    TestLock {
        ask: AskId,
        inode: InodeId,
        space: Space,
        lock: LockSpec,
    },
}
