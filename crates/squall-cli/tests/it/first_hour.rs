//! The first hour with Squall: the commands of README in the order in which a new user types them, on a
//! pseudo terminal, in one folder. The snapshot is what the user reads, with numbers replaced by `#`.
//! Runs are shorter and slower than in README, because a debug build on a busy machine makes them.

use std::{fmt::Write as _, os::unix::fs::symlink, path::Path};

use crate::{pseudo_terminal::PseudoTerminal, up_down::LocalFleet};

/// Commands of README that do not run here: the search for a maximum takes a minute, and its probes
/// differ from run to run. `find_max` tests it.
const README_COMMANDS_LEFT_OUT: [&str; 1] = ["squall run http://127.0.0.1:8089/api/products --find-max 'p99<50ms'"];

/// A terminal session in one folder.
struct Session {
    fleet: LocalFleet,
    target_url: String,
    transcript: String,
    /// Commands of README that were typed, perhaps with other numbers or files.
    from_readme: Vec<&'static str>,
    _target: PseudoTerminal,
}

impl Session {
    /// Starts with `squall target` in another terminal.
    fn start() -> Session {
        let fleet = LocalFleet::new();
        std::fs::create_dir(fleet.folder.path("bin")).expect("a new folder");
        symlink(env!("CARGO_BIN_EXE_squall"), fleet.folder.path("bin/squall")).expect("a new link");
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        symlink(repository.join("scenarios"), fleet.folder.path("scenarios")).expect("a new link");
        let target = terminal(&fleet, "squall target --listen 127.0.0.1:0");
        let screen = target.wait_for("Ctrl-C stops");
        let address = screen.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        let target_url = format!("http://{address}");
        let mut session = Session {
            fleet,
            target_url,
            transcript: String::new(),
            from_readme: vec!["squall target"],
            _target: target,
        };
        session.note("squall target", &format!("{}\n", screen.trim()), 0);
        session
    }

    /// Types `command`, which README shows as `readme`.
    fn type_readme(&mut self, readme: &'static str, command: &str) {
        self.from_readme.push(readme);
        self.type_in(command);
    }

    /// Types `command` and waits for its end.
    fn type_in(&mut self, command: &str) {
        let typed = command.replace("http://127.0.0.1:8089", &self.target_url);
        let typed = typed.replace("--listen HERE", &format!("--listen {}", self.fleet.api));
        let (code, output) = terminal(&self.fleet, &typed).end();
        self.note(command, &output, code);
    }

    fn note(&mut self, command: &str, output: &str, code: i32) {
        let folder = self.fleet.folder.path("").display().to_string();
        let output = output
            .replace(&self.target_url, "http://TARGET")
            .replace(&format!("http://{}", self.fleet.api), "http://API");
        let output = output.replace(&folder, "FOLDER/");
        writeln!(self.transcript, "$ {command}\n{}", mask(&output).trim_end()).expect("a string");
        if code != 0 {
            writeln!(self.transcript, "[exit code {code}]").expect("a string");
        }
        self.transcript.push('\n');
    }
}

fn terminal(fleet: &LocalFleet, command: &str) -> PseudoTerminal {
    let mut like = fleet.command(&[]);
    let path = std::env::var("PATH").unwrap_or_default();
    like.env("PATH", format!("{}:{path}", fleet.folder.path("bin").display()));
    PseudoTerminal::run(&like, command)
}

