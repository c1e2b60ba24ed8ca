//! Finds processes that were stopped (SIGSTOP, a debugger), which a probe would find later.
//! It ends nothing. The browser pool and CDP sessions ask it once a second.

use rustix::process::Pid;

/// How often in a row a process must be stopped: a debugger or a job shell may stop one for a moment.
const CHECKS: u32 = 2;

/// Counts how often in a row a process was stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StopCheck {
    seen: u32,
}

impl StopCheck {
    /// Whether the process stays stopped.
    pub(crate) fn is_stopped(&mut self, pid: Option<Pid>) -> bool {
        self.seen = if pid.is_some_and(is_stopped_now) { self.seen + 1 } else { 0 };
        self.seen >= CHECKS
    }
}

fn is_stopped_now(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The name, in parentheses, may have any characters.
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};

    #[test]
    fn process_must_be_stopped_at_two_checks_in_a_row() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let mut check = StopCheck::default();
        assert!(!check.is_stopped(Some(pid)));
        kill_process(pid, Signal::STOP).unwrap();
        while !is_stopped_now(pid) {
            std::thread::yield_now();
        }
        assert!(!check.is_stopped(Some(pid)));
        assert!(check.is_stopped(Some(pid)));
        assert!(!check.is_stopped(None));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
