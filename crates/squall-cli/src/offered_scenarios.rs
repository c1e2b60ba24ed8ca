//! The scenarios that an orchestrator offers in its web UI: the one of `--scenario` and the files of
//! `--scenarios DIR`. An order of the page becomes the words of `squall test start`, so that both check
//! the same and start the same. `commands::orchestrator` passes it to squall-web.

use clap::Parser;
use serde_json::Value;
use squall_web::{CatalogError, OrderedRun, ScenarioCatalog, ScenarioDescription, StartOrder};
use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    args::{Cli, CliCommand, RunArgs},
    bundle, command_line,
    commands::{orchestrator::build_offer, run::resolve_input},
    exit::CliError,
    scenario_choice::ScenarioChoice,
    script_host::ScriptHost,
};

/// The flag of each field of an order.
const FLAGS: [(&str, &str); 7] = [
    ("--target", "target"),
    ("--users", "users"),
    ("--rate", "rate"),
    ("--for", "duration"),
    ("--ramp-up", "ramp_up"),
    ("--threshold", "thresholds"),
    ("--param", "params"),
];

/// What begins an expression of a template.
const TEMPLATE_START: &str = "{{";

/// The scenarios of an orchestrator.
pub(crate) struct OfferedScenarios<H> {
    /// The value of `--scenario`, which is a scenario of the list too.
    pub(crate) scenario: Option<String>,
    /// The value of `--target`.
    pub(crate) target: Option<String>,
    /// The value of `--scenarios`.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) host: H,
}

impl<H: ScriptHost> OfferedScenarios<H> {
    /// Whether there is anything to offer.
    pub(crate) fn is_configured(&self) -> bool {
        self.scenario.is_some() || self.folder.is_some()
    }

    /// The names of the scenarios in the folder, sorted.
    pub(crate) fn files(&self) -> Result<Vec<String>, CliError> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let read = fs::read_dir(folder).map_err(|error| CliError::file_error("read", folder, &error))?;
        let is_scenario =
            |name: &String| (name.ends_with(".toml") || name.ends_with(".py")) && !name.starts_with(['.', '_']);
        let mut names: Vec<String> = read
            .filter_map(Result::ok)
            .filter(|entry| entry.path().is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(is_scenario)
            .collect();
        names.sort();
        Ok(names)
    }

    /// What `squall test start` takes for a scenario of the list. Only names of the list are opened.
    fn path(&self, name: &str) -> Result<String, CatalogError> {
        if self.scenario.as_deref() == Some(name) {
            return Ok(name.to_owned());
        }
        let known = self.files().map_err(|error| refused(&error))?.iter().any(|file| file == name);
        let folder = self.folder.as_ref().filter(|_| known);
        let path = folder.map(|folder| folder.join(name).display().to_string());
        let path = path.ok_or_else(|| CatalogError::Unknown(name.to_owned()))?;
        match name.ends_with(".py") && self.host.interpreter().is_none() {
            // Opening it would replace this process by Python.
            true => Err(CatalogError::Refused {
                message: format!("{name}: this orchestrator has no Python: start the one of the Python package"),
                field: None,
            }),
            false => Ok(path),
        }
    }

