//! How much memory browsers use: the anonymous memory of all processes of each process group.
//! It decides nothing. [`super::browser_pool`] asks it at every round of probes.

use std::{collections::HashMap, fs};

/// Bytes by process group. Pages of files count for no process, because most of them are the program,
/// which all browsers share.
pub(crate) fn anonymous_bytes_by_group() -> HashMap<i32, u64> {
    let mut groups = HashMap::new();
    let Ok(processes) = fs::read_dir("/proc") else { return groups };
    for path in processes.flatten().map(|entry| entry.path().join("status")) {
        let status = fs::read_to_string(path).unwrap_or_default();
        if let Some((group, bytes)) = parse(&status) {
            *groups.entry(group).or_default() += bytes;
        }
    }
    groups
}

/// The process group and the anonymous bytes in `/proc/PID/status`.
fn parse(status: &str) -> Option<(i32, u64)> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    // The first one is that of the namespace of process ids that this process sees.
    let group = field("NSpgid:")?.split_ascii_whitespace().next()?.parse().ok()?;
    let kibibytes: u64 = field("RssAnon:")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some((group, kibibytes << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_anonymous_memory_are_read() {
        let status = "Name:\tchromium\nNSpgid:\t42\t1\nVmRSS:\t  900 kB\nRssAnon:\t  20 kB\n";
        assert_eq!(parse(status), Some((42, 20 << 10)));
        assert_eq!(parse("Name:\tkthreadd\nNSpgid:\t0\n"), None);
        assert!(!anonymous_bytes_by_group().is_empty());
    }
}
