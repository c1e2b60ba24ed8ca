//! The temporary folder of a worker, and those that killed workers left.
//! It does not know what is in a folder. The worker creates one at its start.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};

const PREFIX: &str = "squall-grid-";
/// A worker holds a lock on this file as long as its process lives.
const LOCK: &str = "lock";

/// The folder of a running worker, removed when dropped.
pub(crate) struct WorkerFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl WorkerFolder {
    /// Removes what killed workers left in the temporary folder of this machine, and creates a folder.
    pub(crate) fn create() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        Self::create_in(&parent)
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        // Downloads and profiles of sessions are in it, so no other user of the machine may read it.
        let private = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(parent)?;
        // Another worker sees the lock file only when it is locked.
        let hidden = folder.path().join(".lock");
        let lock = File::create(&hidden)?;
        lock.lock()?;
        fs::rename(hidden, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of workers that have ended, and ends processes that still use them: a stopped
/// Node does not notice that its worker was killed.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
    for folder in entries.flatten().filter(named).map(|entry| entry.path()) {
        if is_abandoned(&folder) {
            tracing::info!(folder = %folder.display(), "removing what a killed worker left");
            processes_using(&folder).into_iter().for_each(|pid| {
                let _ = kill_process(pid, Signal::KILL);
            });
            // A process that is ending may write for a moment; the next worker removes the rest.
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// Whether the worker of a folder has ended. Folders of other users cannot be opened and are left.
fn is_abandoned(folder: &Path) -> bool {
    let Ok(file) = File::options().write(true).open(folder.join(LOCK)) else { return false };
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock | TryLockError::Error(_)))
}

/// Processes whose command line names the folder.
fn processes_using(folder: &Path) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let name = format!("{}/", folder.display());
    let uses = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&name))
    };
    let paths = processes.flatten().map(|entry| entry.path()).filter(uses);
    paths.filter_map(|path| Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn other_users_cannot_read_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = WorkerFolder::create_in(parent.path()).unwrap();
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn folder_of_an_ended_worker_is_removed_with_its_processes_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let living = WorkerFolder::create_in(parent.path()).unwrap();
        let abandoned = WorkerFolder::create_in(parent.path()).unwrap();
        let (left, foreign) = (abandoned.folder.keep(), parent.path().join("squall-grid-other"));
        drop(abandoned._lock);
        fs::create_dir(&foreign).unwrap();
        let used = left.join("log");
        fs::write(&used, "").unwrap();
        let mut process = Command::new("tail").arg("-f").arg(&used).stdin(Stdio::null()).spawn().unwrap();
        // A process that has just been started shows no command line for a moment.
        while processes_using(&left).is_empty() {
            std::thread::yield_now();
        }
        // A process that another test starts at this moment may still have the lock file open.
        while left.exists() {
            remove_abandoned(parent.path());
        }
        assert!(living.path().exists() && foreign.exists());
        assert!(!process.wait().unwrap().success(), "the process was killed");
    }
}
