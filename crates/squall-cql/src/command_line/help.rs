//! The texts of `help`: an overview, and one page per command and per group of options.

use super::{
    CommandLineError, CommandLineProblem,
    command_table::COMMANDS,
    grammar::{GroupSpec, OptionSpec},
    group_table::GROUPS,
    words::SplitWords,
};
use std::fmt::Write;

const DISTRIBUTIONS: &str = "\
Distributions:
  fixed(5)                     always 5
  uniform(1..100)              every value equally often
  gaussian(1..100)             a bell curve; (1..100,5): the bounds are 5 deviations from the middle;
                               (1..100,20,4): mean 20, deviation 4
  exp(1..100)                  low values most often
  extreme(1..100,0.7)          a Weibull distribution with shape 0.7
  qextreme(1..100,0.7,10)      the same in 10 steps, uniform inside each
  seq(1..100)                  one value after the other
  ~exp(1..100)                 any of them with high and low values exchanged
";

pub(super) fn help(words: &SplitWords) -> Result<String, CommandLineError> {
    let topic = words.command_words.first().or_else(|| words.groups.first().map(|(name, _)| name));
    let Some(topic) = topic else { return Ok(overview()) };
    let lower = topic.to_lowercase();
    // The dash of a group may be missing.
    let group = format!("-{lower}");
    if let Some(spec) = COMMANDS.iter().chain(GROUPS).find(|spec| spec.is_called(&lower) || spec.is_called(&group)) {
        return Ok(page(spec));
    }
    Err(CommandLineProblem::unknown_topic(&lower).into())
}

fn overview() -> String {
    let mut text = "Usage: squall cql COMMAND [OPTIONS] [-GROUP OPTIONS]…\n\nCommands:\n".to_owned();
    for spec in COMMANDS {
        let _ = writeln!(text, "  {:<18}{}", spec.name, spec.summary);
    }
    text.push_str("\nGroups of options:\n");
    for spec in GROUPS {
        let _ = writeln!(text, "  {:<18}{}", spec.name, spec.summary);
    }
    text.push('\n');
    text.push_str(DISTRIBUTIONS);
    text.push_str("\nThe shell wants words with ( ) < > in quotes: 'ratio(read=3,write=1)' 'threads>=4'\n");
    text.push_str("\nExamples:\n");
    for spec in COMMANDS.iter().take(3) {
        let _ = writeln!(text, "  squall cql {}", spec.example);
    }
    text.push_str("\n`squall cql help write` and `squall cql help -rate` explain one of them. `squall cql --help` lists the flags\n");
    text.push_str("for thresholds, reports, the search for the highest rate, and a fleet.\n");
    text
}

fn page(spec: &GroupSpec) -> String {
    let mut text = format!("{}: {}\n", spec.name, spec.summary);
    if !spec.aliases.is_empty() {
        let _ = writeln!(text, "Also: {}", spec.aliases.join(", "));
    }
    let of_one_form =
        |name| spec.forms.iter().any(|form| form.required.contains(&name) || form.options.contains(&name));
    let of_every_form = spec.all_options().any(|option| !of_one_form(option.name)).then(|| "[OPTIONS]".to_owned());
    for (i, form) in spec.forms.iter().enumerate().filter(|_| spec.forms.len() > 1) {
        let start = if i == 0 { "Usage:" } else { "   or:" };
        let words = form.required.iter().map(|name| typed_form(name));
        let optional = form.options.iter().map(|name| format!("[{}]", typed_form(name)));
        let words: Vec<String> = words.chain(optional).chain(of_every_form.clone()).collect();
        let _ = writeln!(text, "{start} {} {}", spec.name, words.join(" "));
    }
    if !spec.options.is_empty() {
        text.push_str("\nOptions:\n");
    }
    for option in spec.all_options() {
        let _ = writeln!(text, "  {:<28}{}{}", typed_form(option.name), option.meaning, default_text(option));
    }
    let _ = writeln!(text, "\nExample:\n  squall cql {}", spec.example);
    text
}

fn typed_form(name: &str) -> String {
    match name.as_bytes().last() {
        None => "VALUE".to_owned(),
        Some(b'(') => format!("{name}…)"),
        Some(b'=' | b'<' | b'>') => format!("{name}…"),
        Some(_) => name.to_owned(),
    }
}

fn default_text(option: &OptionSpec) -> String {
    if option.default.is_empty() { String::new() } else { format!(" (default: {})", option.default) }
}
