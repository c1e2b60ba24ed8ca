//! A comparison as people read it.

use super::{Change, Compared, Comparison, Effect, Row};
use crate::{
    Style,
    format::{digits, number, percent, time},
    text::{Cell, Table, Tone, cell, clean, toned, wrap},
};

impl Comparison {
    /// The table with its conclusion, ending in a line break.
    pub fn table(&self, style: Style) -> String {
        let mut table = Table::new()
            .left("metric")
            .left("")
            .right("base", 0)
            .right("new", 0)
            .right("change", 0)
            .right("95 % interval", 2)
            .right("p", 3)
            .left("");
        let mut before = None;
        for row in &self.rows {
            let name = if before == Some(&row.metric) { String::new() } else { clean(&row.metric) };
            before = Some(&row.metric);
            table.row(cells(name, row));
        }
        let mut out = format!("\n{}", table.render(style));
        out += &self.notes(style);
        out + &self.conclusion(style)
    }

    fn notes(&self, style: Style) -> String {
        let mut notes: Vec<(Tone, String)> = Vec::new();
        let list = |names: &[String]| clean(&names.join(", "));
        if !self.only_in_base.is_empty() {
            notes.push((Tone::Warn, format!("! only in base: {}", list(&self.only_in_base))));
        }
        if !self.only_in_new.is_empty() {
            notes.push((Tone::Warn, format!("! only in new: {}", list(&self.only_in_new))));
        }
        notes.extend(self.warnings.iter().map(|warning| (Tone::Warn, format!("! {}", clean(warning)))));
        let (base, new) = self.seconds;
        let method = format!(
            "Base, new and change are of the whole run; interval and p are of the average second at full load ({base} s and \
             {new} s). The interval allows for autocorrelation, p for the number of rows."
        );
        notes.push((Tone::Dim, method));
        let mut out = "\n".to_owned();
        for (tone, note) in notes {
            for line in wrap(&note, style.width.saturating_sub(2)) {
                out += &format!("  {}\n", style.paint(tone, &line));
            }
        }
        out
    }

    fn conclusion(&self, style: Style) -> String {
        let regressions = self.rows.iter().filter(|row| row.change == Change::Regressed).count();
        let tolerance = format!("{} %", number(self.tolerance * 100.0));
        let unjudged = self.rows.iter().filter(|row| row.change == Change::NotEnoughData).count();
        let (tone, text) = match regressions {
            _ if self.nothing_in_common() => {
                (Tone::Bad, "✗ The runs have no metric in common: nothing can be said  (exit code 2)".to_owned())
            }
            0 if self.says_nothing() => {
                let text = "✗ Not enough data to compare: both runs need at least 10 s at full load  (exit code 2)";
                (Tone::Bad, text.to_owned())
            }
            0 if unjudged > 0 => {
                let rows = self.rows.len();
                (
                    Tone::Warn,
                    format!(
                        "? No significant regression beyond {tolerance} in what could be judged; {unjudged} of {rows} rows could not"
                    ),
                )
            }
            0 => (Tone::Good, format!("✓ No significant regression beyond {tolerance}")),
            1 => (Tone::Bad, format!("✗ 1 significant regression beyond {tolerance}  (exit code 1)")),
            n => (Tone::Bad, format!("✗ {n} significant regressions beyond {tolerance}  (exit code 1)")),
        };
        format!("\n  {}\n", style.paint(tone, &text))
    }
}

fn cells(name: String, row: &Row) -> Vec<Cell> {
    let (tone, verdict) = match row.change {
        Change::NotEnoughData => (Tone::Dim, "? not enough data"),
        Change::NoSignificantChange => (Tone::Dim, "no significant change"),
        Change::WithinTolerance => (Tone::Plain, "within tolerance"),
        Change::Improved => (Tone::Good, "✓ improved"),
        Change::Regressed => (Tone::Bad, "✗ regressed"),
    };
    let show =
        |of: fn(Compared, &Effect) -> String| row.effect.map_or(String::new(), |effect| of(row.statistic, &effect));
    vec![
        toned(Tone::Bold, name),
        cell(row.statistic.name()),
        cell(in_unit(row.statistic, row.base)),
        cell(in_unit(row.statistic, row.new)),
        toned(tone, change(row)),
        toned(Tone::Dim, show(interval)),
        toned(Tone::Dim, show(|_, effect| p_value(effect.p_adjusted))),
        toned(tone, verdict),
    ]
}

fn in_unit(statistic: Compared, value: f64) -> String {
    match statistic {
        Compared::Rate => format!("{}/s", number(value)),
        Compared::ErrorRate => percent(value),
        Compared::Mean | Compared::P50 | Compared::P95 | Compared::P99 => time(value * 1e6),
    }
}

/// Error rates change by percentage points, because they often start at nothing.
fn change(row: &Row) -> String {
    match row.statistic {
        Compared::ErrorRate => format!("{} pp", signed((row.new - row.base) * 100.0)),
        _ if row.base == 0.0 => String::new(),
        _ => format!("{} %", signed(row.relative() * 100.0)),
    }
}

fn interval(statistic: Compared, effect: &Effect) -> String {
    let scale = if statistic == Compared::ErrorRate { 100.0 } else { 100.0 / effect.of };
    if !scale.is_finite() {
        return String::new();
    }
    format!("{} … {}", signed(effect.low * scale), signed(effect.high * scale))
}

/// Always with a sign; the minus is a real one. Thousandths are noise.
fn signed(value: f64) -> String {
    let short = |value: f64| if value < 10.0 { format!("{value:.1}") } else { digits(value) };
    match value {
        v if v.abs() < 0.05 => "0.0".to_owned(),
        v if v < 0.0 => format!("−{}", short(-v)),
        v => format!("+{}", short(v)),
    }
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}
