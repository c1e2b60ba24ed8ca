//! The HTTP response reader on any bytes, cut anywhere: it must not panic, must respect its limits, and must read the
//! same response whole and in pieces.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run http_response -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use parse::{ParseLimits, ParseProgress, ResponseExpectation, ResponseParser};

// Includes the parser's source instead of the crate: TLS has C code that takes ten minutes to build with sanitizers.
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../../crates/squall-http/src/parse/mod.rs"]
mod parse;

const LIMITS: ParseLimits = ParseLimits { head: 2048, body: 2048 };

fuzz_target!(|input: &[u8]| {
    let [flags, step, response @ ..] = input else { return };
    let expect = ResponseExpectation { head_only: flags & 1 == 1, keep_body: flags & 2 == 2 };
    // One parser reads all three, as on one connection: an earlier response must not affect a later one.
    let mut reader = ResponseParser::new(LIMITS);
    let whole = read(&mut reader, expect, std::iter::once(response));
    let again = read(&mut reader, expect, std::iter::once(response));
    assert_eq!(whole, again);
    let pieces = read(&mut reader, expect, response.chunks(usize::from(*step).max(1)));
    // The parser may reject pieces at another point or for another reason. Accepted responses must be equal.
    if let (Some(whole), Some(pieces)) = (&whole, &pieces) {
        assert_eq!(whole, pieces);
    }
    assert_eq!(whole.is_some(), pieces.is_some());
});

/// Status, head, body and length of a complete response.
type Outcome = (u16, Vec<u8>, Vec<u8>, u64);

fn read<'i>(
    reader: &mut ResponseParser,
    expect: ResponseExpectation,
    pieces: impl Iterator<Item = &'i [u8]>,
) -> Option<Outcome> {
    reader.begin(expect);
    let mut done = false;
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        if let ParseProgress::Complete(used) = reader.feed(piece).ok()? {
            assert!(used <= piece.len());
            done = true;
            break;
        }
    }
    if !done {
        reader.finish().ok()?;
    }
    assert!(reader.body().len() <= LIMITS.body && reader.raw_head().len() <= LIMITS.head);
    assert!(expect.keep_body || reader.body().is_empty());
    Some((reader.parsed_head().status, reader.raw_head().to_vec(), reader.body().to_vec(), reader.received()))
}
