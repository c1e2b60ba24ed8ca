//! The grammar of templates: text, and between `{{` and `}}` one expression: a name, `data.column`, a call, a string or a number.
//! Knows no names; those are resolved by the scope.

use std::ops::Range;

/// A text cut at its expressions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Expr(Ast),
}

/// An expression as written, with the bytes of the text that it takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ast {
    pub(crate) kind: AstKind,
    pub(crate) at: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AstKind {
    Name(String),
    Column(String, String),
    Call(String, Vec<Ast>),
    Text(String),
    Number(String),
}

/// Why a text is not a template, and which bytes of it are meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ParseTemplateError {
    pub(crate) message: String,
    pub(crate) at: Range<usize>,
}

/// Calls may be arguments of calls, but not endlessly.
const MAX_DEPTH: usize = 8;

/// The pieces of `text`; in place of a bad expression stands what is wrong with it, and reading goes on behind its `}}`.
pub(crate) fn parse(text: &str) -> Vec<Result<Piece, ParseTemplateError>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find("{{") {
        let open = at + found;
        if open > at {
            pieces.push(Ok(Piece::Text(text[at..open].to_owned())));
        }
        let mut reader = Reader { text, at: open + 2 };
        let expr = reader.closed_expr(open);
        at = match &expr {
            Ok(_) => reader.at,
            Err(_) => text[open..].find("}}").map_or(text.len(), |close| open + close + 2),
        };
        pieces.push(expr.map(Piece::Expr));
    }
    if at < text.len() {
        pieces.push(Ok(Piece::Text(text[at..].to_owned())));
    }
    pieces
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn refuse(&self, from: usize, message: &str) -> ParseTemplateError {
        let to = self.text[self.at..].chars().next().map_or(self.at, |c| self.at + c.len_utf8());
        ParseTemplateError { message: message.to_owned(), at: from..to }
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, c: char) -> bool {
        self.blanks();
        let found = self.text[self.at..].starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn while_true(&mut self, keep: impl Fn(char) -> bool) -> &str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// The expression behind the `{{` at `open`, and the `}}` behind it.
    fn closed_expr(&mut self, open: usize) -> Result<Ast, ParseTemplateError> {
        let expr = self.expr(0)?;
        self.blanks();
        if !self.text[self.at..].starts_with("}}") {
            return Err(self.refuse(open, "`{{` is not closed by `}}`"));
        }
        self.at += 2;
        Ok(expr)
    }

    fn expr(&mut self, depth: usize) -> Result<Ast, ParseTemplateError> {
        self.blanks();
        let from = self.at;
        if depth > MAX_DEPTH {
            return Err(self.refuse(from, "expressions are nested too deeply"));
        }
        let kind = match self.text[from..].chars().next() {
            Some(quote @ ('"' | '\'')) => self.string(quote)?,
            Some(c) if c.is_ascii_digit() || c == '-' => self.number()?,
            Some(c) if c.is_alphabetic() || c == '_' => self.name(depth)?,
            Some('}') => return Err(self.refuse(from, "there is nothing between `{{` and `}}`")),
            _ => return Err(self.refuse(from, "here a name, a call, a string or a number is expected")),
        };
        Ok(Ast { kind, at: from..self.at })
    }

    fn string(&mut self, quote: char) -> Result<AstKind, ParseTemplateError> {
        let from = self.at;
        self.at += 1;
        let text = self.while_true(|c| c != quote).to_owned();
        if !self.text[self.at..].starts_with(quote) {
            return Err(self.refuse(from, "the string has no end"));
        }
        self.at += 1;
        Ok(AstKind::Text(text))
    }

    fn number(&mut self) -> Result<AstKind, ParseTemplateError> {
        let from = self.at;
        self.at += usize::from(self.text[from..].starts_with('-'));
        self.while_true(|c| c.is_ascii_digit() || c == '.');
        let text = &self.text[from..self.at];
        let sound = text.parse::<f64>().is_ok() && !text.ends_with('.') && !text.starts_with("-.");
        if !sound {
            return Err(self.refuse(from, "that is not a number"));
        }
        Ok(AstKind::Number(text.to_owned()))
    }

    fn name(&mut self, depth: usize) -> Result<AstKind, ParseTemplateError> {
        let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let name = self.while_true(part).to_owned();
        if self.text[self.at..].starts_with('.') {
            self.at += 1;
            let from = self.at;
            let column = self.while_true(part).to_owned();
            if column.is_empty() {
                return Err(self.refuse(from, "after the point a column is expected, as in `user.name`"));
            }
            return Ok(AstKind::Column(name, column));
        }
        let end = self.at;
        if !self.take('(') {
            self.at = end;
            return Ok(AstKind::Name(name));
        }
        let mut arguments = Vec::new();
        if self.take(')') {
            return Ok(AstKind::Call(name, arguments));
        }
        loop {
            arguments.push(self.expr(depth + 1)?);
            if self.take(')') {
                return Ok(AstKind::Call(name, arguments));
            }
            if !self.take(',') {
                return Err(self.refuse(self.at, "here `,` or `)` is expected"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Piece>, ParseTemplateError> {
        parse(text).into_iter().collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = |ast: &Ast| format!("{:?}", ast.kind).replace(['"', ' '], "");
        let pieces = all(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let show = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Expr(ast) => format!("<{}>", shown(ast)),
        };
        assert_eq!(pieces.iter().map(show).collect::<Vec<_>>().join("|"), expected);
    }

    #[track_caller]
    fn refuse(text: &str, message: &str, at: Range<usize>) {
        let error = all(text).expect_err(text);
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!(error.at, at, "{text}");
    }

    #[test]
    fn texts_are_cut_at_their_expressions() {
        check("plain", "plain");
        check("a{{ b }}c", "a|<Name(b)>|c");
        check("{{user.name}}", "<Column(user,name)>");
        check("{{ \"}}\" }}x", "<Text(}})>|x");
        check("{{ -1.5 }}", "<Number(-1.5)>");
        check("} } { {", "} } { {");
        assert!(matches!(&all("{{ random( 1 ,20 ) }}").unwrap()[0],
            Piece::Expr(Ast { kind: AstKind::Call(name, arguments), .. }) if name == "random" && arguments.len() == 2));
    }

    #[test]
    fn mistakes_are_pointed_at() {
        refuse("a{{ b", "not closed", 1..5);
        refuse("{{ }}", "nothing between", 3..4);
        refuse("{{ f(1 2) }}", "`,` or `)`", 7..8);
        refuse("{{ 'x }}", "no end", 3..8);
        refuse("{{ 1.2.3 }}", "not a number", 3..9);
        refuse("{{ a. }}", "column", 5..6);
        refuse("{{ é! }}", "not closed", 0..6);
        refuse(&format!("{{{{ {}1", "f(".repeat(99)), "too deeply", 21..22);
    }
}
