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
    let short =
        ["shop/scenario.toml", "--target", &target.url(""), "--rate", "50", "--for", "1s", "--profile", "constant"];
    assert_eq!(folder.result(&short).0, 0);
    assert_eq!(target.requests(), 50);

    folder.write("shop/scenario.toml", "mine");
    let again = folder.squall(&["new", "shop"]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("not overwritten"), "{}", again.stderr);
    assert_eq!(folder.read("shop/scenario.toml"), "mine");
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
