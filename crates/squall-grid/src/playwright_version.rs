//! Versions of Playwright: client and worker must have the same `major.minor`.
//! It compares nothing. The server reads the version of a client, and a worker those of its folders.

use std::path::Path;

use serde::Deserialize;

/// `1.65.1` → `1.65`.
pub(crate) fn major_minor(version: &str) -> String {
    version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

/// `Playwright/1.65.0 (…)` → `1.65`. Other clients take any version.
pub(crate) fn client_version(agent: &str) -> Option<String> {
    let version = agent.strip_prefix("Playwright/")?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    let (major, minor) = (numbers.next()?, numbers.next()?);
    (!major.is_empty() && !minor.is_empty()).then(|| format!("{major}.{minor}"))
}

#[derive(Deserialize)]
struct Package {
    version: String,
}

/// The `major.minor` of the package in `folder`, or why it cannot be read.
pub(crate) fn installed_version(folder: &Path) -> Result<String, String> {
    let file = folder.join("package.json");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let package: Package = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(major_minor(&package.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_playwright_clients_have_a_version() {
        let version = |agent| client_version(agent);
        assert_eq!(version("Playwright/1.65.0 (x64; debian 12) node/20.20").as_deref(), Some("1.65"));
        assert_eq!(version("Playwright/2.0"), Some("2.0".to_owned()));
        for other in ["Mozilla/5.0 Playwright/1.65", "Playwright/", "Playwright/1", "Playwright/x.y", ""] {
            assert_eq!(version(other), None, "{other}");
        }
    }
}
