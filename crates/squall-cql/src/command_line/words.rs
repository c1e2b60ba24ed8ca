//! Splits the arguments as cassandra-stress does: the shell's own splitting does not count, and
//! blanks around `, = ( )` do not matter. It knows no options.

use super::{CommandLineError, CommandLineProblem};

/// The command, its words, and the words of each group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitWords {
    pub(super) command: String,
    pub(super) command_words: Vec<String>,
    /// Names with their dash, in lower case.
    pub(super) groups: Vec<(String, Vec<String>)>,
}

impl SplitWords {
    pub(super) fn new<S: AsRef<str>>(arguments: &[S]) -> Result<SplitWords, CommandLineError> {
        let joined: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let compact = without_loose_blanks(&joined.join(" "));
        let mut words = words(&compact).into_iter();
        let command = words.next().ok_or(CommandLineProblem::NoCommand)?.to_owned();
        let mut split = SplitWords { command, command_words: Vec::new(), groups: Vec::new() };
        for word in words {
            if word.starts_with('-') {
                split.groups.push((word.to_lowercase(), Vec::new()));
                continue;
            }
            let into = split.groups.last_mut().map_or(&mut split.command_words, |(_, words)| words);
            into.push(word.to_owned());
        }
        split.groups.iter_mut().filter(|(name, _)| name == "-rate").for_each(|(_, words)| split_at_commas(words));
        Ok(split)
    }
}

/// Removes blanks before `, = ( )` and after `, = (`.
fn without_loose_blanks(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ',' | '=' | '(' | ')') {
            out.truncate(out.trim_end().len());
        }
        if c.is_whitespace() && out.ends_with([',', '=', '(']) {
            continue;
        }
        out.push(c);
    }
    out
}

/// Splits at blanks outside of parentheses: pystress separates the options in them with blanks, too. A parenthesis
/// that is never closed protects nothing.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let end = word_end(rest);
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

/// Where the first word of a text ends.
fn word_end(text: &str) -> usize {
    let (mut open, mut first_blank) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match c {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            c if c.is_whitespace() && open == 0 => return at,
            c if c.is_whitespace() => _ = first_blank.get_or_insert(at),
            _ => {}
        }
    }
    first_blank.filter(|_| open > 0).unwrap_or(text.len())
}

/// pystress separates the options of `-rate` with commas or blanks, and no value of `-rate` has a
/// comma.
fn split_at_commas(words: &mut Vec<String>) {
    *words = words.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty()).map(str::to_owned).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], command: &str, command_words: &[&str], groups: &[(&str, &[&str])]) {
        let split = SplitWords::new(arguments).unwrap();
        assert_eq!(split.command, command);
        assert_eq!(split.command_words, command_words);
        let expected: Vec<(String, Vec<String>)> = groups
            .iter()
            .map(|(name, words)| ((*name).to_owned(), words.iter().map(|word| (*word).to_owned()).collect()))
            .collect();
        assert_eq!(split.groups, expected);
    }

    #[test]
    fn blanks_around_punctuation_do_not_matter() {
        check(&["write", "n = 5"], "write", &["n=5"], &[]);
        check(
            &["mixed", "ratio( read = 1 , write=2 )", "-node", "a,", "b"],
            "mixed",
            &["ratio(read=1,write=2)"],
            &[("-node", &["a,b"])],
        );
        check(
            &["write -pop seq=1..5 no-wrap", "-col", "size=fixed", "(5)"],
            "write",
            &[],
            &[("-pop", &["seq=1..5", "no-wrap"]), ("-col", &["size=fixed(5)"])],
        );
    }

    #[test]
    fn blanks_in_parentheses_separate_no_words() {
        check(
            &["write", "n=5", "-schema", "replication(strategy=SimpleStrategy", "replication_factor=1)", "keyspace=k"],
            "write",
            &["n=5"],
            &[("-schema", &["replication(strategy=SimpleStrategy replication_factor=1)", "keyspace=k"])],
        );
        check(
            &["mixed", "ratio(read=1 write=2", "-node", "a"],
            "mixed",
            &["ratio(read=1", "write=2"],
            &[("-node", &["a"])],
        );
    }

    #[test]
    fn options_of_rate_may_be_separated_by_commas() {
        check(
            &["write", "-RATE", "threads=4,throttle=5/s"],
            "write",
            &[],
            &[("-rate", &["threads=4", "throttle=5/s"])],
        );
    }

    #[test]
    fn an_empty_command_line_has_no_command() {
        assert!(SplitWords::new::<&str>(&[]).is_err());
        assert!(SplitWords::new(&[" "]).is_err());
    }
}
