//! The guide matches the scenario format: its first example is valid, and it documents every key.

use squall_scenario::{NoFiles, Scenario, ScenarioOverrides};

const GUIDE: &str = include_str!("../../../../docs/scenarios.md");

#[test]
fn first_example_of_the_guide_is_valid() {
    let example = GUIDE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    Scenario::parse("shop.toml", example, &mut NoFiles, ScenarioOverrides::default())
        .unwrap_or_else(|errors| panic!("{errors}"));
}

#[test]
fn guide_documents_every_key() {
    // An unknown key that resembles no other makes the reader list all known keys.
    for table in ["", "[load]", "[http]", "[[data]]", "[[task]]", "[[on_start]]", "[[task]]\n[task.expect]"] {
        let errors =
            Scenario::parse("x.toml", &format!("{table}\n'§' = 1"), &mut NoFiles, ScenarioOverrides::default());
        let errors = errors.expect_err("an unknown key");
        let hint = errors.problems.iter().find(|problem| problem.message.contains('§')).and_then(|p| p.hint.as_deref());
        let keys = hint.and_then(|hint| hint.strip_prefix("there are ")).expect("a list of keys");
        for key in keys.split(", ") {
            let named = [
                format!("`{key}`"),
                format!("`[{key}]`"),
                format!("`[[{key}]]`"),
                format!("`[[task.{key}]]`"),
                format!("`{key} = "),
            ]
            .iter()
            .any(|name| GUIDE.contains(name.as_str()))
                || GUIDE.lines().any(|line| line.starts_with(&format!("{key} = ")));
            assert!(named, "docs/scenarios.md does not speak of `{key}` in {table:?}");
        }
    }
}
