//! The histogram that samples are recorded into: dense, allocated once, emptied once a second. It
//! cannot be queried; the [`Histogram`] that it is emptied into can.

use crate::{
    Histogram,
    bucket_layout::{CHUNK, CHUNKS, index_of},
};

/// The counts of one thread and metric since the last harvest.
///
/// Its 264 KiB are zero pages that the system provides only when they are written, and a harvest
/// visits only chunks that hold a count.
pub struct LiveHistogram {
    counts: Box<[u64]>,
    /// Bit `c` is set if chunk `c` holds a count.
    touched: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for LiveHistogram {
    fn default() -> Self {
        LiveHistogram { counts: vec![0; CHUNK * CHUNKS].into_boxed_slice(), touched: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl LiveHistogram {
    /// Counts one value.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        let index = index_of(nanos);
        self.counts[index] += 1;
        self.touched |= 1 << (index / CHUNK);
        self.sum += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Moves all counts to `into`, leaving this empty.
    pub fn harvest(&mut self, into: &mut Histogram) {
        while self.touched != 0 {
            let chunk = self.touched.trailing_zeros() as usize;
            self.touched &= self.touched - 1;
            let counts = &mut self.counts[chunk * CHUNK..(chunk + 1) * CHUNK];
            into.add_chunk(chunk, counts);
            counts.fill(0);
        }
        if self.max >= self.min {
            into.add_extremes(self.sum, self.min, self.max);
        }
        (self.sum, self.min, self.max) = (0, u64::MAX, 0);
    }
}
