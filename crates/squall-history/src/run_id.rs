//! The id of a run in a folder: the name of its result file without `.json`. It is a single part of a
//! path, so that an id from a request cannot leave the folder.

use serde::Serialize;
use squall_report::ResultFile;
use std::{fmt, hash::Hasher};

const MAX_LENGTH: usize = 200;
/// Longer names of runs are cut in ids.
const MAX_NAME_LENGTH: usize = 40;
const HASH_DIGITS: usize = 6;

/// The id of a run: `20261117-203550-shop-3f2a91` if this crate has saved it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunId(String);

impl RunId {
    /// `None` if `text` cannot be the name of a result file.
    pub fn new(text: &str) -> Option<RunId> {
        let fits = !text.is_empty() && text.len() <= MAX_LENGTH && !text.starts_with('.');
        let is_one_part = !text.contains(['/', '\\']) && !text.chars().any(char::is_control);
        (fits && is_one_part).then(|| RunId(text.to_owned()))
    }

    /// Start, name and a hash of what tells two runs apart that started in the same second. Every
    /// orchestrator of a fleet gets the same id for a run.
    pub(crate) fn of(result: &ResultFile) -> RunId {
        let run = &result.run;
        let digits: String = run.started.chars().filter(char::is_ascii_digit).take(14).collect();
        let (day, time) = digits.split_at_checked(8).unwrap_or((&digits, ""));
        let mut hasher = Fnv::default();
        for part in [run.name.as_bytes(), run.target.as_bytes(), &run.started_unix_ms.to_le_bytes()] {
            hasher.write(part);
        }
        hasher.write_u64(run.seed);
        let hash = hasher.finish() & ((1 << (4 * HASH_DIGITS)) - 1);
        RunId(format!("{day}-{time}-{}-{hash:0HASH_DIGITS$x}", name_in_id(&run.name)))
    }

    /// The id of another run whose id would be the same.
    pub(crate) fn numbered(&self, number: u32) -> RunId {
        RunId(format!("{}-{number}", self.0))
    }

    /// Whether this crate has made the id. Only such runs are removed when the folder is full, because
    /// a person has put the other files there.
    pub(crate) fn is_made_here(&self) -> bool {
        let mut parts: Vec<&str> = self.0.split('-').collect();
        let all = |text: &str, fits: fn(&u8) -> bool| text.bytes().all(|byte| fits(&byte));
        if parts.last().is_some_and(|last| last.len() < HASH_DIGITS && all(last, u8::is_ascii_digit)) {
            parts.pop();
        }
        let [day, time, .., hash] = parts.as_slice() else { return false };
        let is_number = |text: &str, length: usize| text.len() == length && all(text, u8::is_ascii_digit);
        let is_hash = hash.len() == HASH_DIGITS && all(hash, u8::is_ascii_hexdigit);
        parts.len() >= 4 && is_number(day, 8) && is_number(time, 6) && is_hash
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Small letters and digits of the name, with `-` for everything between them.
fn name_in_id(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let cut = joined[..joined.len().min(MAX_NAME_LENGTH)].trim_end_matches('-');
    if cut.is_empty() { "run".to_owned() } else { cut.to_owned() }
}

/// FNV-1a, because the id must be the same in every version of Squall.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_one_part_of_a_path() {
        for text in ["20261117-203550-shop-3f2a91", "before", "my run 2", "größer", "a..b"] {
            assert!(RunId::new(text).is_some(), "{text}");
        }
        for text in ["", ".", "..", ".hidden", "a/b", "../x", "a\\b", "a\0b", "a\nb", &"x".repeat(201)] {
            assert!(RunId::new(text).is_none(), "{text}");
        }
    }

    #[test]
    fn only_ids_with_a_start_and_a_hash_are_made_here() {
        for text in ["20261117-203550-shop-3f2a91", "20261117-203550-a-b-c-000000", "20261117-203550-shop-3f2a91-2"] {
            assert!(RunId::new(text).unwrap().is_made_here(), "{text}");
        }
        for text in ["before", "20261117-shop-3f2a91", "20261117-203550-3f2a91", "20261117-203550-shop", "2026-1-2-3"] {
            assert!(!RunId::new(text).unwrap().is_made_here(), "{text}");
        }
    }

    #[test]
    fn name_in_an_id_has_letters_digits_and_single_dashes() {
        for (name, shown) in [
            ("Checkout, peak!", "checkout-peak"),
            ("http://127.0.0.1:8089/api", "http-127-0-0-1-8089-api"),
            ("日本", "run"),
            ("", "run"),
            ("a-name-that-is-longer-than-forty-letters-is-cut", "a-name-that-is-longer-than-forty-letters"),
        ] {
            assert_eq!(name_in_id(name), shown);
        }
    }
}
