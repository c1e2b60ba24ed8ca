//! `-errors`, `-log`, `-graph`, `-tokenrange`: failures, output and token ranges.

use crate::command_line::{CommandGroups, CommandLineProblem, GroupValues, OptionReader, one_of, whole_number};
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorSettings {
    /// Further tries of a failed operation.
    pub retries: u32,
    /// Counts failed operations instead of ending the run.
    pub ignore: bool,
    pub validation: RowValidation,
    /// The pause before another try.
    pub delay: DelayPolicy,
    /// Leaves out columns of a profile whose type has no generator.
    pub skip_unsupported_columns: bool,
}

/// Whether reads compare what they got with what was generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowValidation {
    Compare,
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayPolicy {
    None,
    Constant(Duration),
    Linear { min: Duration, max: Duration },
    Exponential { min: Duration, max: Duration },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    pub level: LogLevel,
    pub file: Option<PathBuf>,
    pub hdr_file: Option<PathBuf>,
    /// 1 ms to 1 day.
    pub interval: Duration,
    pub print_summary: bool,
    pub print_settings: bool,
    pub print_statements_on_error: bool,
    /// Prints the table's header again after this many lines.
    pub header_every: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Minimal,
    Normal,
    Verbose,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphSettings {
    pub file: PathBuf,
    pub revision: String,
    pub title: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRangeSettings {
    /// Parts of each token range, from 1 on.
    pub split_factor: u32,
    /// Begins again after the last range.
    pub wrap: bool,
}

impl LogLevel {
    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Minimal => "MINIMAL",
            LogLevel::Normal => "NORMAL",
            LogLevel::Verbose => "VERBOSE",
        }
    }
}

impl ErrorSettings {
    pub(super) fn read(values: &GroupValues, problems: &mut Vec<CommandLineProblem>) -> ErrorSettings {
        let mut reader = OptionReader::new(values, problems);
        let retries = reader.value("retries=", 9, |text| whole_number(text, 0, 1_000_000));
        reader.exclude("fail-fast", &["retries=", "ignore"]);
        let skip = reader.flag("skip-read-validation");
        ErrorSettings {
            retries: if reader.flag("fail-fast") { 0 } else { retries },
            ignore: reader.flag("ignore"),
            validation: if skip { RowValidation::Skip } else { RowValidation::Compare },
            delay: DelayPolicy::read(&mut reader),
            skip_unsupported_columns: reader.flag("skip-unsupported-columns"),
        }
    }
}

impl DelayPolicy {
    fn read(reader: &mut OptionReader<'_>) -> DelayPolicy {
        let millis = |text: &str| whole_number(text, 0, 86_400_000).map(Duration::from_millis);
        let (min, max) = (
            reader.value("min-delay-ms=", Duration::ZERO, millis),
            reader.value("max-delay-ms=", Duration::ZERO, millis),
        );
        if reader.flag("max-delay-ms=") && min > max {
            let (min, max) = (min.as_millis(), max.as_millis());
            reader.problem(&format!("min-delay-ms={min}"), format!("it is above max-delay-ms={max}: exchange them"));
        }
        let max = max.max(min);
        if reader.flag("delay-policy=") && max.is_zero() {
            reader.problem("delay-policy=", "it needs max-delay-ms= beside it".to_owned());
        }
        let policies = [
            ("constant", DelayPolicy::Constant(max)),
            ("linear", DelayPolicy::Linear { min, max }),
            ("exponential", DelayPolicy::Exponential { min, max }),
        ];
        let unnamed = if max.is_zero() { DelayPolicy::None } else { DelayPolicy::Exponential { min, max } };
        reader.value("delay-policy=", unnamed, |text| one_of(text, &policies))
    }
}

impl LogSettings {
    pub(super) fn read(groups: &CommandGroups, problems: &mut Vec<CommandLineProblem>) -> LogSettings {
        let reporting = groups.group("-reporting");
        let mut reader = OptionReader::new(&reporting, problems);
        let frequency = reader.value("output-frequency=", Duration::from_secs(1), parse_interval);
        if reader.flag("output-frequency=") && groups.group("-log").typed("interval=").is_some() {
            reader.problem("output-frequency=", "-log interval= is the same: remove one of them".to_owned());
        }
        let header_every = reader.optional("header-frequency=", |text| whole_number(text, 1, u32::MAX));
        let log = groups.group("-log");
        let mut reader = OptionReader::new(&log, problems);
        let levels = [("minimal", LogLevel::Minimal), ("normal", LogLevel::Normal), ("verbose", LogLevel::Verbose)];
        let interval = reader.value("interval=", Duration::from_secs(1), parse_interval);
        LogSettings {
            level: reader.value("level=", LogLevel::Normal, |text| one_of(text, &levels)),
            file: reader.text("file=").map(PathBuf::from),
            hdr_file: reader.text("hdrfile=").map(PathBuf::from),
            interval: if reader.flag("interval=") { interval } else { frequency },
            print_summary: !reader.flag("no-summary"),
            print_settings: !reader.flag("no-settings"),
            print_statements_on_error: reader.flag("print-statements-on-error"),
            header_every,
        }
    }
}

/// `10`, `10s` or `500ms`.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let lower = text.to_lowercase();
    let (number, unit) = match (lower.strip_suffix("ms"), lower.strip_suffix('s')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1000),
        (None, None) => (lower.as_str(), 1000),
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let millis = millis.filter(|millis| (1..=86_400_000).contains(millis));
    millis.map(Duration::from_millis).ok_or_else(|| "use seconds or milliseconds, as in 10s or 500ms".to_owned())
}

impl GraphSettings {
    pub(super) fn read(groups: &CommandGroups) -> Option<GraphSettings> {
        let values = groups.group("-graph");
        let text = |name| values.value(name).map(str::to_owned);
        Some(GraphSettings {
            file: PathBuf::from(text("file=")?),
            revision: text("revision=").unwrap_or_default(),
            title: text("title="),
        })
    }
}

impl TokenRangeSettings {
    pub(super) fn read(values: &GroupValues, problems: &mut Vec<CommandLineProblem>) -> TokenRangeSettings {
        let mut reader = OptionReader::new(values, problems);
        TokenRangeSettings {
            split_factor: reader.value("split-factor=", 1, |text| whole_number(text, 1, 1_000_000)),
            wrap: reader.flag("wrap"),
        }
    }
}
