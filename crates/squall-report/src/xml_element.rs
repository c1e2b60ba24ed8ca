//! Writes XML elements with their attributes, text and children, indented. Leaves out characters that
//! XML 1.0 does not allow. Knows no document type; `junit` does.

/// An element with either text or children.
pub(crate) struct XmlElement {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: String,
    children: Vec<XmlElement>,
}

impl XmlElement {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), text: String::new(), children: Vec::new() }
    }

    pub(crate) fn attribute(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    pub(crate) fn children(mut self, children: impl IntoIterator<Item = XmlElement>) -> Self {
        self.children.extend(children);
        self
    }

    /// The document whose root is this element.
    pub(crate) fn to_document(&self) -> String {
        let mut document = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        self.write(&mut document, 0);
        document
    }

    fn write(&self, document: &mut String, depth: usize) {
        let indent = "    ".repeat(depth);
        let attributes: String =
            self.attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escape(value))).collect();
        *document += &format!("{indent}<{}{attributes}", self.name);
        if self.text.is_empty() && self.children.is_empty() {
            document.push_str("/>\n");
            return;
        }
        *document += &format!(">{}", escape(&self.text));
        if !self.children.is_empty() {
            document.push('\n');
            self.children.iter().for_each(|child| child.write(document, depth + 1));
            *document += &indent;
        }
        *document += &format!("</{}>\n", self.name);
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // A parser replaces them in attributes by spaces.
            '\t' | '\n' | '\r' => escaped += &format!("&#{};", character as u32),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => {}
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped_and_forbidden_ones_left_out() {
        let element = XmlElement::new("a").attribute("b", "1 < 2 & \"x\"\n").text("3 > 2\u{0}\u{1b}[31m\u{ffff}");
        let expected = "<a b=\"1 &lt; 2 &amp; &quot;x&quot;&#10;\">3 &gt; 2[31m</a>\n";
        assert_eq!(element.to_document().lines().nth(1), Some(expected.trim_end()));
    }
}
