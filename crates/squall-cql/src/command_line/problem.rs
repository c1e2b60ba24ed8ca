//! What can be wrong with a command line, in words that name the mistake and the remedy.

use super::{command_table::COMMANDS, grammar::GroupSpec, group_table::GROUPS};
use crate::hint::nearest;
use std::fmt;

/// All mistakes of a command line; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CommandLineError {
    pub problems: Vec<CommandLineProblem>,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineProblem {
    #[error("there is not a command: begin with write, read, mixed, counter_write, counter_read, user, print or help")]
    NoCommand,
    #[error("{typed} is not a command: {hint}")]
    UnknownCommand { typed: String, hint: String },
    #[error("{typed} is not a group of options: {hint}")]
    UnknownGroup { typed: String, hint: String },
    #[error("{group} does not know {typed}: {hint}")]
    UnknownOption { group: &'static str, typed: String, hint: String },
    #[error("{group} has no options: write some after it, or remove it")]
    EmptyGroup { group: &'static str },
    #[error("{group} is there twice: write all of its options after the first")]
    RepeatedGroup { group: &'static str },
    #[error("{group} has {} twice: remove one of them", shown(option))]
    RepeatedOption { group: &'static str, option: &'static str },
    #[error("{group} has both {first} and {second}: write one word, with commas between several values")]
    SecondValue { group: &'static str, first: String, second: String },
    #[error("{group} cannot have {} together: remove all but one", options.join(" and "))]
    Contradiction { group: &'static str, options: Vec<&'static str> },
    #[error("{group} needs {}; see `help {group}`", shown(option))]
    MissingOption { group: &'static str, option: &'static str },
    #[error("{group} {option}: {reason}")]
    Value { group: &'static str, option: String, reason: String },
    #[error("{0}")]
    Combination(String),
}

impl CommandLineProblem {
    pub(super) fn unknown_command(typed: &str) -> CommandLineProblem {
        let names = COMMANDS.iter().map(|command| command.name);
        let hint = match nearest(&typed.to_lowercase(), names.clone()) {
            _ if typed.eq_ignore_ascii_case("legacy") => {
                "write the command line of cassandra-stress 2.1 or later".to_owned()
            }
            Some(name) => format!("did you mean {name}?"),
            None => format!("the commands are {}", names.collect::<Vec<_>>().join(", ")),
        };
        CommandLineProblem::UnknownCommand { typed: typed.to_owned(), hint }
    }

    /// The topic of `help`, in lower case; a group may be typed without its dash.
    pub(super) fn unknown_topic(typed: &str) -> CommandLineProblem {
        let commands = COMMANDS.iter().map(|command| command.name);
        let groups = GROUPS.iter().map(|group| group.name.trim_start_matches('-'));
        match nearest(typed, commands.chain(groups.clone())) {
            _ if typed.starts_with('-') => CommandLineProblem::unknown_group(typed),
            Some(group) if groups.clone().any(|name| name == group) => {
                CommandLineProblem::UnknownCommand { typed: typed.to_owned(), hint: format!("did you mean -{group}?") }
            }
            _ => CommandLineProblem::unknown_command(typed),
        }
    }

    pub(super) fn unknown_group(typed: &str) -> CommandLineProblem {
        let names = GROUPS.iter().map(|group| group.name);
        let hint = match nearest(typed, names.clone()) {
            _ if typed == "-sendto" => "--cluster runs the command on a fleet".to_owned(),
            Some(name) => format!("did you mean {name}?"),
            None => {
                option_hint(typed).unwrap_or_else(|| format!("the groups are {}", names.collect::<Vec<_>>().join(", ")))
            }
        };
        CommandLineProblem::UnknownGroup { typed: typed.to_owned(), hint }
    }

    /// `values` are those of the first and the second time.
    pub(super) fn repeated_option(
        group: &'static str,
        option: &'static str,
        values: (&str, &str),
    ) -> CommandLineProblem {
        let (first, second) = (values.0.to_owned(), values.1.to_owned());
        match option {
            "" => CommandLineProblem::SecondValue { group, first, second },
            option => CommandLineProblem::RepeatedOption { group, option },
        }
    }

    pub(super) fn unknown_option(spec: &'static GroupSpec, typed: &str) -> CommandLineProblem {
        let lower = typed.to_lowercase();
        let name_length = lower.find(['=', '<', '>', '(']).map_or(lower.len(), |at| at + 1);
        let name = lower.get(..name_length).unwrap_or_default();
        let options = spec.all_options().map(|option| option.name).filter(|option| !option.is_empty());
        if lower == name && options.clone().any(|option| option.eq_ignore_ascii_case(name)) {
            let reason = "the value is missing".to_owned();
            return CommandLineProblem::Value { group: spec.name, option: typed.to_owned(), reason };
        }
        let has_it = |group: &&GroupSpec| group.all_options().any(|option| option.name.eq_ignore_ascii_case(name));
        let elsewhere = GROUPS.iter().find(has_it);
        let of_commands = spec.name.starts_with('-') && COMMANDS.iter().any(|command| has_it(&command));
        let hint = match (nearest(name, options.clone()), elsewhere) {
            _ if lower.matches('(').count() > lower.matches(')').count() => "a ) is missing".to_owned(),
            _ if matches!(lower.as_str(), "thrift" | "simplenative") => "only native cql3 is left".to_owned(),
            _ if of_commands => "it belongs to the command: write it before the first group".to_owned(),
            (_, Some(group)) if group.name != spec.name => format!("{} has it", group.name),
            (Some(option), _) => format!("did you mean {}?", shown(option)),
            (None, _) => format!("its options are {}", options.map(shown).collect::<Vec<_>>().join(" ")),
        };
        CommandLineProblem::UnknownOption { group: spec.name, typed: typed.to_owned(), hint }
    }
}

/// An option as messages show it.
fn shown(option: &str) -> String {
    if option.ends_with('(') { format!("{option}…)") } else { option.to_owned() }
}

/// Where the option is that somebody typed with dashes; `None` if there is none.
pub(super) fn option_hint(typed: &str) -> Option<String> {
    let name = typed.trim_start_matches('-').split('=').next().unwrap_or_default();
    let is_meant = |option: &str| !name.is_empty() && option.trim_end_matches(['=', '(']).eq_ignore_ascii_case(name);
    let find = |specs: &'static [GroupSpec]| {
        specs.iter().find_map(|spec| Some((spec.name, spec.all_options().find(|option| is_meant(option.name))?.name)))
    };
    let (place, option) = find(GROUPS).or_else(|| find(COMMANDS))?;
    Some(format!("{} is an option of {place} and has no dash", shown(option)))
}

impl fmt::Display for CommandLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl From<CommandLineProblem> for CommandLineError {
    fn from(problem: CommandLineProblem) -> CommandLineError {
        CommandLineError { problems: vec![problem] }
    }
}
