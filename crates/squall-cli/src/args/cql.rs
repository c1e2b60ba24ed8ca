//! The arguments of `squall cql`: the words of cassandra-stress, which squall-cql reads, and the
//! flags that `squall run` has too. A flag may stand anywhere between the words.

use clap::{Args, CommandFactory};
use squall_cql::has_wrong_dashes;
use squall_model::Threshold;
use std::{ffi::OsString, time::Duration};

use super::{
    Cli, FleetArgs, OutputArgs, SearchArgs,
    search::{parse_find_max_threshold, parse_precision},
};

/// Arguments of `squall cql`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall cql write n=1M -rate threads=50 -node 10.0.0.1
  squall cql read duration=5m -rate threads=50 fixed=5000/s -node 10.0.0.1
  squall cql mixed 'ratio(write=1,read=3)' n=100k -rate threads=20
  squall cql read n=1M -rate threads=50 -t 'READ:p99<20ms' --html report.html
  squall cql write n=100M -rate threads=500 -node 10.0.0.1 --cluster
  squall cql read n=1M -rate threads=50 --find-max 'p99<20ms'
  squall cql help -rate                  the options of one group

Flags can stand before, between and after the words. A path after a flag whose
path is optional needs a `.` or `/`, or write it as --json=PATH.

Exit codes: 0 passed, 1 operation failed or threshold breached, 2 usage,
3 database not reached, 4 load not made, 130 interrupted.")]
pub(crate) struct CqlArgs {
    /// The arguments as typed, without the program name
    #[arg(skip)]
    pub(crate) raw_args: Vec<String>,
    /// The command line of cassandra-stress; `squall cql help` explains it
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Name of the run in reports
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Threshold of the run, e.g. 'p99<50ms', 'error_rate<1%', 'WRITE:p95[10s]<1s !abort';
    /// repeatable
    #[arg(long = "threshold", value_name = "THRESHOLD", short = 't')]
    pub(crate) thresholds: Vec<Threshold>,
    /// Exit with 4 if the generator could not keep its schedule
    #[arg(long)]
    pub(crate) strict: bool,
    /// Let a run pass that made less than 99 % of its planned starts
    #[arg(long, conflicts_with = "strict")]
    pub(crate) allow_missing: bool,
    #[command(flatten, next_help_heading = "Search")]
    search: CqlSearchArgs,
    #[command(flatten, next_help_heading = "Fleet")]
    pub(crate) fleet: FleetArgs,
    #[command(flatten, next_help_heading = "Output")]
    pub(crate) output: OutputArgs,
}

/// The search flags of `squall run`. The load flags that exclude them there are words here.
#[derive(Debug, Args)]
struct CqlSearchArgs {
    /// Find the highest rate that holds this threshold, e.g. 'p99<50ms'; starts at throttle= or
    /// fixed=, or 50/s
    #[arg(
        long,
        value_name = "THRESHOLD",
        value_parser = parse_find_max_threshold,
        conflicts_with_all = ["html", "junit", "csv", "hdr", "json_lines", "save_baseline", "history", "prometheus", "cluster"]
    )]
    find_max: Option<Threshold>,
    /// How close the search gets to the highest rate [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_precision)]
    find_max_precision: Option<f64>,
    /// Length of one probe [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = squall_model::parse_duration)]
    find_max_probe: Option<Duration>,
}

impl CqlArgs {
    pub(crate) fn search(&self) -> SearchArgs {
        let CqlSearchArgs { find_max, find_max_precision, find_max_probe } = &self.search;
        SearchArgs {
            find_max: find_max.clone(),
            find_max_precision: *find_max_precision,
            find_max_probe: *find_max_probe,
        }
    }
}

/// Moves the flags of `squall cql` before the words of cassandra-stress, where clap reads them. Other
/// commands stay as they are.
pub(crate) fn move_cql_flags(arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "cql") {
        return arguments;
    }
    let cli = Cli::command();
    let Some(cql) = cli.find_subcommand("cql") else { return arguments };
    let mut typed = arguments.into_iter().peekable();
    let mut flags: Vec<OsString> = typed.by_ref().take(2).collect();
    let mut words = Vec::new();
    while let Some(word) = typed.next() {
        match value_of_flag(cql, &word.to_string_lossy()) {
            None => words.push(word),
            Some(FlagValue::None) => flags.push(word),
            Some(FlagValue::Required) => flags.extend([Some(word), typed.next()].into_iter().flatten()),
            Some(FlagValue::OptionalPath) => {
                let path = typed.next_if(|next| is_path(&next.to_string_lossy()));
                flags.push(match path {
                    Some(path) => [word, path].join(&OsString::from("=")),
                    None => word,
                });
            }
        }
    }
    if !words.is_empty() {
        flags.push(OsString::from("--"));
    }
    flags.extend(words);
    flags
}

/// What follows a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlagValue {
    /// Nothing, or the value is part of the word.
    None,
    Required,
    OptionalPath,
}

/// `None` for a word of cassandra-stress, whose groups begin with one dash.
fn value_of_flag(cql: &clap::Command, word: &str) -> Option<FlagValue> {
    let known = match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(""), _) | (None, None) => return None,
        (Some(long), _) => cql.get_arguments().find(|arg| arg.get_long() == Some(long)),
        (None, Some("h")) => return Some(FlagValue::None),
        (None, Some(letter)) => {
            Some(cql.get_arguments().find(|arg| arg.get_short().is_some_and(|short| letter == short.to_string()))?)
        }
    };
    let Some(arg) = known else {
        // clap reads an unknown flag, --help or --flag=value; squall-cql explains words of its own with wrong dashes.
        let is_word = cql.get_arguments().all(|arg| arg.get_long() != Some(flag_name(word))) && has_wrong_dashes(word);
        return (!is_word).then_some(FlagValue::None);
    };
    Some(match arg.get_num_args().filter(|_| arg.get_action().takes_values()) {
        Some(values) if values.min_values() == 0 => FlagValue::OptionalPath,
        _ if arg.get_action().takes_values() => FlagValue::Required,
        _ => FlagValue::None,
    })
}

/// `json` of `--json=result.json`.
fn flag_name(word: &str) -> &str {
    word.trim_start_matches('-').split('=').next().unwrap_or_default()
}

/// Whether a word is a path of an output, and not a word of cassandra-stress.
fn is_path(word: &str) -> bool {
    word == "-" || (word.contains(['.', '/']) && !word.starts_with('-') && !word.contains(['=', '(']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expected: &str) {
        let words = typed.split(' ').map(OsString::from).collect();
        let moved: Vec<String> = move_cql_flags(words).iter().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(moved.join(" "), expected);
    }

    #[test]
    fn flags_move_before_the_words_of_cassandra_stress() {
        check("squall cql write n=5 -rate threads=2", "squall cql -- write n=5 -rate threads=2");
        check(
            "squall cql write -t p99<1s -transport truststore=a",
            "squall cql -t p99<1s -- write -transport truststore=a",
        );
        check("squall cql write --json -q -rate auto", "squall cql --json -q -- write -rate auto");
        check("squall cql write --json out/a.json n=5", "squall cql --json=out/a.json -- write n=5");
        check("squall cql --json write n=5", "squall cql --json -- write n=5");
        check("squall cql write --html=report n=5", "squall cql --html=report -- write n=5");
        check("squall cql --help", "squall cql --help");
        check("squall cql write --threads 5 --jsn x", "squall cql --jsn -- write --threads 5 x");
        check("squall cql write --rate threads=5", "squall cql -- write --rate threads=5");
        check("squall run --json http://h", "squall run --json http://h");
    }
}
