//! Flags of `squall run` that the environment (`SQUALL_RATE`) or `squall.toml` in the working folder
//! sets. A flag on the command line wins over the environment, and the environment over the file. It
//! only adds words to the command line: clap and squall-scenario validate them like typed ones.
//! `main_with` calls it.

use clap::{ArgAction, ArgMatches, Command, CommandFactory, parser::ValueSource};
use squall_scenario::read_input_text;
use std::{collections::BTreeMap, ffi::OsString, io::ErrorKind, path::Path};

use crate::{
    args::{Cli, run_flag_hint},
    command_line::{ShownValues, reported_command_line},
    exit::CliError,
};

/// The file of flags in the working folder.
pub(crate) const FILE: &str = "squall.toml";

/// Loads that exclude each other: the source that is read first decides.
const EXCLUSIVE: [(&str, &str); 8] = [
    ("rate", "users"),
    ("rate", "pause"),
    ("arrivals", "users"),
    ("poisson", "users"),
    ("stages", "duration"),
    ("stages", "ramp_up"),
    ("stages", "profile"),
    ("stages", "steps"),
];

/// One flag of `squall run` and where its value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlagOrigin {
    pub(crate) flag: String,
    /// As on the command line, without secrets: `--rate=500`.
    shown: String,
    /// `command line`, `SQUALL_RATE` or `squall.toml`.
    source: String,
}

/// The words of a command line with the flags that the environment and the file add.
#[derive(Debug)]
pub(crate) struct ExpandedArguments {
    pub(crate) words: Vec<OsString>,
    pub(crate) origins: Vec<FlagOrigin>,
}

/// Texts of a flag by the id of its argument.
type Settings = BTreeMap<String, (String, Vec<String>)>;

/// Adds the flags of the environment and of `squall.toml` to `squall run …`. Other commands, and
/// command lines that clap refuses, stay as they are.
pub(crate) fn expand(words: Vec<OsString>) -> Result<ExpandedArguments, CliError> {
    let unchanged = |words| Ok(ExpandedArguments { words, origins: Vec::new() });
    if words.get(1).is_none_or(|word| word != "run") {
        return unchanged(words);
    }
    let mut cli = Cli::command();
    cli.build();
    let Ok(matches) = cli.clone().try_get_matches_from(&words) else { return unchanged(words) };
    let (Some(run), Some(matches)) = (cli.find_subcommand("run"), matches.subcommand_matches("run")) else {
        return unchanged(words);
    };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_scenario = matches.get_one::<String>("input").is_some_and(|input| Path::new(input).ends_with(FILE));
    let file = if is_scenario { None } else { read_file(Path::new(FILE))? };
    let from_file = file.map(|text| file_settings(run, &text)).transpose()?.unwrap_or_default();
    add_presets(run, matches, words, [environment_settings(run, variable), from_file])
}

/// The text of the file, if there is one.
fn read_file(path: &Path) -> Result<Option<String>, CliError> {
    match read_input_text(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| CliError::file_error("read", path, &error)),
    }
}

fn add_presets(
    run: &Command,
    matches: &ArgMatches,
    mut words: Vec<OsString>,
    sources: [Settings; 2],
) -> Result<ExpandedArguments, CliError> {
    let mut origins = typed_flags(run, matches);
    let is_typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let mut given: Vec<String> =
        run.get_arguments().map(|arg| arg.get_id().to_string()).filter(|id| is_typed(id)).collect();
    for settings in sources {
        let applied: Vec<_> = settings.into_iter().filter(|(id, _)| !is_excluded(run, id, &given)).collect();
        for (id, (source, values)) in &applied {
            let added = flag_words(run, id, source, values)?;
            origins.extend(added.iter().map(|word| FlagOrigin::new(word, source)));
            words.splice(2..2, added.into_iter().map(OsString::from));
        }
        given.extend(applied.into_iter().map(|(id, _)| id));
    }
    Ok(ExpandedArguments { words, origins })
}