    /// The words of `squall test start` for an order.
    fn words(&self, path: &str, order: &StartOrder) -> Vec<String> {
        let target = order.target.clone().filter(|target| !target.is_empty());
        let target = target.or_else(|| self.target.clone().filter(|_| self.scenario.as_deref() == Some(path)));
        let given = [
            ("--target", &target),
            ("--users", &order.users),
            ("--rate", &order.rate),
            ("--for", &order.duration),
            ("--ramp-up", &order.ramp_up),
        ];
        let mut words = vec![path.to_owned()];
        for (flag, value) in given {
            words.extend(value.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
        }
        for threshold in &order.thresholds {
            words.extend(["--threshold".to_owned(), threshold.clone()]);
        }
        for (name, value) in &order.params {
            words.extend(["--param".to_owned(), format!("{name}={}", param_text(value))]);
        }
        words
    }
}

/// The value of a `--param`. A person who uses the API may not read files or variables of this machine, so `@`
/// and `$` at the beginning stand for themselves.
fn param_text(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.chars().next() {
        Some(first @ ('@' | '$')) => format!("{first}{text}"),
        _ => text,
    }
}

/// Refuses a target and parameters that could be read as anything but a value. The command line takes a template
/// in both, and `env()` in a template would give the variables of this machine to a person who uses the API.
fn check_values(order: &StartOrder) -> Result<(), CatalogError> {
    let refuse = |field: &str, message: String| Err(CatalogError::Refused { message, field: Some(field.to_owned()) });
    if order.target.as_ref().is_some_and(|target| target.contains(TEMPLATE_START)) {
        return refuse("target", format!("`{TEMPLATE_START}` cannot be used here: a target is a URL, not a template"));
    }
    for (name, value) in &order.params {
        if name.contains('=') {
            return refuse("params", format!("`{name}` cannot be the name of a parameter: it contains `=`"));
        }
        if param_text(value).contains(TEMPLATE_START) {
            return refuse("params", format!("{name}: `{TEMPLATE_START}` cannot be used here: a value is no template"));
        }
    }
    Ok(())
}

/// The message of the command line, at the field whose flag it names first.
fn refused(error: &CliError) -> CatalogError {
    let text = error.to_string();
    // The count of problems after a blank line says nothing at a field.
    let text = text.split("\n\n").next().unwrap_or_default();
    let named = FLAGS.iter().filter_map(|(flag, field)| Some((text.find(flag)?, *flag, *field)));
    let (flag, field) = named.min().map_or((None, None), |(_, flag, field)| (Some(flag), Some(field.to_owned())));
    let message = flag.and_then(|flag| text.strip_prefix(flag)?.strip_prefix(": ")).unwrap_or(text).to_owned();
    CatalogError::Refused { message, field }
}

fn parse_run(words: &[String]) -> Result<Box<RunArgs>, CliError> {
    let all = ["squall", "run"].into_iter().chain(words.iter().map(String::as_str));
    match Cli::try_parse_from(all).map_err(|error| CliError::new(error.to_string()))?.command {
        CliCommand::Run(args) => Ok(args),
        _ => Err(CliError::new("give a scenario")),
    }
}

impl<H: ScriptHost> ScenarioCatalog for OfferedScenarios<H> {
    fn names(&self) -> Result<Vec<String>, CatalogError> {
        let files = self.files().map_err(|error| refused(&error))?;
        Ok(self.scenario.iter().cloned().chain(files).collect())
    }

    fn describe(&self, name: &str) -> Result<ScenarioDescription, CatalogError> {
        let path = self.path(name)?;
        let target = self.target.as_deref().filter(|_| self.scenario.as_deref() == Some(name));
        let offer = build_offer(Path::new(&path), target, &self.host).map_err(|error| refused(&error))?;
        Ok(ScenarioDescription {
            params: offer.params,
            accepts_any_param: offer.accepts_any_param,
            has_target: offer.has_target,
            bundle: offer.bundle,
        })
    }

