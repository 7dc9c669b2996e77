//! The rules of docs/design/0014-migration.md, each of which can be left out, and how much may happen in a model.

/// What keeps a move of ownership right. Left out, it is a planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Invariant 1: the owner owns no more when it has said `Hand`, whatever becomes of the message.
    StopsAtHand,
    /// Invariant 1: `Hand` is heard only in the term in which it was said.
    HandInItsTerm,
    /// Invariant 2: when `Hand` is said, the taker has everything; and it looks whether that is so.
    TakerHasAll,
    /// Invariant 2: nothing is being applied when `Hand` is said.
    NothingApplied,
    /// Invariant 2: no call waits when `Hand` is said. Left out, the past owner answers who waits.
    NobodyWaits,
    /// A member's `Hello` says what it serves nothing older than, not what it was told.
    HelloSaysServed,
    /// All members, not the taker alone, have acknowledged what changed when `Hand` is said.
    AllAcknowledged,
    /// Nothing is begun while ownership moves.
    NothingBegun,
    /// A move is refused while the epoch is not open.
    OpenEpoch,
    /// A move is refused, and given up, without a lease.
    OwnerHasLease,
    /// The word of a writer raises the file lease under which the taker takes changes.
    WordSaysLease,
    /// The word of a writer says which of its changes it has given up.
    WordSaysPlace,
    /// `Hand` says which changes the past owner refused as late.
    HandSaysLate,
    /// A chunk that mounts write at the same time stays.
    BesideStays,
    /// A `Fetch` is answered in the term of whoever asks.
    FetchInAskersTerm,
    /// A `Hand` that was lost is said again.
    HandAgain,
    /// 0006: a new epoch begins when whoever may act in an older one has stopped, or its lease is over.
    LeaseWaitedOut,
    /// 0006: n - min_copies + 1 members of the chain that was open last have reported.
    Quorum,
    /// 0006: the row says that an epoch is open before its owner answers.
    OpenInRow,
    /// 0005: a fence is acknowledged when every member knows what the session wrote.
    FenceFlushes,
    /// 0005: nothing of a fenced session is taken.
    FenceRefuses,
}

/// Those that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Without(u32);

impl Without {
    pub fn rules(rules: &[Rule]) -> Without {
        Without(rules.iter().fold(0, |all, rule| all | 1 << *rule as u32))
    }

    pub fn has(self, rule: Rule) -> bool {
        self.0 & 1 << rule as u32 != 0
    }
}

/// How the file lease passes from the first client to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passing {
    Never,
    /// It gives it up, after a flush.
    Yields,
    /// Its session is fenced at every server.
    Fenced,
}

/// A configuration: all that may happen is within these bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    pub servers: u8,
    /// Members a chain has at most; it begins with the first so many servers.
    pub copies: u8,
    pub min_copies: u8,
    /// Of each client, one after the other.
    pub writes: [u8; 2],
    /// Attempts that are repeated, of both clients together.
    pub repeats: u8,
    pub fsyncs: u8,
    /// Words of a writer to the server beside it.
    pub words: u8,
    /// New epochs.
    pub epochs: u8,
    /// Their members; 0 is any chain that is long enough.
    pub chains: [u8; 2],
    pub crashes: u8,
    pub lost_hands: u8,
    pub passing: Passing,
    /// Both clients write at the same time, under leases `sync`, and each write is to happen once.
    pub beside: bool,
    /// A write is answered when it is shared (lease `sync`), not when the owner has it (`exclusive`).
    pub shared: bool,
    /// Time passes between the ordering of a write and its being applied.
    pub slow_store: bool,
    /// Time passes between a member's being told and its readers' letting go.
    pub slow_readers: bool,
    /// What happened on the way is remembered where only `SOMETIMES` looks at it: more states.
    pub stories: bool,
    pub without: Without,
}

impl Setup {
    /// Two servers, and nothing happens.
    pub const fn new(servers: u8) -> Setup {
        Setup {
            servers,
            copies: servers,
            min_copies: 2,
            writes: [0, 0],
            repeats: 0,
            fsyncs: 0,
            words: 0,
            epochs: 0,
            chains: [0, 0],
            crashes: 0,
            lost_hands: 0,
            passing: Passing::Never,
            beside: false,
            shared: false,
            slow_store: false,
            slow_readers: false,
            stories: false,
            without: Without(0),
        }
    }

    pub fn without(self, rules: &[Rule]) -> Setup {
        Setup { without: Without::rules(rules), ..self }
    }

    pub fn keeps(&self, rule: Rule) -> bool {
        !self.without.has(rule)
    }
}
