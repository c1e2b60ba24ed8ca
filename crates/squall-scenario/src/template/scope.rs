//! Which names a template may use and what they stand for.

use std::collections::HashMap;

use super::{Ast, ColumnAt, Expr, Value, parse::AstKind};
use crate::{Files, error::did_you_mean};

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Binding {
    /// Always this.
    Constant(Value),
    /// The user's variable of this number.
    Slot(usize),
}

/// A data source as templates see it.
#[derive(Debug, Clone)]
pub(crate) struct DataNames {
    pub(crate) index: usize,
    /// As the scenario names it.
    pub(crate) file: String,
    /// `None` if the file could not be read, which has been reported: any column may then be meant.
    pub(crate) columns: Option<Vec<String>>,
    /// For each column the first line of the file that does not have it.
    pub(crate) missing: Vec<Option<usize>>,
}

/// All names of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) variables: HashMap<String, Binding>,
    pub(crate) data: HashMap<String, DataNames>,
    /// Where data has no meaning: in variables, which outlive every row.
    pub(crate) without_data: bool,
    /// Somebody chose the seed, and wants the same values again.
    pub(crate) seeded: bool,
}

/// Why an expression has no meaning: which part of it, what is wrong, what to do.
pub(crate) struct Unresolved {
    pub(crate) at: std::ops::Range<usize>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

const FUNCTIONS: [(&str, &str); 9] = [
    ("random", "random(1, 20)"),
    ("random_string", "random_string(8)"),
    ("uuid", "uuid()"),
    ("now", "now()"),
    ("now_ms", "now_ms()"),
    ("user", "user()"),
    ("iteration", "iteration()"),
    ("env", "env(\"NAME\")"),
    ("choice", "choice(\"a\", \"b\")"),
];

/// Longer random strings are a mistake.
const MAX_RANDOM_STRING: usize = 1 << 20;

impl Scope {
    pub(crate) fn resolve(&self, ast: &Ast, files: &mut dyn Files) -> Result<Expr, Vec<Unresolved>> {
        match &ast.kind {
            AstKind::Text(text) => Ok(Expr::Constant(Value::text(text))),
            AstKind::Number(text) => Ok(Expr::Constant(Value::literal(text))),
            AstKind::Name(name) => self.variable(name, ast),
            AstKind::Column(data, column) => self.column(data, column, ast),
            AstKind::Call(name, arguments) => self.call(name, arguments, ast, files),
        }
    }

    fn variable(&self, name: &str, ast: &Ast) -> Result<Expr, Vec<Unresolved>> {
        match self.variables.get(name) {
            Some(Binding::Constant(value)) => Ok(Expr::Constant(value.clone())),
            Some(Binding::Slot(slot)) => Ok(Expr::Slot(*slot)),
            None => Err(vec![Unresolved {
                at: ast.at.clone(),
                message: format!("unknown variable `{name}`"),
                hint: Some(self.meant(name)),
            }]),
        }
    }

    fn meant(&self, name: &str) -> String {
        if let Some((_, example)) = FUNCTIONS.iter().find(|(function, _)| *function == name) {
            return format!("to call the function write {example}");
        }
        if let Some(data) = self.data.get(name) {
            let column = data.columns.as_ref().and_then(|columns| columns.first()).map_or("column", String::as_str);
            return format!("`{name}` is data; name a column, for example {name}.{column}");
        }
        match did_you_mean(name, self.variables.keys().map(String::as_str)) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "declare it in [variables] or extract it from a response".to_owned(),
        }
    }

