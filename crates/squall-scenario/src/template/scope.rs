//! The names that templates may use, and the resolution of parsed expressions. Called while a scenario is
//! built.

use std::{collections::HashMap, sync::Arc};

use super::{ColumnRef, Expr, ParsedExpr, TemplateValue, parse::ParsedExprKind};
use crate::{ScenarioFiles, error::did_you_mean};

/// The meaning of a variable's name.
#[derive(Debug, Clone)]
pub(crate) enum VariableBinding {
    /// A constant value.
    Constant(Arc<TemplateValue>),
    /// One of the user's variables, by its index.
    Variable(usize),
}

impl VariableBinding {
    pub(crate) fn constant(value: TemplateValue) -> VariableBinding {
        VariableBinding::Constant(Arc::new(value))
    }
}

/// A data source for the resolution of names.
#[derive(Debug, Clone)]
pub(crate) struct DataSourceInfo {
    pub(crate) index: usize,
    /// The file as written in the scenario.
    pub(crate) file: String,
    /// `None` if the file could not be read, which has been reported. Every column is then accepted.
    pub(crate) columns: Option<Vec<String>>,
    /// For each column, the first line of the file that lacks it.
    pub(crate) first_missing_line: Vec<Option<usize>>,
}

/// All names of a scenario.
#[derive(Debug, Default)]
pub(crate) struct TemplateScope {
    pub(crate) variables: HashMap<String, VariableBinding>,
    pub(crate) data: HashMap<String, DataSourceInfo>,
    /// The longest initial value of each variable of the user, by its index.
    pub(crate) variable_lengths: Vec<usize>,
    /// Set while variables are resolved. They cannot use data, because they outlive every row.
    pub(crate) resolving_variables: bool,
    /// The seed is given, so random values must be reproducible.
    pub(crate) seeded: bool,
}

/// Why an expression cannot be resolved: its bytes, the problem, a hint.
pub(crate) struct ResolveExprError {
    pub(crate) span: std::ops::Range<usize>,
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

/// A longer random string is reported as a mistake.
const MAX_RANDOM_STRING: usize = 1 << 20;

impl TemplateScope {
    pub(crate) fn resolve(
        &self,
        parsed: &ParsedExpr,
        files: &mut dyn ScenarioFiles,
    ) -> Result<Expr, Vec<ResolveExprError>> {
        match &parsed.kind {
            ParsedExprKind::Text(text) => Ok(Expr::constant(TemplateValue::text(text))),
            ParsedExprKind::Number(text) => Ok(Expr::constant(TemplateValue::literal(text))),
            ParsedExprKind::Name(name) => self.variable(name, parsed),
            ParsedExprKind::Column(data, column) => self.column(data, column, parsed),
            ParsedExprKind::Call(name, arguments) => self.call(name, arguments, parsed, files),
        }
    }

    fn variable(&self, name: &str, parsed: &ParsedExpr) -> Result<Expr, Vec<ResolveExprError>> {
        match self.variables.get(name) {
            Some(VariableBinding::Constant(value)) => Ok(Expr::Constant(value.clone())),
            Some(VariableBinding::Variable(index)) => Ok(Expr::Variable(*index)),
            None => Err(vec![ResolveExprError {
                span: parsed.span.clone(),
                message: format!("unknown variable `{name}`"),
                hint: Some(self.suggestion(name)),
            }]),
        }
    }

