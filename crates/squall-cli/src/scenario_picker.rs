//! `squall run` without a subject, in a terminal: shows the scenarios found here and asks which. Runs nothing.

use std::{
    fs,
    io::{BufRead, Write},
    path::{Path, PathBuf},
};

use crate::exit::CliError;

/// Folders that are looked into, besides the one where we are.
const SEARCH_FOLDERS: [&str; 3] = [".", "scenarios", "tests"];
/// More than this nobody reads.
const MAX_LISTED: usize = 40;

/// The scenarios found in `folder` and the usual folders below it: TOML with a task, Python with one of the decorators.
pub(crate) fn find_scenarios(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for below in SEARCH_FOLDERS {
        let here = if below == "." { folder.to_owned() } else { folder.join(below) };
        let Ok(entries) = fs::read_dir(&here) else { continue };
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
    fs::read_to_string(path).is_ok_and(|text| {
        let imports = path.extension().is_some_and(|extension| extension == "toml")
            || text.lines().any(|line| {
                let mut words = line.trim_start().split([' ', '.', ',']);
                matches!(words.next(), Some("from" | "import"))
                    && matches!(words.next(), Some("squall" | "loadpilot" | "vikhry"))
            });
        imports && words.iter().any(|word| text.contains(word))
    })
}

/// Asks on `out`, reads the answer from `input`.
pub(crate) fn prompt_for_scenario(
    folder: &Path,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<String, CliError> {
    let found = find_scenarios(folder);
    if found.is_empty() {
        return Err(CliError::new("there is no scenario here: give a URL, or make one with `squall new DIR`"));
    }
    let broken = |error: std::io::Error| CliError::new(format!("cannot ask: {error}"));
    writeln!(out, "Scenarios here:").map_err(broken)?;
    for (index, path) in found.iter().enumerate() {
        let shown = path.strip_prefix(folder).unwrap_or(path);
        writeln!(out, "  {:>2}  {}", index + 1, shown.display()).map_err(broken)?;
    }
    loop {
        write!(out, "Which one? [1-{}, Enter for 1, q to leave] ", found.len())
            .and_then(|()| out.flush())
            .map_err(broken)?;
        let mut line = String::new();
        if input.read_line(&mut line).map_err(broken)? == 0 {
            return Err(CliError::new("nothing was chosen"));
        }
        let chosen = match line.trim() {
            "" => Some(1),
            "q" => return Err(CliError::new("nothing was chosen")),
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
    fn check(answer: &str, expected: Option<&str>) {
        let folder = folder();
        let mut out = Vec::new();
        let picked = prompt_for_scenario(folder.path(), &mut answer.as_bytes(), &mut out);
        let expected = expected.map(|name| folder.path().join(name).display().to_string());
        assert_eq!(picked.ok(), expected, "{}", String::from_utf8_lossy(&out));
    }

    #[test]
    fn only_scenarios_are_offered_and_only_what_is_offered_is_taken() {
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
    fn without_a_scenario_it_says_how_to_make_one() {
        let folder = tempfile::tempdir().unwrap();
        let refused = prompt_for_scenario(folder.path(), &mut "".as_bytes(), &mut Vec::new()).unwrap_err();
        assert!(refused.to_string().contains("squall new"), "{refused}");
    }
}
