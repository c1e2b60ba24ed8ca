//! Renders a comparison as a terminal table with notes and a conclusion. It computes no statistics.

use super::{ChangeVerdict, ComparedStatistic, ComparisonRow, DifferenceEstimate, RunComparison};
use crate::{
    TerminalStyle,
    format::{number, percent, three_digits, time},
    terminal_text::{TableCell, TextEmphasis, TextTable, plain_cell, sanitize, styled_cell, wrap},
};

impl RunComparison {
    /// The table with its conclusion, ending in a line break.
    pub fn table(&self, style: TerminalStyle) -> String {
        let mut table = TextTable::new()
            .left_column("metric")
            .left_column("")
            .right_column("base", 0)
            .right_column("new", 0)
            .right_column("change", 0)
            .right_column("95 % interval", 2)
            .right_column("p", 3)
            .left_column("");
        let mut previous = None;
        for row in &self.rows {
            let name = if previous == Some(&row.metric) { String::new() } else { sanitize(&row.metric) };
            previous = Some(&row.metric);
            table.push_row(row_cells(name, row));
        }
        let mut out = format!("\n{}", table.render(style));
        out += &self.notes(style);
        out + &self.conclusion(style)
    }

    fn notes(&self, style: TerminalStyle) -> String {
        let warnings = self.warning_texts().into_iter().map(|text| (TextEmphasis::Warn, format!("! {text}")));
        let method = (TextEmphasis::Dim, self.method_text());
        let mut out = "\n".to_owned();
        for (emphasis, note) in warnings.chain([method]) {
            for line in wrap(&note, style.width.saturating_sub(2)) {
                out += &format!("  {}\n", style.paint(emphasis, &line));
            }
        }
        out
    }

    /// What may keep the runs from being comparable.
    pub(super) fn warning_texts(&self) -> Vec<String> {
        let only_in = |run: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("only in {run}: {}", sanitize(&names.join(", "))))
        };
        let missing = [only_in("base", &self.only_in_base), only_in("new", &self.only_in_new)];
        missing.into_iter().flatten().chain(self.warnings.iter().map(|warning| sanitize(warning))).collect()
    }

    /// What the numbers of the table refer to.
    pub(super) fn method_text(&self) -> String {
        let (base, new) = self.seconds;
        format!(
            "Base, new and change are of the whole run; interval and p are of the average second at full load ({base} s and \
             {new} s). The interval allows for autocorrelation, p for the number of rows."
        )
    }

    fn conclusion(&self, style: TerminalStyle) -> String {
        let Conclusion { emphasis, mark, text } = self.conclude();
        let code = match self.exit_code() {
            0 => String::new(),
            code => format!("  (exit code {code})"),
        };
        format!("\n  {}\n", style.paint(emphasis, &format!("{mark} {text}{code}")))
    }

    pub(super) fn conclude(&self) -> Conclusion {
        let regressions = self.rows.iter().filter(|row| row.change == ChangeVerdict::Regressed).count();
        let tolerance = format!("{} %", number(self.tolerance * 100.0));
        let unjudged = self.rows.iter().filter(|row| row.change == ChangeVerdict::NotEnoughData).count();
        let bad = |text: String| Conclusion { emphasis: TextEmphasis::Bad, mark: '✗', text };
        match regressions {
            _ if self.shares_no_metric() => {
                bad("The runs have no metric in common, so they cannot be compared".to_owned())
            }
            0 if self.is_inconclusive() => {
                bad("Not enough data to compare: both runs need at least 10 s at full load".to_owned())
            }
            0 if unjudged > 0 => Conclusion {
                emphasis: TextEmphasis::Warn,
                mark: '?',
                text: format!(
                    "No significant regression beyond {tolerance}; {unjudged} of {} rows did not have enough data",
                    self.rows.len()
                ),
            },
            0 => Conclusion {
                emphasis: TextEmphasis::Good,
                mark: '✓',
                text: format!("No significant regression beyond {tolerance}"),
            },
            1 => bad(format!("1 significant regression beyond {tolerance}")),
            n => bad(format!("{n} significant regressions beyond {tolerance}")),
        }
    }
}

/// The answer of a comparison in one sentence.
pub(super) struct Conclusion {
    pub(super) emphasis: TextEmphasis,
    pub(super) mark: char,
    pub(super) text: String,
}

fn row_cells(name: String, row: &ComparisonRow) -> Vec<TableCell> {
    let (emphasis, verdict) = match row.change {
        ChangeVerdict::NotEnoughData => (TextEmphasis::Dim, "? not enough data"),
        ChangeVerdict::NoSignificantChange => (TextEmphasis::Dim, "no significant change"),
        ChangeVerdict::WithinTolerance => (TextEmphasis::Plain, "within tolerance"),
        ChangeVerdict::Improved => (TextEmphasis::Good, "✓ improved"),
        ChangeVerdict::Regressed => (TextEmphasis::Bad, "✗ regressed"),
    };
    let show = |of: fn(ComparedStatistic, &DifferenceEstimate) -> String| {
        row.effect.map_or(String::new(), |effect| of(row.statistic, &effect))
    };
    vec![
        styled_cell(TextEmphasis::Bold, name),
        plain_cell(row.statistic.name()),
        plain_cell(format_in_unit(row.statistic, row.base)),
        plain_cell(format_in_unit(row.statistic, row.new)),
        styled_cell(emphasis, format_change(row)),
        styled_cell(TextEmphasis::Dim, show(format_interval)),
        styled_cell(TextEmphasis::Dim, show(|_, effect| format_p_value(effect.p_adjusted))),
        styled_cell(emphasis, verdict),
    ]
}

pub(super) fn format_in_unit(statistic: ComparedStatistic, value: f64) -> String {
    match statistic {
        ComparedStatistic::Rate => format!("{}/s", number(value)),
        ComparedStatistic::ErrorRate => percent(value),
        ComparedStatistic::Mean | ComparedStatistic::P50 | ComparedStatistic::P95 | ComparedStatistic::P99 => {
            time(value * 1e6)
        }
    }
}

/// Error rates change by percentage points, because the base is often 0.
pub(super) fn format_change(row: &ComparisonRow) -> String {
    match row.statistic {
        ComparedStatistic::ErrorRate => format!("{} pp", format_signed((row.new - row.base) * 100.0)),
        _ if row.base == 0.0 => String::new(),
        _ => format!("{} %", format_signed(row.relative() * 100.0)),
    }
}

pub(super) fn format_interval(statistic: ComparedStatistic, effect: &DifferenceEstimate) -> String {
    let scale = if statistic == ComparedStatistic::ErrorRate { 100.0 } else { 100.0 / effect.of };
    if !scale.is_finite() {
        return String::new();
    }
    format!("{} … {}", format_signed(effect.low * scale), format_signed(effect.high * scale))
}

/// With a sign, and U+2212 as the minus. Values below 0.05 are noise and become 0.0.
fn format_signed(value: f64) -> String {
    let short = |value: f64| if value < 10.0 { format!("{value:.1}") } else { three_digits(value) };
    match value {
        v if v.abs() < 0.05 => "0.0".to_owned(),
        v if v < 0.0 => format!("−{}", short(-v)),
        v => format!("+{}", short(v)),
    }
}

pub(super) fn format_p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}
