//! `squall new` and the example scenarios: they run unchanged.

use crate::support::{TestFolder, target};

#[test]
fn new_project_runs_and_is_not_overwritten() {
    let (target, folder) = (target(), TestFolder::new());
    let made = folder.squall(&["new", "shop"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    for file in ["scenario.toml", "README.md", "ci.yml", ".gitignore"] {
        assert!(folder.path("shop").join(file).is_file(), "{file}");
    }
    let checked = folder.squall(&["run", "shop/scenario.toml", "--check"]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    let short = ["run", "shop/scenario.toml", "--target", &target.url(""), "--for", "2s"];
    let ran = folder.squall(&short);
    assert_eq!(ran.code, 0, "{ran:?}");
    let note = "note: ramp_up is 500ms instead of 5s: the run lasts 2s instead of 20s\n";
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);
    assert_eq!(target.requests(), 88, "the area under 50/s for 2 s with a ramp of 500 ms");

    folder.write("shop/scenario.toml", "mine");
    let again = folder.squall(&["new", "shop"]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("not overwritten"), "{}", again.stderr);
    assert_eq!(folder.read("shop/scenario.toml"), "mine");
}

/// The commands of the steps of a CI file.
fn ci_commands(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("- run: ")).collect()
}

#[test]
fn ci_file_of_a_new_project_runs_step_by_step() {
    let folder = TestFolder::new();
    assert_eq!(folder.squall(&["new", "shop"]).code, 0);
    // Port 8089 may be in use here.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for file in ["shop/ci.yml", "shop/scenario.toml"] {
        folder.write(file, &folder.read(file).replace("127.0.0.1:8089", &free));
    }
    let ci = folder.read("shop/ci.yml");
    let (install, commands) = ci_commands(&ci).split_first().map(|(first, rest)| (*first, rest.to_vec())).unwrap();
    // This step compiles for minutes. The test checks its package and runs the program that it installs.
    assert_eq!(
        install,
        concat!("cargo install --locked --git ", env!("CARGO_PKG_REPOSITORY"), " ", env!("CARGO_PKG_NAME"))
    );
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_squall"));
    assert_eq!((program.file_name().unwrap().to_str(), commands.len()), (Some("squall"), 3));
    let script = format!("trap 'kill $(jobs -p)' EXIT\nset -e\n{}", commands.join("\n"));
    let mut job = std::process::Command::new("bash");
    job.args(["-c", &script]).current_dir(folder.path("shop")).env("SQUALL_FOR", "1s");
    job.env("PATH", format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap()));
    let ended = job.output().expect("bash is installed");
    assert!(ended.status.success(), "{ended:?}");
    let result = folder.json("shop/result.json");
    assert_eq!((result["verdict"].as_str(), result["thresholds"].as_array().unwrap().len()), (Some("passed"), 2));
    assert!(folder.path("shop/report.html").is_file() && folder.path("shop/junit.xml").is_file());
}

#[test]
fn new_python_project_has_a_scenario_and_an_install_step_in_python() {
    let folder = TestFolder::new();
    let made = folder.squall(&["new", "shop", "--python"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("squall run scenario.py\n"), "{}", made.stdout);
    assert!(!folder.path("shop/scenario.toml").exists());
    assert!(folder.read("shop/README.md").contains("squall run scenario.py --check"));
    let ci = folder.read("shop/ci.yml");
    assert_eq!(ci_commands(&ci)[0], concat!("pip install git+", env!("CARGO_PKG_REPOSITORY")));
    assert!(!ci.contains("scenario.toml") && !ci.contains('{'), "{ci}");
    let mut compile = std::process::Command::new("python3");
    compile.args(["-m", "py_compile", "scenario.py"]);
    assert!(compile.current_dir(folder.path("shop")).status().expect("python3 is installed").success());
}

#[test]
fn every_example_scenario_is_valid() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("readable").path());
    let scenarios: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    assert!(scenarios.len() >= 3, "{scenarios:?}");
    for path in scenarios {
        let checked = TestFolder::new().squall(&["run", "--check", path.to_str().expect("UTF-8")]);
        assert_eq!(checked.code, 0, "{}: {}", path.display(), checked.stderr);
    }
}
