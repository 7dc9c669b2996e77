//! Leases between a slot holder and its clients: what a mount may cache, and how it is told to drop it.
//!
//! Answers grant ([`crate::meta::Grant`]); a grant lasts for the rest of the session's [`Term`], which each renewal
//! prolongs, or until it is revoked. The transport has calls of clients only, so a client leaves a [`Listen`] with the
//! server, which is answered when there is something to say. `docs/design/0005-leases.md` says what both ends promise.

use crate::fs::LockRequest;
use crate::meta::{FileLease, LeaseState, WriteHandles};
use braid_types::{InodeId, LeaseGen, MemberId, MembershipEpoch, Name, Slot};
use serde::{Deserialize, Serialize};

/// What a lease of the namespace is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LeaseKey {
    /// Every absence in a directory.
    Dir(InodeId),
    Name(InodeId, Name),
    Attr(InodeId),
}

/// For how long a session may keep what it is granted: a session's lease, counted by the client from when it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// At this start of a server.
    pub member: MemberId,
    /// Who holds what is another under another epoch.
    pub epoch: MembershipEpoch,
    /// It holds every slot. Else [`crate::members::GetRoster`] says who holds what under the epoch.
    pub alone: bool,
    /// False: this renewal gave nothing.
    pub prolonged: bool,
    /// Say what is held there, in a [`Reassert`] with this number.
    pub reassert: Option<u64>,
    /// Of all of it, and names are held no more; else of what came to this server with the epoch.
    pub anew: bool,
}

/// Answered when there are orders, when the server or its epoch is not the one named here, or after `wait_ms`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listen {
    pub member: MemberId,
    pub epoch: MembershipEpoch,
    pub wait_ms: u32,
    /// As [`Acknowledge::revocations`]: what was heard the last time, and is carried out by now.
    pub revocations: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    pub member: MemberId,
    pub epoch: MembershipEpoch,
    pub orders: Vec<Order>,
}

/// Repeated until it is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Drop these, have the kernel drop them, then acknowledge.
    Revoke { revocation: u64, keys: Vec<LeaseKey> },
    /// Come down to `to` with this file and answer with a [`YieldFiles`] of this generation. `Exclusive` asks only for what the row
    /// lacks of size and times. Without `locks`, locks are not granted here any more, and the answer names those that are held.
    Recall { inode: InodeId, generation: LeaseGen, token: LeaseGen, to: LeaseState, locks: bool },
    /// A sealed file is to be unsealed: say [`crate::meta::LeaveSealed`] as soon as no handle here reads it without asking.
    Leave { inode: InodeId },
    /// Somebody else wants this slot: answer with [`crate::slots::LeaveSlots`] as soon as nothing of this session is on its way there.
    LeaveSlot { slot: Slot },
    /// Slots came to this server, and it waits for everybody's word of what he holds there: renew at it, also if that is nothing.
    Renew,
}

/// File leases are given up down to a state, each under the generation it was recalled with (or granted, if nobody asked): what was
/// buffered under them is stable, size and times are in the rows, and nobody at this client, the kernel included, shows pages
/// that may not be kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct YieldFiles {
    /// To whom it is said; another start of that server takes nothing of it.
    pub member: MemberId,
    pub files: Vec<(InodeId, LeaseGen, LeaseState)>,
    /// All locks that this session holds on files of the list, where it granted them itself until now.
    pub locks: Vec<(InodeId, Vec<LockRequest>)>,
    /// As [`SetLock::done`].
    pub locks_done: u64,
    /// What is open for writing here, of files of the list and of others that have been closed.
    pub handles: Vec<(InodeId, WriteHandles)>,
}

/// Nobody at this client, the kernel included, shows what these named.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acknowledge {
    /// As [`YieldFiles::member`].
    pub member: MemberId,
    pub revocations: Vec<u64>,
}

/// Nothing granted before [`Term::reassert`] was heard is held any more, but these files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reassert {
    /// As [`YieldFiles::member`].
    pub member: MemberId,
    pub round: u64,
    pub files: Vec<(InodeId, LeaseState)>,
    /// All locks that this session holds, wherever they were granted.
    pub locks: Vec<(InodeId, Vec<LockRequest>)>,
    /// As [`SetLock::done`].
    pub locks_done: u64,
    /// Sealed files that are read here without asking, and the numbers of their holds.
    pub sealed: Vec<(InodeId, u64)>,
}

/// What of it is held from now on, and under which numbers. What is neither held nor lost is of slots that are about to come to this holder, and
/// is asked for once more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reasserted {
    pub held: Vec<(InodeId, FileLease)>,
    /// Not this session's any more.
    pub lost: Vec<InodeId>,
    /// Files some lock of which is another's by now.
    pub locks_lost: Vec<InodeId>,
}

/// Takes or frees a lock at the slot holder. Repeated under its number until it is answered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetLock {
    /// Rises with each lock that the session asks for.
    pub op: u64,
    /// Whatever has a lower number has been answered: what is still on its way of it changes nothing.
    pub done: u64,
    pub inode: InodeId,
    pub lock: LockRequest,
    /// To be queued, and answered after this time at the latest: then ask again. `None` does not wait for other locks.
    pub wait_ms: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockReply {
    /// Taken, or freed.
    Granted,
    WouldBlock,
    /// Waiting would never end.
    Deadlock,
    /// It keeps its place in the queue for [`LOCK_PATIENCE`] from now on.
    Waiting,
}

/// Whoever does not ask again for so long has given its place up.
pub const LOCK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A lock that is waited for is not wanted any more. [`LockReply::Granted`] says that it was granted before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LeaveLock {
    pub op: u64,
    pub done: u64,
}

/// Who is in the way of a lock?
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TestLock {
    pub inode: InodeId,
    pub lock: LockRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLock {
    pub lock: Option<LockRequest>,
    /// It is of a process of this session.
    pub own: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a revocation: they change only with the protocol's version.
    #[test]
    fn the_bytes_of_an_order_stay() {
        let name: Name = "n".parse().expect("a name");
        let keys = vec![LeaseKey::Dir(InodeId(1)), LeaseKey::Name(InodeId(1), name), LeaseKey::Attr(InodeId(300))];
        let member = MemberId(5);
        let orders = Orders { member, epoch: MembershipEpoch(7), orders: vec![Order::Revoke { revocation: 9, keys }] };
        let bytes = postcard::to_stdvec(&orders).expect("plain fields");
        assert_eq!(bytes, [5, 7, 1, 0, 9, 3, 0, 1, 1, 1, 1, b'n', 2, 0xac, 2]);
        assert_eq!(postcard::from_bytes::<Orders>(&bytes).expect("it reads back"), orders);
        let epoch = MembershipEpoch(7);
        let term = Term { member, epoch, alone: true, prolonged: true, reassert: Some(3), anew: true };
        assert_eq!(postcard::to_stdvec(&term).expect("plain fields"), [5, 7, 1, 1, 1, 3, 1]);
    }
}