/// Whether a flag that is already `given` replaces the flag `id`.
fn is_excluded(run: &Command, id: &str, given: &[String]) -> bool {
    let is_given = |other: &str| given.iter().any(|known| known == other);
    let excludes = |(a, b): (&str, &str)| (a == id && is_given(b)) || (b == id && is_given(a));
    let conflicts = |other: &&clap::Arg| {
        let ids = |arg: &clap::Arg| run.get_arg_conflicts_with(arg).iter().any(|arg| arg.get_id() == id);
        is_given(other.get_id().as_str()) && ids(other)
    };
    is_given(id)
        || in_group_of_given(run, id, given)
        || EXCLUSIVE.into_iter().any(excludes)
        || run.get_arguments().any(|other| conflicts(&other))
}

/// Whether a group of flags, of which only one can be given, has the flag `id` and one that is `given`.
fn in_group_of_given(run: &Command, id: &str, given: &[String]) -> bool {
    let mut exclusive = run.get_groups().cloned().filter_map(|mut group| (!group.is_multiple()).then_some(group));
    exclusive.any(|group| {
        let has_given = group.get_args().any(|member| given.iter().any(|known| member == known.as_str()));
        has_given && group.get_args().any(|member| member == id)
    })
}

impl FlagOrigin {
    fn new(word: &str, source: &str) -> FlagOrigin {
        let shown = reported_command_line(&[word.to_owned()], ShownValues::NamesOnly);
        let flag = word.split('=').next().unwrap_or(word).to_owned();
        FlagOrigin { flag, shown: shown.trim_start_matches("squall ").to_owned(), source: source.to_owned() }
    }
}

/// The flags with their sources, for `--check`; empty if there are none.
pub(crate) fn describe(origins: &[FlagOrigin]) -> String {
    let width = origins.iter().map(|origin| origin.shown.chars().count()).max().unwrap_or(0);
    let line = |origin: &FlagOrigin| format!("    {:<width$}  {}\n", origin.shown, origin.source);
    match origins.is_empty() {
        true => String::new(),
        false => format!("  flags\n{}", origins.iter().map(line).collect::<String>()),
    }
}

/// Names the source of each flag in `message` that was not typed.
pub(crate) fn name_sources(message: &str, origins: &[FlagOrigin]) -> String {
    let is_named = |origin: &&FlagOrigin| origin.source != "command line" && message.contains(&origin.flag);
    origins.iter().filter(is_named).map(|origin| format!("{} is set by {}\n", origin.flag, origin.source)).collect()
}

fn typed_flags(run: &Command, matches: &ArgMatches) -> Vec<FlagOrigin> {
    let mut origins = Vec::new();
    for arg in run.get_arguments() {
        let (Some(long), id) = (arg.get_long(), arg.get_id().as_str()) else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let values = matches.get_raw(id).filter(|_| arg.get_action().takes_values()).into_iter().flatten();
        let mut words: Vec<String> = values.map(|value| format!("--{long}={}", value.to_string_lossy())).collect();
        if words.is_empty() && id != "check" {
            words.push(format!("--{long}"));
        }
        origins.extend(words.iter().map(|word| FlagOrigin::new(word, "command line")));
    }
    origins
}

/// `SQUALL_RATE` sets `--rate`. A variable sets one value of a repeatable flag.
fn environment_settings(run: &Command, variable: impl Fn(&str) -> Option<String>) -> Settings {
    // clap reads the variables of these flags itself.
    let flags = run.get_arguments().filter(|arg| arg.get_env().is_none() && is_preset_flag(arg));
    let setting = |arg: &clap::Arg| {
        let name = format!("SQUALL_{}", arg.get_long()?.replace('-', "_").to_uppercase());
        Some((arg.get_id().to_string(), (name.clone(), vec![variable(&name)?])))
    };
    flags.filter_map(setting).collect()
}

