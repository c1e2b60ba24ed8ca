//! The command lines in deploy/: every flag and variable that they use exists. What else is in those files, `scripts/check-deploy` looks at.

use std::{fs, path::Path};

use crate::support::Desk;

/// All lines of the files under deploy/.
fn lines() -> Vec<String> {
    fn collect(folder: &Path, lines: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(&path, lines),
                false => lines.extend(fs::read_to_string(&path).unwrap().lines().map(str::to_owned)),
            }
        }
    }
    let mut lines = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy"), &mut lines);
    lines
}

/// The words after the program: of units, of the Compose file, of the manifests.
fn words(line: &str) -> Option<Vec<String>> {
    if let Some(words) = line.strip_prefix("ExecStart=/usr/local/bin/squall ") {
        return Some(words.split(' ').map(|word| word.replace("%i", "eu-1")).collect());
    }
    let list = ["command: ", "args: "].iter().find_map(|key| line.trim_start().strip_prefix(key))?;
    let words: Vec<String> = serde_json::from_str(list).unwrap();
    (words[0] != "redis-server").then_some(words)
}

#[test]
fn every_deployed_command_line_is_understood() {
    let desk = Desk::new();
    let commands: Vec<Vec<String>> = lines().iter().filter_map(|line| words(line)).collect();
    assert_eq!(commands.len(), 6, "two units, two services, two deployments: {commands:?}");
    for command in commands {
        let said = |more: &[&str]| {
            let words: Vec<&str> = command.iter().map(String::as_str).chain(more.iter().copied()).collect();
            desk.squall(&words)
        };
        // Asking for help ends it before it does anything, but after what stands before was read.
        let ended = said(&["--help"]);
        assert_eq!(ended.code, 0, "{command:?}: {}", ended.stderr);
        assert_eq!(said(&["--no-such-flag", "--help"]).code, 2);
        let help = ended.stdout;
        for name in lines().iter().filter_map(|line| variable(line, &command[0])) {
            assert!(help.contains(&name), "{command:?} does not know {name}");
        }
    }
}

/// A variable that a file sets for `command`.
fn variable(line: &str, command: &str) -> Option<String> {
    let begin = line.find("SQUALL_")?;
    let name: String = line[begin..].chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
    let others = match command {
        "worker" => "SQUALL_TOKEN",
        _ => "SQUALL_WORKER_LISTEN",
    };
    (name != others).then_some(name)
}
