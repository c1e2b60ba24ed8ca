//! Matches the words of a group with the options that the group has. It knows the syntax of option
//! names, but no option and no value.

use super::CommandLineProblem;

/// One option of a group.
#[derive(Debug, PartialEq)]
pub(crate) struct OptionSpec {
    /// As it is typed, up to its value: `threads=`, `threads>=`, `ratio(`, `auto`. The empty name
    /// stands for a word of the user's own.
    pub(crate) name: &'static str,
    /// The value if the option is not typed; empty if it has none.
    pub(crate) default: &'static str,
    pub(crate) meaning: &'static str,
}

/// One of several ways to use a group.
#[derive(Debug, PartialEq)]
pub(crate) struct FormSpec {
    /// Options that must be typed.
    pub(crate) required: &'static [&'static str],
    /// Further options that other forms of the group do not have.
    pub(crate) options: &'static [&'static str],
}

/// A command or a group of options.
#[derive(Debug, PartialEq)]
pub(crate) struct GroupSpec {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) summary: &'static str,
    pub(crate) options: &'static [&'static [OptionSpec]],
    /// Options that no form names are part of every form.
    pub(crate) forms: &'static [FormSpec],
    pub(crate) example: &'static str,
}

impl GroupSpec {
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    pub(crate) fn all_options(&self) -> impl Iterator<Item = &'static OptionSpec> + Clone {
        self.options.iter().copied().flatten()
    }

    /// The option that a word uses, and the word's value.
    fn find<'w>(&self, word: &'w str) -> Option<(&'static OptionSpec, &'w str)> {
        let candidates = self.all_options().filter_map(|option| Some((option, option.value_in(word)?)));
        candidates.max_by_key(|(option, _)| option.name.len())
    }

    fn is_allowed(&self, form: &FormSpec, option: &str) -> bool {
        let named = |form: &FormSpec| form.required.contains(&option) || form.options.contains(&option);
        named(form) || !self.forms.iter().any(named)
    }
}

impl OptionSpec {
    fn value_in<'w>(&self, word: &'w str) -> Option<&'w str> {
        let starts = word.get(..self.name.len()).is_some_and(|start| start.eq_ignore_ascii_case(self.name));
        match self.name.as_bytes().last() {
            None => (!word.contains(['=', '('])).then_some(word),
            Some(b'=' | b'<' | b'>') if starts => {
                // `n>` must not accept `n>=5`.
                Some(&word[self.name.len()..]).filter(|value| !value.is_empty() && !value.starts_with('='))
            }
            Some(b'(') if starts => word[self.name.len()..].strip_suffix(')'),
            Some(b'=' | b'<' | b'>' | b'(') => None,
            Some(_) => (starts && word.len() == self.name.len()).then_some(""),
        }
    }
}

/// The options of a group that were typed.
#[derive(Debug, Clone)]
pub(crate) struct GroupValues {
    pub(crate) spec: &'static GroupSpec,
    typed: Vec<(&'static str, String)>,
}

impl GroupValues {
    pub(crate) fn new(spec: &'static GroupSpec) -> GroupValues {
        GroupValues { spec, typed: Vec::new() }
    }

    pub(crate) fn read(
        spec: &'static GroupSpec,
        words: &[String],
        problems: &mut Vec<CommandLineProblem>,
    ) -> GroupValues {
        let mut values = GroupValues::new(spec);
        let before = problems.len();
        for word in words {
            let Some((option, value)) = spec.find(word) else {
                problems.push(CommandLineProblem::unknown_option(spec, word));
                continue;
            };
            match values.typed(option.name) {
                Some(first) => {
                    problems.push(CommandLineProblem::repeated_option(spec.name, option.name, (first, value)));
                }
                None => values.typed.push((option.name, value.to_owned())),
            }
        }
        // A wrong word would also look like a missing one.
        if problems.len() == before {
            problems.extend(values.form_problem());
        }
        values
    }

    /// The value that was typed.
    pub(crate) fn typed(&self, name: &str) -> Option<&str> {
        self.typed.iter().find(|(option, _)| *option == name).map(|(_, value)| value.as_str())
    }

    /// The value that was typed, or the default.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let option = self.spec.all_options().find(|option| option.name == name);
        debug_assert!(option.is_some(), "{} has no option {name}", self.spec.name);
        self.typed(name).or_else(|| option.map(|option| option.default).filter(|default| !default.is_empty()))
    }

    /// The first form that accepts every typed option and has what it requires wins; without one,
    /// the reason.
    fn form_problem(&self) -> Option<CommandLineProblem> {
        let group = self.spec.name;
        let accepts = |form: &&FormSpec| self.typed.iter().all(|(option, _)| self.spec.is_allowed(form, option));
        let mut accepting = self.spec.forms.iter().filter(accepts).peekable();
        let Some(first) = accepting.peek() else {
            let of_forms = |option: &&str| {
                self.spec.forms.iter().any(|form| form.required.contains(option) || form.options.contains(option))
            };
            let options = self.typed.iter().map(|(option, _)| *option).filter(of_forms).collect();
            return (!self.spec.forms.is_empty()).then_some(CommandLineProblem::Contradiction { group, options });
        };
        let missing = first.required.iter().find(|option| self.typed(option).is_none());
        let complete = accepting.any(|form| form.required.iter().all(|option| self.typed(option).is_some()));
        missing.filter(|_| !complete).map(|option| CommandLineProblem::MissingOption { group, option })
    }
}
