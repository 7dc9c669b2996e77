//! What the database can do, as found by asking it (`probe.rs`), not by its name, where that is possible.

use std::fmt;

/// The products, which differ in the tail of a CREATE TABLE and in a setting or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    MariaDb,
    MySql,
    Ndb,
    TiDb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub kind: Kind,
    pub version: String,
    /// Two transactions can hold a shared lock on one row. If not, shared locks are exclusive: slower, and as right.
    pub shared_locks: bool,
    /// A row that is locked on one server is locked on all. If not, fence rows are written.
    pub cluster_wide_locks: bool,
    /// One of several servers that replicate to each other (Galera).
    pub galera: bool,
    /// Of the tables; 0: they have none, where the database knows none. Then rows of one directory are not kept together by it, nor those of
    /// several apart, and all else is the same.
    pub partitions: u64,
    /// Several statements can read one moment. If not, reads of several calls lock what they read.
    pub snapshots: bool,
    /// A commit is seen by others only when a crash cannot take it back (`docs/design/0019-sql-engine.md`).
    pub shows_only_durable: bool,
    /// Largest message the server takes.
    pub message_bytes_max: usize,
    /// Settings that work and cost something that its operator should know.
    pub warnings: Vec<String>,
}

impl Capabilities {
    /// What stands before the SELECT that looks whether a transaction is really committed, where that is needed.
    ///
    /// MariaDB 10.11 with Galera was seen to answer a COMMIT of a transaction that it had rolled back for one of another
    /// server, about once in a thousand of such conflicts. It is asked of its own state: there is nothing to wait for.
    pub(crate) fn check(&self) -> Option<&'static str> {
        match self.kind {
            Kind::MariaDb if self.galera => Some("SET STATEMENT wsrep_sync_wait=0 FOR "),
            _ if self.galera => Some(""),
            _ => None,
        }
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::MariaDb if self.galera => "MariaDB with Galera",
            Kind::MariaDb => "MariaDB",
            Kind::MySql if self.galera => "MySQL with Galera",
            Kind::MySql => "MySQL",
            Kind::Ndb => "MySQL NDB Cluster",
            Kind::TiDb => "TiDB",
        };
        write!(
            f,
            "{kind} {}: shared locks {}",
            self.version,
            if self.shared_locks { "yes" } else { "no (exclusive)" }
        )?;
        let wide = if self.cluster_wide_locks { "yes" } else { "no (fence rows are written)" };
        write!(f, ", cluster-wide locks {wide}")?;
        match self.partitions {
            0 => write!(f, ", partitions no (a table is in one piece)")?,
            partitions => write!(f, ", partitions {partitions}")?,
        }
        write!(f, ", snapshots {}", if self.snapshots { "yes" } else { "no (reads lock)" })?;
        let durable = if self.shows_only_durable { "yes" } else { "no" };
        write!(f, ", shows only what is durable {durable}, messages up to {} bytes", self.message_bytes_max)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "; WARNING: {warning}"))
    }
}
