//! Keeps the files of a browser's neighbours from its pages: pages, and clients over CDP, open `file://` URLs,
//! and the downloads and profiles of other sessions belong to the same user. With Landlock, a browser reads only
//! files of the system and of its own folder.
//! A client that speaks Playwright's protocol by hand has files written by Node, which writes only to the folder of
//! its browsers.
//! Playwright starts browsers by itself, so it is given a script in place of the browser: the script starts a
//! command of this program, which restricts itself and then becomes the browser.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    time::Duration,
};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    path_beneath_rules,
};
use tokio::process::Child;

use crate::error_text::with_causes;

/// With it, files can be moved between folders.
const OLDEST_ABI: ABI = ABI::V2;
const NEWEST_ABI: ABI = ABI::V5;
/// In place of a browser's arguments: restricts itself, and starts no browser.
const CHECK: &str = "--squall-check";
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// What a browser reads of the system. Secrets of a machine are elsewhere.
const SYSTEM: [&str; 22] = [
    "/bin",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/run/NetworkManager",
    "/run/current-system",
    "/run/opengl-driver",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/sbin",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/usr",
    "/var/cache/fontconfig",
    "/var/lib/dbus/machine-id",
    "/var/lib/flatpak/exports",
];
const ETC: [&str; 34] = [
    "X11",
    "alternatives",
    "ca-certificates",
    "chromium",
    "chromium.d",
    "crypto-policies",
    "drirc",
    "fonts",
    "gai.conf",
    "glvnd",
    "group",
    "gtk-3.0",
    "host.conf",
    "hostname",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "machine-id",
    "mime.types",
    "nsswitch.conf",
    "opt/chrome",
    "os-release",
    "passwd",
    "pki/tls/certs",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
    "vulkan",
];
/// Fonts and certificates of the user.
const HOME: [&str; 5] = [".cache/fontconfig", ".config/fontconfig", ".fonts", ".local/share/fonts", ".pki/nssdb"];
const DEVICES: [&str; 8] = ["dri", "full", "null", "random", "shm", "tty", "urandom", "zero"];

/// Why a browser is not confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// The kernel is too old, or has it switched off.
    #[error("this kernel has no Landlock as of Linux 5.19")]
    Kernel(#[source] RulesetError),
    /// A rule could not be added.
    #[error("the kernel refuses a rule of Landlock")]
    Rule(#[from] RulesetError),
    /// The folder is one that every browser may use.
    #[error("every browser may read the temporary folder {0}: let TMPDIR name another")]
    SharedFolder(String),
    /// The script could not be written.
    #[error("cannot write the script that confines browsers")]
    Script(#[source] io::Error),
    /// The script does not run.
    #[error("the script that confines browsers does not run: {0}")]
    Check(String),
    /// The browser could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The browser.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Restricts this process to files of the system and of its temporary folder, and becomes `program`. Returns only
/// on failure, or `Ok` if `arguments` ask for a check.
pub fn exec_confined(program: &Path, arguments: &[OsString]) -> Result<(), ConfinementError> {
    confine(program, &std::env::temp_dir())?;
    if arguments.iter().eq([CHECK]) {
        return Ok(());
    }
    let source = std::process::Command::new(program).args(arguments).exec();
    Err(ConfinementError::Start { program: program.display().to_string(), source })
}

/// Writes a script into `folder` that runs `program` confined to its own temporary folder, by means of `command`,
/// and checks that it works here.
pub(crate) async fn confining_script(
    command: &[OsString],
    program: &Path,
    folder: &Path,
) -> Result<PathBuf, ConfinementError> {
    let shared = system_files().chain(devices()).any(|path| folder.starts_with(path));
    if shared {
        return Err(ConfinementError::SharedFolder(folder.display().to_string()));
    }
    let mut text = b"#!/bin/sh\nexec".to_vec();
    for word in command.iter().map(OsString::as_os_str).chain([program.as_os_str()]) {
        text.extend(b" '");
        text.extend(word.as_bytes().iter().flat_map(|byte| match byte {
            b'\'' => b"'\\''".to_vec(),
            byte => vec![*byte],
        }));
        text.push(b'\'');
    }
    text.extend(b" \"$@\"\n");
    let script = folder.join("browser");
    let executable = fs::Permissions::from_mode(0o700);
    let written = fs::write(&script, text).and_then(|()| fs::set_permissions(&script, executable));
    written.map_err(ConfinementError::Script)?;
    let mut check = tokio::process::Command::new(&script);
    check.arg(CHECK).env("TMPDIR", folder).kill_on_drop(true);
    let output = tokio::time::timeout(CHECK_TIMEOUT, check.output()).await;
    let output = output.map_err(|_| ConfinementError::Check("it does not end".to_owned()))?;
    let output = output.map_err(|error| ConfinementError::Check(error.to_string()))?;
    if output.status.success() {
        return Ok(script);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(ConfinementError::Check(message.lines().next().unwrap_or("it says nothing").to_owned()))
}

/// Starts a process that writes only into `folder`. Without Landlock it writes anywhere.
pub(crate) fn spawn_writing_into(folder: &Path, command: &mut tokio::process::Command) -> io::Result<Child> {
    let runtime = tokio::runtime::Handle::current();
    // Landlock restricts a thread, and what it starts.
    let spawned = std::thread::scope(|scope| {
        let spawning = scope.spawn(|| {
            let _runtime = runtime.enter();
            if let Err(error) = confine_writes(folder) {
                let error = with_causes(&error);
                tracing::debug!(error, "Node may write files anywhere");
            }
            command.spawn()
        });
        spawning.join()
    });
    spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that starts a process ended")))
}

/// Lets this thread, and the processes that it starts, write only into `folder`.
fn confine_writes(folder: &Path) -> Result<(), ConfinementError> {
    let write = AccessFs::from_write(NEWEST_ABI);
    // As for browsers, which Node starts.
    let processes = (!rustix::process::geteuid().is_root()).then_some("/proc");
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_write(OLDEST_ABI))
        .map_err(ConfinementError::Kernel)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(write)?
        .create()
        .map_err(ConfinementError::Kernel)?
        .add_rules(path_beneath_rules(processes, AccessFs::WriteFile | AccessFs::Truncate))?
        .add_rules(path_beneath_rules(devices().chain([folder.to_owned()]), write))?
        .restrict_self()?;
    Ok(())
}

/// Restricts this thread, and the processes that it starts.
fn confine(program: &Path, folder: &Path) -> Result<(), ConfinementError> {
    let read = AccessFs::from_read(NEWEST_ABI);
    // Chromium's sandbox writes the user ids of its processes there. Root runs it without the sandbox, and could
    // write more.
    let is_root = rustix::process::geteuid().is_root();
    let processes = if is_root { read } else { read | AccessFs::WriteFile | AccessFs::Truncate };
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(OLDEST_ABI))
        .map_err(ConfinementError::Kernel)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_ABI))?
        .create()
        .map_err(ConfinementError::Kernel)?;
    ruleset
        .add_rules(path_beneath_rules(
            system_files().chain(home_files()).chain([program_files(program, folder)]),
            read,
        ))?
        .add_rules(path_beneath_rules(["/proc"], processes))?
        .add_rules(path_beneath_rules(devices().chain([folder.to_owned()]), AccessFs::from_all(NEWEST_ABI)))?
        .restrict_self()?;
    Ok(())
}

