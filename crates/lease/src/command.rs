//! What a slot holder wants done.

use crate::files::{Generation, Grown, Mode};
use crate::key::{AnnouncementId, AskId, Key, RevocationId};
use crate::locks::LockAnswer;
use crate::time::Moment;
use braid_types::{InodeId, MembershipEpoch, SessionId, Timestamp};

/// Why something was not granted. The row that was read may be answered all the same, it may not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The session's term is over, or it has none.
    NoTerm,
    /// A change is under way, or was since the row was read.
    Changing,
    /// A revocation of it is on its way to the session.
    Revoking,
    /// Two sessions have just changed the directory.
    Busy,
    /// Another session has the file's size and times: read the row after a [`crate::Event::Refresh`].
    Elsewhere,
    /// Another session works alone in the slot.
    Alone,
    /// The slot has just come here; what others hold is not known yet.
    Settling,
    /// The slot is not held here.
    NotHere,
    /// As many leases are out as memory allows.
    Full,
    /// The session has asked again.
    Repeated,
}

/// Why a session is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndReason {
    /// Its term is over and somebody waits for what it may write under.
    Lapsed,
    /// It did not say what it holds after a change of holder.
    Unsettled,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// The session's term here. A session counts it from when it asked, see [`crate::usable`]. `prolonged` is false if
    /// this renewal gave nothing. `reassert`: it is to say
    /// what it holds, under this number; all of it if `anew`, and then the names are gone, else what it has in slots that have come here.
    Renewed {
        session: SessionId,
        until: Moment,
        prolonged: bool,
        epoch: MembershipEpoch,
        reassert: Option<u64>,
        anew: bool,
    },

    Claimed {
        ask: AskId,
        granted: Vec<Key>,
        refused: Vec<(Key, Refusal)>,
    },
    /// Nobody else caches what the announcement covers: transact, under this membership epoch, then release. `open` are
    /// the sessions that have open what is unlinked; `unsure` if one could not be asked.
    Ready {
        announcement: AnnouncementId,
        epoch: MembershipEpoch,
        open: Vec<SessionId>,
        unsure: bool,
    },
    /// The announcement is void: its slot is not held here.
    Void {
        announcement: AnnouncementId,
    },
    /// Tell the session to drop these and acknowledge, saying whether it has `unlinked` open.
    Revoke {
        session: SessionId,
        revocation: RevocationId,
        keys: Vec<Key>,
        unlinked: Option<InodeId>,
    },
    /// The leases that a released announcement leaves with the session that made the change.
    Kept {
        announcement: AnnouncementId,
        session: SessionId,
        granted: Vec<Key>,
    },

    /// What the session has open is known. Refused while an unlink of the file is being transacted.
    Registered {
        ask: AskId,
    },
    /// A file lease, and the token its data requests carry. Without `ask` it answers a reassertion. `locks`: the session may grant itself locks.
    Grant {
        ask: Option<AskId>,
        session: SessionId,
        inode: InodeId,
        mode: Mode,
        generation: Generation,
        token: Generation,
        locks: bool,
    },
    Refuse {
        ask: AskId,
        why: Refusal,
    },
    /// Tell the session to come down to `to`, where it uses `token`, and answer under `generation`; without `locks` it hands back the locks
    /// it granted itself. `to: Exclusive` only asks for size and times (and locks).
    Recall {
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        token: Generation,
        to: Mode,
        locks: bool,
    },
    /// What the session reasserted is not its own any more: its handles fail.
    Lost {
        session: SessionId,
        inode: InodeId,
    },
    /// The row may be read; what it says of size and mtime is at least `grown`.
    Fresh {
        ask: AskId,
        grown: Option<Grown>,
    },
    /// Put max(size) and mtime into the row, then say [`crate::Event::Stored`].
    Store {
        inode: InodeId,
        size: u64,
        mtime: Timestamp,
    },

    /// The write under `sync` may return; if not accepted, it has to ask for the file lease again.
    Extended {
        ask: AskId,
        accepted: bool,
    },

    Locked {
        ask: AskId,
        answer: LockAnswer,
    },
    /// Locks the session held are another's now: its descriptors that rely on them fail.
    LocksLost {
        session: SessionId,
        inode: InodeId,
    },

    /// All leases of a session that should live have run out: it has not renewed them for a term, or was not let because it did not
    /// answer. Nothing is to be done.
    Lapsed {
        session: SessionId,
    },

    /// Fence the session at every data server, then say [`crate::Event::Ended`].
    End {
        session: SessionId,
        why: EndReason,
    },
}
