//! The problems of a scenario, each with its location and a hint. `read` and `build` add problems here; the
//! command line prints them all and exits with code 2.

use serde::{Deserialize, Serialize};
use std::{fmt, ops::Range};

/// Every problem of one scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioErrors {
    /// The file as the user named it.
    pub file: String,
    /// Those of the command line first, then in the order of the file. Never empty.
    pub problems: Vec<ScenarioProblem>,
}

/// One problem to fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioProblem {
    /// Where it was written.
    pub location: SourceLocation,
    /// Counted from 1; 0 when the problem is not in the file.
    pub line: usize,
    /// In characters, counted from 1; 0 when the problem is not in the file, or in code.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line of the file, and how many characters of it to underline.
    pub(crate) excerpt: Option<(String, usize)>,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceLocation {
    /// These bytes of the file.
    File(Range<usize>),
    /// A command-line flag, as the user types it: `--rate`.
    Flag(String),
    /// A statement in the code of a scenario.
    Code(CodeLocation),
    /// No location: a setting is missing.
    Unknown,
}

/// A statement in the code of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeLocation {
    /// The file as messages name it.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// The setting that the statement gives, as the code names it: `duration`,
    /// `task 'browse': every`.
    pub setting: Option<String>,
}

impl fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        self.setting.as_ref().map_or(Ok(()), |setting| write!(f, ": {setting}"))
    }
}

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.write(f, &self.file)?;
        }
        let count = self.problems.len();
        write!(f, "\n{count} problem{} found; nothing was sent", if count == 1 { "" } else { "s" })
    }
}

impl std::error::Error for ScenarioErrors {}

impl ScenarioProblem {
    fn write(&self, f: &mut fmt::Formatter<'_>, file: &str) -> fmt::Result {
        match &self.location {
            SourceLocation::File(_) => writeln!(f, "{file}:{}:{}: {}", self.line, self.column, self.message)?,
            SourceLocation::Flag(flag) => writeln!(f, "{flag}: {}", self.message)?,
            SourceLocation::Code(location) => writeln!(f, "{location}: {}", self.message)?,
            SourceLocation::Unknown => writeln!(f, "{file}: {}", self.message)?,
        }
        if let Some((text, width)) = &self.excerpt {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            let indent = " ".repeat(self.column.saturating_sub(1));
            writeln!(f, " {number} | {text}")?;
            writeln!(f, " {margin} | {indent}{}", "^".repeat((*width).max(1)))?;
        }
        match &self.hint {
            Some(hint) => writeln!(f, "   hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Collects problems while a scenario is read.
pub(crate) struct ProblemList<'t> {
    file: String,
    text: &'t str,
    found: Vec<ScenarioProblem>,
}

impl<'t> ProblemList<'t> {
    pub(crate) fn new(file: &str, text: &'t str) -> ProblemList<'t> {
        ProblemList { file: file.to_owned(), text, found: Vec::new() }
    }

    pub(crate) fn add(&mut self, location: &SourceLocation, message: impl Into<String>) {
        self.push(location, message.into(), None);
    }

    pub(crate) fn add_with_hint(
        &mut self,
        location: &SourceLocation,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(location, message.into(), Some(hint.into()));
    }

    /// The file and the line of a location, for messages at run time.
    pub(crate) fn file_and_line(&self, location: &SourceLocation) -> String {
        match location {
            SourceLocation::File(span) => format!("{}:{}", self.file, line_and_column(self.text, span).0),
            SourceLocation::Flag(flag) => flag.clone(),
            SourceLocation::Code(location) => location.to_string(),
            SourceLocation::Unknown => self.file.clone(),
        }
    }

    /// How many problems there are so far. A caller that sees the number grow does not report what follows
    /// from those problems.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn push(&mut self, location: &SourceLocation, message: String, hint: Option<String>) {
        let (line, column, excerpt) = match location {
            SourceLocation::File(span) => line_and_column(self.text, span),
            SourceLocation::Code(location) => (location.line, 0, None),
            SourceLocation::Flag(_) | SourceLocation::Unknown => (0, 0, None),
        };
        let problem = ScenarioProblem { location: location.clone(), line, column, message, hint, excerpt };
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    /// `Err` with every problem in reading order, or `value` if there are none.
    pub(crate) fn finish<T>(mut self, value: Option<T>) -> Result<T, ScenarioErrors> {
        if self.found.is_empty() && value.is_none() {
            self.add(&SourceLocation::Unknown, "the scenario cannot be used");
        }
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => {
                self.found.sort_by_key(|problem| (problem.line, problem.column));
                Err(ScenarioErrors { file: self.file, problems: self.found })
            }
        }
    }
}

/// Longer lines are truncated.
const EXCERPT_CHARS: usize = 160;

fn line_and_column(text: &str, span: &Range<usize>) -> (usize, usize, Option<(String, usize)>) {
    let mut start = span.start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let before = &text[..start];
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    let column = text[begin..start].chars().count() + 1;
    let whole = text[begin..].lines().next().unwrap_or_default();
    let mut end = span.end.clamp(start, begin + whole.len().max(start - begin));
    while !text.is_char_boundary(end) {
        end += 1;
    }
    let width = text[start..end].chars().count();
    let shown: String = whole.chars().take(EXCERPT_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let excerpt = (column <= EXCERPT_CHARS).then(|| (shown, width.min(EXCERPT_CHARS + 1 - column)));
    (line, column, excerpt)
}

/// The known name that is closest to a mistyped one.
pub(crate) fn did_you_mean<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(typed, name), name))
        // A common beginning is not enough: `contains` is not `count`.
        .filter(|(_, name)| strsim::levenshtein(typed, name) * 2 <= typed.len().max(name.len()))
        .filter(|(score, name)| *score > 0.8 || name.replace('_', "") == typed.to_lowercase().replace(['-', '_'], ""))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
