//! The frame tracker of the grid's relay on any bytes, cut anywhere: it must not panic, and must find the same
//! frames, boundary and close frame whole and in pieces. A close frame that it read can be written and read again.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run grid_frame -- -max_total_time=30`
#![no_main]

use frame::{FrameSender, FrameTracker};
use libfuzzer_sys::fuzz_target;

// Includes the source instead of the crate, which brings a Redis client and an HTTP server.
#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/squall-grid/src/relay/frame.rs"]
mod frame;

fuzz_target!(|input: &[u8]| {
    let [flags, step, stream @ ..] = input else { return };
    let sender = if flags & 1 == 1 { FrameSender::Client } else { FrameSender::Server };
    let (mut whole, mut pieces) = (FrameTracker::new(sender), FrameTracker::new(sender));
    let at_once = whole.observe(stream);
    let in_pieces = stream.chunks(usize::from(*step).max(1)).try_for_each(|piece| pieces.observe(piece));
    assert_eq!(at_once, in_pieces);
    if at_once.is_err() {
        return;
    }
    assert_eq!((whole.at_boundary(), whole.frames(), whole.close()), (pieces.at_boundary(), pieces.frames(), pieces.close()));
    if let Some(close) = whole.close() {
        let mut again = FrameTracker::new(FrameSender::Server);
        again.observe(&close.encode()).expect("what was read can be written");
        assert!(again.at_boundary());
        assert_eq!(again.close().and_then(|again| again.code), close.code);
    }
});
