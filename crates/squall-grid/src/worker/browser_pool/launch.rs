//! Launches one browser, and says why that failed. It keeps no browser; [`super::BrowserPool`] does.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Pid;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        node_host::{HostCallError, LaunchCall, NodeHost},
        stopped_process::StopCheck,
    },
    PoolConfig,
};

/// A launch waits for those that the host runs first.
const LAUNCH_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A browser that was launched.
#[derive(Clone, Debug)]
pub(super) struct RunningBrowser {
    pub(super) socket: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) pid: Option<Pid>,
    pub(super) misses: u32,
    /// A probe runs. Probes of one browser do not overlap, so that each miss takes the probe's timeout.
    pub(super) probing: bool,
    pub(super) stop_check: StopCheck,
    /// Cancelled when its sessions have to end.
    pub(super) overdue: CancellationToken,
}

/// Chromium puts a socket into the folder of a browser, and does not say why it ends if its path is too long.
pub(super) fn launch_failure(error: &HostCallError, folder: &Path) -> String {
    const SOCKET: usize = "/999/.org.chromium.Chromium.XXXXXX/SingletonSocket".len();
    const MAX_SOCKET: usize = 107;
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default();
    match folder.as_os_str().len() + SOCKET > MAX_SOCKET {
        true => format!("{reason} The path of the folder that TMPDIR names may be too long: name a shorter one"),
        false => reason.to_owned(),
    }
}

/// Launches the browser with this number, in a folder of its own.
pub(super) async fn launch(config: &PoolConfig, host: &NodeHost, id: u64) -> Result<RunningBrowser, HostCallError> {
    let folder = config.host.folder.join(id.to_string());
    let socket = folder.join("s");
    std::fs::create_dir_all(&folder)
        .map_err(|error| HostCallError::Failed(format!("{}: {error}", folder.display())))?;
    let call = LaunchCall {
        id,
        executable: config.executable.as_deref(),
        args: &config.args,
        // Chromium's sandbox refuses to run as root.
        sandbox: !rustix::process::geteuid().is_root(),
        socket: &socket,
        dir: &folder,
        timeout: config.launch_timeout.as_millis(),
    };
    let launched = host.launch(&call, LAUNCH_CALL_TIMEOUT).await;
    let pid = launched.inspect_err(|_| {
        // Chromium may still write for a moment; the worker's folder is removed at its end.
        let _ = std::fs::remove_dir_all(&folder);
    })?;
    let (stop_check, overdue) = (StopCheck::default(), CancellationToken::new());
    Ok(RunningBrowser { socket, folder, pid, misses: 0, probing: false, stop_check, overdue })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_launch_in_a_folder_with_a_long_path_says_so() {
        let error = || HostCallError::Failed("it ended.\nCall log".to_owned());
        let reason = |length: usize| launch_failure(&error(), Path::new(&"x".repeat(length)));
        assert_eq!(reason(57), "it ended.");
        assert!(reason(58).starts_with("it ended. The path of the folder that TMPDIR names may be too long"));
    }
}
