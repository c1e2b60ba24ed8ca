//! The input of `squall run`: a URL, a scenario file or a script. An argument that could be a URL
//! or a file is refused with a hint how to write it. Reads nothing.

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
    /// Parses the argument of `squall run`.
    pub(crate) fn parse(text: &str) -> Result<RunInput, CliError> {
        let extension = Path::new(text).extension().and_then(|extension| extension.to_str());
        if text.contains("://") {
            return Ok(RunInput::Url(text.to_owned()));
        }
        match extension {
            Some("toml") => return Ok(RunInput::ScenarioFile(text.into())),
            Some("py") => return Ok(RunInput::Script(text.into())),
            _ if Path::new(text).is_file() => return Ok(RunInput::ScenarioFile(text.into())),
            _ => {}
        }
        if has_port_or_is_local(text) { Ok(RunInput::Url(text.to_owned())) } else { Err(ambiguous_input_error(text)) }
    }

    /// Whether `text` can only be the input, and not the path of an output.
    pub(crate) fn is_unambiguous(text: &str) -> bool {
        text.contains("://") || text.ends_with(".toml") || text.ends_with(".py")
    }
}

/// `localhost/x`, `127.0.0.1`, `shop:8080/x`, `[::1]:80`: unlikely names of a file.
fn has_port_or_is_local(text: &str) -> bool {
    let host = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let with_port = !name.is_empty() && port.parse::<u16>().is_ok();
    with_port || name == "localhost" || name.parse::<std::net::IpAddr>().is_ok()
}

fn ambiguous_input_error(text: &str) -> CliError {
    let hint = match Path::new(text).with_extension("toml") {
        file if file.is_file() => format!("did you mean {}?", file.display()),
        _ => {
            let host = text.strip_prefix("http:").or_else(|| text.strip_prefix("https:")).unwrap_or(text);
            let host = host.trim_start_matches('/');
            format!("write http://{host} or https://{host} for a URL, or give a .toml or .py file that exists")
        }
    };
    CliError::new(format!("`{text}` is neither a URL nor a scenario file: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &RunInput) {
        assert_eq!(RunInput::parse(text).ok().as_ref(), Some(expected), "{text}");
    }

    #[test]
    fn urls_scenario_files_and_scripts_are_recognized() {
        let url = |text: &str| RunInput::Url(text.to_owned());
        for text in ["http://a/b.toml", "localhost", "localhost:80/x", "127.0.0.1", "[::1]:8080/", "shop:8080/x?y=1"] {
            check(text, &url(text));
        }
        check("shop.toml", &RunInput::ScenarioFile("shop.toml".into()));
        check("shop.py", &RunInput::Script("shop.py".into()));
        check("a/b/shop.toml", &RunInput::ScenarioFile("a/b/shop.toml".into()));
    }

    #[test]
    fn ambiguous_input_is_refused_with_a_hint() {
        let error = RunInput::parse("example.com/shop").unwrap_err().to_string();
        assert!(error.contains("https://example.com/shop"), "{error}");
    }
}
