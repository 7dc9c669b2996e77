//! The next version of a chunk. Pure.

use braid_types::{Token, Version};

/// What a write under `token` makes of a chunk at `last`: always higher, never under an older epoch or term than the
/// chunk has, whatever the token leaves out.
pub(crate) fn next(last: Version, token: &Token) -> Version {
    let (chain_epoch, owner_term) = (last.chain_epoch, last.owner_term).max((token.chain_epoch, token.owner_term));
    Version { chain_epoch, owner_term, counter: last.counter.saturating_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{ChainEpoch, OwnerTerm};

    #[test]
    fn versions_rise_also_for_tokens_without_epochs() {
        let token = Token { chain_epoch: ChainEpoch(3), owner_term: OwnerTerm(1), ..Token::default() };
        let first = next(Version::default(), &token);
        let second = next(first, &Token::default());
        let newer = Token { chain_epoch: ChainEpoch(4), ..Token::default() };
        let third = next(second, &newer);
        assert!(Version::default() < first && first < second && second < third);
        assert_eq!((third.chain_epoch, third.owner_term, third.counter), (ChainEpoch(4), OwnerTerm(0), 3));
    }
}
