//! Finds processes that were stopped (SIGSTOP, a debugger) or have ended, which a probe or Node would find later.
//! It ends nothing. The browser pool and CDP sessions ask it once a second, and the pool before each session.

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
    state(pid) == Some('T')
}

/// Whether the process has ended. Its parent may not have noticed.
pub(crate) fn has_ended(pid: Pid) -> bool {
    state(pid).is_none_or(|state| matches!(state, 'Z' | 'X'))
}

fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name, in parentheses, may have any characters.
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next())
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
        assert!(check.is_stopped(Some(pid)) && !has_ended(pid));
        assert!(!check.is_stopped(None));
        child.kill().unwrap();
        // This process has not waited for it.
        while !has_ended(pid) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
