//! CPU time and memory of processes that a driver started to make load, such as browsers. They count as
//! the generator's own, or a saturated machine would look idle. It starts and ends no process: drivers
//! register process groups, and the run's usage report reads the sum.

use std::{
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// `/proc` counts CPU time in hundredths of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// How often all processes of the machine are looked through for new ones of the groups. Reading one costs some 10 µs
/// of CPU time.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

static GROUPS: Mutex<Groups> = Mutex::new(Groups {
    running: Vec::new(),
    processes: Vec::new(),
    searched: None,
    ended_cpu: Duration::ZERO,
    peak_memory: 0,
});

struct Groups {
    /// Process groups, with the CPU time that each had used when it was last read.
    running: Vec<(i32, Duration)>,
    /// Process numbers of the groups' processes at the last search.
    processes: Vec<u32>,
    /// When; `None` if a group was registered since.
    searched: Option<Instant>,
    /// Of groups that are no longer registered.
    ended_cpu: Duration,
    peak_memory: u64,
}

/// What all registered processes have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HelperUsage {
    /// Including processes that have ended.
    pub cpu: Duration,
    /// Memory that no other process shares, at the moment.
    pub memory_bytes: u64,
    /// The most that was seen at any call of [`helper_usage`].
    pub peak_memory_bytes: u64,
}

/// A registered process group. Drop it before the group is ended, because the last CPU time is read then.
#[derive(Debug)]
pub struct HelperProcesses {
    group: i32,
}

impl HelperProcesses {
    pub fn register(group: i32) -> HelperProcesses {
        let mut groups = lock();
        groups.running.push((group, Duration::ZERO));
        groups.searched = None;
        HelperProcesses { group }
    }
}

impl Drop for HelperProcesses {
    fn drop(&mut self) {
        let mut groups = lock();
        groups.searched = None;
        groups.read();
        if let Some(at) = groups.running.iter().position(|(group, _)| *group == self.group) {
            let (_, cpu) = groups.running.swap_remove(at);
            groups.ended_cpu += cpu;
        }
    }
}

/// The usage of all registered processes up to now. Costs nothing unless a driver has registered some.
pub fn helper_usage() -> HelperUsage {
    let mut groups = lock();
    let memory_bytes = groups.read();
    let running: Duration = groups.running.iter().map(|(_, cpu)| *cpu).sum();
    HelperUsage { cpu: groups.ended_cpu + running, memory_bytes, peak_memory_bytes: groups.peak_memory }
}

/// A panic while it is locked leaves sound numbers.
fn lock() -> MutexGuard<'static, Groups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Groups {
    /// Reads the CPU time of every group, and returns the memory of all.
    fn read(&mut self) -> u64 {
        if self.running.is_empty() {
            return 0;
        }
        if self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH_EVERY) {
            self.processes = all_processes();
            self.searched = Some(Instant::now());
        }
        let mut memory = 0;
        let mut cpu = vec![Duration::ZERO; self.running.len()];
        self.processes.retain(|process| {
            let folder = format!("/proc/{process}");
            let Ok(stat) = fs::read_to_string(format!("{folder}/stat")) else { return false };
            let Some((group, used)) = parse_stat(&stat) else { return false };
            let Some(at) = self.running.iter().position(|(known, _)| *known == group) else { return false };
            cpu[at] += used;
            memory += fs::read_to_string(format!("{folder}/status")).map_or(0, |status| own_memory(&status));
            true
        });
        for ((_, before), now) in self.running.iter_mut().zip(cpu) {
            // A process that ends between two reads moves its time to its parent; the sum never falls.
            *before = now.max(*before);
        }
        self.peak_memory = self.peak_memory.max(memory);
        memory
    }
}

fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The process group of a process, and its CPU time with that of its children that have ended.
fn parse_stat(stat: &str) -> Option<(i32, Duration)> {
    // The name in parentheses may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u32>().unwrap_or(0)).sum::<u32>();
    Some((fields.get(2)?.parse().ok()?, TICK * ticks))
}

fn own_memory(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        os::unix::process::CommandExt,
        process::Command,
        time::{Duration, Instant},
    };

    #[test]
    fn cpu_time_of_a_process_group_counts_while_it_runs_and_after_it_ended() {
        let mut busy =
            Command::new("/bin/sh").args(["-c", "while :; do :; done"]).process_group(0).spawn().expect("sh");
        let registered = HelperProcesses::register(busy.id() as i32);
        let deadline = Instant::now() + Duration::from_secs(60);
        while helper_usage().cpu < Duration::from_millis(50) {
            assert!(Instant::now() < deadline, "{:?}", helper_usage());
            std::thread::yield_now();
        }
        let running = helper_usage();
        assert!(running.memory_bytes > 0 && running.peak_memory_bytes >= running.memory_bytes, "{running:?}");
        drop(registered);
        busy.kill().expect("it runs");
        busy.wait().expect("it ends");
        let ended = helper_usage();
        assert!(ended.cpu >= running.cpu && ended.memory_bytes == 0, "{ended:?}");
    }

    #[test]
    fn stat_lines_are_parsed() {
        let stat = "7 (a) b)) S 1 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        assert_eq!(parse_stat(stat), Some((42, Duration::from_secs(1))));
        assert_eq!(parse_stat("junk"), None);
        assert_eq!(own_memory("VmRSS:\t 9 kB\nRssAnon:\t   2 kB\n"), 2048);
    }
}
