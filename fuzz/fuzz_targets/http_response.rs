//! The HTTP response reader on any bytes, cut anywhere: it must not panic, must respect its limits, and must read the
//! same response whole and in pieces.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run http_response -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use parse::{Expect, Fed, Limits, Reader};

// The reader's own source rather than its crate: it needs nothing of TLS, whose C code takes ten minutes to build with
// sanitizers.
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../../crates/squall-http/src/parse/mod.rs"]
mod parse;

const LIMITS: Limits = Limits { head: 2048, body: 2048 };

fuzz_target!(|input: &[u8]| {
    let [flags, step, response @ ..] = input else { return };
    let expect = Expect { head_only: flags & 1 == 1, keep: flags & 2 == 2 };
    // One reader for all three, as on one connection: what came before must not matter.
    let mut reader = Reader::new(LIMITS);
    let whole = read(&mut reader, expect, std::iter::once(response));
    let again = read(&mut reader, expect, std::iter::once(response));
    assert_eq!(whole, again);
    let pieces = read(&mut reader, expect, response.chunks(usize::from(*step).max(1)));
    // Pieces may be refused earlier or later, for another reason; what is accepted must be equal.
    if let (Some(whole), Some(pieces)) = (&whole, &pieces) {
        assert_eq!(whole, pieces);
    }
    assert_eq!(whole.is_some(), pieces.is_some());
});

/// Status, head, body and length of a response that was read to its end.
type Outcome = (u16, Vec<u8>, Vec<u8>, u64);

fn read<'i>(reader: &mut Reader, expect: Expect, pieces: impl Iterator<Item = &'i [u8]>) -> Option<Outcome> {
    reader.begin(expect);
    let mut done = false;
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        if let Fed::Done(used) = reader.feed(piece).ok()? {
            assert!(used <= piece.len());
            done = true;
            break;
        }
    }
    if !done {
        reader.finish().ok()?;
    }
    assert!(reader.body().len() <= LIMITS.body && reader.head().len() <= LIMITS.head);
    assert!(expect.keep || reader.body().is_empty());
    Some((reader.facts().status, reader.head().to_vec(), reader.body().to_vec(), reader.received()))
}
