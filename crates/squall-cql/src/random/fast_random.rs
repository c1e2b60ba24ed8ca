//! The generator of cell contents: a xorshift generator that `JavaRandom` seeds, and seeds again
//! after every 31 draws. It fills byte buffers and offers no other draw. Cells and texts use it.

use super::JavaRandom;

/// The draw at which the generator seeds itself again.
const RESEED_AT: u32 = 32;

/// The generator; each draw gives eight bytes.
#[derive(Debug, Clone)]
pub(crate) struct FastRandom {
    state: i64,
    draws: u32,
}

impl FastRandom {
    pub(crate) fn new(seed: i64) -> FastRandom {
        FastRandom { state: JavaRandom::new(seed).long(), draws: 0 }
    }

    pub(crate) fn next(&mut self) -> i64 {
        self.draws += 1;
        if self.draws == RESEED_AT {
            self.state = JavaRandom::new(self.state).long();
            self.draws = 0;
        }
        // Both shifts to the right keep the sign, as in Java.
        let mut state = self.state;
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.state = state;
        state.wrapping_mul(2_685_821_657_736_338_717)
    }

    /// Appends `count` bytes to `out`, the lowest byte of each draw first.
    pub(crate) fn append_bytes(&mut self, count: usize, out: &mut Vec<u8>) {
        let end = out.len() + count;
        out.reserve(count + 7);
        while out.len() < end {
            out.extend_from_slice(&self.next().to_le_bytes());
        }
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_32nd_draw_seeds_the_generator_again() {
        let mut random = FastRandom::new(7);
        (0..31).for_each(|_| _ = random.next());
        let mut reseeded = FastRandom::new(random.state);
        assert_eq!(random.next(), reseeded.next());
        // The draw after the seed counts as none, so 32 draws follow until the next seed.
        (0..31).for_each(|_| _ = random.next());
        let mut reseeded = FastRandom::new(random.state);
        assert_eq!(random.next(), reseeded.next());
    }

    #[test]
    fn bytes_are_the_draws_from_the_lowest_byte_on() {
        let (mut bytes, mut random) = (vec![1], FastRandom::new(-3));
        random.append_bytes(11, &mut bytes);
        let mut again = FastRandom::new(-3);
        let (first, second) = (again.next().to_le_bytes(), again.next().to_le_bytes());
        assert_eq!(bytes[..9], [&[1], &first[..]].concat());
        assert_eq!(bytes[9..], second[..3]);
    }
}
