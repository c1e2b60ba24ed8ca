//! The command line as reports show it: without credentials and, unless asked for, without values, because
//! reports are passed on to others. Parses only as much as it needs to find values. `commands::run` calls
//! it; messages about URLs call `without_credentials`.

use crate::secret_value;

/// Which values of flags a report shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownValues {
    /// Names only: `--param password=…`.
    NamesOnly,
    /// `--show-values`. The credentials of stores and in URLs stay hidden.
    All,
}

impl ShownValues {
    pub(crate) fn of(show_values: bool) -> ShownValues {
        if show_values { ShownValues::All } else { ShownValues::NamesOnly }
    }
}

/// How the value of a flag is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HiddenValue {
    /// Hidden even with `--show-values`.
    Credential,
    /// A login, which can be `@FILE` or `$NAME`.
    Login,
    /// A whole text.
    Text,
    /// `NAME=VALUE`.
    Pair,
    /// `NAME=VALUE` whose value can be `@FILE` or `$NAME`.
    Param,
    /// `NAME: VALUE` whose value can be `@FILE` or `$NAME`.
    Header,
}

/// Flags of one letter that take no value, and so can stand before another one: `-kd TEXT`.
const SHORT_SWITCHES: &str = "kq46hV";

/// `squall` with `arguments`, quoted for a shell. Hidden values become `…`.
pub(crate) fn reported_command_line(arguments: &[String], shown: ShownValues) -> String {
    let mut words = vec!["squall".to_owned()];
    let mut value_of = None;
    for argument in arguments {
        let word = match value_of.take() {
            Some(hidden) => HiddenValue::mask(hidden, argument, shown),
            None => {
                let (word, next) = mask_argument(argument, shown);
                value_of = next;
                word
            }
        };
        words.push(shell_quote(&word));
    }
    words.join(" ")
}

/// `argument` without hidden values, and how the next argument is hidden if it is this one's value.
fn mask_argument(argument: &str, shown: ShownValues) -> (String, Option<HiddenValue>) {
    if argument.starts_with("--") {
        return match argument.split_once('=') {
            Some((flag, value)) => match HiddenValue::of_flag(flag) {
                Some(hidden) => (format!("{flag}={}", hidden.mask(value, shown)), None),
                None => (format!("{flag}={}", without_credentials(value)), None),
            },
            None => (argument.to_owned(), HiddenValue::of_flag(argument)),
        };
    }
    let Some(letters) = argument.strip_prefix('-') else { return (without_credentials(argument), None) };
    let Some(at) = letters.find(|letter| !SHORT_SWITCHES.contains(letter)) else { return (argument.to_owned(), None) };
    let flag = letters[at..].chars().next().unwrap_or_default();
    let Some(hidden) = HiddenValue::of_flag(&format!("-{flag}")) else { return (without_credentials(argument), None) };
    let value_at = 1 + at + flag.len_utf8();
    let value_at = value_at + usize::from(argument[value_at..].starts_with('='));
    let (head, value) = argument.split_at(value_at);
    match value.is_empty() {
        true => (head.to_owned(), Some(hidden)),
        false => (format!("{head}{}", hidden.mask(value, shown)), None),
    }
}

impl HiddenValue {
    fn of_flag(flag: &str) -> Option<HiddenValue> {
        Some(match flag {
            "--token" => HiddenValue::Credential,
            "--basic" | "--bearer" => HiddenValue::Login,
            "--body" | "-d" | "--body-json" => HiddenValue::Text,
            "--query" | "--form" | "-F" => HiddenValue::Pair,
            "--param" => HiddenValue::Param,
            "--header" | "-H" => HiddenValue::Header,
            _ => return None,
        })
    }

    fn mask(self, text: &str, shown: ShownValues) -> String {
        let hide = |value: &str| if secret_value::is_reference(value) { value.to_owned() } else { "…".to_owned() };
        match self {
            HiddenValue::Credential => "…".to_owned(),
            _ if shown == ShownValues::All => without_credentials(text),
            HiddenValue::Text => "…".to_owned(),
            HiddenValue::Login => hide(text),
            HiddenValue::Pair => text.split_once('=').map_or("…".to_owned(), |(name, _)| format!("{name}=…")),
            HiddenValue::Param => {
                text.split_once('=').map_or("…".to_owned(), |(name, value)| format!("{name}={}", hide(value)))
            }
            HiddenValue::Header => {
                text.split_once(':').map_or("…".to_owned(), |(name, value)| format!("{name}: {}", hide(value.trim())))
            }
        }
    }
}

/// Whether a value of this name is likely to be a credential.
fn is_sensitive_name(name: &str) -> bool {
    const SENSITIVE_WORDS: [&str; 8] = ["auth", "cookie", "token", "key", "secret", "pass", "pwd", "credential"];
    let lower = name.to_ascii_lowercase();
    SENSITIVE_WORDS.iter().any(|word| lower.contains(word))
}

/// `http://user:password@host` as `http://…@host`, and `unix:///socket?pass=word` as
/// `unix:///socket?pass=…`.
pub(crate) fn without_credentials(text: &str) -> String {
    let Some(scheme) = text.find("://") else { return text.to_owned() };
    let authority = &text[scheme + 3..];
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    let masked = match authority[..end].rfind('@') {
        Some(at) => format!("{}://…{}", &text[..scheme], &authority[at..]),
        None => text.to_owned(),
    };
    // In a target's URL, `user` is ordinary data. In a store's URL, it is part of the credentials.
    let is_store = !text.starts_with("http");
    mask_query_values(&masked, |name| {
        is_sensitive_name(name) || is_store && (name.contains("user") || name.contains('%'))
    })
}

