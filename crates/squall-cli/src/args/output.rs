//! The output flags: files, metrics and what is printed. The path of a flag with a default path is
//! optional.

use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::history::{DEFAULT_FOLDER, HistoryArgs};

/// The metrics that `--prometheus` serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum PrometheusNames {
    #[default]
    Squall,
    /// Squall's, and LoadPilot's for the same run.
    Loadpilot,
}

/// The form of the lines that are written once a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LineStyle {
    #[default]
    Squall,
    /// As LoadPilot's engine writes them, for `--plan`.
    Loadpilot,
}

/// The outputs of a run.
#[derive(Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Write the result as JSON (with --find-max, of the search) [without a path: standard output]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Write a report with charts as one HTML file [without a path: squall-report.html]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "squall-report.html")]
    pub(crate) html: Option<PathBuf>,
    /// Write the thresholds as JUnit test cases [without a path: squall-junit.xml]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "squall-junit.xml")]
    pub(crate) junit: Option<PathBuf>,
    /// Write CSV, one line per metric [without a path: standard output]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) csv: Option<PathBuf>,
    /// Write an HdrHistogram log, an interval per second and metric [without a path: squall.hlog]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "squall.hlog")]
    pub(crate) hdr: Option<PathBuf>,
    /// Write one JSON object a second [without a path: standard output]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json_lines: Option<PathBuf>,
    /// Keep the result for `squall compare` [without a path: .squall/baseline.json]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = crate::baseline::DEFAULT_PATH)]
    pub(crate) save_baseline: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
    /// Serve metrics for Prometheus during the run and until the last scrape, e.g. 127.0.0.1:9090
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) prometheus: Option<SocketAddr>,
    /// Names of the metrics of --prometheus; loadpilot adds those of LoadPilot's Grafana dashboard
    #[arg(long, value_name = "NAMES", requires = "prometheus", default_value = "squall")]
    pub(crate) prometheus_names: PrometheusNames,
    /// Whose lines --json-lines writes.
    #[arg(skip)]
    pub(crate) line_style: LineStyle,
    /// Let --prometheus listen on addresses that other machines reach, without authentication
    #[arg(long, requires = "prometheus")]
    pub(crate) allow_remote: bool,
    /// Show the values of --param, --query, --body, --body-json, --form, --header, --basic and
    /// --bearer in the command line of reports
    #[arg(long)]
    pub(crate) show_values: bool,
    /// Print only errors, and why the run did not pass
    #[arg(long, short = 'q')]
    pub(crate) quiet: bool,
    /// Print one line a second instead of the dashboard
    #[arg(long)]
    pub(crate) no_tui: bool,
}

impl OutputArgs {
    /// Whether an output is written to standard output.
    pub(crate) fn uses_stdout(&self) -> bool {
        let all = [&self.json, &self.html, &self.junit, &self.csv, &self.hdr, &self.json_lines, &self.save_baseline];
        all.into_iter().flatten().any(|path| path.as_os_str() == "-")
    }

    /// The flags of outputs that are written to a path, with their paths.
    pub(crate) fn files(&self) -> Vec<(&'static str, &Path)> {
        let all = [
            ("--json", &self.json),
            ("--html", &self.html),
            ("--junit", &self.junit),
            ("--csv", &self.csv),
            ("--hdr", &self.hdr),
            ("--json-lines", &self.json_lines),
            ("--save-baseline", &self.save_baseline),
        ];
        let given = all.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
        given.filter(|(_, path)| path.as_os_str() != "-").collect()
    }

    /// The flags whose path is optional, with their default paths.
    pub(crate) fn optional_path_flags(&mut self) -> [(&mut Option<PathBuf>, &'static str); 8] {
        [
            (&mut self.json, "-"),
            (&mut self.html, "squall-report.html"),
            (&mut self.junit, "squall-junit.xml"),
            (&mut self.csv, "-"),
            (&mut self.hdr, "squall.hlog"),
            (&mut self.json_lines, "-"),
            (&mut self.save_baseline, crate::baseline::DEFAULT_PATH),
            (&mut self.history.history, DEFAULT_FOLDER),
        ]
    }
}
