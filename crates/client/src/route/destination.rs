//! Which metadata server a request is for, where several serve (docs/design/0027-several-that-serve.md).

use braid_api::meta::MetaRequest;
use braid_types::{InodeId, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Sessions, data servers and chunks, housekeeping, what is durable, snapshots.
    Leader,
    /// Whoever holds it: of what is about an inode the inode's, of what is about a name its directory's.
    Holder(Slot),
}

impl Destination {
    /// Of an inode; snapshots are the leader's.
    pub fn at(inode: InodeId) -> Destination {
        match inode {
            InodeId(0) => Destination::Leader,
            inode if inode.is_in_snapshot() => Destination::Leader,
            inode => Destination::Holder(inode.slot()),
        }
    }

    /// Of what is about two the first is asked, unless one is in a snapshot.
    fn of_two(first: InodeId, second: InodeId) -> Destination {
        if second.is_in_snapshot() { Destination::Leader } else { Destination::at(first) }
    }

    pub fn of(request: &MetaRequest) -> Destination {
        match request {
            MetaRequest::Lookup(m) => Destination::at(m.parent),
            MetaRequest::StatNames(m) => Destination::at(m.parent),
            MetaRequest::Resolve(m) => Destination::at(m.from),
            MetaRequest::AtPath(m) => Destination::at(m.from),
            MetaRequest::GetAttr(m) => Destination::at(m.inode.id),
            MetaRequest::ChangeAttr(m) => Destination::at(m.inode.id),
            MetaRequest::ChangeEntries(m) => Destination::at(m.dir.id),
            MetaRequest::ReadLink(m) => Destination::at(m.inode.id),
            MetaRequest::MakeNode(m) => Destination::at(m.parent.id),
            MetaRequest::CreateFile(m) => Destination::at(m.parent.id),
            MetaRequest::CreateTemporary(m) => Destination::at(m.parent.id),
            MetaRequest::PutFile(m) => Destination::at(m.parent.id),
            MetaRequest::OpenFile(m) => Destination::at(m.inode.id),
            MetaRequest::GetMap(m) => Destination::at(m.inode.id),
            MetaRequest::CommitFile(m) => Destination::at(m.inode.id),
            MetaRequest::DropChunks(m) => Destination::at(m.inode.id),
            MetaRequest::MoveChunk(m) => Destination::at(m.inode.id),
            MetaRequest::Unlink(m) => Destination::at(m.parent.id),
            // What empties a tree is housekeeping.
            MetaRequest::RemoveDir(m) if m.tree => Destination::Leader,
            MetaRequest::RemoveDir(m) => Destination::at(m.parent.id),
            MetaRequest::Rename(m) => Destination::of_two(m.from.id, m.to.id),
            MetaRequest::Link(m) => Destination::of_two(m.parent.id, m.inode.id),
            MetaRequest::ReadDir(m) => Destination::at(m.inode),
            MetaRequest::GetPlace(m) => Destination::at(m.id),
            MetaRequest::GetPolicy(m) => Destination::at(m.inode.id),
            MetaRequest::GetXattr(m) => Destination::at(m.inode.id),
            MetaRequest::SetXattr(m) => Destination::at(m.inode.id),
            MetaRequest::ListXattr(m) => Destination::at(m.inode.id),
            MetaRequest::RemoveXattr(m) => Destination::at(m.inode.id),
            MetaRequest::SealFile(m) => Destination::at(m.inode.id),
            MetaRequest::HoldSealed(m) => Destination::at(m.inode.id),
            // Said of one file at a time.
            MetaRequest::LeaveSealed(m) => m.holds.first().map_or(Destination::Leader, |(inode, _)| Destination::at(*inode)),
            MetaRequest::SetLock(m) => Destination::at(m.inode),
            MetaRequest::TestLock(m) => Destination::at(m.inode),
            MetaRequest::OpenSession(_)
            | MetaRequest::RenewSession(_)
            | MetaRequest::CloseSession(_)
            | MetaRequest::EndSession(_)
            | MetaRequest::Replay(_)
            | MetaRequest::Settle(_)
            | MetaRequest::GetStatFs(_)
            | MetaRequest::GetContainers(_)
            | MetaRequest::GetServers(_)
            | MetaRequest::GetRoster(_)
            | MetaRequest::RegisterServer(_)
            | MetaRequest::Heartbeat(_)
            | MetaRequest::ServerSays(_)
            | MetaRequest::AdminQuery(_)
            // A subtree changes at once.
            | MetaRequest::SetPolicy(_)
            | MetaRequest::TakeSpares(_)
            | MetaRequest::ReturnSpares(_)
            | MetaRequest::TakeBeside(_)
            | MetaRequest::MarkStable(_)
            | MetaRequest::TakeRoom(_)
            | MetaRequest::ReturnRoom(_)
            | MetaRequest::ListPlaced(_)
            | MetaRequest::FindKept(_)
            | MetaRequest::MoveKept(_)
            | MetaRequest::MovesOn(_)
            // Nobody works alone where several serve.
            | MetaRequest::TakeSlot(_)
            | MetaRequest::LeaveSlots(_)
            // Whoever sends it says to whom.
            | MetaRequest::LeaveLock(_)
            | MetaRequest::Listen(_)
            | MetaRequest::Acknowledge(_)
            | MetaRequest::Reassert(_)
            | MetaRequest::YieldFiles(_)
            | MetaRequest::RenewTerm(_)
            // Servers' own.
            | MetaRequest::AskToServe(_)
            | MetaRequest::AnnounceAt(_)
            | MetaRequest::ReleaseAt(_)
            | MetaRequest::SettleFileAt(_)
            | MetaRequest::EndsAt(_)
            | MetaRequest::IsSilent(_)
            | MetaRequest::EndSyncAt(_)
            | MetaRequest::HasOrphan(_) => Destination::Leader,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_api::meta::*;
    use braid_api::{Carries, LockKind, LockRequest, LockSpace};
    use braid_types::{ByteRange, ChunkId, Name, Policy, SnapshotHandle};

    /// In slots of their own; and one that is shown in a snapshot.
    const DIR: InodeId = InodeId((1 << 12) | 5);
    const OTHER: InodeId = InodeId((1 << 12) | 6);

    fn shown() -> InodeId {
        DIR.in_snapshot(SnapshotHandle(3)).expect("a small number")
    }

    fn name() -> Name {
        "n".parse().expect("a name")
    }

    fn rename(from: InodeId, to: InodeId) -> MetaRequest {
        let (from_name, to_name, mode) = (name(), name(), RenameKind::Replace);
        Rename { from: from.into(), from_name, to: to.into(), to_name, mode, open_here: false }.wrap()
    }

    fn link(inode: InodeId, parent: InodeId) -> MetaRequest {
        Link { inode: inode.into(), parent: parent.into(), name: name() }.wrap()
    }

    fn remove_dir(tree: bool) -> MetaRequest {
        RemoveDir { parent: DIR.into(), name: name(), tree }.wrap()
    }

    #[test]
    fn each_request_goes_to_the_leader_or_to_the_holder_of_what_it_is_about() {
        let (own, other) = (Destination::Holder(DIR.slot()), Destination::Holder(OTHER.slot()));
        assert_ne!(own, other);
        let range = ByteRange::new(0, 1);
        let lock = LockRequest { space: LockSpace::Posix, owner: 1, pid: 1, kind: LockKind::Write, range };
        let at_holders = [
            (Lookup { parent: DIR, name: name() }.wrap(), own),
            (GetAttr { inode: OTHER.into() }.wrap(), other),
            (Unlink { parent: DIR.into(), name: name(), open_here: false }.wrap(), own),
            (remove_dir(false), own),
            (rename(DIR, OTHER), own),
            (rename(OTHER, DIR), other),
            (link(OTHER, DIR), own),
            (ReadDir { inode: DIR, after: None, limit: 1, plus: false }.wrap(), own),
            (GetPlace { id: DIR }.wrap(), own),
            (GetPolicy { inode: OTHER.into() }.wrap(), other),
            (OpenFile { inode: OTHER.into(), ..OpenFile::default() }.wrap(), other),
            (SetLock { op: 1, done: 1, inode: OTHER, lock, wait_ms: None }.wrap(), other),
            (TestLock { inode: OTHER, lock }.wrap(), other),
            (LeaveSealed { holds: vec![(OTHER, 1)] }.wrap(), other),
            (Resolve { from: DIR, path: vec![name()] }.wrap(), own),
        ];
        let at_the_leader = [
            remove_dir(true),
            CloseSession {}.wrap(),
            Settle {}.wrap(),
            GetStatFs {}.wrap(),
            GetRoster {}.wrap(),
            SetPolicy { inode: DIR.into(), policy: Some(Policy::PLAIN) }.wrap(),
            TakeRoom { inode: DIR.into(), until: 1, wish: 1 }.wrap(),
            ReturnSpares { chunks: vec![ChunkId(1)] }.wrap(),
            MarkStable { chunks: Vec::new() }.wrap(),
            Lookup { parent: shown(), name: name() }.wrap(),
            GetAttr { inode: shown().into() }.wrap(),
            rename(DIR, shown()),
            rename(shown(), DIR),
            link(shown(), DIR),
        ];
        let all = at_holders.into_iter().chain(at_the_leader.map(|request| (request, Destination::Leader)));
        for (request, to) in all {
            assert_eq!(Destination::of(&request), to, "{request:?}");
        }
    }
}
