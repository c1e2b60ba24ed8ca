//! The command line as reports show it and as it travels to workers. Both are passed on; logins that nobody there needs must not be.

/// `arguments`, program name left out, quoted for a shell.
pub(crate) fn shown(arguments: impl IntoIterator<Item = String>) -> String {
    let mut words = vec!["squall".to_owned()];
    let mut flag = String::new();
    for argument in arguments {
        words.push(quoted(&masked(&flag, &argument)));
        flag = argument;
    }
    words.join(" ")
}

/// Where a run is started, which may log in there. Each has a value.
const PLACES: [&str; 5] = ["--cluster", "--fleet", "--api", "--token", "--api-ca"];

/// What follows `run` or `test start` in `words`, as the workers of a fleet read it: without where the fleet is.
pub(crate) fn travelling(words: &[String]) -> Vec<String> {
    let mut words = words.iter().skip_while(|word| !matches!(word.as_str(), "run" | "start")).skip(1);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if PLACES.contains(&word.as_str()) {
            words.next();
        } else if !PLACES.iter().any(|flag| word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))) {
            kept.push(word.clone());
        }
    }
    kept
}

/// What may be shown of `argument`, which stands behind `before`.
fn masked(before: &str, argument: &str) -> String {
    if let Some((flag, value)) = argument.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
        return format!("{flag}={}", masked(flag, value));
    }
    match before {
        "--basic" | "--bearer" => "…".to_owned(),
        "--header" | "-H" => header(argument),
        _ if argument.starts_with("-H") => format!("-H{}", header(&argument[2..])),
        _ => without_login(argument),
    }
}

/// A header's value is shown only if its name does not sound like a login.
fn header(text: &str) -> String {
    const TELLING: [&str; 6] = ["auth", "cookie", "token", "key", "secret", "password"];
    let Some((name, _)) = text.split_once(':') else { return text.to_owned() };
    let lower = name.to_ascii_lowercase();
    if TELLING.iter().any(|word| lower.contains(word)) { format!("{name}: …") } else { text.to_owned() }
}

/// `http://user:password@host` as `http://…@host`.
fn without_login(text: &str) -> String {
    let Some(scheme) = text.find("://") else { return text.to_owned() };
    let authority = &text[scheme + 3..];
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    match authority[..end].rfind('@') {
        Some(at) => format!("{}://…{}", &text[..scheme], &authority[at..]),
        None => text.to_owned(),
    }
}

fn quoted(argument: &str) -> String {
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
        assert_eq!(shown(arguments.iter().map(|a| (*a).to_owned())), format!("squall {expected}"));
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
    }

    #[test]
    fn where_the_fleet_is_does_not_travel() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let run = "run x.toml --cluster redis://:secret@h --rate 5 --fleet=a --bearer t";
        assert_eq!(travelling(&words(run)), words("x.toml --rate 5 --bearer t"));
        let start = "test start x.toml --token secret --api=http://h --api-ca ca.pem --users 3";
        assert_eq!(travelling(&words(start)), words("x.toml --users 3"));
    }

    #[test]
    fn the_rest_can_be_typed_again() {
        check(&["run", "http://h/?a=b&c", "--rate", "5"], "run 'http://h/?a=b&c' --rate 5");
        check(&["-H", "Accept: it's"], r"-H 'Accept: it'\''s'");
    }
}