fn system_files() -> impl Iterator<Item = PathBuf> {
    SYSTEM.iter().map(PathBuf::from).chain(ETC.iter().map(|name| Path::new("/etc").join(name)))
}

fn home_files() -> impl Iterator<Item = PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    home.into_iter().flat_map(|home| HOME.map(|name| home.join(name)))
}

fn devices() -> impl Iterator<Item = PathBuf> {
    DEVICES.iter().map(|name| Path::new("/dev").join(name))
}

/// The folder of the program, which has its libraries, unless that has the folders of browsers too.
fn program_files(program: &Path, folder: &Path) -> PathBuf {
    let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let parent = program.parent().filter(|parent| !folder.starts_with(parent));
    parent.map(Path::to_owned).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confined_process_reads_the_system_and_its_own_folder_only() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let files = folders.each_ref().map(|folder| folder.path().join("download"));
        files.iter().for_each(|file| fs::write(file, "text").unwrap());
        let (own, others) = (files[0].clone(), files[1].clone());
        // Landlock restricts a thread, and those that it starts.
        let confined = std::thread::spawn(move || {
            confine(Path::new("/usr/bin/cat"), own.parent().unwrap()).unwrap();
            let cat = |path: &Path| std::process::Command::new("/usr/bin/cat").arg(path).output().unwrap();
            assert_eq!(cat(&own).stdout, b"text");
            assert!(!cat(Path::new("/etc/hosts")).stdout.is_empty());
            let denied = |path: &Path| String::from_utf8(cat(path).stderr).unwrap().contains("Permission denied");
            assert!(denied(&others) && denied(others.parent().unwrap()) && denied(Path::new("/etc/shadow")));
            fs::rename(&own, own.with_extension("done")).unwrap();
            assert!(fs::write(others.with_extension("new"), "").is_err());
        });
        confined.join().unwrap();
    }

    #[test]
    fn program_beside_the_folders_of_browsers_does_not_open_them() {
        let program = Path::new("/usr/bin/env").canonicalize().unwrap();
        assert_eq!(program_files(&program, Path::new("/tmp/b")), program.parent().unwrap());
        assert_eq!(program_files(&program, &program.parent().unwrap().join("b")), program);
    }

    #[tokio::test]
    async fn process_writes_into_its_folder_and_devices_only() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [own, other] = folders.each_ref().map(|folder| folder.path().join("file"));
        let write = format!("echo x > /dev/null && echo x > {} && echo x > {}", own.display(), other.display());
        let mut command = tokio::process::Command::new("/bin/sh");
        command.arg("-c").arg(write).stderr(std::process::Stdio::null());
        let mut child = spawn_writing_into(folders[0].path(), &mut command).unwrap();
        assert!(!child.wait().await.unwrap().success());
        assert!(own.exists() && !other.exists());
        fs::write(&other, "this process may").unwrap();
    }

    #[tokio::test]
    async fn script_passes_words_as_they_are_and_a_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let echo = |word: &str| [OsString::from("/bin/echo"), OsString::from(word)];
        let script = confining_script(&echo("it's $HOME"), Path::new("/a b"), folder.path()).await.unwrap();
        let output = std::process::Command::new(script).args(["--x", "c  d"]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's $HOME /a b --x c  d\n");
        let failing = ["/bin/sh", "-c", "echo no Landlock >&2; exit 1"].map(OsString::from);
        let error = confining_script(&failing, Path::new("/a"), folder.path()).await.unwrap_err().to_string();
        assert!(error.ends_with("no Landlock"), "{error}");
        let shared = confining_script(&echo("x"), Path::new("/a"), Path::new("/dev/shm/squall")).await;
        assert!(matches!(shared, Err(ConfinementError::SharedFolder(_))));
    }
}
