//! A pseudo terminal for tests, made by `script` of util-linux: runs a command, presses keys, and shows
//! what a person would see. It understands only the control sequences that the program uses.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Limit of every wait; only a failing test reaches it.
const MAX_WAIT: Duration = Duration::from_secs(120);

const ROWS: usize = 40;
const COLUMNS: usize = 140;

/// A command on a terminal. Dropping it kills it.
pub(crate) struct PseudoTerminal {
    script: Child,
    output: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl PseudoTerminal {
    /// Runs `shell_command` with the folder and the environment of `like`.
    pub(crate) fn run(like: &Command, shell_command: &str) -> PseudoTerminal {
        let mut script = Command::new("script");
        let sized = format!("stty cols {COLUMNS} rows {ROWS}; {shell_command}");
        script.args(["-qec", &sized, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(folder) = like.get_current_dir() {
            script.current_dir(folder);
        }
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        let mut script = script.env("TERM", "xterm").spawn().expect("script is part of every Debian");
        let (output, mut from) = (Arc::<Mutex<Vec<u8>>>::default(), script.stdout.take().expect("a pipe"));
        let collected = output.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Some(n) = from.read(&mut buffer).ok().filter(|n| *n > 0) {
                collected.lock().expect("no panic").extend_from_slice(&buffer[..n]);
            }
        });
        PseudoTerminal { script, output, reader: Some(reader) }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().expect("a pipe").write_all(keys.as_bytes()).expect("it reads keys");
    }

    /// Waits until the screen contains `part`, and returns the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(part) {
                return screen;
            }
            assert!(begin.elapsed() < MAX_WAIT, "waited in vain for `{part}`:\n{screen}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// What the terminal shows now.
    pub(crate) fn screen(&self) -> String {
        let output = self.text();
        let mut screen = Screen::default();
        screen.print(&output);
        screen.to_text()
    }

    /// Everything that was written to the terminal.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("no panic")).into_owned()
    }

    /// Waits for the end of the command. Returns its exit code and everything that it wrote, without
    /// control sequences and without the pages of the dashboard.
    pub(crate) fn end(mut self) -> (i32, String) {
        let code = self.script.wait().expect("it ends").code().expect("an exit code");
        self.reader.take().expect("set once").join().expect("no panic");
        (code, without_control_sequences(&self.text()))
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// A piece of terminal output.
enum Piece<'a> {
    Text(char),
    /// `ESC [ parameters letter`.
    Control(&'a str, char),
}

fn pieces(output: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = output;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let control = rest.strip_prefix("\u{1b}[").and_then(|sequence| {
            let end = sequence.find(|character: char| ('@'..='~').contains(&character))?;
            Some((&sequence[..end], sequence[end..].chars().next()?, &sequence[end + 1..]))
        });
        let (piece, after) = match control {
            Some((parameters, letter, after)) => (Piece::Control(parameters, letter), after),
            None => (Piece::Text(first), &rest[first.len_utf8()..]),
        };
        rest = after;
        Some(piece)
    })
}

fn without_control_sequences(output: &str) -> String {
    let mut text = String::new();
    let mut on_dashboard = false;
    for piece in pieces(output) {
        match piece {
            Piece::Control("?1049", letter) => on_dashboard = letter == 'h',
            Piece::Text('\r') | Piece::Control(..) => {}
            Piece::Text(character) if !on_dashboard => text.push(character),
            Piece::Text(_) => {}
        }
    }
    text
}

/// The cells of a terminal.
struct Screen {
    cells: Vec<[char; COLUMNS]>,
    row: usize,
    column: usize,
}

impl Default for Screen {
    fn default() -> Self {
        Screen { cells: vec![[' '; COLUMNS]; ROWS], row: 0, column: 0 }
    }
}

impl Screen {
    fn print(&mut self, output: &str) {
        for piece in pieces(output) {
            match piece {
                Piece::Control(parameters, 'H') => {
                    let mut numbers = parameters.split(';').map(|number| number.parse::<usize>().unwrap_or(1));
                    let mut next = |limit: usize| numbers.next().unwrap_or(1).clamp(1, limit) - 1;
                    (self.row, self.column) = (next(ROWS), next(COLUMNS));
                }
                Piece::Control("?1049", _) | Piece::Control("2", 'J') => *self = Screen::default(),
                Piece::Control(..) => {}
                Piece::Text('\r') => self.column = 0,
                Piece::Text('\n') => self.next_line(),
                Piece::Text(character) => {
                    self.cells[self.row][self.column] = character;
                    self.column = (self.column + 1).min(COLUMNS - 1);
                }
            }
        }
    }

    fn next_line(&mut self) {
        self.row += 1;
        if self.row == ROWS {
            self.cells.remove(0);
            self.cells.push([' '; COLUMNS]);
            self.row -= 1;
        }
    }

    fn to_text(&self) -> String {
        let lines = self.cells.iter().map(|cells| cells.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}
