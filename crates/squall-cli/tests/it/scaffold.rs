//! `squall new`, and that what it makes works as it is.

use crate::support::{Desk, target};

#[test]
fn a_new_project_runs_and_is_not_overwritten() {
    let (target, desk) = (target(), Desk::new());
    let made = desk.squall(&["new", "shop"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    for file in ["scenario.toml", "README.md", "ci.yml", ".gitignore"] {
        assert!(desk.path("shop").join(file).is_file(), "{file}");
    }
    let checked = desk.squall(&["run", "shop/scenario.toml", "--check"]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    let short =
        ["shop/scenario.toml", "--target", &target.url(""), "--rate", "50", "--for", "1s", "--profile", "constant"];
    assert_eq!(desk.result(&short).0, 0);
    assert_eq!(target.requests(), 50);

    desk.write("shop/scenario.toml", "mine");
    let again = desk.squall(&["new", "shop"]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("not overwritten"), "{}", again.stderr);
    assert_eq!(desk.read("shop/scenario.toml"), "mine");
}
