//! The scenario reader on any text: it must not panic, and whatever it refuses it must be able to say, with a line and a column
//! that exist.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run scenario -- -max_total_time=30`
#![no_main]
// The reader's own sources rather than its crate: that needs the HTTP client and its TLS, whose C code takes ten minutes to build.
#![allow(dead_code, unreachable_pub, unused_imports)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/squall-scenario/src/data.rs"]
mod data;
#[path = "../../crates/squall-scenario/src/error.rs"]
mod error;
#[path = "../../crates/squall-scenario/src/files.rs"]
mod files;
#[path = "../../crates/squall-scenario/src/given.rs"]
mod given;
#[path = "../../crates/squall-scenario/src/read/mod.rs"]
mod read;
#[path = "../../crates/squall-scenario/src/template/mod.rs"]
mod template;

#[path = "../../crates/squall-scenario/src/build/load.rs"]
mod load;
#[path = "../../crates/squall-scenario/src/build/value.rs"]
mod value;

use error::Problems;
pub use files::{Files, NoFiles};
pub use given::{Given, RawHttp, RawLoad};
use template::{Context, Escape, Part, Piece, Scope, Template};

fuzz_target!(|input: &[u8]| {
    let _ = data::DataTable::csv("d", input);
    let _ = data::DataTable::jsonl("d", input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    scenario(text);
    render(text);
});

fn scenario(text: &str) {
    let mut problems = Problems::new("fuzz.toml", text);
    let raw = read::read(text, &mut problems);
    if let Some(raw) = &raw {
        load::build_load(&raw.load, &mut problems);
    }
    let Err(errors) = problems.finish(raw.map(|_| ())) else { return };
    assert!(!errors.to_string().is_empty());
    let lines = text.split('\n').count();
    for problem in &errors.problems {
        assert!(problem.line <= lines, "line {} of {lines}", problem.line);
    }
}

/// A text that is a template renders, with whatever escapes, to something that stays inside its quotes.
fn render(text: &str) {
    let Ok(pieces) = template::parse(text).into_iter().collect::<Result<Vec<_>, _>>() else { return };
    let mut compiled = Template::default();
    for piece in pieces {
        match piece {
            Piece::Text(text) => compiled.push_text(&text),
            Piece::Expr(ast) => {
                let Ok(expr) = Scope::default().resolve(&ast, &mut NoFiles) else { return };
                compiled.parts.push(Part::Value(expr, Escape::JsonValue));
            }
        }
    }
    let mut rng = fastrand::Rng::with_seed(1);
    let mut context = Context { slots: &[], data: &[], rows: &[], user: 1, iteration: 2, rng: &mut rng };
    let mut out = String::new();
    compiled.clone().fold().render(&mut context, &mut out).expect("nothing in it can be unset");
    if let [Part::Value(..)] = compiled.parts.as_slice() {
        serde_json::from_str::<serde_json::Value>(&out).unwrap_or_else(|error| panic!("{out}: {error}"));
    }
}
