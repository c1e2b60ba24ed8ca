//! The table of `print dist=…`: what range of values covers which part of the draws. It writes
//! nothing itself.

use super::Distribution;
use crate::output::fixed;
use std::fmt::Write;

const FRACTIONS: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// The table as cassandra-stress prints it.
pub fn print_distribution(distribution: &Distribution) -> String {
    let mut table = "% of samples    Range       % of total\n".to_owned();
    let highest = distribution.max() as f64;
    for fraction in FRACTIONS {
        let value = distribution.quantile(fraction);
        let percent = 100.0 * value as f64 / highest;
        let _ = writeln!(table, "{:<16}{value:<12}{:>12}", fixed(100.0 * fraction, 1), fixed(percent, 1));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_up_as_in_java() {
        let table = print_distribution(&"uniform(1..400)".parse().expect("a distribution"));
        assert_eq!(table.lines().nth(1), Some("10.0            41                  10.3"), "41 of 400 are 10.25 %");
    }
}
