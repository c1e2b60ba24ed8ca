//! Templates: texts with `{{ expressions }}`, parsed once, with constants folded, and rendered into reused
//! buffers. Rendering does no I/O, reads the clock only for `now()`, and fails only if a variable that a
//! response should have set is unset or if the text exceeds [`MAX_RENDERED_BYTES`].

mod escape;
mod expr;
mod parse;
mod scope;

pub(crate) use escape::{Escape, write_json_string};
pub(crate) use expr::{ColumnRef, Expr, RenderContext, RenderTemplateError, TemplateValue};
pub(crate) use parse::{ParsedExpr, ParsedExprKind, ParsedPart, parse};
pub(crate) use scope::{DataSourceInfo, TemplateScope, VariableBinding};

/// The longest text that a template may render. A few variables that repeat each other would otherwise
/// use up the memory of every machine that opens the scenario.
pub(crate) const MAX_RENDERED_BYTES: usize = 16 << 20;

/// A compiled template.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TemplatePart {
    Text(String),
    Value(Expr, Escape),
}

impl Template {
    pub(crate) fn text(text: impl Into<String>) -> Template {
        Template { parts: vec![TemplatePart::Text(text.into())] }
    }

    /// This template as a path with an optional query. Values are encoded for their position. A value at
    /// the very beginning stays unchanged, because it is a whole path, such as one from a response.
    pub(crate) fn into_path(mut self) -> Template {
        let mut query = false;
        for (index, part) in self.parts.iter_mut().enumerate() {
            match part {
                TemplatePart::Text(text) => query |= text.contains('?'),
                TemplatePart::Value(_, how) if index == 0 => *how = Escape::None,
                TemplatePart::Value(_, how) => *how = if query { Escape::Query } else { Escape::Path },
            }
        }
        self
    }

    /// Turns constant values into text and joins neighbouring texts.
    pub(crate) fn fold_constants(self) -> Template {
        let mut folded = Template::default();
        for part in self.parts {
            match part {
                TemplatePart::Text(text) => folded.push_text(&text),
                TemplatePart::Value(Expr::Constant(value), escape) => {
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
            Some(TemplatePart::Text(last)) => last.push_str(text),
            _ => self.parts.push(TemplatePart::Text(text.to_owned())),
        }
    }

    pub(crate) fn append(&mut self, other: Template) {
        for part in other.parts {
            match part {
                TemplatePart::Text(text) => self.push_text(&text),
                part => self.parts.push(part),
            }
        }
    }

    /// The text of a constant template. Call it on a folded template.
    pub(crate) fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it is one value that is always a number.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self.parts.as_slice(), [TemplatePart::Value(expr, _)] if expr.is_number())
    }

    /// Collects the data columns that the template uses.
    pub(crate) fn columns_used(&self, used: &mut Vec<ColumnRef>) {
        for part in &self.parts {
            if let TemplatePart::Value(expr, _) = part {
                expr.columns_used(used);
            }
        }
    }

