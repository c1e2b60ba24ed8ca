//! What this process and its machine have to say of themselves: CPU and memory, as the system counts them.

use std::{
    fs,
    time::{Duration, Instant},
};

/// Looks at the process from time to time.
#[derive(Debug)]
pub(crate) struct Machine {
    total_ram_bytes: u64,
    last: (Instant, Duration),
}

/// How the process is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Vitals {
    /// Of one core, since the last look.
    pub(crate) cpu_percent: f64,
    pub(crate) cpu_s: f64,
    pub(crate) rss_bytes: u64,
    pub(crate) max_rss_bytes: u64,
    pub(crate) memory_percent: f64,
    pub(crate) total_ram_bytes: u64,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let total_ram_bytes = kib(&read("/proc/meminfo"), "MemTotal:") * 1024;
        Machine { total_ram_bytes, last: (Instant::now(), cpu()) }
    }

    /// How the process is since the last look.
    pub(crate) fn look(&mut self) -> Vitals {
        let (now, cpu, status) = (Instant::now(), cpu(), read("/proc/self/status"));
        let (before, used) = std::mem::replace(&mut self.last, (now, cpu));
        let rss_bytes = kib(&status, "VmRSS:") * 1024;
        Vitals {
            cpu_percent: (cpu - used).as_secs_f64() / (now - before).as_secs_f64().max(0.001) * 100.0,
            cpu_s: cpu.as_secs_f64(),
            rss_bytes,
            max_rss_bytes: kib(&status, "VmHWM:") * 1024,
            memory_percent: rss_bytes as f64 / self.total_ram_bytes.max(1) as f64 * 100.0,
            total_ram_bytes: self.total_ram_bytes,
        }
    }
}

fn cpu() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32)
}

/// Empty where the system does not say.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn kib(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive() {
        let vitals = Machine::new().look();
        assert!(vitals.rss_bytes > 100 * 1024 && vitals.total_ram_bytes > vitals.rss_bytes, "{vitals:?}");
        assert_eq!(kib("a: 1 kB\nb: 22 kB\n", "b:"), 22);
    }
}
