//! Parses templates: text, and between `{{` and `}}` one expression, which is a name, `data.column`, a
//! call, a string or a number. The scope resolves names.

use std::ops::Range;

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ParsedPart {
    Text(String),
    Expr(ParsedExpr),
}

/// An expression as written, with its bytes in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParsedExpr {
    pub(crate) kind: ParsedExprKind,
    pub(crate) span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ParsedExprKind {
    Name(String),
    Column(String, String),
    Call(String, Vec<ParsedExpr>),
    Text(String),
    Number(String),
}

/// Why a text is not a template, and at which bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ParseTemplateError {
    pub(crate) message: String,
    pub(crate) span: Range<usize>,
}

/// Limits the nesting of calls, because the parser recurses.
const MAX_DEPTH: usize = 8;

/// The parts of `text`. A bad expression becomes an error, and parsing continues after its `}}`.
pub(crate) fn parse(text: &str) -> Vec<Result<ParsedPart, ParseTemplateError>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find("{{") {
        let open = at + found;
        if open > at {
            pieces.push(Ok(ParsedPart::Text(text[at..open].to_owned())));
        }
        let mut reader = ExprParser { text, position: open + 2 };
        let expr = reader.closed_expr(open);
        at = match &expr {
            Ok(_) => reader.position,
            Err(_) => text[open..].find("}}").map_or(text.len(), |close| open + close + 2),
        };
        pieces.push(expr.map(ParsedPart::Expr));
    }
    if at < text.len() {
        pieces.push(Ok(ParsedPart::Text(text[at..].to_owned())));
    }
    pieces
}

struct ExprParser<'t> {
    text: &'t str,
    position: usize,
}

impl ExprParser<'_> {
    fn error(&self, from: usize, message: &str) -> ParseTemplateError {
        let to = self.text[self.position..].chars().next().map_or(self.position, |c| self.position + c.len_utf8());
        ParseTemplateError { message: message.to_owned(), span: from..to }
    }

    fn skip_whitespace(&mut self) {
        let rest = &self.text[self.position..];
        self.position += rest.len() - rest.trim_start().len();
    }

    fn consume(&mut self, c: char) -> bool {
        self.skip_whitespace();
        let found = self.text[self.position..].starts_with(c);
        self.position += if found { c.len_utf8() } else { 0 };
        found
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &str {
        let rest = &self.text[self.position..];
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.position += end;
        &rest[..end]
    }

    /// Parses the expression after the `{{` at `open`, and its `}}`.
    fn closed_expr(&mut self, open: usize) -> Result<ParsedExpr, ParseTemplateError> {
        let expr = self.expr(0)?;
        self.skip_whitespace();
        if !self.text[self.position..].starts_with("}}") {
            return Err(self.error(open, "`{{` is not closed by `}}`"));
        }
        self.position += 2;
        Ok(expr)
    }

    fn expr(&mut self, depth: usize) -> Result<ParsedExpr, ParseTemplateError> {
        self.skip_whitespace();
        let from = self.position;
        if depth > MAX_DEPTH {
            return Err(self.error(from, "expressions are nested too deeply"));
        }
        let kind = match self.text[from..].chars().next() {
            Some(quote @ ('"' | '\'')) => self.string(quote)?,
            Some(c) if c.is_ascii_digit() || c == '-' => self.number()?,
            Some(c) if c.is_alphabetic() || c == '_' => self.name(depth)?,
            Some('}') => return Err(self.error(from, "there is nothing between `{{` and `}}`")),
            _ => return Err(self.error(from, "here a name, a call, a string or a number is expected")),
        };
        Ok(ParsedExpr { kind, span: from..self.position })
    }

    fn string(&mut self, quote: char) -> Result<ParsedExprKind, ParseTemplateError> {
        let from = self.position;
        self.position += 1;
        let text = self.take_while(|c| c != quote).to_owned();
        if !self.text[self.position..].starts_with(quote) {
            return Err(self.error(from, "the string has no end"));
        }
        self.position += 1;
        Ok(ParsedExprKind::Text(text))
    }

    fn number(&mut self) -> Result<ParsedExprKind, ParseTemplateError> {
        let from = self.position;
        self.position += usize::from(self.text[from..].starts_with('-'));
        self.take_while(|c| c.is_ascii_digit() || c == '.');
        let text = &self.text[from..self.position];
        let sound = text.parse::<f64>().is_ok() && !text.ends_with('.') && !text.starts_with("-.");
        if !sound {
            return Err(self.error(from, "that is not a number"));
        }
        Ok(ParsedExprKind::Number(text.to_owned()))
    }

    fn name(&mut self, depth: usize) -> Result<ParsedExprKind, ParseTemplateError> {
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let name = self.take_while(part).to_owned();
        if self.text[self.position..].starts_with('.') {
            self.position += 1;
            let from = self.position;
            let column = self.take_while(part).to_owned();
            if column.is_empty() {
                return Err(self.error(from, "after the point a column is expected, as in `user.name`"));
            }
            return Ok(ParsedExprKind::Column(name, column));
        }
        let end = self.position;
        if !self.consume('(') {
            self.position = end;
            return Ok(ParsedExprKind::Name(name));
        }
        let mut arguments = Vec::new();
        if self.consume(')') {
            return Ok(ParsedExprKind::Call(name, arguments));
        }
        loop {
            arguments.push(self.expr(depth + 1)?);
            if self.consume(')') {
                return Ok(ParsedExprKind::Call(name, arguments));
            }
            if !self.consume(',') {
                return Err(self.error(self.position, "here `,` or `)` is expected"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<ParsedPart>, ParseTemplateError> {
        parse(text).into_iter().collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = |parsed: &ParsedExpr| format!("{:?}", parsed.kind).replace(['"', ' '], "");
        let pieces = all(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let show = |piece: &ParsedPart| match piece {
            ParsedPart::Text(text) => text.clone(),
            ParsedPart::Expr(parsed) => format!("<{}>", shown(parsed)),
        };
        assert_eq!(pieces.iter().map(show).collect::<Vec<_>>().join("|"), expected);
    }

    #[track_caller]
    fn reject(text: &str, message: &str, at: Range<usize>) {
        let error = all(text).expect_err(text);
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!(error.span, at, "{text}");
    }

    #[test]
    fn template_text_is_split_at_expressions() {
        check("plain", "plain");
        check("a{{ b }}c", "a|<Name(b)>|c");
        check("{{user.name}}", "<Column(user,name)>");
        check("{{ \"}}\" }}x", "<Text(}})>|x");
        check("{{ -1.5 }}", "<Number(-1.5)>");
        check("} } { {", "} } { {");
        assert!(matches!(&all("{{ random( 1 ,20 ) }}").unwrap()[0],
            ParsedPart::Expr(ParsedExpr { kind: ParsedExprKind::Call(name, arguments), .. }) if name == "random" && arguments.len() == 2));
    }

    #[test]
    fn template_syntax_error_names_its_bytes() {
        reject("a{{ b", "not closed", 1..5);
        reject("{{ }}", "nothing between", 3..4);
        reject("{{ f(1 2) }}", "`,` or `)`", 7..8);
        reject("{{ 'x }}", "no end", 3..8);
        reject("{{ 1.2.3 }}", "not a number", 3..9);
        reject("{{ a. }}", "column", 5..6);
        reject("{{ é! }}", "not closed", 0..6);
        reject(&format!("{{{{ {}1", "f(".repeat(99)), "too deeply", 21..22);
    }
}
