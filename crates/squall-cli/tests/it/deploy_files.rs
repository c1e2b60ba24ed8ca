//! Every flag and environment variable in the files under deploy/ exists. `scripts/check-deploy`
//! checks the rest of those files.

use std::{fs, path::Path};

use crate::support::TestFolder;

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

/// The arguments after the program, in a systemd unit, the Compose file or a manifest.
fn arguments(line: &str) -> Option<Vec<String>> {
    if let Some(arguments) = line.strip_prefix("ExecStart=/usr/local/bin/squall ") {
        return Some(arguments.split(' ').map(|word| word.replace("%i", "eu-1")).collect());
    }
    let list = ["command: ", "args: "].iter().find_map(|key| line.trim_start().strip_prefix(key))?;
    let arguments: Vec<String> = serde_json::from_str(list).unwrap();
    (arguments[0] != "redis-server").then_some(arguments)
}

#[test]
fn every_command_line_in_deploy_files_is_valid() {
    let folder = TestFolder::new();
    let commands: Vec<Vec<String>> = lines().iter().filter_map(|line| arguments(line)).collect();
    assert_eq!(commands.len(), 9, "two units, two services, two deployments; of the grid one and two: {commands:?}");
    for command in commands {
        let run = |more: &[&str]| {
            let arguments: Vec<&str> = command.iter().map(String::as_str).chain(more.iter().copied()).collect();
            folder.squall(&arguments)
        };
        // `--help` ends the program after the flags before it were parsed.
        let ended = run(&["--help"]);
        assert_eq!(ended.code, 0, "{command:?}: {}", ended.stderr);
        assert_eq!(run(&["--no-such-flag", "--help"]).code, 2);
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
    let others: &[&str] = match command {
        "worker" => &["SQUALL_TOKEN"],
        "grid" => &["SQUALL_TOKEN", "SQUALL_WORKER_LISTEN"],
        _ => &["SQUALL_WORKER_LISTEN"],
    };
    (!others.contains(&name.as_str())).then_some(name)
}
