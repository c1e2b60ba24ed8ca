//! Folds generated key values into the seed of what depends on them: cells on the key, rows on the
//! clustering values. It knows no types; `profile` chooses the function for each.

/// Folds the signed bytes of a blob, or of any type without a rule of its own.
pub(crate) fn fold_bytes(seed: i64, bytes: &[u8]) -> i64 {
    bytes.iter().fold(seed, |seed, byte| fold_number(seed, i64::from(*byte as i8)))
}

/// Folds the UTF-16 units of a text.
pub(crate) fn fold_text(seed: i64, text: &str) -> i64 {
    text.encode_utf16().fold(seed, |seed, unit| fold_number(seed, i64::from(unit)))
}

/// Folds a number, or a part of a value that is already a number.
pub(crate) fn fold_number(seed: i64, number: i64) -> i64 {
    seed.wrapping_mul(31).wrapping_add(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_signed_and_texts_are_utf16() {
        assert_eq!(fold_bytes(1, &[0xff, 2]), 31 * 30 + 2);
        assert_eq!(fold_text(0, "a€"), 31 * 97 + 0x20ac);
        assert_eq!(fold_text(0, "😀"), 31 * 0xd83d + 0xde00);
        assert_eq!(fold_number(i64::MAX, 1), i64::MAX.wrapping_mul(31).wrapping_add(1));
    }
}