/// Replaces numbers and their units by `#` and wide gaps by two spaces, and leaves out what differs from
/// run to run.
fn mask(text: &str) -> String {
    // A build without the web UI says so instead of its address.
    let differs = |line: &str| line.starts_with("waiting for the workers") || line.starts_with("  web UI ");
    let lines = text.lines().filter(|line| !differs(line));
    let lines: Vec<_> = lines.map(|line| squeeze(&mask_numbers(line))).collect();
    let blocks = lines.split(|line| line.is_empty()).filter_map(mask_block);
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// Lines between two empty lines. `None` if only a busy machine prints them.
fn mask_block(lines: &[String]) -> Option<String> {
    let Some((first, rest)) = lines.split_first() else { return Some(String::new()) };
    let mut rest = rest.to_vec();
    if first.starts_with("  ! ") {
        // Warnings about a generator that was late. `squall compare` explains its columns after them.
        let explanation = rest.iter().position(|line| line.starts_with("  Base, new and change"))?;
        return Some(rest.split_off(explanation).join("\n"));
    }
    if first.starts_with("  metric (response time)") {
        // Metrics are in the order of their first samples. A user that starts after the warm-up adds
        // its login.
        rest.retain(|line| !line.contains("on_start/"));
        rest.sort();
    }
    if first.starts_with("  metric  base") {
        // The numbers decide which differences can be judged.
        rest = vec!["  …".to_owned()];
    }
    if first.starts_with("  ? No significant regression") {
        return Some("  ✓ No significant regression beyond # %".to_owned());
    }
    Some([vec![first.clone()], rest].concat().join("\n"))
}

/// A number is kept if it is part of a name (`p99`, `HTTP_200`, `worker-1`) or of a threshold.
fn mask_numbers(line: &str) -> String {
    const UNITS: [&str; 8] = ["µs", "ms", "MiB/s", "KiB/s", "MiB", "KiB", "B/s", "s"];
    let mut masked = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = number_end(rest);
        if end == 0 {
            masked.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (number, after) = rest.split_at(end);
        let is_name = |text: &str| text.ends_with(|last: char| last.is_alphabetic() || last == '_' || last == '<');
        if is_name(&masked) || masked.strip_suffix('-').is_some_and(is_name) {
            masked += number;
            rest = after;
            continue;
        }
        masked.push('#');
        let unit = after.strip_prefix(' ').unwrap_or(after);
        let ends = |rest: &str| rest.chars().next().is_none_or(|next| !next.is_alphanumeric());
        rest = UNITS.iter().find_map(|name| unit.strip_prefix(name).filter(|rest| ends(rest))).unwrap_or(after);
    }
    masked
}

/// The length of the number at the start of `text`; 0 if there is none. `1,204` and `12.3` are numbers.
fn number_end(text: &str) -> usize {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut end = digits(text);
    while end > 0 && text[end..].starts_with([',', '.']) && digits(&text[end + 1..]) > 0 {
        end += 1 + digits(&text[end + 1..]);
    }
    end
}

/// The line with gaps of at most two spaces, except at its start.
fn squeeze(line: &str) -> String {
    let text = line.trim_start();
    let words: Vec<_> = text.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    format!("{}{}", &line[..line.len() - text.len()], words.join("  "))
}

/// The commands under "Commands to start with", without their comments.
fn readme_commands() -> Vec<String> {
    let readme = include_str!("../../../../README.md");
    let block = readme.split("## Commands to start with").nth(1).and_then(|rest| rest.split("\n## ").next());
    let lines = block.expect("the section").lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .map(|line| line.split("  #").next().unwrap_or(line).split(" # ").next().unwrap_or(line).trim().to_owned())
        .collect()
}

#[test]
fn first_hour_reads_as_documented() {
    let mut session = Session::start();
    session.type_readme(
        "squall run http://127.0.0.1:8089/api/products --rate 500 --for 30s",
        "squall run http://127.0.0.1:8089/api/products --rate 50 --for 2s",
    );
    session.type_readme(
        "squall run scenarios/tour.toml --html report.html",
        "squall run scenarios/tour.toml --html report.html --target http://127.0.0.1:8089 --rate 40 --for 5s",
    );
    session.type_readme("squall new shop", "squall new shop");
    session.type_in("squall run shop/scenario.toml --check");
    // Two runs of a busy machine may differ, so that the second result is a copy.
    session.type_readme(
        "squall run shop/scenario.toml --json before.json",
        "squall run shop/scenario.toml --target http://127.0.0.1:8089 --rate 40 --for 13s --profile constant --json before.json",
    );
    session.type_readme("squall run shop/scenario.toml --json after.json", "cp before.json after.json");
    session.type_readme("squall compare before.json after.json", "squall compare before.json after.json");
    session.type_readme(
        "squall report before.json --html report.html",
        "squall report before.json --junit --html again.html",
    );
    session.type_readme("squall up --workers 3", "squall up --workers 3 --listen HERE");
    session.type_readme(
        "squall run shop/scenario.toml --cluster",
        "squall run shop/scenario.toml --cluster --target http://127.0.0.1:8089 --rate 40 --for 2s",
    );
    session.type_in("squall test start http://127.0.0.1:8089/api/products --rate 40 --for 5m");
    session.type_in("until squall test status | grep -q running; do :; done");
    session.type_in("squall test rate 60");
    session.type_in("squall test pause");
    session.type_in("squall test resume");
    session.type_in("squall test stop");
    session.type_in("squall test status --watch --no-tui | tail -n 4");
    session.type_in("squall test start http://127.0.0.1:8089/api/products --rate 40 --for 2s --wait --quiet --junit");
    session.type_in("squall run http://127.0.0.1:8089/api/products --vus 5 --duration 2s");
    session.type_in("squall rn shop/scenario.toml");
    session.type_in("squall down");
    insta::assert_snapshot!(session.transcript);

    let mut typed: Vec<String> = session.from_readme.iter().map(|command| (*command).to_owned()).collect();
    typed.extend(README_COMMANDS_LEFT_OUT.map(str::to_owned));
    let mut documented = readme_commands();
    typed.sort();
    documented.sort();
    assert_eq!(typed, documented, "this test types the commands of README");
}

#[test]
fn numbers_and_units_are_masked() {
    let numbers = "  12.3 ms   max 1,204 µs (3 ms/request) 5s 3 users 40/s, 3.";
    assert_eq!(mask(numbers), "  #  max # (#/request) # # users #/s, #.");
    assert_eq!(mask("p99<500ms  HTTP_200  worker-1 pid 7"), "p99<500ms  HTTP_200  worker-1 pid #");
    assert_eq!(mask("a\n\n  ! 6 starts\n    late\n\nb"), "a\n\nb");
}
