//! `java.util.Random`: a linear congruential generator of 48 bits and the polar method for normal
//! values. It offers only the draws that cassandra-stress makes. Distributions and `FastRandom` use
//! it.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;

/// The generator; the same seed gives the same draws as in Java.
#[derive(Debug, Clone)]
pub(crate) struct JavaRandom {
    state: u64,
    /// The polar method makes two values at a time; this is the second one.
    spare_gaussian: Option<f64>,
}

impl JavaRandom {
    pub(crate) fn new(seed: i64) -> JavaRandom {
        JavaRandom { state: (seed as u64 ^ MULTIPLIER) & MASK, spare_gaussian: None }
    }

    /// A generator with a seed that differs in every process and call.
    pub(crate) fn unseeded() -> JavaRandom {
        JavaRandom::new(fastrand::i64(..))
    }

    fn bits(&mut self, count: u32) -> i32 {
        self.state = (self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)) & MASK;
        (self.state >> (48 - count)) as i32
    }

    pub(crate) fn long(&mut self) -> i64 {
        let high = i64::from(self.bits(32)) << 32;
        high.wrapping_add(i64::from(self.bits(32)))
    }

    /// At least 0 and below 1.
    pub(crate) fn double(&mut self) -> f64 {
        let high = i64::from(self.bits(26)) << 27;
        (high + i64::from(self.bits(27))) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A value of the normal distribution with mean 0 and standard deviation 1.
    pub(crate) fn gaussian(&mut self) -> f64 {
        if let Some(value) = self.spare_gaussian.take() {
            return value;
        }
        loop {
            let (first, second) = (2.0 * self.double() - 1.0, 2.0 * self.double() - 1.0);
            let square = first * first + second * second;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare_gaussian = Some(second * factor);
                return first * factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_equal_those_of_java() {
        let mut random = JavaRandom::new(42);
        assert_eq!([random.long(), random.long()], [-5_025_562_857_975_149_833, -5_843_495_416_241_995_736]);
        let mut random = JavaRandom::new(0);
        assert_eq!([random.long(), random.long()], [-4_962_768_465_676_381_896, 4_437_113_781_045_784_766]);
        let mut random = JavaRandom::new(42);
        assert_eq!(random.double(), 0.727_563_680_032_868_1);
        let mut random = JavaRandom::new(42);
        assert_eq!([random.gaussian(), random.gaussian()], [1.141_905_315_473_054_7, 0.919_407_948_982_787_9]);
    }

    #[test]
    fn two_unseeded_generators_differ() {
        assert_ne!(JavaRandom::unseeded().long(), JavaRandom::unseeded().long());
    }
}
