//! A browser of its own for a CDP client: a process with a DevTools pipe instead of a port, because a
//! page could open a port. It forwards nothing; [`super::cdp_session`] does.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use rustix::process::Pid;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::node_host::kill_group;

/// The browser reads its pipe from descriptor 3 and writes to 4; the shell moves them there.
const MOVE_DESCRIPTORS: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How CDP browsers are launched.
#[derive(Debug)]
pub(crate) struct CdpLauncher {
    /// The browser's program; Playwright's own cannot be used without Playwright.
    pub(crate) executable: Option<PathBuf>,
    pub(crate) args: Vec<String>,
    /// Where each browser gets a folder.
    pub(crate) folder: PathBuf,
    /// How many were launched so far.
    pub(crate) launched: AtomicU64,
}

/// A running browser. Dropping it kills its process group.
pub(crate) struct CdpBrowser {
    child: Child,
    group: Option<Pid>,
    folder: PathBuf,
}

impl CdpLauncher {
    /// Starts a browser for a session, with both ends of its pipe.
    pub(crate) fn launch(&self, program: &Path) -> io::Result<(CdpBrowser, ChildStdin, ChildStdout)> {
        // Not the session's id: Chromium puts a socket into it, whose path has at most 107 bytes.
        let number = self.launched.fetch_add(1, Relaxed);
        let folder = self.folder.join(format!("c{number}"));
        std::fs::create_dir_all(&folder)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(MOVE_DESCRIPTORS).arg(program);
        command.args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check"]);
        command.args(["--disable-background-networking", "--disable-dev-shm-usage", "--password-store=basic"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        // Chromium's sandbox refuses to run as root.
        command.args(rustix::process::geteuid().is_root().then_some("--no-sandbox"));
        command.args(&self.args).arg("about:blank").env("TMPDIR", &folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                return Err(error);
            }
        };
        let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        Ok((CdpBrowser { child, group, folder }, input, output))
    }
}

impl CdpBrowser {
    /// Its process, which leads a group of its own.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.group
    }

    /// Kills the browser and waits for its end.
    pub(crate) async fn end(mut self) {
        kill_group(self.group);
        let _ = tokio::time::timeout(EXIT_TIMEOUT, self.child.wait()).await;
    }
}

impl Drop for CdpBrowser {
    fn drop(&mut self) {
        kill_group(self.group);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
