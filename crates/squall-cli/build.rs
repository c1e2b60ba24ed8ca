//! Bakes the commit into the binary. A tarball without git, or a machine without it, gives a version without a commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=SQUALL_COMMIT");
    // The commit is asked for again when HEAD moves; outside a repository these paths do not exist and nothing is watched.
    if let Some(folder) = git(&["rev-parse", "--absolute-git-dir"]) {
        for file in ["HEAD", "logs/HEAD"] {
            if std::path::Path::new(&folder).join(file).exists() {
                println!("cargo:rerun-if-changed={folder}/{file}");
            }
        }
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
