//! The prompt of `squall run` without an input on a terminal: lists the scenarios in this folder
//! and asks for one. Runs nothing. `commands::run` calls it.

use squall_scenario::read_input_text;
use std::{
    fs,
    io::{BufRead, Write},
    path::{Path, PathBuf},
};

use crate::exit::CliError;

/// The folders to search, relative to the working directory.
const SEARCH_FOLDERS: [&str; 3] = [".", "scenarios", "tests"];
/// Most scenarios in the list.
const MAX_LISTED: usize = 40;

/// The scenarios in `folder` and the usual folders below it: TOML with a task, or Python with a
/// decorator.
pub(crate) fn find_scenarios(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for subfolder in SEARCH_FOLDERS {
        let path = if subfolder == "." { folder.to_owned() } else { folder.join(subfolder) };
        let Ok(entries) = fs::read_dir(&path) else { continue };
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        found.extend(paths.into_iter().filter(|path| is_scenario(path)));
    }
    found.truncate(MAX_LISTED);
    found
}

fn is_scenario(path: &Path) -> bool {
    let words: &[&str] = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => &["[[task]]"],
        Some("py") => &["@scenario", "@task", "@step", "@squall.", "@loadpilot.", "@vikhry."],
        _ => return false,
    };
    read_input_text(path).is_ok_and(|text| {
        let imports = path.extension().is_some_and(|extension| extension == "toml")
            || text.lines().any(|line| {
                let mut words = line.trim_start().split([' ', '.', ',']);
                matches!(words.next(), Some("from" | "import"))
                    && matches!(words.next(), Some("squall" | "loadpilot" | "vikhry"))
            });
        imports && words.iter().any(|word| text.contains(word))
    })
}

/// Prints the list on `out` and reads the choice from `input`.
pub(crate) fn prompt_for_scenario(
    folder: &Path,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<String, CliError> {
    let found = find_scenarios(folder);
    if found.is_empty() {
        return Err(CliError::new("no scenario found here: give a URL, or create a scenario with `squall new DIR`"));
    }
    let prompt_error = |error: std::io::Error| CliError::new(format!("cannot ask for a scenario: {error}"));
    writeln!(out, "Scenarios here:").map_err(prompt_error)?;
    for (index, path) in found.iter().enumerate() {
        let shown = path.strip_prefix(folder).unwrap_or(path);
        writeln!(out, "  {:>2}  {}", index + 1, shown.display()).map_err(prompt_error)?;
    }
    loop {
        write!(out, "Which one? [1-{}, Enter for 1, q to quit] ", found.len())
            .and_then(|()| out.flush())
            .map_err(prompt_error)?;
        let mut line = String::new();
        if input.read_line(&mut line).map_err(prompt_error)? == 0 {
            return Err(CliError::new("no scenario was chosen"));
        }
        let chosen = match line.trim() {
            "" => Some(1),
            "q" => return Err(CliError::new("no scenario was chosen")),
            word => word.parse::<usize>().ok().filter(|number| (1..=found.len()).contains(number)),
        };
        if let Some(number) = chosen {
            return Ok(found[number - 1].display().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("scenarios")).unwrap();
        write("Cargo.toml", "[package]");
        write("helper.py", "from squall import sleep");
        write("other.py", "from celery import task\n@task");
        write("a.toml", "[[task]]\nget = \"/\"");
        write("scenarios/shop.py", "from squall import VUser, task\n@task");
        write("scenarios/whole.py", "import squall\n@squall.scenario(users=1)\nclass A(squall.VUser): pass");
        write("scenarios/x_old.py", "from loadpilot.dsl import task\n@task");
        write("scenarios/y_no.py", "import squallor\n@task");
        folder
    }

    #[track_caller]
    fn check(typed: &str, expected: Option<&str>) {
        let folder = folder();
        let mut out = Vec::new();
        let picked = prompt_for_scenario(folder.path(), &mut typed.as_bytes(), &mut out);
        let expected = expected.map(|name| folder.path().join(name).display().to_string());
        assert_eq!(picked.ok(), expected, "{}", String::from_utf8_lossy(&out));
    }

    #[test]
    fn only_scenarios_are_listed_and_only_listed_numbers_are_accepted() {
        check("\n", Some("a.toml"));
        check("2\n", Some("scenarios/shop.py"));
        check("3\n", Some("scenarios/whole.py"));
        check("4\n", Some("scenarios/x_old.py"));
        check("5\n2\n", Some("scenarios/shop.py"));
        check("7\nnonsense\n2\n", Some("scenarios/shop.py"));
        check("q\n", None);
        check("", None);
    }

    #[test]
    fn folder_without_scenarios_suggests_squall_new() {
        let folder = tempfile::tempdir().unwrap();
        let error = prompt_for_scenario(folder.path(), &mut "".as_bytes(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("squall new"), "{error}");
    }
}
