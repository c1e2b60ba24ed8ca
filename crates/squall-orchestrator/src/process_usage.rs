//! CPU time and memory of this process and of the browsers that it started, as the operating system
//! counts them: the cost of the generator. It judges nothing; see `saturation`.

use std::{fs, time::Duration};

/// CPU time (user + system) and peak memory so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ProcessUsage {
    pub(crate) cpu: Duration,
    pub(crate) max_rss_bytes: u64,
}

impl ProcessUsage {
    /// Memory is zero on a system without `/proc`.
    pub(crate) fn now() -> ProcessUsage {
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let helpers = squall_engine::helper_usage();
        ProcessUsage {
            cpu: Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32) + helpers.cpu,
            max_rss_bytes: peak_kib(&status).unwrap_or(0) * 1024 + helpers.peak_memory_bytes,
        }
    }
}

fn peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_positive() {
        let usage = ProcessUsage::now();
        assert!(usage.cpu > Duration::ZERO);
        assert!(usage.max_rss_bytes > 100 * 1024);
    }

    #[test]
    fn peak_memory_is_parsed_in_kib() {
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t  123 kB\n"), Some(123));
        assert_eq!(peak_kib(""), None);
    }
}
