//! Which metadata server a request is for, where several serve.

use braid_api::GoesTo;
use braid_api::meta::MetaRequest;
use braid_types::{InodeId, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Whoever leads.
    Leader,
    /// Whoever holds the slot: also of what anybody can do, because only that one grants what it answers.
    Holder(Slot),
}

impl Destination {
    /// The inode's; of snapshots that is the leader.
    pub fn at(inode: InodeId) -> Destination {
        match inode.0 == 0 || inode.is_in_snapshot() {
            true => Destination::Leader,
            false => Destination::Holder(inode.slot()),
        }
    }

    pub fn of(request: &MetaRequest) -> Destination {
        match request.goes_to() {
            GoesTo::Leader => Destination::Leader,
            GoesTo::Holder(slot) => Destination::Holder(slot),
            GoesTo::BestAt(inode) => Destination::at(inode),
            GoesTo::Here => match request {
                // Said of one file at a time.
                MetaRequest::LeaveSealed(m) => {
                    m.holds.first().map_or(Destination::Leader, |(inode, _)| Destination::at(*inode))
                }
                // Else whoever sends it says to whom; of what is not said one by one there is one server.
                _ => Destination::Leader,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_api::meta::*;
    use braid_api::{Carries, LockKind, LockRequest, LockSpace};
    use braid_types::{ByteRange, ChunkId, Name, Policy, SnapshotHandle};

    /// In slots of their own.
    const DIR: InodeId = InodeId((1 << 12) | 5);
    const OTHER: InodeId = InodeId((1 << 12) | 6);

    fn name() -> Name {
        "n".parse().expect("a name")
    }

    fn rename(from: InodeId, to: InodeId) -> MetaRequest {
        let (from_name, to_name, mode) = (name(), name(), RenameKind::Replace);
        Rename { from: from.into(), from_name, to: to.into(), to_name, mode, open_here: false }.wrap()
    }

    fn remove_dir(tree: bool) -> MetaRequest {
        RemoveDir { parent: DIR.into(), name: name(), tree }.wrap()
    }

    #[test]
    fn each_request_goes_to_the_leader_or_to_the_holder_of_what_it_is_about() {
        let (own, other) = (Destination::Holder(DIR.slot()), Destination::Holder(OTHER.slot()));
        let shown = DIR.in_snapshot(SnapshotHandle(3)).expect("a small number");
        let range = ByteRange::new(0, 1);
        let lock = LockRequest { space: LockSpace::Posix, owner: 1, pid: 1, kind: LockKind::Write, range };
        let at_holders = [
            (Lookup { parent: DIR, name: name() }.wrap(), own),
            (GetAttr { inode: OTHER.into() }.wrap(), other),
            (Unlink { parent: DIR.into(), name: name(), open_here: false }.wrap(), own),
            (remove_dir(false), own),
            (rename(DIR, OTHER), own),
            (rename(OTHER, DIR), other),
            (Link { inode: OTHER.into(), parent: DIR.into(), name: name() }.wrap(), own),
            (ReadDir { inode: DIR, after: None, limit: 1, plus: false, knows: Vec::new() }.wrap(), own),
            (GetPlace { id: DIR }.wrap(), own),
            (GetPolicy { inode: OTHER.into() }.wrap(), other),
            (GetMap { inode: OTHER.into(), first: Default::default() }.wrap(), other),
            (OpenFile { inode: OTHER.into(), ..OpenFile::default() }.wrap(), other),
            (SetLock { op: 1, done: 1, inode: OTHER, lock, wait_ms: None }.wrap(), other),
            (TestLock { inode: OTHER, lock }.wrap(), other),
            (LeaveSealed { holds: vec![(OTHER, 1)] }.wrap(), other),
            (Resolve { from: DIR, path: vec![name()] }.wrap(), own),
        ];
        let at_the_leader = [
            remove_dir(true),
            CloseSession {}.wrap(),
            EndSession {}.wrap(),
            Settle {}.wrap(),
            GetStatFs { of: InodeId(0) }.wrap(),
            GetContainers { ids: Vec::new() }.wrap(),
            GetServers {}.wrap(),
            GetRoster {}.wrap(),
            SetPolicy { inode: DIR.into(), policy: Some(Policy::PLAIN) }.wrap(),
            TakeRoom { inode: DIR.into(), until: 1, wish: 1 }.wrap(),
            ReturnRoom { inodes: vec![DIR.into()] }.wrap(),
            ReturnSpares { chunks: vec![ChunkId(1)] }.wrap(),
            MarkStable { chunks: Vec::new() }.wrap(),
            FindKept { inode: DIR, index: Default::default(), chunk: ChunkId(1) }.wrap(),
            Lookup { parent: shown, name: name() }.wrap(),
            GetAttr { inode: shown.into() }.wrap(),
            rename(shown, DIR),
        ];
        let all = at_holders.into_iter().chain(at_the_leader.map(|request| (request, Destination::Leader)));
        for (request, to) in all {
            assert_eq!(Destination::of(&request), to, "{request:?}");
        }
    }
}
