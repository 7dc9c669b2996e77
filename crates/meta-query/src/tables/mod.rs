//! One file a table, or a few small ones that belong together.

mod chunks;
mod containers;
mod files;
mod inodes;
mod pending;
mod quotas;
mod servers;
mod side;
mod snapshots;
mod walk;

pub use chunks::Chunks;
pub use containers::{Containers, Replicas};
pub use files::Files;
pub use inodes::Inodes;
pub use pending::{Orphans, Reclaim, Spares};
pub use quotas::Quotas;
pub use servers::{Servers, Sessions};
pub use side::{Policies, Xattrs};
pub use snapshots::Snapshots;