    fn suggestion(&self, name: &str) -> String {
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

    fn column(&self, data: &str, column: &str, parsed: &ParsedExpr) -> Result<Expr, Vec<ResolveExprError>> {
        let reject = |message: String, hint: String| {
            Err(vec![ResolveExprError { span: parsed.span.clone(), message, hint: Some(hint) }])
        };
        if self.resolving_variables {
            return reject("a variable cannot use data".to_owned(), "use the column where it is needed".to_owned());
        }
        let Some(names) = self.data.get(data) else {
            let hint = match did_you_mean(data, self.data.keys().map(String::as_str)) {
                Some(known) => format!("did you mean `{known}.{column}`?"),
                None => "declare it as [[data]] with a name and a file".to_owned(),
            };
            return reject(format!("unknown data `{data}`"), hint);
        };
        let Some(columns) = &names.columns else { return Ok(Expr::Column(ColumnRef { data: names.index, column: 0 })) };
        match columns.iter().position(|known| known == column) {
            Some(at) => match names.first_missing_line.get(at).copied().flatten() {
                None => Ok(Expr::Column(ColumnRef { data: names.index, column: at })),
                Some(line) => {
                    let message = format!("{} has no `{column}` in line {line}", names.file);
                    reject(message, "give every row the key, with \"\" or null where there is no value".to_owned())
                }
            },
            None => {
                let hint = match did_you_mean(column, columns.iter().map(String::as_str)) {
                    Some(known) => format!("did you mean `{data}.{known}`?"),
                    None => format!("there are {}", columns.join(", ")),
                };
                reject(format!("data `{data}` has no column `{column}`"), hint)
            }
        }
    }

    /// Resolves the arguments of a call, or returns the errors of all of them.
    fn resolve_all(
        &self,
        arguments: &[ParsedExpr],
        files: &mut dyn ScenarioFiles,
    ) -> Result<Vec<Expr>, Vec<ResolveExprError>> {
        let (mut resolved, mut wrong) = (Vec::new(), Vec::new());
        for argument in arguments {
            match self.resolve(argument, files) {
                Ok(expr) => resolved.push(expr),
                Err(errors) => wrong.extend(errors),
            }
        }
        if wrong.is_empty() { Ok(resolved) } else { Err(wrong) }
    }

    fn call(
        &self,
        name: &str,
        arguments: &[ParsedExpr],
        parsed: &ParsedExpr,
        files: &mut dyn ScenarioFiles,
    ) -> Result<Expr, Vec<ResolveExprError>> {
        let reject = |message: String, hint: Option<String>| {
            Err(vec![ResolveExprError { span: parsed.span.clone(), message, hint }])
        };
        let example = FUNCTIONS.iter().find(|(known, _)| *known == name);
        let Some((_, example)) = example else {
            let known = FUNCTIONS.iter().map(|(known, _)| *known);
            let hint = match did_you_mean(name, known.clone()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
            };
            return reject(format!("unknown function `{name}`"), Some(hint));
        };
        let arguments = self.resolve_all(arguments, files)?;
        let whole = |index: usize| match arguments.get(index) {
            Some(Expr::Constant(value)) => value.text.parse::<i64>().ok(),
            _ => None,
        };
        let wrong = || reject(format!("`{name}` cannot be called like this"), Some(format!("write {example}")));
        match (name, arguments.len()) {
            ("random", 2) => match (whole(0), whole(1)) {
                (Some(low), Some(high)) if low <= high => Ok(Expr::Random { low, high }),
                (Some(low), Some(high)) => reject(
                    format!("`random` from {low} to {high} has nothing to choose from"),
                    Some(format!("write random({high}, {low})")),
                ),
                _ => reject("`random` takes two whole numbers".to_owned(), Some(format!("write {example}"))),
            },
            ("random_string", 1) => match whole(0).and_then(|length| usize::try_from(length).ok()) {
                Some(length) if (1..=MAX_RANDOM_STRING).contains(&length) => Ok(Expr::RandomString(length)),
                _ => reject(format!("`random_string` takes a length from 1 to {MAX_RANDOM_STRING}"), None),
            },
            ("uuid", 0) => Ok(Expr::Uuid { reproducible: self.seeded }),
            ("now", 0) => Ok(Expr::Now),
            ("now_ms", 0) => Ok(Expr::NowMs),
            ("user", 0) => Ok(Expr::User),
            ("iteration", 0) => Ok(Expr::Iteration),
            ("choice", 1..) => Ok(Expr::Choice(arguments)),
            ("env", 1 | 2) => match (&arguments[0], arguments.get(1)) {
                (Expr::Constant(variable), default) => match (files.env(&variable.text), default) {
                    (Some(value), _) => Ok(Expr::constant(TemplateValue::text(value))),
                    (None, Some(default)) => Ok(default.clone()),
                    (None, None) => reject(
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
