//! Texts with `{{ expressions }}`: parsed once, folded as far as they are constant, then written into reused buffers. Reads no
//! clock but for `now()`, asks nobody, and fails only where a value that a response should have brought is not there.

mod escape;
mod expr;
mod parse;
mod scope;

pub(crate) use escape::{Escape, write_json_string};
pub(crate) use expr::{Context, Expr, Unset, Value};
pub(crate) use parse::{Ast, Piece, parse};
pub(crate) use scope::{Binding, DataNames, Scope};

/// A compiled text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Value(Expr, Escape),
}

impl Template {
    pub(crate) fn text(text: impl Into<String>) -> Template {
        Template { parts: vec![Part::Text(text.into())] }
    }

    /// The same as a path with an optional query: values are encoded for where they stand. A value at the very beginning stays as it
    /// is, because it is a whole path, such as one that a response gave.
    pub(crate) fn into_path(mut self) -> Template {
        let mut query = false;
        for (index, part) in self.parts.iter_mut().enumerate() {
            match part {
                Part::Text(text) => query |= text.contains('?'),
                Part::Value(_, how) if index == 0 => *how = Escape::None,
                Part::Value(_, how) => *how = if query { Escape::Query } else { Escape::Path },
            }
        }
        self
    }

    /// Constant values become text, and neighbouring texts one.
    pub(crate) fn fold(self) -> Template {
        let mut folded = Template::default();
        for part in self.parts {
            match part {
                Part::Text(text) => folded.push_text(&text),
                Part::Value(Expr::Constant(value), escape) => {
                    let mut text = String::new();
                    escape.write(&value.text, value.literal, &mut text);
                    folded.push_text(&text);
                }
                part => folded.parts.push(part),
            }
        }
        folded
    }

    pub(crate) fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Text(last)) => last.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    pub(crate) fn append(&mut self, other: Template) {
        for part in other.parts {
            match part {
                Part::Text(text) => self.push_text(&text),
                part => self.parts.push(part),
            }
        }
    }

    /// The text, if nothing in it changes. Only of a folded template.
    pub(crate) fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The data sources that it takes columns from.
    pub(crate) fn data_used(&self, used: &mut Vec<usize>) {
        for part in &self.parts {
            if let Part::Value(expr, _) = part {
                expr.data_used(used);
            }
        }
    }

    /// Appends the text as it is now.
    pub(crate) fn render(&self, context: &mut Context<'_>, out: &mut String) -> Result<(), Unset> {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Value(expr, escape) => expr.write(context, *escape, out)?,
            }
        }
        Ok(())
    }
}
