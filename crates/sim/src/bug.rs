//! Bugs that are planted at the servers' doors or on their disks, to see that the checkers find them.
//!
//! To add a bug: a line here, what it does in `host/{meta,data}_door.rs`, `host/words.rs` or `cluster.rs`, and a hunt in the tests.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A deliberate mistake, which the checkers must find.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[$doc])* $name,)* }

        impl Bug {
            pub const ALL: &[Bug] = &[$(Bug::$name),*];

            /// For the command that runs a seed with it.
            pub fn text(self) -> &'static str {
                match self { $(Bug::$name => $text,)* }
            }
        }
    };
}

bugs! {
    /// Words of data servers' boards stay as they were first written: what was handed out never ends.
    WordsKept = "words-kept";
    /// A data server's board that was to be believed once is for ever.
    TimesKept = "times-kept";
    /// Data servers' disks sync nothing and say they did.
    SkippedDataSync = "skipped-data-sync";
    /// The metadata store answers before it is durable.
    SkippedMetaSync = "skipped-meta-sync";
    /// Data servers report every write as stable, so that clients forget what they would have to repeat.
    LostReplay = "lost-replay";
    /// Data servers see neither cuts nor truncate generations.
    TruncateIgnored = "truncate-ignored";
    /// A repeated request comes under a new request id.
    RequestAppliedTwice = "request-applied-twice";
    /// Clients forget what the metadata server answered before it was durable, and send nothing after its crash.
    LostReplayOfMetadata = "lost-replay-of-metadata";
    /// Clients send nothing after its crash of what their programs were told and it had not answered.
    LostReplayOfUnanswered = "lost-replay-of-unanswered";
    /// What is revoked is acknowledged, and no mount hears of it.
    AcknowledgedBeforeDropped = "acknowledged-before-dropped";
    /// A file is given up to another mount before its holder hears of the recall.
    GivenUpUnflushed = "given-up-unflushed";
    /// Data servers see neither the lease that a change is made under nor which changes their sender has given up.
    StaleTokenAccepted = "stale-token-accepted";
    /// Data servers carry a write beside others out as often as it comes, over whatever, and under any lease.
    OnceIgnored = "once-ignored";
    /// A region is unlocked as soon as one request of its operation is answered, and the owner says that it is locked.
    LockFreedTooEarly = "lock-freed-too-early";
    /// Commits say of every chunk that it is on stable storage.
    MarkedTooEarly = "marked-too-early";
    /// Owners hear from members that they have everything on stable storage as soon as they were told of it.
    CopyAcknowledgedTooEarly = "copy-acknowledged-too-early";
    /// Members of a chain take what was said in an older epoch for a word of the present.
    StaleEpochAccepted = "stale-epoch-accepted";
    /// A mount is granted what it asks for while a change is being committed, and the metadata server knows nothing of it.
    GrantedDuringACommit = "granted-during-a-commit";
    /// The metadata server does not hear which locks a mount has that gives a file up.
    LocksNotSaid = "locks-not-said";
    /// A mount's kernel forgets no page that it is told to forget.
    PagesKept = "pages-kept";
    /// Who has come to own a chunk by a move takes it that the others know what it knows.
    NextOwnerTellsNothing = "next-owner-tells-nothing";
    /// Members say that they have everything of their chain's newest epoch as soon as they act in it.
    WholeTooEarly = "whole-too-early";
    /// Data servers that are to read a copy back say that it is good, and do not look.
    NotReadBack = "not-read-back";
    /// Data servers take no notice of a fence and say that nothing of the session is applied any more.
    SkippedFence = "skipped-fence";
    /// A member that does not own a chunk answers an fsync of it: what is on its own disk is all that it knows of.
    PastOwnerAnswers = "past-owner-answers";
    /// Who has owned a chunk answers writes as it did then.
    PastOwnerWrites = "past-owner-writes";
    /// Data servers take the leader's leases for a minute longer than they are.
    LeaseTooLong = "lease-too-long";
    /// Data servers say of every chunk with one copy that nothing was written to it.
    VersionHidden = "version-hidden";
    /// Members believe that nothing is between what they were told and what they are told now.
    PrefixOverGap = "prefix-over-gap";
    /// Clients do not hear which chunks a snapshot has, and write them.
    WritesFrozen = "writes-frozen";
    /// A snapshot is made without waiting for who writes.
    NotStill = "not-still";
    /// What changes is not kept for snapshots.
    NotKept = "not-kept";
    /// Nobody waits for who works alone in a slot.
    AloneNotWaitedFor = "alone-not-waited-for";
    /// Who is to work alone in a slot is told so while others still show what is in it.
    AloneTooEarly = "alone-too-early";
    /// A change of slots of several holders is made without asking the others.
    OthersNotAsked = "others-not-asked";
    /// Who comes to hold a slot takes it that nobody holds anything there.
    GainedAtOnce = "gained-at-once";
    /// Who unseals a file waits for nobody who reads it without asking.
    UnsealedUnderReaders = "unsealed-under-readers";
    /// A metadata server that starts does not hear which sealed files are read without asking.
    HoldsForgotten = "holds-forgotten";
    /// With each block report a chunk is removed that rows may not know yet: the one that was written last.
    RemovesWhatIsNotKnownYet = "removes-what-is-not-known-yet";
}

impl Bug {
    pub fn named(text: &str) -> Option<Bug> {
        Self::ALL.iter().copied().find(|bug| bug.text() == text)
    }
}
