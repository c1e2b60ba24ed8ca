//! Writes every rendering of a made-up run into a directory:
//! `cargo run -p squall-report --example sample -- DIR`.

#[allow(dead_code)]
#[path = "../tests/it/sample_run.rs"]
mod sample_run;

use squall_report::{HdrLogWriter, TerminalStyle, build_result, csv, html, junit, prometheus, summary};
use std::{fs, path::PathBuf, time::Duration};

fn main() -> std::io::Result<()> {
    let dir = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "sample-run".to_owned()));
    fs::create_dir_all(&dir)?;
    let start = std::time::UNIX_EPOCH + Duration::from_millis(1_794_779_763_250);
    let mut log = HdrLogWriter::new(fs::File::create(dir.join("run.hdr"))?, start)?;
    let recipe = sample_run::Recipe { phases: true, seconds: 60, ..sample_run::Recipe::default() };
    let mut finished =
        recipe.watch(|view| log.write_new_seconds(view, std::time::Duration::MAX).expect("the log is written"));
    log.finish()?;
    finished.facts.thresholds = vec![
        sample_run::threshold_result("p99<500ms", Some(48.2e6), true, None),
        sample_run::threshold_result("checkout:p95[10s]<100ms", Some(67.1e6), true, None),
        sample_run::threshold_result("error_rate<0.5%", Some(0.0091), false, Some(15)),
    ];
    let run = finished.run();
    fs::write(dir.join("result.json"), build_result(&run).to_json())?;
    fs::write(dir.join("report.html"), html(&run))?;
    fs::write(dir.join("junit.xml"), junit(&run))?;
    fs::write(dir.join("metrics.csv"), csv(&run))?;
    let generator = Some(&finished.facts.generator);
    let elapsed = Duration::from_secs(30);
    let scrape = prometheus::ScrapeInput { view: run.view, plan: run.plan, elapsed, generator, version: run.version };
    fs::write(dir.join("metrics.prom"), prometheus::text(&scrape))?;
    fs::write(dir.join("metrics.pb"), prometheus::protobuf(&scrape))?;
    print!("{}", summary(&run, TerminalStyle { colour: true, width: 100 }));
    Ok(())
}
