/// How many of `voters` data servers must agree. A majority; but with an even number of them, a metadata server that has the
/// rows on its own disk needs one less.
///
/// Any two groups that decide meet: two majorities do; half and a majority do; and two halves are both of one disk, which one
/// process at a time has open. A disk that a recovery has left behind finds a newer term at one of any half, because the
/// recovery needed a majority. (So a disk must not be cloned and both clones be used.)
pub fn quorum(voters: usize, own_disk: bool) -> usize {
    voters / 2 + usize::from(!(own_disk && voters.is_multiple_of(2)))
}

#[cfg(test)]
mod tests {
    use super::quorum;

    #[test]
    fn any_two_that_decide_meet() {
        for voters in 0..9 {
            let (own, other) = (quorum(voters, true), quorum(voters, false));
            assert!(own + other > voters && 2 * other > voters, "{voters}");
            if voters % 2 == 1 {
                assert!(2 * own > voters);
                // One more server at a time: quorums before and after meet.
                assert!(own + quorum(voters + 1, false) > voters + 1);
            }
        }
        assert_eq!([0, 1, 2, 3, 4].map(|voters| quorum(voters, true)), [0, 1, 1, 2, 2]);
        assert_eq!([1, 2, 3, 4].map(|voters| quorum(voters, false)), [1, 2, 2, 3]);
    }
}
