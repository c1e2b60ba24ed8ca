//! Puts the git commit into the version of the binary. Without git or a repository, the version has
//! no commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=SQUALL_COMMIT");
    // Runs again when HEAD moves. Outside a repository the watched file does not exist, so cargo
    // runs it at every build: a clone may replace the unpacked copy in the same folder.
    let folder = git(&["rev-parse", "--absolute-git-dir"]).unwrap_or_else(|| "no-repository".to_owned());
    println!("cargo:rerun-if-changed={folder}/HEAD");
    if std::path::Path::new(&folder).join("logs/HEAD").exists() {
        println!("cargo:rerun-if-changed={folder}/logs/HEAD");
    }
    let commit = std::env::var("SQUALL_COMMIT").ok().or_else(|| git(&["rev-parse", "--short=10", "HEAD"]));
    let version = env!("CARGO_PKG_VERSION");
    match commit.filter(|commit| !commit.is_empty()) {
        Some(commit) => println!("cargo:rustc-env=SQUALL_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=SQUALL_VERSION={version}"),
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
