use crate::OpError;
use braid_api::{Code, Error};
use braid_types::{InodeId, Policy, RequestId, SessionEpoch, SessionId, Timestamp};

/// What an operation may not make itself: who asks, the time, a fresh id.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpContext {
    pub session: SessionId,
    pub session_epoch: SessionEpoch,
    pub request: RequestId,
    /// The server's wall clock when the request came; times in a row never go back behind it.
    pub now: Timestamp,
    /// Not used before; lost if the operation makes nothing. Its slot is random: what is no directory takes
    /// its parent's slot instead.
    pub fresh: InodeId,
    /// Other sessions live: they may have open what this one does not.
    pub others: bool,
    /// The session keeps the request until it is durable and is to be answered before.
    pub early: bool,
    /// Others cache what the change makes old, and were made to drop the attributes of these: what the names of the request
    /// stood for when they were asked, 0 for nothing. `None`: nobody else caches anything.
    pub announced: Option<[InodeId; 2]>,
    /// On how many disks rows are now, this server's among them; `None`: do not ask, the bytes were taken before.
    pub row_copies: Option<usize>,
    /// Somebody has a quota, and what goes beyond one is refused. Not of what was answered before.
    pub limits: bool,
    /// Whose policy held in the request's directory when something was last made there, if that is known: its row is read with the first
    /// ones, and is of no use if another's holds by now.
    pub policy_root: Option<InodeId>,
}

impl OpContext {
    /// What the request's name number `index` (0, or 1 of a rename) stands for must be what was announced, else the change is
    /// announced again.
    pub fn expect(&self, index: usize, found: InodeId) -> Result<(), OpError> {
        match self.announced {
            Some(announced) if announced[index & 1] != found => {
                let cause = format_args!("it was announced as inode {}", announced[index & 1]);
                Err(Error::new(Code::StaleLease, format_args!("inode {found}"), cause).into())
            }
            _ => Ok(()),
        }
    }

    /// The request's first name must stand for this one, whoever caches.
    pub fn expecting(self, inode: InodeId) -> Result<OpContext, OpError> {
        match self.announced {
            Some([announced, _]) if announced != inode => {
                Err(Error::new(Code::Busy, format_args!("inode {inode}"), "another has its name by now").into())
            }
            _ => Ok(OpContext { announced: Some([inode, InodeId(0)]), ..self }),
        }
    }

    /// Bytes are kept beside a row only while it is on as many disks as the file's policy promises (design.md §4, *Embedded
    /// engine*).
    pub fn expect_copies(&self, inode: InodeId, policy: &Policy) -> Result<(), OpError> {
        match self.row_copies {
            Some(have) if have < policy.min_copies() => {
                let cause = format_args!("rows are on {have} disks, its policy asks for {}", policy.min_copies());
                Err(Error::new(Code::FewRowCopies, format_args!("inode {inode}"), cause).into())
            }
            _ => Ok(()),
        }
    }

    /// The id for a new inode below `parent`: a directory draws its slot, all else shares its parent's, so that
    /// one slot holder serves a directory and its files.
    pub fn new_id(&self, parent: InodeId, is_dir: bool) -> InodeId {
        let counter = self.fresh.0 >> braid_types::SLOT_BITS;
        InodeId::new(counter, if is_dir { self.fresh.slot() } else { parent.slot() })
    }
}
