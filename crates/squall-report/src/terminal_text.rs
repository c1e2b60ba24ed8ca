//! Text for terminals: colours, sanitized strings and tables that fit the width. It does not know
//! about runs.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::TerminalStyle;

/// The meaning of a piece of text; [`TerminalStyle::paint`] picks its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TextEmphasis {
    #[default]
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warn,
}

impl TerminalStyle {
    pub(crate) fn paint(self, emphasis: TextEmphasis, text: &str) -> String {
        let code = match emphasis {
            TextEmphasis::Plain => return text.to_owned(),
            TextEmphasis::Bold => "1",
            TextEmphasis::Dim => "2",
            TextEmphasis::Good => "32",
            TextEmphasis::Bad => "1;31",
            TextEmphasis::Warn => "33",
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// `text` without characters that could move the cursor, change colours or reorder letters. Names
/// and messages may come from a server.
pub(crate) fn sanitize(text: &str) -> String {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars()
        .map(|c| {
            if c == '\n' || c == '\t' {
                ' '
            } else if harmful(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// `text` cut to `width` columns, with an ellipsis if it was longer.
pub fn truncate_to_width(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (kept, _) = split_at_width(text, width.saturating_sub(1));
    format!("{kept}…")
}

/// Splits `text` into the part that fits into `width` columns and the rest. Chinese, Japanese and
/// Korean letters take two columns.
fn split_at_width(text: &str, width: usize) -> (&str, &str) {
    let mut used = 0;
    let end = text.char_indices().find(|(_, letter)| {
        used += letter.width().unwrap_or(0);
        used > width
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

/// `text` in lines of at most `width` columns, broken at blanks, but not between a number and its
/// unit. A word longer than a line is split.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in &words_with_units(text) {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => {
                let mut rest = word.as_str();
                while !rest.is_empty() {
                    // No letter is wider than two columns.
                    let (line, more) = split_at_width(rest, width.max(2));
                    lines.push(line.to_owned());
                    rest = more;
                }
            }
        }
    }
    lines
}

/// The words of `text`. A number and the unit after it are one word: `2.33 ms,`.
fn words_with_units(text: &str) -> Vec<String> {
    const UNITS: [&str; 10] = ["ns", "µs", "ms", "s", "min", "h", "B", "KiB", "MiB", "GiB"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', '.', ')', ':']));
        match words.last_mut() {
            Some(number) if is_unit && number.ends_with(|last: char| last.is_ascii_digit()) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// One cell of a [`TextTable`].
#[derive(Debug, Clone, Default)]
pub(crate) struct TableCell {
    text: String,
    emphasis: TextEmphasis,
}

pub(crate) fn plain_cell(text: impl Into<String>) -> TableCell {
    TableCell { text: text.into(), emphasis: TextEmphasis::Plain }
}

pub(crate) fn styled_cell(emphasis: TextEmphasis, text: impl Into<String>) -> TableCell {
    TableCell { text: text.into(), emphasis }
}

/// Rows in aligned columns. If the width is too small, the least important columns are dropped
/// first.
pub(crate) struct TextTable {
    columns: Vec<TableColumn>,
    rows: Vec<Vec<TableCell>>,
}

struct TableColumn {
    title: &'static str,
    left: bool,
    /// The column with the highest number is dropped first; 0 is never dropped.
    drop_priority: u8,
}

const INDENT: usize = 2;
const GAP: usize = 2;
/// Minimum width of the first column while other columns can still be dropped.
const MIN_FIRST_WIDTH: usize = 12;
/// Text columns do not shrink below this.
const MIN_TEXT_WIDTH: usize = 6;

impl TextTable {
    pub(crate) fn new() -> TextTable {
        TextTable { columns: Vec::new(), rows: Vec::new() }
    }

    pub(crate) fn left_column(mut self, title: &'static str) -> TextTable {
        self.columns.push(TableColumn { title, left: true, drop_priority: 0 });
        self
    }

    pub(crate) fn right_column(mut self, title: &'static str, drop_priority: u8) -> TextTable {
        self.columns.push(TableColumn { title, left: false, drop_priority });
        self
    }

    /// Whether all columns fit into `width`.
    pub(crate) fn fits(&self, width: usize) -> bool {
        let widths: Vec<usize> = (0..self.columns.len()).map(|i| self.natural_width(i)).collect();
        total_width((0..self.columns.len()).map(|i| widths[i])) <= width
    }

    pub(crate) fn push_row(&mut self, cells: Vec<TableCell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, style: TerminalStyle) -> String {
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|i| self.natural_width(i)).collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let total = |shown: &[usize], widths: &[usize]| total_width(shown.iter().map(|&i| widths[i]));
        let natural = widths[0];
        if total(&shown, &widths) > style.width {
            // One long name must not push the numbers of all rows out of the table.
            widths[0] = natural.min((style.width / 2).max(MIN_FIRST_WIDTH));
        }
        while total(&shown, &widths) > style.width {
            let droppable = shown.iter().filter(|&&i| self.columns[i].drop_priority > 0);
            let Some(&dropped) = droppable.max_by_key(|&&i| self.columns[i].drop_priority) else { break };
            shown.retain(|&i| i != dropped);
        }
        let spare = style.width.saturating_sub(total(&shown, &widths));
        widths[0] = natural.min(widths[0] + spare);
        // A truncated number would be wrong, so truncate texts instead, the longest first.
        while total(&shown, &widths) > style.width {
            let texts = shown.iter().copied().filter(|&i| self.columns[i].left && widths[i] > MIN_TEXT_WIDTH);
            let Some(longest) = texts.max_by_key(|&i| widths[i]) else { break };
            widths[longest] -= 1;
        }
        let mut out = String::new();
        if self.columns.iter().any(|column| !column.title.is_empty()) {
            let titles =
                self.columns.iter().map(|column| styled_cell(TextEmphasis::Dim, column.title)).collect::<Vec<_>>();
            self.render_line(&mut out, &titles, &shown, &widths, style);
        }
        for row in &self.rows {
            self.render_line(&mut out, row, &shown, &widths, style);
        }
        out
    }

    fn natural_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].text.width()).max().unwrap_or(0);
        cells.max(self.columns[column].title.width())
    }

    fn render_line(
        &self,
        out: &mut String,
        cells: &[TableCell],
        shown: &[usize],
        widths: &[usize],
        style: TerminalStyle,
    ) {
        out.push_str(&" ".repeat(INDENT));
        for (position, &i) in shown.iter().enumerate() {
            let text = truncate_to_width(&cells[i].text, widths[i]);
            let padding = " ".repeat(widths[i] - text.width());
            let text = style.paint(cells[i].emphasis, &text);
            let last = position + 1 == shown.len();
            match self.columns[i].left {
                true if last => out.push_str(&text),
                true => out.push_str(&format!("{text}{padding}")),
                false => out.push_str(&format!("{padding}{text}")),
            }
            if !last {
                out.push_str(&" ".repeat(GAP));
            }
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
}

/// Width of a line with columns of these widths.
fn total_width(widths: impl Iterator<Item = usize>) -> usize {
    INDENT + widths.map(|width| width + GAP).sum::<usize>() - GAP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_text_ends_in_an_ellipsis() {
        let cut = |width| truncate_to_width("größe", width);
        assert_eq!([cut(9), cut(5), cut(4), cut(1), cut(0)], ["größe", "größe", "grö…", "…", "…"]);
    }

    #[test]
    fn wide_letters_take_two_columns() {
        assert_eq!(
            [truncate_to_width("東京の店", 8), truncate_to_width("東京の店", 7), truncate_to_width("東京の店", 6)],
            ["東京の店", "東京の…", "東京…"]
        );
        assert_eq!(wrap("東京の店 ab", 5), ["東京", "の店", "ab"]);
        let mut table = TextTable::new().left_column("name").right_column("n", 0);
        table.push_row(vec![plain_cell("東京"), plain_cell("1")]);
        table.push_row(vec![plain_cell("Kyoto"), plain_cell("22")]);
        assert_eq!(table.render(TerminalStyle { colour: false, width: 80 }), "  name    n\n  東京    1\n  Kyoto  22\n");
    }

    #[test]
    fn table_without_droppable_columns_truncates_texts() {
        let mut table = TextTable::new().left_column("outcome").left_column("code").right_column("requests", 0);
        table.push_row(vec![plain_cell("transport_error"), plain_cell("CONNECT_TIMEOUT"), plain_cell("12,345")]);
        assert_eq!(
            table.render(TerminalStyle { colour: false, width: 36 }),
            "  outcome      code         requests\n  transport_…  CONNECT_TI…    12,345\n"
        );
    }

    #[test]
    fn wrapping_splits_long_words_and_keeps_all_letters() {
        assert_eq!(wrap("ab cd abcdefgh i", 5), ["ab cd", "abcde", "fgh i"]);
        assert_eq!(wrap("lag p99 2.33 ms, max 3 s", 12), ["lag p99", "2.33 ms, max", "3 s"]);
    }

    #[test]
    fn sanitize_replaces_control_and_bidi_characters() {
        assert_eq!(sanitize("a\x1b[31mb\r\nc\u{202e}d\u{9b}"), "a�[31mb� c�d�");
    }

    #[test]
    fn narrow_table_drops_its_least_important_column_first() {
        let mut table =
            TextTable::new().left_column("name").right_column("rate", 0).right_column("p90", 2).right_column("p99", 1);
        table.push_row(vec![plain_cell("browse"), plain_cell("10"), plain_cell("1 ms"), plain_cell("2 ms")]);
        assert_eq!(
            table.render(TerminalStyle { colour: false, width: 80 }),
            "  name    rate   p90   p99\n  browse    10  1 ms  2 ms\n"
        );
        assert_eq!(
            table.render(TerminalStyle { colour: false, width: 22 }),
            "  name    rate   p99\n  browse    10  2 ms\n"
        );
        assert_eq!(table.render(TerminalStyle { colour: false, width: 15 }), "  name    rate\n  browse    10\n");
    }

    #[test]
    fn long_name_is_truncated_before_number_columns_are_dropped() {
        let mut table = TextTable::new().left_column("name").right_column("requests", 0).right_column("errors", 1);
        table.push_row(vec![
            plain_cell("a name that is longer than everything else"),
            plain_cell("10"),
            plain_cell("1"),
        ]);
        assert_eq!(
            table.render(TerminalStyle { colour: false, width: 40 }),
            "  name                  requests  errors\n  a name that is long…        10       1\n"
        );
    }

    #[test]
    fn colour_codes_do_not_affect_alignment() {
        let mut table = TextTable::new().left_column("a").right_column("b", 0);
        table.push_row(vec![styled_cell(TextEmphasis::Good, "x"), styled_cell(TextEmphasis::Bad, "1")]);
        let painted = table.render(TerminalStyle { colour: true, width: 80 });
        assert_eq!(painted.lines().nth(1), Some("  \x1b[32mx\x1b[0m  \x1b[1;31m1\x1b[0m"));
    }
}
