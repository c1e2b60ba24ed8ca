//! Help, version and completions.

use crate::support::TestFolder;

#[test]
fn help_of_every_command_has_examples() {
    let folder = TestFolder::new();
    for command in [
        "run",
        "compare",
        "target",
        "new",
        "worker",
        "orchestrator",
        "test",
        "up",
        "down",
        "stream",
        "cql",
        "grid",
        "completions",
        "report",
    ] {
        let ended = folder.squall(&[command, "--help"]);
        assert_eq!(ended.code, 0);
        assert!(ended.stdout.contains("Examples:") && ended.stdout.contains("squall "), "{command}: {}", ended.stdout);
    }
    for command in ["start", "status", "scale", "rate", "pause", "resume", "stop"] {
        let ended = folder.squall(&["test", command, "--help"]);
        assert_eq!(ended.code, 0);
        assert!(ended.stdout.contains(&format!("  squall test {command}")), "{command}: {}", ended.stdout);
    }
    assert!(folder.squall(&["--help"]).stdout.contains("Exit codes"));
}

#[test]
fn help_of_test_start_lists_only_supported_flags() {
    let folder = TestFolder::new();
    let flags = |command: &[&str]| -> Vec<String> {
        let help = folder.squall(&[command, &["--help"]].concat()).stdout;
        let flag = |line: &str| Some(line.split("--").nth(1)?.split([' ', '[', '\n']).next()?.to_owned());
        help.lines().filter(|line| line.trim_start().starts_with('-')).filter_map(flag).collect()
    };
    let (run, start) = (flags(&["run"]), flags(&["test", "start"]));
    for flag in ["cluster", "fleet", "find-max", "find-max-probe", "hdr", "json-lines", "prometheus", "plan"] {
        assert!(run.iter().any(|known| known == flag), "{flag} in {run:?}");
        assert!(!start.iter().any(|known| known == flag), "{flag} in {start:?}");
    }
    assert!(
        ["api", "rate", "users", "param", "wait", "html", "strict"]
            .iter()
            .all(|flag| start.iter().any(|known| known == flag)),
        "{start:?}"
    );
}

#[test]
fn version_has_the_program_and_its_commit() {
    let ended = TestFolder::new().squall(&["--version"]);
    assert_eq!(ended.code, 0);
    let commit = ended.stdout.strip_prefix("squall 0.").and_then(|rest| rest.split_once(" (")?.1.strip_suffix(")\n"));
    let is_commit = |text: &str| text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(commit.is_some_and(is_commit), "{}", ended.stdout);
}

#[test]
fn completions_contain_the_flags() {
    let folder = TestFolder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = folder.squall(&["completions", shell]);
        assert_eq!(ended.code, 0);
        assert!(ended.stdout.contains("find-max"), "{shell}");
    }
}

#[test]
fn no_arguments_prints_the_help() {
    let ended = TestFolder::new().squall(&[]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("Usage"), "{}", ended.stderr);
}
