//! Measures CPU time and memory of this process, and of browsers that it started, as the operating
//! system counts them. The worker calls it for every report.

use std::{
    fs,
    time::{Duration, Instant},
};

/// Samples the process.
#[derive(Debug)]
pub(crate) struct ProcessMonitor {
    total_ram_bytes: u64,
    last_sample: (Instant, Duration),
}

/// CPU time and memory of the process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessStats {
    /// CPU time since the last sample, in percent of one core.
    pub(crate) cpu_percent: f64,
    pub(crate) cpu_s: f64,
    pub(crate) rss_bytes: u64,
    pub(crate) max_rss_bytes: u64,
    pub(crate) memory_percent: f64,
    pub(crate) total_ram_bytes: u64,
}

impl ProcessMonitor {
    pub(crate) fn new() -> ProcessMonitor {
        let total_ram_bytes = parse_kib(&read_or_empty("/proc/meminfo"), "MemTotal:") * 1024;
        ProcessMonitor {
            total_ram_bytes,
            last_sample: (Instant::now(), process_cpu_time() + squall_engine::helper_usage().cpu),
        }
    }

    pub(crate) fn sample(&mut self) -> ProcessStats {
        let (now, cpu, status) = (Instant::now(), process_cpu_time(), read_or_empty("/proc/self/status"));
        let helpers = squall_engine::helper_usage();
        let cpu = cpu + helpers.cpu;
        let (before, used) = std::mem::replace(&mut self.last_sample, (now, cpu));
        let rss_bytes = parse_kib(&status, "VmRSS:") * 1024 + helpers.memory_bytes;
        ProcessStats {
            cpu_percent: cpu.saturating_sub(used).as_secs_f64() / (now - before).as_secs_f64().max(0.001) * 100.0,
            cpu_s: cpu.as_secs_f64(),
            rss_bytes,
            max_rss_bytes: parse_kib(&status, "VmHWM:") * 1024 + helpers.peak_memory_bytes,
            memory_percent: rss_bytes as f64 / self.total_ram_bytes.max(1) as f64 * 100.0,
            total_ram_bytes: self.total_ram_bytes,
        }
    }
}

fn process_cpu_time() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32)
}

/// Empty if the system has no such file.
fn read_or_empty(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn parse_kib(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_of_this_process_has_memory() {
        let stats = ProcessMonitor::new().sample();
        assert!(stats.rss_bytes > 100 * 1024 && stats.total_ram_bytes > stats.rss_bytes, "{stats:?}");
        assert_eq!(parse_kib("a: 1 kB\nb: 22 kB\n", "b:"), 22);
    }
}
