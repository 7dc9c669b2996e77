//! Rendezvous hashing: each key ranks all servers; a server that goes moves only its own keys.

use braid_types::ServerId;

/// A mixing of 64 bits in which every input bit reaches every output bit (the finalizer of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How well `server` suits `key`; the highest wins.
pub fn rendezvous_score(key: u64, server: ServerId) -> u64 {
    mix(mix(key) ^ server.0)
}

/// The servers in the order of preference for `key`.
pub fn rendezvous(key: u64, servers: impl IntoIterator<Item = ServerId>) -> Vec<ServerId> {
    let mut ranked: Vec<_> = servers.into_iter().map(|id| (rendezvous_score(key, id), id)).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.into_iter().map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_goes_moves_only_its_own_keys() {
        let all: Vec<_> = (1..=5).map(ServerId).collect();
        let mut load = [0; 6];
        for key in 0..10_000 {
            let before = rendezvous(key, all.clone())[0];
            load[before.0 as usize] += 1;
            let after = rendezvous(key, all.iter().copied().filter(|id| id.0 != 3))[0];
            assert!(before == after || before == ServerId(3), "key {key} moved from {before} to {after}");
        }
        assert!(load[1..].iter().all(|n| (1_800..2_200).contains(n)), "{load:?}");
    }
}
