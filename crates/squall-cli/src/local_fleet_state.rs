//! The state file of `squall up`: which processes it started, so that `squall down` stops exactly
//! those. Only the user can read or change it. A recorded pid counts only while its process has the
//! recorded start time, because the system reuses pids. Starts and stops nothing itself.

use rustix::process::{Pid, Signal, getuid, kill_process};
use serde_json::{Value, json};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::exit::CliError;

/// A fleet that `squall up` started.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LocalFleetState {
    /// The URL of its API.
    pub(crate) api: String,
    /// Its store, if it has one that other processes reach. The URL has the password of a Redis that
    /// `squall up` started.
    pub(crate) store: Option<FleetStoreAddress>,
    /// In the order of their start.
    pub(crate) processes: Vec<FleetProcess>,
}

/// Where `squall run --cluster` finds the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetStoreAddress {
    pub(crate) redis: String,
    pub(crate) fleet: String,
}

/// A process of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FleetProcess {
    /// `redis-server`, `orchestrator`, `worker-1`.
    pub(crate) role: String,
    pub(crate) pid: i32,
    /// Field 22 of /proc/PID/stat: distinguishes it from a later process with the same pid.
    pub(crate) start_time: u64,
}

impl FleetProcess {
    /// The running process `pid`; `None` if there is none.
    pub(crate) fn from_pid(role: &str, pid: i32) -> Option<FleetProcess> {
        Some(FleetProcess { role: role.to_owned(), pid, start_time: start_time(pid)? })
    }

    /// Whether the recorded process still runs.
    pub(crate) fn is_running(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }

    /// Sends a signal, if the recorded process still runs.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_running()) {
            // Fails if the process ends at this moment.
            let _ = kill_process(pid, signal);
        }
    }
}

/// When a running process was started; `None` for an ended one, even if it is still a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&stat)
}

fn parse_stat(stat: &str) -> Option<u64> {
    // The name in parentheses may contain parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ended = matches!(*fields.first()?, "Z" | "X");
    if ended { None } else { fields.get(19)?.parse().ok() }
}

/// Creates the folder of the state file if it is missing. Refuses one that other users could write
/// to.
pub(crate) fn create_folder() -> Result<PathBuf, CliError> {
    let path = state_folder();
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(CliError::file_error("create", &path, &error));
        }
        _ => {}
    }
    check_owner(&path)?;
    Ok(path)
}

/// Takes the lock of `squall up` until the file is dropped, so that only one fleet starts at a
/// time.
pub(crate) fn lock() -> Result<File, CliError> {
    // Beside the folder, which is removed with the fleet. The lock file is never removed: a second
    // process could otherwise lock a new file while the first holds the old one.
    let path = state_folder().with_extension("lock");
    let lock = || {
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new().write(true).create(true).mode(0o600).custom_flags(no_link).open(&path)?;
        file.lock().map(|()| file)
    };
    lock().map_err(|error| CliError::file_error("lock", &path, &error))
}

fn state_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_absolute()) {
        Some(path) => Path::new(&path).join("squall"),
        None => std::env::temp_dir().join(format!("squall-{}", getuid().as_raw())),
    }
}

fn check_owner(path: &Path) -> Result<(), CliError> {
    // Does not follow links, which another user could have made.
    let found = fs::symlink_metadata(path).map_err(|error| CliError::file_error("use", path, &error))?;
    match found.is_dir() && found.uid() == getuid().as_raw() && found.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(CliError::new(format!(
            "{} can be used by other users: remove it, or run `chmod 700` on it if it is yours",
            path.display()
        ))),
    }
}

/// Reads the state file; `None` if there is none.
pub(crate) fn read() -> Result<Option<LocalFleetState>, CliError> {
    let folder = state_folder();
    let path = folder.join("fleet.json");
    match fs::symlink_metadata(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => check_owner(&folder)?,
    }
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CliError::file_error("read", &path, &error)),
    };
    let damaged =
        || CliError::new(format!("{} is damaged: end the processes yourself and remove the file", path.display()));
    parse(&text).map(Some).ok_or_else(damaged)
}

/// The API of the fleet that `squall up` started, if it runs.
pub(crate) fn running_fleet_api() -> Option<String> {
    Some(running_fleet().ok()??.api)
}

/// The fleet that `squall up` started, if at least one of its processes runs.
pub(crate) fn running_fleet() -> Result<Option<LocalFleetState>, CliError> {
    Ok(read()?.filter(|state| state.processes.iter().any(FleetProcess::is_running)))
}

/// The store of the fleet that `squall up` started, for `--cluster` without a URL.
pub(crate) fn running_fleet_store() -> Result<FleetStoreAddress, CliError> {
    let Some(state) = running_fleet()? else {
        return Err(CliError::new(
            "--cluster without a URL uses the fleet of `squall up`, and none runs: start one, or give --cluster REDIS-URL",
        ));
    };
    let in_memory = "the fleet of `squall up` runs in one process without Redis: use `squall test start`";
    state.store.ok_or_else(|| CliError::new(in_memory))
}

/// The API of a fleet that has ended without `squall down`.
pub(crate) fn ended_fleet_api() -> Option<String> {
    let state = read().ok()??;
    (!state.processes.iter().any(FleetProcess::is_running)).then_some(state.api)
}

/// Replaces the state file in one step.
pub(crate) fn write(folder: &Path, state: &LocalFleetState) -> Result<(), CliError> {
    let processes: Vec<Value> = state
        .processes
        .iter()
        .map(|process| json!({"role": process.role, "pid": process.pid, "start_time": process.start_time}))
        .collect();
    let store = state.store.as_ref().map(|store| json!({"redis": store.redis, "fleet": store.fleet}));
    let text = json!({"version": 1, "api": state.api, "store": store, "processes": processes}).to_string();
    let (path, new) = (folder.join("fleet.json"), folder.join("fleet.json.new"));
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &path)
    };
    write().map_err(|error| CliError::file_error("write", &path, &error))
}

fn parse(text: &str) -> Option<LocalFleetState> {
    let value: Value = serde_json::from_str(text).ok()?;
    let process = |value: &Value| {
        Some(FleetProcess {
            role: value["role"].as_str()?.to_owned(),
            pid: i32::try_from(value["pid"].as_i64()?).ok().filter(|pid| *pid > 1)?,
            start_time: value["start_time"].as_u64()?,
        })
    };
    let processes = value["processes"].as_array()?.iter().map(process).collect::<Option<Vec<_>>>()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let store = &value["store"];
    let store =
        text(&store["redis"]).zip(text(&store["fleet"])).map(|(redis, fleet)| FleetStoreAddress { redis, fleet });
    Some(LocalFleetState { api: text(&value["api"])?, store, processes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_another_start_time_or_a_zombie_is_not_running() {
        let me = FleetProcess::from_pid("me", std::process::id() as i32).expect("this process runs");
        assert!(me.is_running());
        assert!(!FleetProcess { start_time: me.start_time + 1, ..me }.is_running());
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1000 10";
        assert_eq!(parse_stat(stat), Some(777));
        assert_eq!(parse_stat(&stat.replace(" S ", " Z ")), None);
        assert_eq!(parse_stat("42 (a"), None);
    }

    #[test]
    fn damaged_state_file_is_refused() {
        let good = r#"{"version":1,"api":"http://x","processes":[{"role":"worker-1","pid":42,"start_time":7}]}"#;
        assert_eq!(parse(good).unwrap().processes[0].pid, 42);
        for bad in ["", "{}", &good.replace("42", "1"), &good.replace("42", "-5"), &good.replace("7}", "\"7\"}")] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
