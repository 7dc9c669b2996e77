//! Where several metadata servers serve at once: which of them a request is for.

use crate::admin::AdminQuery;
use crate::meta::MetaRequest;
use braid_types::{InodeId, Slot};

/// Who is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoesTo {
    /// Whoever leads: it alone knows of sessions, data servers and chains, makes snapshots, and tidies up.
    Leader,
    /// Whoever holds the slot: it alone knows who may write the files there, and who has locks.
    Holder(Slot),
    /// Anybody can do it. What may be kept of the answer is granted only by the holder of the inode's slot.
    BestAt(InodeId),
    /// It is said to the one that is asked.
    Here,
}

impl MetaRequest {
    pub fn goes_to(&self) -> GoesTo {
        let about = self.about().inode;
        match self {
            MetaRequest::Listen(_)
            | MetaRequest::Acknowledge(_)
            | MetaRequest::Reassert(_)
            | MetaRequest::YieldFiles(_)
            | MetaRequest::LeaveLock(_)
            | MetaRequest::LeaveSealed(_)
            | MetaRequest::LeaveSlots(_)
            | MetaRequest::GetRoster(_)
            | MetaRequest::RenewTerm(_)
            | MetaRequest::AnnounceAt(_)
            | MetaRequest::ReleaseAt(_)
            | MetaRequest::SettleFileAt(_)
            | MetaRequest::EndsAt(_)
            | MetaRequest::EndSyncAt(_)
            | MetaRequest::StillAt(_)
            | MetaRequest::AdminQuery(AdminQuery::Why | AdminQuery::Member) => GoesTo::Here,
            MetaRequest::TakeSlot(m) => GoesTo::Holder(m.slot),
            MetaRequest::OpenFile(_)
            | MetaRequest::CreateFile(_)
            | MetaRequest::CreateTemporary(_)
            | MetaRequest::OpenAhead(_)
            | MetaRequest::SetLock(_)
            | MetaRequest::TestLock(_)
            | MetaRequest::SealFile(_)
            | MetaRequest::HoldSealed(_)
            | MetaRequest::MoveChunk(_) => GoesTo::Holder(about.slot()),
            MetaRequest::RemoveDir(m) if m.tree => GoesTo::Leader,
            MetaRequest::SetPolicy(_)
            | MetaRequest::TakeRoom(_)
            | MetaRequest::ReturnRoom(_)
            | MetaRequest::FindKept(_)
            | MetaRequest::MoveKept(_) => GoesTo::Leader,
            MetaRequest::Resolve(m) => GoesTo::BestAt(m.from),
            MetaRequest::AtPath(m) => GoesTo::BestAt(m.from),
            MetaRequest::Walk(m) => GoesTo::BestAt(m.from),
            _ if about.0 == 0 => GoesTo::Leader,
            _ => GoesTo::BestAt(about),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{GetAttr, GetServers, LookToOpen, Lookup, OpenAhead, OpenSession, RemoveDir, SetLock, TakeSlot};
    use crate::{LockKind, LockRequest, LockSpace};
    use braid_types::{ByteRange, Name};

    const DIR: InodeId = InodeId(9 << 12 | 5);

    #[test]
    fn only_what_one_server_knows_goes_to_that_one() {
        let name: Name = "n".parse().expect("a name");
        let lock = LockRequest {
            space: LockSpace::Flock,
            owner: 1,
            pid: 1,
            kind: LockKind::Write,
            range: ByteRange::default(),
        };
        let open = OpenSession {
            client: 1,
            former: None,
            since: Default::default(),
            description: String::new(),
            host: String::new(),
            caches: true,
        };
        let removes = |tree| MetaRequest::RemoveDir(RemoveDir { parent: DIR.into(), name: name.clone(), tree });
        let table = [
            (MetaRequest::Lookup(Lookup { parent: DIR, name: name.clone() }), GoesTo::BestAt(DIR)),
            (MetaRequest::GetAttr(GetAttr { inode: DIR.into() }), GoesTo::BestAt(DIR)),
            (MetaRequest::LookToOpen(LookToOpen { parent: DIR, name: name.clone() }), GoesTo::BestAt(DIR)),
            (MetaRequest::OpenAhead(OpenAhead { inodes: vec![DIR, InodeId(9)] }), GoesTo::Holder(DIR.slot())),
            (removes(false), GoesTo::BestAt(DIR)),
            (removes(true), GoesTo::Leader),
            (
                MetaRequest::SetLock(SetLock { op: 1, done: 0, inode: DIR, lock, wait_ms: None }),
                GoesTo::Holder(DIR.slot()),
            ),
            (MetaRequest::TakeSlot(TakeSlot { slot: Slot(7), number: 1 }), GoesTo::Holder(Slot(7))),
            (MetaRequest::OpenSession(open), GoesTo::Leader),
            (MetaRequest::GetServers(GetServers {}), GoesTo::Leader),
            (MetaRequest::AdminQuery(AdminQuery::Status), GoesTo::Leader),
            (MetaRequest::AdminQuery(AdminQuery::Member), GoesTo::Here),
        ];
        for (request, goes) in table {
            assert_eq!(request.goes_to(), goes, "{}", request.name());
        }
    }
}
