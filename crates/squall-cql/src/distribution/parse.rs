//! Reads distributions, ranges and counts as users write them. It draws nothing.

use super::{Distribution, Extreme};
use std::str::FromStr;

/// A distribution, ratio, range or count that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    #[error(
        "{text:?} is not a distribution: write NAME(arguments), as in uniform(1..100); the names are fixed, uniform, \
         gaussian, exp, extreme, qextreme and seq"
    )]
    Syntax { text: String },
    #[error("{name:?} is not a distribution: use {instead}")]
    Name { name: String, instead: String },
    #[error("{name}({arguments}) has the wrong arguments: write {usage}")]
    Arguments { name: String, arguments: String, usage: &'static str },
    #[error("the range {text:?} is empty: its first number must not be above its second")]
    EmptyRange { text: String },
    #[error("{text:?} is not a range: write first..last, as in 1..10M")]
    Range { text: String },
    #[error("{text:?} is not a whole number; k, m and b stand for thousands, millions and billions")]
    Count { text: String },
    #[error("{text:?} is not a ratio: write distribution/divisor, as in uniform(1..5)/10")]
    Ratio { text: String },
}

/// The most quanta of a QEXTREME distribution. Each one costs 8 bytes.
const MAX_QUANTA: usize = 1_000_000;

/// Name, aliases and usage.
const KINDS: [(&str, &[&str], &str); 7] = [
    ("fixed", &[], "fixed(value)"),
    ("uniform", &[], "uniform(min..max)"),
    (
        "gaussian",
        &["gauss", "normal", "norm"],
        "gaussian(min..max), gaussian(min..max,deviations) or gaussian(min..max,mean,deviation)",
    ),
    ("exp", &[], "exp(min..max)"),
    ("extreme", &["extr"], "extreme(min..max,shape) with a shape above 0"),
    ("qextreme", &["qextr"], "qextreme(min..max,shape,quanta) with a shape above 0 and 1 to 1000000 quanta"),
    ("seq", &[], "seq(min..max) with different numbers"),
];

impl FromStr for Distribution {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Distribution, DistributionError> {
        let text = text.trim();
        let (plain, inverted) = match text.strip_prefix('~') {
            Some(inner) => (inner.trim_start(), true),
            None => (text, false),
        };
        let syntax = || DistributionError::Syntax { text: text.to_owned() };
        let (name, rest) = plain.split_once('(').ok_or_else(syntax)?;
        let arguments = rest.strip_suffix(')').ok_or_else(syntax)?;
        if arguments.contains(['(', ')']) {
            return Err(syntax());
        }
        let distribution = parse_kind(name.trim(), arguments)?;
        Ok(if inverted { Distribution::Inverted(Box::new(distribution)) } else { distribution })
    }
}

fn parse_kind(typed: &str, arguments: &str) -> Result<Distribution, DistributionError> {
    let lower = typed.to_lowercase();
    let known = KINDS.iter().find(|(name, aliases, _)| *name == lower || aliases.contains(&lower.as_str()));
    let Some((name, _, usage)) = known else {
        let names = KINDS.iter().map(|(name, ..)| *name);
        let instead = crate::hint::nearest(&lower, names.clone())
            .map_or_else(|| names.collect::<Vec<_>>().join(", "), str::to_owned);
        return Err(DistributionError::Name { name: typed.to_owned(), instead });
    };
    let parts: Vec<&str> = arguments.split(',').map(str::trim).collect();
    let invalid = || DistributionError::Arguments { name: (*name).to_owned(), arguments: arguments.to_owned(), usage };
    if *name == "fixed" {
        return match parts[..] {
            [value] => parse_number(value).map(Distribution::Fixed).ok_or_else(invalid),
            _ => Err(invalid()),
        };
    }
    let (min, max) = parse_range(parts[0])?;
    let numbers: Option<Vec<f64>> = parts[1..].iter().map(|part| finite(part)).collect();
    let numbers = numbers.ok_or_else(invalid)?;
    build(name, min, max, &numbers).ok_or_else(invalid)
}

/// A distribution from valid arguments; `None` if their number does not fit the name.
fn build(name: &str, min: i64, max: i64, numbers: &[f64]) -> Option<Distribution> {
    let distribution = match (name, numbers) {
        ("uniform", []) => Distribution::Uniform { min, max },
        ("gaussian", []) => Distribution::gaussian(min, max),
        ("gaussian", [deviations]) if *deviations > 0.0 => Distribution::gaussian_within(min, max, *deviations),
        ("gaussian", [mean, deviation]) if *deviation > 0.0 => {
            Distribution::Gaussian { min, max, mean: *mean, deviation: *deviation }
        }
        ("exp", []) => Distribution::exponential(min, max),
        ("extreme", [shape]) if *shape > 0.0 => Distribution::Extreme(Extreme::new(min, max, *shape)),
        ("qextreme", [shape, quanta]) if *shape > 0.0 => {
            let quanta = Some(*quanta as usize).filter(|count| (1..=MAX_QUANTA).contains(count))?;
            Distribution::quantized(Extreme::new(min, max, *shape), quanta)
        }
        ("seq", []) if min != max => Distribution::Sequence { first: min, last: max },
        _ => return None,
    };
    // The other parameters mean nothing if only one value is possible.
    Some(if min == max { Distribution::Fixed(min) } else { distribution })
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// `1..10M`; two or more dots.
pub(crate) fn parse_range(text: &str) -> Result<(i64, i64), DistributionError> {
    let range = || DistributionError::Range { text: text.to_owned() };
    let (first, last) = text.split_once("..").ok_or_else(range)?;
    let first = parse_number(first.trim()).ok_or_else(range)?;
    let last = parse_number(last.trim_start_matches('.').trim()).ok_or_else(range)?;
    if first > last {
        return Err(DistributionError::EmptyRange { text: text.to_owned() });
    }
    Ok((first, last))
}

/// `10M`: a count without a sign.
pub(crate) fn parse_count(text: &str) -> Result<u64, DistributionError> {
    let count = parse_number(text).and_then(|number| u64::try_from(number).ok());
    count.ok_or_else(|| DistributionError::Count { text: text.to_owned() })
}

fn parse_number(text: &str) -> Option<i64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'm' | b'M' => (&text[..text.len() - 1], 1_000_000),
        b'b' | b'B' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<i64>().ok()?.checked_mul(factor)
}