    /// The longest text that it renders, without values that only the run brings: data and responses.
    /// `variables` has the longest initial value of each variable.
    pub(crate) fn longest_text(&self, variables: &[usize]) -> usize {
        let longest = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.len(),
            TemplatePart::Value(expr, _) => expr.longest_text(variables),
        };
        self.parts.iter().map(longest).fold(0, usize::saturating_add)
    }

    /// Appends the text with the values of `context`.
    pub(crate) fn render(&self, context: &mut RenderContext<'_>, out: &mut String) -> Result<(), RenderTemplateError> {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Value(expr, escape) => expr.write(context, *escape, out)?,
            }
            if out.len() > MAX_RENDERED_BYTES {
                return Err(RenderTemplateError::TooLong);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A part of a template as written, and its text for user 3 in iteration 9.
    fn part() -> impl Strategy<Value = (String, String)> {
        let text = "[^{}]{1,8}".prop_map(|text| (text.clone(), text));
        let number = any::<i32>().prop_map(|n| (format!("{{{{{n}}}}}"), n.to_string()));
        let quoted = "[^'\"]{0,8}".prop_map(|text| (format!("{{{{ '{text}' }}}}"), text));
        let fixed = any::<i16>().prop_map(|n| (format!("{{{{ random({n}, {n}) }}}}"), n.to_string()));
        let known = prop::sample::select(vec![
            ("{{ user() }}", "3"),
            ("{{iteration()}}", "9"),
            ("{{ constant }}", "a/b c"),
            ("{{ slot }}", "\"é\""),
            ("{{ choice(slot, slot) }}", "\"é\""),
            ("{{ d.y }}", "2&3"),
        ]);
        let known = known.prop_map(|(written, expected)| (written.to_owned(), expected.to_owned()));
        prop_oneof![text, number, quoted, fixed, known]
    }

    fn compile(text: &str) -> Template {
        let mut scope = TemplateScope::default();
        scope.variables.insert("constant".to_owned(), VariableBinding::constant(TemplateValue::text("a/b c")));
        scope.variables.insert("slot".to_owned(), VariableBinding::Variable(0));
        let columns = Some(vec!["x".to_owned(), "y".to_owned()]);
        scope.data.insert(
            "d".to_owned(),
            DataSourceInfo { index: 0, file: String::new(), columns, first_missing_line: vec![] },
        );
        let mut template = Template::default();
        for piece in parse(text).into_iter().map(|piece| piece.expect("well formed")) {
            match piece {
                ParsedPart::Text(text) => template.push_text(&text),
                ParsedPart::Expr(parsed) => {
                    let expr =
                        scope.resolve(&parsed, &mut crate::NoFiles).unwrap_or_else(|e| panic!("{}", e[0].message));
                    template.parts.push(TemplatePart::Value(expr, Escape::None));
                }
            }
        }
        template
    }

    fn render(template: &Template) -> String {
        let data = [crate::data::DataTable::csv("d", b"x,y\n1,2&3\n").expect("well formed")];
        let variables = [Some(TemplateValue::text("\"é\""))];
        let mut rng = fastrand::Rng::with_seed(1);
        let mut context = RenderContext {
            variables: &variables,
            data: &data,
            rows: &[Some(crate::data::UserRow::TableIndex(0))],
            user: 3,
            iteration: 9,
            rng: &mut rng,
        };
        let mut out = String::new();
        template.render(&mut context, &mut out).expect("everything is set");
        out
    }

    proptest! {
        #[test]
        fn rendered_template_is_the_concatenation_of_its_parts(parts in prop::collection::vec(part(), 0..8)) {
            let written: String = parts.iter().map(|(written, _)| written.as_str()).collect();
            let expected: String = parts.iter().map(|(_, expected)| expected.as_str()).collect();
            let template = compile(&written);
            prop_assert_eq!(render(&template), expected.clone());
            prop_assert_eq!(render(&template.fold_constants()), expected, "folding changes nothing");
        }
    }

    #[test]
    fn unset_variable_error_names_its_slot() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut context =
            RenderContext { variables: &[None], data: &[], rows: &[], user: 0, iteration: 0, rng: &mut rng };
        assert_eq!(
            compile("a{{ slot }}").render(&mut context, &mut String::new()),
            Err(RenderTemplateError::Unset { variable: 0 })
        );
    }
    #[test]
    fn text_above_the_limit_is_not_rendered() {
        let mut rng = fastrand::Rng::with_seed(1);
        let variables = [Some(TemplateValue::text("x".repeat(MAX_RENDERED_BYTES / 2)))];
        let mut context =
            RenderContext { variables: &variables, data: &[], rows: &[], user: 0, iteration: 0, rng: &mut rng };
        let mut out = String::new();
        assert_eq!(compile("{{ slot }}{{ slot }}").render(&mut context, &mut out), Ok(()));
        out.clear();
        let repeated = compile(&"{{ slot }}".repeat(1000));
        assert_eq!(repeated.render(&mut context, &mut out), Err(RenderTemplateError::TooLong));
        assert!(out.len() <= 2 * MAX_RENDERED_BYTES, "rendering stops at the first part above the limit");
    }
}
