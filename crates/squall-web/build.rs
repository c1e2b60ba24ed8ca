//! Lists the files of the web UI for `routes/ui`, which embeds them. Builds no file: `make ui` does.

use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=dist");
    let dist = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("dist");
    let mut files = Vec::new();
    collect(&dist, "", &mut files);
    files.sort();
    let entries = files.iter().map(|name| format!("({name:?}, include_bytes!({:?})),\n", dist.join(name)));
    let list = format!("&[\n{}]\n", entries.collect::<String>());
    let out = Path::new(&env::var_os("OUT_DIR").expect("set by cargo")).join("ui_files.rs");
    fs::write(out, list).expect("cargo's folder is writable");
}

/// Adds the names of the files below `folder`, with `prefix`. A folder that does not exist has none.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.expect("a readable folder");
        let name = format!("{prefix}{}", entry.file_name().to_str().expect("the names are ASCII"));
        match entry.file_type().expect("a readable folder").is_dir() {
            true => collect(&entry.path(), &format!("{name}/"), files),
            false => files.push(name),
        }
    }
}
