//! The process of a browser: starts it in a process group and a temporary folder of its own, and ends all
//! of it. It does not speak with the browser. Owned by [`Browser`](crate::Browser).

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::json;
use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{CdpError, connection::Connection};

/// Connects the browser's pipes (descriptors 3 and 4) with the standard streams of this shell. The browser
/// ends when its pipe is closed, so it does not outlive a killed Squall, and the shell then removes the
/// folder.
const START: &str = r#"folder=$1; shift; "$@" 3<&0 4>&1 </dev/null >/dev/null; rm -rf "$folder""#;

/// How long to wait for killed processes to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(5);

const SWITCHES: [&str; 17] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
];

/// A browser that runs. Dropping it ends the whole process group and removes the folder.
pub(crate) struct BrowserProcess {
    shell: Child,
    folder: PathBuf,
}

/// The ends of the pipes that speak with the browser.
pub(crate) struct BrowserPipes {
    pub(crate) commands: ChildStdin,
    pub(crate) messages: ChildStdout,
}

impl BrowserProcess {
    /// Starts the browser. One that `listens` also opens a port of 127.0.0.1.
    pub(crate) fn start(
        executable: &Path,
        args: &[String],
        listens: bool,
    ) -> io::Result<(BrowserProcess, BrowserPipes)> {
        let folder = tempfile::Builder::new().prefix("squall-browser-").tempdir()?.keep();
        let port = listens.then_some("--remote-debugging-port=0").into_iter();
        let args: Vec<&str> = port.chain(args.iter().map(String::as_str)).collect();
        let started = start_shell(executable, &args, &folder);
        let mut shell = started.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
        let commands = shell.stdin.take().expect("standard input is a pipe");
        let messages = shell.stdout.take().expect("standard output is a pipe");
        Ok((BrowserProcess { shell, folder }, BrowserPipes { commands, messages }))
    }

    /// The number of the process group, which all processes of the browser belong to.
    pub(crate) fn group(&self) -> Pid {
        Pid::from_child(&self.shell)
    }

    /// The URL of the browser's port, which it writes to its standard error once it listens.
    pub(crate) async fn endpoint(&self, connection: &Connection) -> Result<String, CdpError> {
        loop {
            let text = fs::read(self.folder.join("stderr")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let line = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(url) = line.filter_map(|line| line.strip_prefix("DevTools listening on ")).next() {
                return Ok(url.trim().to_owned());
            }
            // Fails when the browser has ended. The round trip also paces the loop.
            connection.call(None, "Browser.getVersion", json!({})).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The last lines that the browser wrote to its standard error.
    pub(crate) fn last_stderr_lines(&self) -> String {
        let text = fs::read(self.folder.join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }
}

fn start_shell(executable: &Path, args: &[&str], folder: &Path) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", START, "sh"]).arg(folder).arg(executable).args(SWITCHES);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    // Chromium's sandbox refuses to run as root.
    if rustix::process::geteuid().is_root() {
        command.arg("--no-sandbox");
    }
    command.args(args);
    for name in ["TMPDIR", "HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env(name, folder);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(folder.join("stderr"))?);
    command.process_group(0).spawn()
}

impl Drop for BrowserProcess {
    fn drop(&mut self) {
        let group = self.group();
        // Fails only if the group has ended.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.shell.wait();
        let deadline = Instant::now() + END_TIMEOUT;
        while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
