//! The command line as reports show it and as it travels to workers. Both are passed on; logins that nobody there needs must not be.

/// `arguments`, program name left out, quoted for a shell.
pub(crate) fn masked_command_line(arguments: impl IntoIterator<Item = String>) -> String {
    let mut words = vec!["squall".to_owned()];
    let mut flag = String::new();
    for argument in arguments {
        words.push(shell_quote(&mask_argument(&flag, &argument)));
        flag = argument;
    }
    words.join(" ")
}

/// Where a run is started, which may log in there. Each has a value.
const FLEET_LOCATION_FLAGS: [&str; 5] = ["--cluster", "--fleet", "--api", "--token", "--api-ca"];

/// What follows `run` or `test start` in `words`, as the workers of a fleet read it: without where the fleet is.
pub(crate) fn worker_arguments(words: &[String]) -> Vec<String> {
    let mut words = words.iter().skip_while(|word| !matches!(word.as_str(), "run" | "start")).skip(1);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if FLEET_LOCATION_FLAGS.contains(&word.as_str()) {
            words.next();
        } else if !FLEET_LOCATION_FLAGS
            .iter()
            .any(|flag| word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')))
        {
            kept.push(word.clone());
        }
    }
    kept
}

/// What may be shown of `argument`, which stands behind `before`.
fn mask_argument(before: &str, argument: &str) -> String {
    if let Some((flag, value)) = argument.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
        return format!("{flag}={}", mask_argument(flag, value));
    }
    match before {
        "--basic" | "--bearer" | "--token" => "…".to_owned(),
        "--header" | "-H" => mask_header(argument),
        _ if argument.starts_with("-H") => format!("-H{}", mask_header(&argument[2..])),
        _ => without_credentials(argument),
    }
}

/// Whether `name` sounds like a login.
fn is_sensitive_name(name: &str) -> bool {
    const SENSITIVE_WORDS: [&str; 8] = ["auth", "cookie", "token", "key", "secret", "pass", "pwd", "credential"];
    let lower = name.to_ascii_lowercase();
    SENSITIVE_WORDS.iter().any(|word| lower.contains(word))
}

/// A header's value is shown only if its name does not sound like a login.
fn mask_header(text: &str) -> String {
    match text.split_once(':') {
        Some((name, _)) if is_sensitive_name(name) => format!("{name}: …"),
        _ => text.to_owned(),
    }
}

/// `http://user:password@host` as `http://…@host`, and `unix:///socket?pass=word` as `unix:///socket?pass=…`.
pub(crate) fn without_credentials(text: &str) -> String {
    let Some(scheme) = text.find("://") else { return text.to_owned() };
    let authority = &text[scheme + 3..];
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    let shown = match authority[..end].rfind('@') {
        Some(at) => format!("{}://…{}", &text[..scheme], &authority[at..]),
        None => text.to_owned(),
    };
    // Of a target `user` is one of the things that it is asked for; of a store it is half of a login.
    let names_users = !text.starts_with("http");
    mask_query_values(&shown, |name| {
        is_sensitive_name(name) || names_users && (name.contains("user") || name.contains('%'))
    })
}

/// The options behind `?` without the values of those whose names are `hidden`.
fn mask_query_values(url: &str, hidden: impl Fn(&str) -> bool) -> String {
    let Some((place, options)) = url.split_once('?') else { return url.to_owned() };
    let option = |text: &str| match text.split_once('=') {
        Some((name, value)) if !value.is_empty() && hidden(name) => format!("{name}=…"),
        _ => text.to_owned(),
    };
    format!("{place}?{}", options.split('&').map(option).collect::<Vec<_>>().join("&"))
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
    fn check(arguments: &[&str], expected: &str) {
        assert_eq!(masked_command_line(arguments.iter().map(|a| (*a).to_owned())), format!("squall {expected}"));
    }

    #[test]
    fn logins_are_left_out_wherever_they_stand() {
        check(&["run", "http://ann:pw@h:1/a@b"], "run http://…@h:1/a@b");
        check(&["--basic", "ann:pw", "--bearer=t"], "--basic … --bearer=…");
        check(&["--proxy", "http://u:pw@p:3128"], "--proxy http://…@p:3128");
        check(&["--proxy=http://u:pw@p:3128"], "--proxy=http://…@p:3128");
        check(&["-H", "Authorization: Bearer zzz"], "-H 'Authorization: …'");
        check(&["--header=X-Api-Key: k"], "'--header=X-Api-Key: …'");
        check(&["-HCookie: a=b"], "'-HCookie: …'");
        check(&["--token", "t", "--token=t"], "--token … --token=…");
    }

    /// Reports had the password of a server that is reached by its socket, and that of Sentinels.
    #[test]
    fn logins_among_the_options_of_an_address_are_left_out() {
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
    fn where_the_fleet_is_does_not_travel() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let run = "run x.toml --cluster redis://:secret@h --rate 5 --fleet=a --bearer t";
        assert_eq!(worker_arguments(&words(run)), words("x.toml --rate 5 --bearer t"));
        let start = "test start x.toml --token secret --api=http://h --api-ca ca.pem --users 3";
        assert_eq!(worker_arguments(&words(start)), words("x.toml --users 3"));
    }

    #[test]
    fn the_rest_can_be_typed_again() {
        check(&["run", "http://h/?a=b&c", "--rate", "5"], "run 'http://h/?a=b&c' --rate 5");
        check(&["-H", "Accept: it's"], r"-H 'Accept: it'\''s'");
    }
}