    fn column(&self, data: &str, column: &str, ast: &Ast) -> Result<Expr, Vec<Unresolved>> {
        let refuse =
            |message: String, hint: String| Err(vec![Unresolved { at: ast.at.clone(), message, hint: Some(hint) }]);
        if self.without_data {
            return refuse("a variable cannot use data".to_owned(), "use the column where it is needed".to_owned());
        }
        let Some(names) = self.data.get(data) else {
            let hint = match did_you_mean(data, self.data.keys().map(String::as_str)) {
                Some(known) => format!("did you mean `{known}.{column}`?"),
                None => "declare it as [[data]] with a name and a file".to_owned(),
            };
            return refuse(format!("unknown data `{data}`"), hint);
        };
        let Some(columns) = &names.columns else { return Ok(Expr::Column(ColumnAt { data: names.index, column: 0 })) };
        match columns.iter().position(|known| known == column) {
            Some(at) => match names.missing.get(at).copied().flatten() {
                None => Ok(Expr::Column(ColumnAt { data: names.index, column: at })),
                Some(line) => {
                    let message = format!("{} has no `{column}` in line {line}", names.file);
                    refuse(message, "give every row the key, with \"\" or null where there is no value".to_owned())
                }
            },
            None => {
                let hint = match did_you_mean(column, columns.iter().map(String::as_str)) {
                    Some(known) => format!("did you mean `{data}.{known}`?"),
                    None => format!("there are {}", columns.join(", ")),
                };
                refuse(format!("data `{data}` has no column `{column}`"), hint)
            }
        }
    }

    /// The arguments of a call, or everything that is wrong with any of them.
    fn resolve_all(&self, arguments: &[Ast], files: &mut dyn Files) -> Result<Vec<Expr>, Vec<Unresolved>> {
        let (mut resolved, mut wrong) = (Vec::new(), Vec::new());
        for argument in arguments {
            match self.resolve(argument, files) {
                Ok(expr) => resolved.push(expr),
                Err(errors) => wrong.extend(errors),
            }
        }
        if wrong.is_empty() { Ok(resolved) } else { Err(wrong) }
    }

    fn call(&self, name: &str, arguments: &[Ast], ast: &Ast, files: &mut dyn Files) -> Result<Expr, Vec<Unresolved>> {
        let refuse =
            |message: String, hint: Option<String>| Err(vec![Unresolved { at: ast.at.clone(), message, hint }]);
        let example = FUNCTIONS.iter().find(|(known, _)| *known == name);
        let Some((_, example)) = example else {
            let known = FUNCTIONS.iter().map(|(known, _)| *known);
            let hint = match did_you_mean(name, known.clone()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
            };
            return refuse(format!("unknown function `{name}`"), Some(hint));
        };
        let arguments = self.resolve_all(arguments, files)?;
        let whole = |index: usize| match arguments.get(index) {
            Some(Expr::Constant(value)) => value.text.parse::<i64>().ok(),
            _ => None,
        };
        let wrong = || refuse(format!("`{name}` cannot be called like this"), Some(format!("write {example}")));
        match (name, arguments.len()) {
            ("random", 2) => match (whole(0), whole(1)) {
                (Some(low), Some(high)) if low <= high => Ok(Expr::Random { low, high }),
                (Some(low), Some(high)) => refuse(
                    format!("`random` from {low} to {high} has nothing to choose from"),
                    Some(format!("write random({high}, {low})")),
                ),
                _ => refuse("`random` takes two whole numbers".to_owned(), Some(format!("write {example}"))),
            },
            ("random_string", 1) => match whole(0).and_then(|length| usize::try_from(length).ok()) {
                Some(length) if (1..=MAX_RANDOM_STRING).contains(&length) => Ok(Expr::RandomString(length)),
                _ => refuse(format!("`random_string` takes a length from 1 to {MAX_RANDOM_STRING}"), None),
            },
            ("uuid", 0) => Ok(Expr::Uuid { again: self.seeded }),
            ("now", 0) => Ok(Expr::Now),
            ("now_ms", 0) => Ok(Expr::NowMs),
            ("user", 0) => Ok(Expr::User),
            ("iteration", 0) => Ok(Expr::Iteration),
            ("choice", 1..) => Ok(Expr::Choice(arguments)),
            ("env", 1 | 2) => match (&arguments[0], arguments.get(1)) {
                (Expr::Constant(variable), default) => match (files.env(&variable.text), default) {
                    (Some(value), _) => Ok(Expr::Constant(Value::text(value))),
                    (None, Some(default)) => Ok(default.clone()),
                    (None, None) => refuse(
                        format!("the environment variable {} is not set", variable.text),
                        Some(format!("set it, or give a default: env(\"{}\", \"…\")", variable.text)),
                    ),
                },
                _ => wrong(),
            },
            _ => wrong(),
        }
    }
}