/// Hides the values of query parameters whose names are `hidden`.
fn mask_query_values(url: &str, hidden: impl Fn(&str) -> bool) -> String {
    let Some((base, query)) = url.split_once('?') else { return url.to_owned() };
    let masked = |text: &str| match text.split_once('=') {
        Some((name, value)) if !value.is_empty() && hidden(name) => format!("{name}=…"),
        _ => text.to_owned(),
    };
    format!("{base}?{}", query.split('&').map(masked).collect::<Vec<_>>().join("&"))
}

/// Words of a program and their arguments, quoted for a shell. Hides nothing: they are the reader's own.
pub(crate) fn shell_line(program: &[&str], arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|argument| shell_quote(argument));
    program.iter().map(|&word| word.to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

fn shell_quote(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+…".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_with(shown: ShownValues, arguments: &[&str], expected: &str) {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        assert_eq!(reported_command_line(&arguments, shown), format!("squall {expected}"));
    }

    #[track_caller]
    fn check(arguments: &[&str], expected: &str) {
        check_with(ShownValues::NamesOnly, arguments, expected);
    }

    #[test]
    fn credentials_in_flags_headers_and_urls_are_masked() {
        check(&["run", "http://ann:pw@h:1/a@b"], "run http://…@h:1/a@b");
        check(&["--basic", "ann:pw", "--bearer=t"], "--basic … --bearer=…");
        check(&["--proxy", "http://u:pw@p:3128"], "--proxy http://…@p:3128");
        check(&["--proxy=http://u:pw@p:3128"], "--proxy=http://…@p:3128");
        check(&["-H", "Authorization: Bearer zzz"], "-H 'Authorization: …'");
        check(&["--header=X-Api-Key: k"], "'--header=X-Api-Key: …'");
        check(&["-HCookie: a=b"], "'-HCookie: …'");
        check(&["--token", "t", "--token=t"], "--token … --token=…");
    }

    #[test]
    fn values_of_params_queries_bodies_forms_and_headers_are_left_out() {
        check(&["--param", "password=a=b", "--param=n=5", "--rate", "5"], "--param password=… --param=n=… --rate 5");
        check(
            &["--query", "q=x", "-F", "user=ann", "-Fpin=1", "--form=a=b"],
            "--query q=… -F user=… -Fpin=… --form=a=…",
        );
        check(&["-d", "secret", "--rate", "5"], "-d … --rate 5");
        check(&["-dsecret", "-d=secret", "-kd", "secret", "-qkdsecret"], "-d… -d=… -kd … -qkd…");
        check(&["--body", "--rate", "--body-json", "{\"a\": 1}"], "--body … --body-json …");
        check(&["--body-file", "body.bin", "-X", "POST", "-4"], "--body-file body.bin -X POST -4");
        check(&["-H", "Accept: x", "-H", "nonsense", "--param", "nonsense"], "-H 'Accept: …' -H … --param …");
    }

    #[test]
    fn references_to_files_and_variables_are_shown() {
        check(&["--bearer", "@token.txt", "--basic", "$LOGIN"], "--bearer @token.txt --basic '$LOGIN'");
        check(&["--param", "pin=@pin.txt", "-H", "X-Key: $KEY"], "--param pin=@pin.txt -H 'X-Key: $KEY'");
        check(&["--bearer", "@@x", "-F", "a=@b", "-d", "@c"], "--bearer … -F a=… -d …");
    }

    #[test]
    fn show_values_shows_all_but_credentials_of_stores_and_urls() {
        let arguments = ["run", "http://u:p@h/", "--param", "a=1", "-H", "Accept: x", "--bearer", "t", "--token", "t"];
        check_with(ShownValues::All, &arguments, "run http://…@h/ --param a=1 -H 'Accept: x' --bearer t --token …");
    }

    #[test]
    fn credentials_in_query_parameters_of_store_urls_are_masked() {
        check(
            &["--cluster", "unix:///r.sock?db=1&user=me&pass=s%40x"],
            "--cluster 'unix:///r.sock?db=1&user=…&pass=…'",
        );
        check(&["--cluster=unix:///r.sock?p%61ss=x"], "'--cluster=unix:///r.sock?p%61ss=…'");
        check(&["--cluster", "unix:///r.sock?pass=a#b"], "--cluster 'unix:///r.sock?pass=…'");
        check(
            &["--cluster", "redis+sentinel://u:p@h:1/m/0?sentinel_user=me&sentinel_password=x&ca=/ca.pem"],
            "--cluster 'redis+sentinel://…@h:1/m/0?sentinel_user=…&sentinel_password=…&ca=/ca.pem'",
        );
        check(&["run", "http://h/?user=7&api_key=k&access_token=t"], "run 'http://h/?user=7&api_key=…&access_token=…'");
    }

    #[test]
    fn other_arguments_are_quoted_for_a_shell() {
        check(&["run", "http://h/?a=b&c", "--rate", "5"], "run 'http://h/?a=b&c' --rate 5");
        check_with(ShownValues::All, &["-H", "Accept: it's"], r"-H 'Accept: it'\''s'");
    }
}
