//! Compiles the crate again when the files of the web UI change: cargo does not see that by itself.

fn main() {
    println!("cargo::rerun-if-changed=dist");
}
