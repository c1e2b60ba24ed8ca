//! The table of `print dist=…`: what range of values covers which part of the draws. It writes
//! nothing itself.

use super::Distribution;
use std::fmt::Write;

const FRACTIONS: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

/// The table as cassandra-stress prints it.
pub fn print_distribution(distribution: &Distribution) -> String {
    let mut table = "% of samples    Range       % of total\n".to_owned();
    let highest = distribution.max() as f64;
    for fraction in FRACTIONS {
        let value = distribution.quantile(fraction);
        let percent = 100.0 * value as f64 / highest;
        let _ = writeln!(table, "{:<16.1}{value:<12}{percent:>12.1}", 100.0 * fraction);
    }
    table
}