    fn build(&self, name: &str, order: &StartOrder) -> Result<OrderedRun, CatalogError> {
        check_values(order)?;
        let path = self.path(name)?;
        let words = self.words(&path, order);
        let build = || {
            let ScenarioChoice { file, class } = ScenarioChoice::parse(&path, Path::new(""))?;
            let mut args = parse_run(&words)?;
            args.input = Some(file);
            args.script.scenario = class;
            let input = resolve_input(&mut args)?;
            bundle::build(&input, &args, &self.host)
        };
        let (bundle, description) = build().map_err(|error| refused(&error))?;
        let command = command_line::shell_line(&["squall", "test", "start"], &words);
        Ok(OrderedRun { bundle, description, command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installed_python::InstalledPython;
    use serde_json::json;

    const SHOP: &str = r#"
target = "http://127.0.0.1:1"
[variables]
shelf = 1
[load]
users = 3
for = "10s"
[[task]]
name = "browse"
get = "/api/shelves/{{ shelf }}"
"#;

    fn offered(folder: &Path) -> OfferedScenarios<InstalledPython> {
        let host = InstalledPython { arguments: Vec::new() };
        OfferedScenarios { scenario: None, target: None, folder: Some(folder.to_owned()), host }
    }

    fn order(fields: Value) -> StartOrder {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn files_of_the_folder_are_offered_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["shop.toml", "flow.py", "_private.py", ".hidden.toml", "users.csv"] {
            fs::write(folder.path().join(name), SHOP).unwrap();
        }
        let offered = offered(folder.path());
        assert_eq!(offered.names().unwrap(), ["flow.py", "shop.toml"]);
        for name in ["../shop.toml", "/etc/passwd", "users.csv", "", "_private.py"] {
            assert_eq!(offered.describe(name).unwrap_err(), CatalogError::Unknown(name.to_owned()));
        }
        let python = offered.describe("flow.py").unwrap_err().to_string();
        assert!(python.contains("start the one of the Python package"), "{python}");
        let shop = offered.describe("shop.toml").unwrap();
        assert_eq!((shop.params[0].name.as_str(), &shop.params[0].default), ("shelf", &Some(json!(1))));
    }

    #[test]
    fn order_builds_the_run_of_its_command_line() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("shop.toml"), SHOP).unwrap();
        let fields = json!({
            "rate": "90/m", "duration": "2m", "ramp_up": "30s", "thresholds": ["p99 < 250ms"], "params": {"shelf": 7},
        });
        let run = offered(folder.path()).build("shop.toml", &order(fields)).unwrap();
        let plan = &run.bundle.plan;
        assert_eq!(plan.load.model.profile().duration().as_secs(), 120);
        assert_eq!((plan.load.model.unit().name(), plan.thresholds.len()), ("rate", 1));
        assert_eq!(run.bundle.params["shelf"], "7");
        let path = folder.path().join("shop.toml");
        let expected = format!(
            "squall test start {} --rate 90/m --for 2m --ramp-up 30s --threshold 'p99 < 250ms' --param shelf=7",
            path.display()
        );
        assert_eq!(run.command, expected);
    }

    #[test]
    fn refusal_names_the_field_of_the_order() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("shop.toml"), SHOP).unwrap();
        let offered = offered(folder.path());
        for (fields, expected) in [
            (json!({"users": "many"}), "users"),
            (json!({"rate": "-1"}), "rate"),
            (json!({"duration": "soon"}), "duration"),
            (json!({"thresholds": ["p99 <"]}), "thresholds"),
            (json!({"params": {"unknown": "x"}}), "params"),
        ] {
            match offered.build("shop.toml", &order(fields.clone())) {
                Err(CatalogError::Refused { field, message }) => {
                    assert_eq!(field.as_deref(), Some(expected), "{fields}: {message}");
                }
                other => panic!("{fields}: {other:?}"),
            }
        }
    }

    #[test]
    fn parameters_of_an_order_read_no_file_and_no_variable() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("shop.toml"), SHOP).unwrap();
        for text in ["@/etc/passwd", "$HOME", "@@x", "$$x", "$5"] {
            let run = offered(folder.path()).build("shop.toml", &order(json!({"params": {"shelf": text}}))).unwrap();
            assert_eq!(run.bundle.params["shelf"], text);
        }
    }

    #[test]
    fn target_and_parameters_of_an_order_are_no_templates() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("shop.toml"), SHOP).unwrap();
        let offered = offered(folder.path());
        let template = r#"{{ env("PATH") }}"#;
        for (fields, expected) in [
            (json!({"target": format!("http://127.0.0.1:1/{template}")}), "target"),
            (json!({"params": {"shelf": template}}), "params"),
            (json!({"params": {"shelf": [template]}}), "params"),
            (json!({"params": {"shelf={{ env('PATH') }}#": "x"}}), "params"),
        ] {
            match offered.build("shop.toml", &order(fields.clone())) {
                Err(CatalogError::Refused { field, message }) => {
                    assert_eq!(field.as_deref(), Some(expected), "{fields}: {message}");
                    assert!(!message.contains("/bin"), "{message}");
                    assert!(message.contains("{{") || message.contains('='), "{message}");
                }
                other => panic!("{fields}: {other:?}"),
            }
        }
    }
}
