use std::fmt;

/// The tables of design.md §4. The numbers are on disk: never reuse one. Rows are locked in the order
/// (table, partition, key bytes), so the order of the variants *is* the lock order: `Inodes` before `InodeIds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Single rows that order things cluster-wide: format, counters of id blocks, `rename_lock`, membership.
    Globals = 1,
    Inodes = 2,
    InodeIds = 3,
    Chunks = 4,
    InlineSmall = 5,
    InlineLarge = 6,
    Xattrs = 7,
    Quotas = 8,
    Policies = 9,
    Snapshots = 10,
    OldRows = 11,
    Sessions = 12,
    Requests = 13,
    Spares = 14,
    Containers = 15,
    Servers = 16,
    Elections = 17,
    SubtreeOps = 18,
    Orphans = 19,
    Reclaim = 20,
}

impl Table {
    pub const ALL: [Table; 20] = [
        Table::Globals,
        Table::Inodes,
        Table::InodeIds,
        Table::Chunks,
        Table::InlineSmall,
        Table::InlineLarge,
        Table::Xattrs,
        Table::Quotas,
        Table::Policies,
        Table::Snapshots,
        Table::OldRows,
        Table::Sessions,
        Table::Requests,
        Table::Spares,
        Table::Containers,
        Table::Servers,
        Table::Elections,
        Table::SubtreeOps,
        Table::Orphans,
        Table::Reclaim,
    ];

    /// The table with this number on disk and on the wire.
    pub fn from_number(number: u8) -> Option<Table> {
        Table::ALL.into_iter().find(|table| *table as u8 == number)
    }
}

/// Where a row is: a table, the 8-byte partition (big-endian, so that bytes sort as numbers) and the rest of
/// the primary key. Sorts in the one lock order of the system.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    table: Table,
    bytes: Vec<u8>,
}

impl Key {
    pub fn new(table: Table, partition: u64, rest: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(8 + rest.len());
        bytes.extend_from_slice(&partition.to_be_bytes());
        bytes.extend_from_slice(rest);
        Key { table, bytes }
    }

    pub fn table(&self) -> Table {
        self.table
    }

    pub fn partition(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.bytes[..8]);
        u64::from_be_bytes(first)
    }

    /// The primary key after the partition.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[8..]
    }

    /// Partition and rest as they are stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A key from stored bytes; `None` if they are too short to hold a partition.
    pub fn from_bytes(table: Table, bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= 8).then(|| Key { table, bytes: bytes.to_vec() })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({}, \"{}\")", self.table, self.partition(), self.rest().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_table_then_partition_then_rest() {
        let mut keys = [
            Key::new(Table::InodeIds, 1, b""),
            Key::new(Table::Inodes, 256, b"a"),
            Key::new(Table::Inodes, 2, b"b"),
            Key::new(Table::Inodes, 2, b"a"),
        ];
        keys.sort();
        let order: Vec<_> = keys.iter().map(|k| (k.table(), k.partition())).collect();
        assert_eq!(order, [(Table::Inodes, 2), (Table::Inodes, 2), (Table::Inodes, 256), (Table::InodeIds, 1)]);
        assert_eq!(keys[0].rest(), b"a");
    }
}
