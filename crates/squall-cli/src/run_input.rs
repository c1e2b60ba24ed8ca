//! What `squall run` is given: a URL, a scenario file or a script. Guesses nothing: a word that could be either is refused with the way to
//! write it.

use std::path::{Path, PathBuf};

use crate::exit::CliError;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunInput {
    Url(String),
    ScenarioFile(PathBuf),
    /// A scenario in Python.
    Script(PathBuf),
}

impl RunInput {
    /// Reads the argument of `squall run`.
    pub(crate) fn parse(what: &str) -> Result<RunInput, CliError> {
        let extension = Path::new(what).extension().and_then(|extension| extension.to_str());
        if what.contains("://") {
            return Ok(RunInput::Url(what.to_owned()));
        }
        match extension {
            Some("toml") => return Ok(RunInput::ScenarioFile(what.into())),
            Some("py") => return Ok(RunInput::Script(what.into())),
            _ if Path::new(what).is_file() => return Ok(RunInput::ScenarioFile(what.into())),
            _ => {}
        }
        if has_port_or_is_local(what) { Ok(RunInput::Url(what.to_owned())) } else { Err(ambiguous_input_error(what)) }
    }

    /// Whether a text can only be meant as the subject.
    pub(crate) fn is_unambiguous(text: &str) -> bool {
        text.contains("://") || text.ends_with(".toml") || text.ends_with(".py")
    }
}

/// `localhost/x`, `127.0.0.1`, `shop:8080/x`, `[::1]:80`: nobody names a file like that.
fn has_port_or_is_local(what: &str) -> bool {
    let host = what.split(['/', '?', '#']).next().unwrap_or_default();
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let with_port = !name.is_empty() && port.parse::<u16>().is_ok();
    with_port || name == "localhost" || name.parse::<std::net::IpAddr>().is_ok()
}

fn ambiguous_input_error(what: &str) -> CliError {
    let hint = match Path::new(what).with_extension("toml") {
        file if file.is_file() => format!("did you mean {}?", file.display()),
        _ => {
            let host = what.strip_prefix("http:").or_else(|| what.strip_prefix("https:")).unwrap_or(what);
            let host = host.trim_start_matches('/');
            format!("write http://{host} or https://{host} for a URL, or give a .toml or .py file that exists")
        }
    };
    CliError::new(format!("`{what}` is neither a URL nor a scenario file: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(what: &str, expected: &RunInput) {
        assert_eq!(RunInput::parse(what).ok().as_ref(), Some(expected), "{what}");
    }

    #[test]
    fn urls_and_files_are_told_apart() {
        let url = |text: &str| RunInput::Url(text.to_owned());
        for text in ["http://a/b.toml", "localhost", "localhost:80/x", "127.0.0.1", "[::1]:8080/", "shop:8080/x?y=1"] {
            check(text, &url(text));
        }
        check("shop.toml", &RunInput::ScenarioFile("shop.toml".into()));
        check("shop.py", &RunInput::Script("shop.py".into()));
        check("a/b/shop.toml", &RunInput::ScenarioFile("a/b/shop.toml".into()));
    }

    #[test]
    fn what_could_be_either_is_refused_with_a_hint() {
        let refusal = RunInput::parse("example.com/shop").unwrap_err().to_string();
        assert!(refusal.contains("https://example.com/shop"), "{refusal}");
    }
}
