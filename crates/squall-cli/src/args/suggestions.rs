//! Suggestions for words that the command line does not know: misspelled commands, and flags and
//! commands of other load-testing tools. It changes only the hint of clap's error. `main_with` calls it.

use clap::{
    CommandFactory,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::Cli;

/// Flags of k6, Locust, wrk, hey, oha, vegeta and curl that `squall run` has under another name.
const FLAGS: [(&[&str], &str); 23] = [
    (&["--vus", "-u", "--concurrency", "--clients", "--workers"], "--users N"),
    (&["--max-vus"], "--max-users N"),
    (&["-z", "--run-time", "--time"], "--for DURATION"),
    (&["--rps", "-R", "--qps", "--rate-limit"], "--rate RATE"),
    (&["-i"], "--requests N"),
    (&["--spawn-rate", "--hatch-rate", "-r"], "--ramp-up DURATION, the time from 0 to the full load"),
    (&["--stage", "-s"], "--stages 10s:100,30s:500"),
    (&["--think-time", "--wait-time"], "--pause DURATION"),
    (&["--host", "--base-url"], "--target URL"),
    (&["--env", "-e"], "--param NAME=VALUE"),
    (&["--out", "-o"], "--json PATH, or --json-lines PATH for one object a second"),
    (&["--summary-export", "--output"], "--json PATH"),
    (&["--latency", "--summary-trend-stats"], "nothing: the summary always has the percentiles"),
    (&["--headless", "--only-summary", "--no-ui"], "--no-tui, which prints a line a second"),
    (&["--data", "--data-raw"], "--body TEXT"),
    (&["-D", "--body-path"], "--body-file PATH"),
    (&["-m", "--request"], "--method METHOD"),
    (&["-a", "--user"], "--basic USER:PASSWORD"),
    (&["-x"], "--proxy URL"),
    (&["--insecure-skip-tls-verify"], "--insecure"),
    (&["--disable-keepalive"], "--no-keep-alive"),
    (&["--disable-redirects"], "--no-redirects"),
    (&["-L", "--location"], "nothing: redirects are followed, unless --no-redirects"),
];

/// Commands of other tools, and words for commands of this one.
const COMMANDS: [(&[&str], &str); 10] = [
    (&["attack", "bench", "load"], "run"),
    (&["start"], "test start"),
    (&["stop"], "test stop"),
    (&["status"], "test status"),
    (&["scale"], "test scale"),
    (&["check", "validate", "inspect"], "run FILE --check"),
    (&["init", "create"], "new"),
    (&["serve", "server"], "target"),
    (&["infra"], "up, or squall down"),
    (&["master", "leader"], "orchestrator"),
];

/// `error` with a hint that names what the user probably meant.
pub(crate) fn add_suggestion(mut error: clap::Error, arguments: &[String]) -> clap::Error {
    let hint = match (error.kind(), invalid_word(&error)) {
        (ErrorKind::UnknownArgument, Some(word)) if takes_run_flags(arguments) => flag_hint(&word),
        (ErrorKind::InvalidSubcommand, Some(word)) if arguments.first() == Some(&word) => command_hint(&word),
        _ => None,
    };
    if let Some(hint) = hint {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

fn invalid_word(error: &clap::Error) -> Option<String> {
    let value = error.get(ContextKind::InvalidArg).or_else(|| error.get(ContextKind::InvalidSubcommand))?;
    match value {
        ContextValue::String(word) => Some(word.clone()),
        _ => None,
    }
}

fn takes_run_flags(arguments: &[String]) -> bool {
    let words: Vec<&str> = arguments.iter().take(2).map(String::as_str).collect();
    matches!(words.as_slice(), ["run", ..] | ["test", "start"])
}

fn flag_hint(word: &str) -> Option<String> {
    let flag = word.split('=').next().unwrap_or(word);
    let meant = FLAGS.iter().find_map(|(flags, meant)| flags.contains(&flag).then_some(meant))?;
    Some(match meant.strip_prefix("nothing: ") {
        Some(reason) => format!("leave {flag} out: {reason}"),
        None => format!("did you mean {meant}?"),
    })
}

/// What the user probably meant by the unknown flag `--name` of `squall run`.
pub(crate) fn run_flag_hint(name: &str) -> Option<String> {
    flag_hint(&format!("--{name}")).or_else(|| nearest_run_flag(name).map(|flag| format!("did you mean --{flag}?")))
}

fn nearest_run_flag(name: &str) -> Option<String> {
    let cli = Cli::command();
    let longs = cli.find_subcommand("run")?.get_arguments().filter_map(|arg| arg.get_long());
    nearest(name, longs)
}

fn command_hint(word: &str) -> Option<String> {
    let foreign = COMMANDS.iter().find_map(|(words, meant)| words.contains(&word).then_some((*meant).to_owned()));
    let meant = foreign.or_else(|| nearest_command(word))?;
    Some(format!("did you mean squall {meant}?"))
}

/// The command with the fewest changed letters, if few enough.
fn nearest_command(word: &str) -> Option<String> {
    let cli = Cli::command();
    nearest(word, cli.get_subcommands().map(clap::Command::get_name))
}

/// The name with the fewest changed letters, if few enough.
fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let (distance, name) = names.map(|name| (edit_distance(word, name), name)).min()?;
    (distance <= 1 + name.len() / 5).then(|| name.to_owned())
}

/// How many letters must be inserted, removed, replaced or swapped with their neighbour.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[track_caller]
    fn check(line: &str, hint: &str) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = Cli::try_parse_from(std::iter::once("squall".to_owned()).chain(arguments.clone())).expect_err(line);
        let text = add_suggestion(error, &arguments).to_string();
        assert!(text.contains(hint) && text.matches("tip:").count() == 1, "{line}: {text}");
    }

    #[test]
    fn misspelled_commands_are_suggested() {
        for word in ["rn", "ru", "rnu", "runn", "urn"] {
            check(&format!("{word} http://x/"), "did you mean squall run?");
        }
        check("compre a b", "did you mean squall compare?");
        check("orchestartor", "did you mean squall orchestrator?");
    }

    #[test]
    fn commands_of_other_tools_are_suggested() {
        check("attack", "did you mean squall run?");
        check("start shop.toml", "did you mean squall test start?");
        check("master", "did you mean squall orchestrator?");
    }

    #[test]
    fn flags_of_other_tools_are_suggested() {
        check("run http://x/ --vus 5", "did you mean --users N?");
        check("run http://x/ --vus=5", "did you mean --users N?");
        check("run http://x/ -z 30s", "did you mean --for DURATION?");
        check("run http://x/ --rps 5", "did you mean --rate RATE?");
        check("run shop.py --spawn-rate 5", "did you mean --ramp-up DURATION");
        check("test start shop.py -u 5", "did you mean --users N?");
        check("run http://x/ -L", "leave -L out: redirects are followed");
    }

    #[test]
    fn flags_that_squall_shares_with_other_tools_are_accepted() {
        for flags in ["--duration 30s", "-c 5", "-n 5", "--iterations 5", "--connections 5"] {
            let words = format!("squall run http://x/ {flags}");
            assert!(Cli::try_parse_from(words.split_whitespace()).is_ok(), "{flags}");
        }
    }

    #[test]
    fn suggested_flags_and_commands_exist_and_foreign_ones_do_not() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").expect("a command");
        let known = |flag: &str| {
            run.get_arguments().any(|arg| {
                let long =
                    arg.get_long_and_visible_aliases().into_iter().flatten().any(|long| format!("--{long}") == flag);
                long || arg.get_short().is_some_and(|short| format!("-{short}") == flag)
            })
        };
        for (foreign, meant) in FLAGS {
            let word = meant.split([' ', ',']).next().expect("a word");
            assert!(known(word) || word == "nothing:", "{meant}");
            assert!(!foreign.iter().any(|flag| known(flag)), "{foreign:?}");
        }
        for (foreign, meant) in COMMANDS {
            let word = meant.split([' ', ',']).next().expect("a word");
            assert!(cli.find_subcommand(word).is_some(), "{meant}");
            assert!(foreign.iter().all(|word| cli.find_subcommand(word).is_none()), "{foreign:?}");
        }
    }
}
