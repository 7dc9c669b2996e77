/// Deliberate mistakes, so that the checkers of durability can be seen to find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Answers before durable: a crash loses acknowledged transactions.
    SkippedSync,
    /// Of the last transaction a crash keeps, only every other row is written.
    TornCommit,
    /// Reads see what is ordered and not yet durable.
    DirtyRead,
}

/// How a commit that carries writes is made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    Storage,
    Full,
    /// The answer is lost, the transaction is or is not.
    MaybeCommitted {
        applied: bool,
    },
}