/// The table `[run]` of the file. A scenario of the same name has none and sets nothing.
fn file_settings(run: &Command, text: &str) -> Result<Settings, CliError> {
    let invalid = |error: String| CliError::new(format!("{FILE}: {error}"));
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| invalid(error.to_string()))?;
    let Some(flags) = table.get("run") else {
        let is_scenario = table.contains_key("task");
        let remedy = "has no table [run]: write the flags of `squall run` under it, as in rate = 500".to_owned();
        return if is_scenario || table.is_empty() { Ok(Settings::new()) } else { Err(invalid(remedy)) };
    };
    let flags = flags.as_table().ok_or_else(|| invalid("`run` is not a table: write [run]".to_owned()))?;
    let mut settings = Settings::new();
    for (key, value) in flags {
        let flag = key.replace('_', "-");
        let known = |arg: &&clap::Arg| is_preset_flag(arg) && has_name(arg, &flag);
        let Some(arg) = run.get_arguments().find(known) else {
            let hint = run_flag_hint(&flag).unwrap_or_else(|| "--help lists them".to_owned());
            return Err(invalid(format!("[run] has `{key}`, which is no flag of `squall run`: {hint}")));
        };
        let values = match value {
            toml::Value::Array(values) => values.iter().map(setting_text).collect::<Option<Vec<_>>>(),
            value => setting_text(value).map(|text| vec![text]),
        };
        let remedy = || invalid(format!("[run] {key}: give a text, a number, true, false or a list of texts"));
        settings.insert(arg.get_id().to_string(), (FILE.to_owned(), values.ok_or_else(remedy)?));
    }
    Ok(settings)
}

fn setting_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => Some(value.to_string()),
        toml::Value::Array(_) | toml::Value::Table(_) | toml::Value::Datetime(_) => None,
    }
}

