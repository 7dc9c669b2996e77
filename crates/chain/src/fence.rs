//! Fencing: which tokens are too old, and which speak of what this server has not heard yet.

use braid_types::{ChainEpoch, OwnerTerm, SessionEpoch, Token};
use std::fmt;

/// The newest this server has seen for a request's session, file and container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    pub token: Token,
    /// The session has ended at `token.session_epoch`.
    pub fenced: bool,
}

/// Why a token does not pass. A reason to ask the leader or the metadata server for what is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fenced {
    /// The session has ended, or registered anew.
    Session { seen: SessionEpoch, got: SessionEpoch },
    /// The field is older than what this server has seen.
    Old { what: &'static str, seen: u64, got: u64 },
    /// The request's sender has heard of a chain epoch or owner term that this server has not: to be repeated.
    Ahead { seen: (ChainEpoch, OwnerTerm), got: (ChainEpoch, OwnerTerm) },
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fenced::Session { seen, got } => write!(f, "the session is at epoch {seen}, the request carries {got}"),
            Fenced::Old { what, seen, got } => write!(f, "{what} is {seen}, the request carries {got}"),
            Fenced::Ahead { seen, got } => {
                write!(f, "chain epoch {}, owner term {} are not known here yet: {} {}", got.0, got.1, seen.0, seen.1)
            }
        }
    }
}

/// Does the token pass? Zero is "not used" and passes, except the truncate generation, where 0 is that of a file
/// never cut. A newer session, lease, layout, truncation or snapshot passes and is to be remembered with [`learn`]; a
/// newer chain epoch or owner term does not, for this server must first be told what it is in it.
pub fn check(seen: &Seen, token: &Token) -> Result<(), Fenced> {
    let known = &seen.token;
    if token.session.0 != 0 && (seen.fenced || token.session_epoch.0 != 0) {
        let is_old = token.session_epoch < known.session_epoch;
        if is_old || (seen.fenced && token.session_epoch <= known.session_epoch) {
            return Err(Fenced::Session { seen: known.session_epoch, got: token.session_epoch });
        }
    }
    let owner = (known.chain_epoch, known.owner_term);
    let got = (token.chain_epoch, token.owner_term);
    if got.0.0 != 0 {
        let is_old_term = got.0 == owner.0 && got.1.0 != 0 && got.1 < owner.1;
        if got.0 < owner.0 {
            return Err(old("the chain epoch", owner.0.0.into(), got.0.0.into()));
        } else if is_old_term {
            return Err(old("the owner term", owner.1.0.into(), got.1.0.into()));
        } else if got > owner && got.1.0 != 0 || got.0 > owner.0 {
            return Err(Fenced::Ahead { seen: owner, got });
        }
    }
    let fields = [
        ("the file lease's generation", known.lease_gen.0, token.lease_gen.0, true),
        ("the layout's generation", known.layout_gen.0.into(), token.layout_gen.0.into(), true),
        ("the truncate generation", known.trunc_gen.0.into(), token.trunc_gen.0.into(), false),
        ("the snapshot number", known.snapshot, token.snapshot, true),
    ];
    match fields.into_iter().find(|(_, seen, got, zero_passes)| got < seen && !(*zero_passes && *got == 0)) {
        Some((what, seen, got, _)) => Err(old(what, seen, got)),
        None => Ok(()),
    }
}

fn old(what: &'static str, seen: u64, got: u64) -> Fenced {
    Fenced::Old { what, seen, got }
}

/// Remembers what a token that passed brings.
pub fn learn(seen: &mut Seen, token: &Token) {
    let known = &mut seen.token;
    if token.session_epoch > known.session_epoch {
        (known.session, known.session_epoch, seen.fenced) = (token.session, token.session_epoch, false);
    }
    known.lease_gen = known.lease_gen.max(token.lease_gen);
    known.layout_gen = known.layout_gen.max(token.layout_gen);
    known.trunc_gen = known.trunc_gen.max(token.trunc_gen);
    known.snapshot = known.snapshot.max(token.snapshot);
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{LayoutGen, LeaseGen, SessionId, TruncGen};

    fn token() -> Token {
        Token {
            session: SessionId(5),
            session_epoch: SessionEpoch(2),
            lease_gen: LeaseGen(3),
            layout_gen: LayoutGen(4),
            trunc_gen: TruncGen(5),
            chain_epoch: ChainEpoch(6),
            owner_term: OwnerTerm(7),
            snapshot: 8,
        }
    }

    #[test]
    fn each_field_fences_by_itself() {
        let seen = Seen { token: token(), fenced: false };
        assert_eq!(check(&seen, &token()), Ok(()));
        for (older, what) in [
            (Token { session_epoch: SessionEpoch(1), ..token() }, "session"),
            (Token { lease_gen: LeaseGen(2), ..token() }, "file lease"),
            (Token { layout_gen: LayoutGen(3), ..token() }, "layout"),
            (Token { trunc_gen: TruncGen(4), ..token() }, "truncate"),
            (Token { trunc_gen: TruncGen(0), ..token() }, "truncate"),
            (Token { chain_epoch: ChainEpoch(5), owner_term: OwnerTerm(9), ..token() }, "chain epoch"),
            (Token { owner_term: OwnerTerm(6), ..token() }, "owner term"),
            (Token { snapshot: 7, ..token() }, "snapshot"),
        ] {
            let refused = check(&seen, &older).unwrap_err();
            assert!(refused.to_string().contains(what) && !matches!(refused, Fenced::Ahead { .. }), "{refused}");
        }
        for newer in [Token { chain_epoch: ChainEpoch(7), ..token() }, Token { owner_term: OwnerTerm(8), ..token() }] {
            assert!(matches!(check(&seen, &newer), Err(Fenced::Ahead { .. })));
        }
        let unused = Token { trunc_gen: TruncGen(5), ..Token::default() };
        assert_eq!(check(&seen, &unused), Ok(()));
    }

    #[test]
    fn what_passes_is_remembered_and_a_fence_ends_with_a_new_epoch() {
        let mut seen = Seen { token: token(), fenced: true };
        assert!(check(&seen, &token()).is_err());
        assert!(check(&seen, &Token { session_epoch: SessionEpoch(0), ..token() }).is_err());
        let anew = Token { session_epoch: SessionEpoch(3), trunc_gen: TruncGen(9), ..token() };
        assert_eq!(check(&seen, &anew), Ok(()));
        learn(&mut seen, &anew);
        assert!(check(&seen, &token()).is_err() && check(&seen, &anew).is_ok() && !seen.fenced);
    }
}
