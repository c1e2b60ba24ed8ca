//! The salt of a column: the first half of MurmurHash3 x64_128 over a text. It hashes whole texts
//! once per column and run; nothing in the load path calls it.

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The first 64 bits of MurmurHash3 x64_128 with seed 0.
pub(crate) fn salt(text: &str) -> i64 {
    let bytes = text.as_bytes();
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        h1 = (h1 ^ mix_low(word(&block[..8]))).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix_high(word(&block[8..]))).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let tail = blocks.remainder();
    h2 ^= mix_high(word(tail.get(8..).unwrap_or_default()));
    h1 ^= mix_low(word(&tail[..tail.len().min(8)]));
    let length = bytes.len() as u64;
    (h1, h2) = (h1 ^ length, h2 ^ length);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2)) as i64
}

/// Up to eight bytes as a number, the lowest byte first.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn mix_low(word: u64) -> u64 {
    word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_high(word: u64) -> u64 {
    word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut word: u64) -> u64 {
    word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_equal_those_of_cassandra_stress() {
        let cases = [
            ("randomstrkey", 0xa8a4_28ba_262b_a82e_u64),
            ("randomstrC0", 0x5225_6dd1_006d_8ea3),
            ("randomstrC1", 0x2730_3b73_5dc1_0166),
            ("randomstrC2", 0xc2ef_824f_403e_9cf1),
            ("randomstrC3", 0xf783_d0a7_2657_2ea8),
            ("randomstrC4", 0xfb6e_81dd_dff8_0411),
        ];
        for (text, expected) in cases {
            assert_eq!(salt(text) as u64, expected, "{text}");
        }
    }

    /// The published value of the hash for a text of more than two blocks.
    #[test]
    fn texts_of_several_blocks_are_hashed() {
        let text = "The quick brown fox jumps over the lazy dog";
        assert_eq!(salt(text) as u64, 0xe34b_bc7b_bc07_1b6c);
        assert_eq!(salt(""), 0);
    }
}