/// Whether `--name` is the flag or another name of it.
fn has_name(arg: &clap::Arg, name: &str) -> bool {
    arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

/// Whether a flag can be preset: all but help and the flags that squall gives to its own processes.
fn is_preset_flag(arg: &clap::Arg) -> bool {
    arg.get_long().is_some() && !matches!(arg.get_id().as_str(), "part" | "help" | "version")
}

/// The words that set a flag on the command line.
fn flag_words(run: &Command, id: &str, source: &str, values: &[String]) -> Result<Vec<String>, CliError> {
    let Some(arg) = run.get_arguments().find(|arg| arg.get_id() == id) else { return Ok(Vec::new()) };
    let long = arg.get_long().unwrap_or_default();
    if arg.get_action().takes_values() {
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        if values.len() > 1 && !is_list {
            return Err(CliError::new(format!("{source}: --{long} takes one value, not {}", values.len())));
        }
        if let [value] = values
            && let Some(default) = value_of_bare_flag(run, id, long)
        {
            return Ok(match value.as_str() {
                "true" => vec![format!("--{long}={default}")],
                "false" => Vec::new(),
                path => vec![format!("--{long}={path}")],
            });
        }
        return Ok(values.iter().map(|value| format!("--{long}={value}")).collect());
    }
    match values.first().map(String::as_str) {
        Some("true" | "1" | "yes" | "on") => Ok(vec![format!("--{long}")]),
        Some("false" | "0" | "no" | "off") => Ok(Vec::new()),
        _ => Err(CliError::new(format!("{source}: --{long} is on or off: give true or false"))),
    }
}

/// The value that a flag has when it is given without one; `None` if it needs a value.
fn value_of_bare_flag(run: &Command, id: &str, long: &str) -> Option<String> {
    let matches = run.clone().try_get_matches_from(["run", "input", &format!("--{long}")]).ok()?;
    let value = matches.get_raw(id)?.next()?;
    Some(value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the expanded command line.
    #[track_caller]
    fn expanded(line: &str, variables: &[(&str, &str)], file: &str) -> Result<Vec<String>, String> {
        let words: Vec<OsString> = format!("squall run {line}").split_whitespace().map(OsString::from).collect();
        let mut cli = Cli::command();
        cli.build();
        let matches = cli.clone().try_get_matches_from(&words).expect(line);
        let (run, matches) = (cli.find_subcommand("run").unwrap(), matches.subcommand_matches("run").unwrap());
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        let from_file = file_settings(run, file).map_err(|error| error.to_string())?;
        let sources = [environment_settings(run, variable), from_file];
        let expanded = add_presets(run, matches, words, sources).map_err(|error| error.to_string())?;
        Ok(describe(&expanded.origins).lines().skip(1).map(|line| line.trim().to_owned()).collect())
    }

    #[test]
    fn command_line_wins_over_environment_and_environment_over_file() {
        let file = "[run]\nrate = 1\nfor = '1s'\nseed = 1\n";
        let flags = expanded("http://x/ --rate 3", &[("SQUALL_RATE", "2"), ("SQUALL_FOR", "2s")], file).unwrap();
        assert_eq!(flags, ["--rate=3  command line", "--for=2s  SQUALL_FOR", "--seed=1  squall.toml"]);
    }

    #[test]
    fn typed_flag_replaces_presets_that_it_excludes() {
        let flags = expanded("http://x/ --users 3", &[("SQUALL_RATE", "2")], "[run]\nstrict = true\n").unwrap();
        assert_eq!(flags, ["--users=3  command line", "--strict   squall.toml"]);
        let flags = expanded("http://x/ --allow-missing", &[], "[run]\nstrict = true\n").unwrap();
        assert_eq!(flags, ["--allow-missing  command line"]);
        let flags = expanded("http://x/ --http2", &[("SQUALL_HTTP1", "true")], "").unwrap();
        assert_eq!(flags, ["--http2  command line"]);
        let flags = expanded("http://x/ --body-json {}", &[("SQUALL_BODY", "x")], "[run]\nform = ['a=b']\n").unwrap();
        assert_eq!(flags, ["--body-json=…  command line"]);
    }

    #[test]
    fn true_and_false_set_outputs_to_their_default_path_and_off() {
        let flags = expanded("http://x/", &[("SQUALL_HTML", "true")], "[run]\njunit = true\ncsv = 'a.csv'\n").unwrap();
        let flags: Vec<_> = flags.iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(flags, ["--html=squall-report.html", "--csv=a.csv", "--junit=squall-junit.xml"]);
        assert_eq!(expanded("http://x/", &[("SQUALL_JSON", "false")], "[run]\nhtml = false\n"), Ok(Vec::new()));
    }

    #[test]
    fn key_can_be_another_name_of_a_flag() {
        assert_eq!(expanded("http://x/", &[], "[run]\nduration = '5s'\n").unwrap(), ["--for=5s  squall.toml"]);
    }

    #[test]
    fn every_flag_has_a_variable_and_a_key() {
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").unwrap();
        let all = environment_settings(run, |_| Some("1".to_owned()));
        let missing: Vec<_> = run.get_arguments().filter(|arg| !all.contains_key(arg.get_id().as_str())).collect();
        let missing: Vec<_> = missing.iter().map(|arg| arg.get_id().as_str()).collect();
        // clap reads SQUALL_FLEET itself.
        assert_eq!(missing, ["input", "part", "fleet", "help"]);
        assert_eq!((all["duration"].0.as_str(), all["no_tui"].0.as_str()), ("SQUALL_FOR", "SQUALL_NO_TUI"));
    }

    #[test]
    fn lists_set_repeatable_flags_and_secrets_are_hidden() {
        let file = "[run]\nthreshold = ['p99<1s', 'errors<1']\nbearer = 'secret'\nquiet = false\n";
        let flags = expanded("http://x/", &[], file).unwrap();
        let shown: Vec<_> = flags.iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(shown, ["--bearer=…", "'--threshold=p99<1s'", "'--threshold=errors<1'"]);
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_refused_with_a_remedy() {
        for (file, part) in [
            ("[run]\nvus = 5\n", "`vus`, which is no flag of `squall run`: did you mean --users N?"),
            ("[run]\nrat = 5\n", "`rat`, which is no flag of `squall run`: did you mean --rate?"),
            ("[run]\nwrong = 5\n", "`wrong`, which is no flag of `squall run`: --help lists them"),
            ("rate = 5\n", "has no table [run]"),
            ("[run]\nrate = [1, 2]\n", "--rate takes one value"),
            ("[run]\nquiet = 'maybe'\n", "--quiet is on or off"),
            ("[run\n", "squall.toml: "),
        ] {
            let error = expanded("http://x/", &[], file).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(expanded("http://x/", &[], "[[task]]\nname = 'a'\n"), Ok(Vec::new()));
    }
}
