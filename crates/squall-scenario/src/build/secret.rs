//! Reads secrets of a scenario: passwords and tokens. It keeps none of them.

use super::ScenarioBuilder;
use crate::Sourced;

impl ScenarioBuilder<'_, '_> {
    /// The text of a file for `@FILE`, an environment variable for `$NAME`, or the text itself; `@@` and
    /// `$$` stand for one `@` and one `$`.
    pub(super) fn secret(&mut self, given: &Sourced<String>, what: &str) -> Option<String> {
        let text = given.value.as_str();
        if let Some(rest) = text.strip_prefix("@@").or_else(|| text.strip_prefix("$$")) {
            return Some(format!("{}{rest}", &text[..1]));
        }
        if let Some(path) = text.strip_prefix('@').filter(|path| !path.is_empty()) {
            let file = Sourced { value: path.to_owned(), location: given.location.clone() };
            let bytes = self.read_file(&file)?;
            let Ok(secret) = String::from_utf8(bytes) else {
                self.problems.add(&given.location, format!("{path} is not UTF-8 text"));
                return None;
            };
            return Some(secret.trim_end_matches(['\r', '\n']).to_owned());
        }
        let is_name = |name: &&str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match text.strip_prefix('$').filter(is_name) {
            Some(name) => {
                let value = self.files.env(name);
                if value.is_none() {
                    let message = format!("the environment variable {name} is not set");
                    self.problems.add_with_hint(
                        &given.location,
                        message,
                        "a value that begins with $ is written with $$",
                    );
                }
                value
            }
            None => Some(self.constant_text(given, what)),
        }
    }
}
