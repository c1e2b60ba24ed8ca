//! The command line as reports show it, without credentials: reports are passed on to others.
//! `commands::run` calls it; messages about URLs call `without_credentials`.

/// `squall` with `arguments`, quoted for a shell. Credentials become `…`.
pub(crate) fn masked_command_line(arguments: impl IntoIterator<Item = String>) -> String {
    let mut shown = vec!["squall".to_owned()];
    let mut flag = String::new();
    for argument in arguments {
        shown.push(shell_quote(&mask_argument(&flag, &argument)));
        flag = argument;
    }
    shown.join(" ")
}

/// `argument` without credentials; `previous` is the argument before it.
fn mask_argument(previous: &str, argument: &str) -> String {
    if let Some((flag, value)) = argument.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
        return format!("{flag}={}", mask_argument(flag, value));
    }
    match previous {
        "--basic" | "--bearer" | "--token" => "…".to_owned(),
        "--header" | "-H" => mask_header(argument),
        _ if argument.starts_with("-H") => format!("-H{}", mask_header(&argument[2..])),
        _ => without_credentials(argument),
    }
}

/// Whether a value of this name is likely to be a credential.
fn is_sensitive_name(name: &str) -> bool {
    const SENSITIVE_WORDS: [&str; 8] = ["auth", "cookie", "token", "key", "secret", "pass", "pwd", "credential"];
    let lower = name.to_ascii_lowercase();
    SENSITIVE_WORDS.iter().any(|word| lower.contains(word))
}

/// Hides the value of a header with a sensitive name.
fn mask_header(text: &str) -> String {
    match text.split_once(':') {
        Some((name, _)) if is_sensitive_name(name) => format!("{name}: …"),
        _ => text.to_owned(),
    }
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
        check(&["-H", "Accept: it's"], r"-H 'Accept: it'\''s'");
    }
}
