//! Bytes of a write: made from its seed, so that a record holds a number instead of megabytes.

/// SplitMix64, one word of eight bytes a step. No two writes of a load have one seed, so no two share bytes by design.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    let mut word = seed;
    while out.len() < len {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = word;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.extend_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    out.truncate(len);
    out
}
