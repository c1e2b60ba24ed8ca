//! Expressions with resolved names, and their evaluation. Names are resolved by the scope.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::Escape;
use crate::data::{DataTable, UserRow};

/// A value as text, and whether JSON would write it without quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TemplateValue {
    pub(crate) text: String,
    pub(crate) literal: bool,
}

impl TemplateValue {
    pub(crate) fn text(text: impl Into<String>) -> TemplateValue {
        TemplateValue { text: text.into(), literal: false }
    }

    pub(crate) fn literal(text: impl Into<String>) -> TemplateValue {
        TemplateValue { text: text.into(), literal: true }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    /// Shared, so that many uses of one long variable cost no memory before they are rendered.
    Constant(Arc<TemplateValue>),
    /// A variable of the user.
    Variable(usize),
    Column(ColumnRef),
    /// Both ends included.
    Random {
        low: i64,
        high: i64,
    },
    RandomString(usize),
    /// `reproducible`: the same in every run. Only with a given seed, because keys that a target accepts
    /// once would collide with those of the previous run.
    Uuid {
        reproducible: bool,
    },
    /// RFC 3339 in UTC with milliseconds.
    Now,
    NowMs,
    User,
    Iteration,
    /// One of these with equal probability. Never empty.
    Choice(Vec<Expr>),
}

/// A column of a data source, both by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColumnRef {
    pub(crate) data: usize,
    pub(crate) column: usize,
}

/// Why a template cannot be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenderTemplateError {
    /// A variable was used before a response set it.
    Unset { variable: usize },
    /// The text exceeds [`MAX_RENDERED_BYTES`](super::MAX_RENDERED_BYTES).
    TooLong,
}

/// The values that expressions can use: one user in one iteration.
pub(crate) struct RenderContext<'a> {
    pub(crate) variables: &'a [Option<TemplateValue>],
    pub(crate) data: &'a [DataTable],
    /// The current row of each data source. A flow draws the rows that it uses before it renders.
    pub(crate) rows: &'a [Option<UserRow>],
    pub(crate) user: u64,
    pub(crate) iteration: u64,
    pub(crate) rng: &'a mut fastrand::Rng,
}

impl Expr {
    /// Whether JSON writes the result without quotes, as far as the kind of expression determines it.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Expr::Random { .. } | Expr::NowMs | Expr::User | Expr::Iteration)
    }

    pub(crate) fn constant(value: TemplateValue) -> Expr {
        Expr::Constant(Arc::new(value))
    }

    /// The longest text that it renders, as in [`Template::longest_text`](super::Template::longest_text).
    pub(crate) fn longest_text(&self, variables: &[usize]) -> usize {
        match self {
            Expr::Constant(value) => value.text.len(),
            Expr::Variable(index) => variables.get(*index).copied().unwrap_or(0),
            Expr::RandomString(length) => *length,
            Expr::Choice(options) => options.iter().map(|option| option.longest_text(variables)).max().unwrap_or(0),
            Expr::Uuid { .. } => 36,
            Expr::Now => 24,
            // The longest 64-bit number with its sign.
            Expr::Random { .. } | Expr::NowMs | Expr::User | Expr::Iteration => 20,
            Expr::Column(_) => 0,
        }
    }

    pub(crate) fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        match self {
            Expr::Column(at) if !used.contains(at) => used.push(*at),
            Expr::Choice(options) => options.iter().for_each(|option| option.columns_used(used)),
            _ => {}
        }
    }

    pub(crate) fn write(
        &self,
        context: &mut RenderContext<'_>,
        escape: Escape,
        out: &mut String,
    ) -> Result<(), RenderTemplateError> {
        match self {
            Expr::Constant(value) => escape.write(&value.text, value.literal, out),
            Expr::Variable(index) => {
                let value =
                    context.variables[*index].as_ref().ok_or(RenderTemplateError::Unset { variable: *index })?;
                escape.write(&value.text, value.literal, out);
            }
            Expr::Column(ColumnRef { data, column }) => {
                let row = context.rows[*data].as_ref().expect("rows of a task's data are drawn before it renders");
                let (text, literal) = context.data[*data].value(row, *column);
                escape.write(text, literal, out);
            }
            Expr::Choice(options) => {
                let option = &options[context.rng.usize(..options.len())];
                option.write(context, escape, out)?;
            }
            made => made.write_generated(context, escape, out),
        }
        Ok(())
    }

    /// Appends a generated value.
    fn write_generated(&self, context: &mut RenderContext<'_>, escape: Escape, out: &mut String) {
        let quoted = escape == Escape::JsonValue && !self.is_number();
        if quoted {
            out.push('"');
        }
        match self {
            Expr::Random { low, high } => write_number(context.rng.i64(*low..=*high), out),
            Expr::RandomString(length) => out.extend((0..*length).map(|_| context.rng.alphanumeric())),
            Expr::Uuid { reproducible: true } => write_uuid(context.rng.u128(..), out),
            Expr::Uuid { reproducible: false } => write_uuid(fastrand::u128(..), out),
            Expr::Now => escape.write(&rfc3339(unix_ms()), true, out),
            Expr::NowMs => write_number(unix_ms(), out),
            Expr::User => write_number(context.user, out),
            Expr::Iteration => write_number(context.iteration, out),
            Expr::Constant(_) | Expr::Variable(_) | Expr::Column(_) | Expr::Choice(_) => {
                unreachable!("written by `write`")
            }
        }
        if quoted {
            out.push('"');
        }
    }
}

fn write_number(number: impl std::fmt::Display, out: &mut String) {
    write!(out, "{number}").expect("writing to a string does not fail");
}

/// Version 4, variant 1.
fn write_uuid(random: u128, out: &mut String) {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let part = |shift: u32, digits: u32| (bits >> shift) & ((1 << (digits * 4)) - 1);
    write!(out, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12))
        .expect("writing to a string does not fail");
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The civil date of a day number. Counts in 400-year eras that begin in March, so that leap days come
/// last.
fn rfc3339(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000 + 719_468, unix_ms % 86_400_000);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_is_formatted_as_the_calendar_date() {
        for (ms, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), date);
        }
    }

    #[test]
    fn uuid_has_version_and_variant() {
        for random in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let mut out = String::new();
            write_uuid(random, &mut out);
            assert_eq!((out.len(), &out[14..15]), (36, "4"), "{out}");
            assert!("89ab".contains(&out[19..20]), "{out}");
        }
    }
}
