//! The command line of cassandra-stress: words become groups of options, and groups become
//! settings with real types. Every mistake is reported at once, with a hint.
//! It reads no file and no environment. The program passes the words after `squall cql`.

mod command_table;
mod grammar;
mod group_table;
mod help;
mod option_reader;
mod problem;
mod words;

use crate::{Distribution, settings::StressSettings};
use grammar::GroupSpec;
use words::SplitWords;

pub(crate) use grammar::GroupValues;
pub(crate) use option_reader::{OptionReader, one_of, pairs, whole_number};
pub use problem::{CommandLineError, CommandLineProblem};

/// What the user asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum CqlCommand {
    /// A run against a database.
    Stress(Box<StressSettings>),
    /// `print dist=…`: the table of a distribution.
    Print(Distribution),
    /// `help` or `help TOPIC`: the text.
    Help(String),
    /// `version`.
    Version,
}

/// All groups of a command line, each with its values; groups that were not typed have defaults.
#[derive(Debug)]
pub(crate) struct CommandGroups {
    pub(crate) command: GroupValues,
    groups: Vec<GroupValues>,
}

impl CommandGroups {
    /// The values of a group; its defaults if the group was not typed.
    pub(crate) fn group(&self, name: &str) -> GroupValues {
        let typed = self.groups.iter().find(|group| group.spec.name == name);
        let spec = group_table::GROUPS.iter().find(|group| group.name == name);
        typed.cloned().unwrap_or_else(|| GroupValues::new(spec.expect("settings ask for groups of the table")))
    }

    /// Whether the group was typed.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.groups.iter().any(|group| group.spec.name == name)
    }
}

/// Reads the words of a command line.
///
/// ```
/// use squall_cql::{CqlCommand, parse_command_line};
/// let words = ["write", "n=10M", "-rate", "threads=50", "fixed=5000/s"];
/// let CqlCommand::Stress(settings) = parse_command_line(&words)? else { panic!() };
/// assert_eq!(settings.schema.keyspace, "keyspace1");
/// let error = parse_command_line(&["write", "n=1", "-rate", "thread=5"]).unwrap_err();
/// assert_eq!(error.to_string(), "-rate does not know thread=5: did you mean threads=?");
/// # Ok::<(), squall_cql::CommandLineError>(())
/// ```
pub fn parse_command_line<S: AsRef<str>>(words: &[S]) -> Result<CqlCommand, CommandLineError> {
    let split = SplitWords::new(words)?;
    let command = find_command(&split.command)?;
    match command.name {
        "help" => return help::help(&split).map(CqlCommand::Help),
        "version" => return Ok(CqlCommand::Version),
        _ => {}
    }
    let mut problems = Vec::new();
    let values = GroupValues::read(command, &split.command_words, &mut problems);
    if command.name == "print" {
        return print(&values, problems);
    }
    let groups = read_groups(&split, &mut problems);
    let settings = StressSettings::read(&CommandGroups { command: values, groups }, &mut problems);
    if problems.is_empty() { Ok(CqlCommand::Stress(Box::new(settings))) } else { Err(CommandLineError { problems }) }
}

/// Whether a word such as `--threads=5` names an option, which has no dash, or a group, which has one.
pub fn has_wrong_dashes(word: &str) -> bool {
    let is_group = |group: &GroupSpec| word.strip_prefix('-').is_some_and(|name| group.is_called(name));
    problem::option_hint(word).is_some() || group_table::GROUPS.iter().any(is_group)
}

fn find_command(typed: &str) -> Result<&'static GroupSpec, CommandLineError> {
    let lower = typed.to_lowercase();
    let found = command_table::COMMANDS.iter().find(|command| command.is_called(&lower));
    found.ok_or_else(|| CommandLineProblem::unknown_command(typed).into())
}

fn print(values: &GroupValues, mut problems: Vec<CommandLineProblem>) -> Result<CqlCommand, CommandLineError> {
    let distribution = OptionReader::new(values, &mut problems).value("dist=", Distribution::Fixed(0), str::parse);
    if problems.is_empty() { Ok(CqlCommand::Print(distribution)) } else { Err(CommandLineError { problems }) }
}

fn read_groups(split: &SplitWords, problems: &mut Vec<CommandLineProblem>) -> Vec<GroupValues> {
    let mut groups: Vec<GroupValues> = Vec::new();
    for (name, words) in &split.groups {
        let Some(spec) = group_table::GROUPS.iter().find(|group| group.is_called(name)) else {
            problems.push(CommandLineProblem::unknown_group(name));
            continue;
        };
        if groups.iter().any(|group| group.spec.name == spec.name) {
            problems.push(CommandLineProblem::RepeatedGroup { group: spec.name });
            continue;
        }
        // Probably a variable of the shell that is empty. `-rate` alone searches the number of threads.
        if words.is_empty() && spec.name != "-rate" {
            problems.push(CommandLineProblem::EmptyGroup { group: spec.name });
            continue;
        }
        groups.push(GroupValues::read(spec, words, problems));
    }
    groups
}

#[cfg(test)]
mod tests;
