//! Declared scenarios: from TOML text to a driver.
