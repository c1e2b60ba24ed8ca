//! The value of `--scenario` of an orchestrator or a worker: a file, or a Python file or module with the
//! name of a class (`two.py:Light`, `two:Light`). It reads no scenario. `commands::orchestrator` calls it.

use std::path::Path;

use crate::exit::CliError;

/// Which scenario a process of a fleet offers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScenarioChoice {
    pub(crate) file: String,
    /// The class, if the file has several.
    pub(crate) class: Option<String>,
}

impl ScenarioChoice {
    /// Parses the value; a module is a file below `folder`.
    pub(crate) fn parse(text: &str, folder: &Path) -> Result<ScenarioChoice, CliError> {
        let named = text.rsplit_once(':').filter(|(_, class)| is_identifier(class) && !text.contains("://"));
        let Some((place, class)) = named else { return Ok(ScenarioChoice { file: text.to_owned(), class: None }) };
        let is_module = !place.ends_with(".py") && place.split('.').all(is_identifier);
        let file = if is_module { format!("{}.py", place.replace('.', "/")) } else { place.to_owned() };
        if !folder.join(&file).is_file() {
            let message =
                format!("--scenario {text}: there is no file {file}; write FILE.py:{class} with the file's path");
            return Err(CliError::new(message));
        }
        Ok(ScenarioChoice { file, class: Some(class.to_owned()) })
    }
}

fn is_identifier(text: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.chars().all(is_name) && text.chars().next().is_some_and(|first| !first.is_numeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_of_a_file_or_module_is_chosen_after_a_colon() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("load")).expect("a folder");
        for file in ["two.py", "load/shop.py"] {
            std::fs::write(folder.path().join(file), "").expect("a file");
        }
        let parse = |text: &str| {
            let choice = ScenarioChoice::parse(text, folder.path());
            choice.map(|choice| (choice.file, choice.class.unwrap_or_default())).map_err(|error| error.to_string())
        };
        let found = |file: &str, class: &str| Ok((file.to_owned(), class.to_owned()));
        assert_eq!(parse("two.py:Light"), found("two.py", "Light"));
        assert_eq!(parse("two:Light"), found("two.py", "Light"));
        assert_eq!(parse("load.shop:Shop"), found("load/shop.py", "Shop"));
        for whole in ["two.py", "shop.toml", "http://shop.test:8080/x", "shop:8080"] {
            assert_eq!(parse(whole), found(whole, ""), "{whole}");
        }
        let error = parse("vk:Shop").expect_err("no such file");
        assert!(error.contains("there is no file vk.py; write FILE.py:Shop"), "{error}");
    }
}
