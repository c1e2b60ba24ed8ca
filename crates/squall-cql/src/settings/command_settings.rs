//! The command itself: which operations run, when the run ends, and how consistent they are.

use crate::{
    Distribution,
    command_line::{CommandLineProblem, GroupValues, OptionReader, one_of, pairs, whole_number},
};
use std::{fmt, path::PathBuf, time::Duration};

#[derive(Debug, Clone, PartialEq)]
pub struct CommandSettings {
    pub operation: StressOperation,
    pub stop: StopRule,
    pub warm_up: WarmUp,
    pub truncate: Truncate,
    pub consistency: Consistency,
    pub serial_consistency: SerialConsistency,
    /// Bytes of a key of `standard1`; 1 to 65,535.
    pub key_size: usize,
    /// Increments of counters.
    pub add: Distribution,
}

/// What the run does.
#[derive(Debug, Clone, PartialEq)]
pub enum StressOperation {
    Basic(BasicOperation),
    Mixed { weights: Vec<(BasicOperation, f64)>, clustering: Distribution },
    User { profiles: Vec<PathBuf>, weights: Vec<(String, f64)>, clustering: Distribution },
}

/// The operations on `standard1` and `counter1`, in alphabetical order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BasicOperation {
    CounterRead,
    CounterWrite,
    Read,
    Write,
}

/// When the run ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StopRule {
    /// After this many partitions.
    Partitions(u64),
    /// After this time.
    Time(Duration),
    /// When the rate is known well enough.
    StandardError { target: f64, min_intervals: u32, max_intervals: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    Run,
    Skip,
}

/// When the command's table is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truncate {
    Never,
    Once,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    Any,
    One,
    Two,
    Three,
    Quorum,
    All,
    LocalQuorum,
    EachQuorum,
    LocalOne,
    Serial,
    LocalSerial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SerialConsistency {
    Serial,
    LocalSerial,
}

const CONSISTENCIES: &[(&str, Consistency)] = &[
    ("ANY", Consistency::Any),
    ("ONE", Consistency::One),
    ("TWO", Consistency::Two),
    ("THREE", Consistency::Three),
    ("QUORUM", Consistency::Quorum),
    ("ALL", Consistency::All),
    ("LOCAL_QUORUM", Consistency::LocalQuorum),
    ("EACH_QUORUM", Consistency::EachQuorum),
    ("LOCAL_ONE", Consistency::LocalOne),
    ("SERIAL", Consistency::Serial),
    ("LOCAL_SERIAL", Consistency::LocalSerial),
];

const SERIAL_CONSISTENCIES: &[(&str, SerialConsistency)] =
    &[("SERIAL", SerialConsistency::Serial), ("LOCAL_SERIAL", SerialConsistency::LocalSerial)];

const BASIC_OPERATIONS: &[(&str, BasicOperation)] = &[
    ("read", BasicOperation::Read),
    ("write", BasicOperation::Write),
    ("insert", BasicOperation::Write),
    ("counter_write", BasicOperation::CounterWrite),
    ("counterwrite", BasicOperation::CounterWrite),
    ("counter_add", BasicOperation::CounterWrite),
    ("counteradd", BasicOperation::CounterWrite),
    ("counter_read", BasicOperation::CounterRead),
    ("counterread", BasicOperation::CounterRead),
    ("counter_get", BasicOperation::CounterRead),
    ("counterget", BasicOperation::CounterRead),
];

impl CommandSettings {
    pub(super) fn read(values: &GroupValues, problems: &mut Vec<CommandLineProblem>) -> CommandSettings {
        let mut reader = OptionReader::new(values, problems);
        let truncations = [("never", Truncate::Never), ("once", Truncate::Once), ("always", Truncate::Always)];
        let standard = values.spec.name != "user";
        CommandSettings {
            operation: StressOperation::read(values.spec.name, &mut reader),
            stop: StopRule::read(&mut reader),
            warm_up: if reader.flag("no-warmup") { WarmUp::Skip } else { WarmUp::Run },
            truncate: reader.value("truncate=", Truncate::Never, |text| one_of(text, &truncations)),
            consistency: reader.value("cl=", Consistency::LocalOne, parse_consistency),
            serial_consistency: reader.value("serial-cl=", SerialConsistency::Serial, parse_serial_consistency),
            key_size: if standard { reader.value("keysize=", 10, |text| whole_number(text, 1, 65_535)) } else { 10 },
            add: if standard {
                reader.value("add=", Distribution::Fixed(1), str::parse)
            } else {
                Distribution::Fixed(1)
            },
        }
    }

    /// Whether every operation writes, so that seeds are taken in sequence by default.
    pub(super) fn only_writes(&self) -> bool {
        match &self.operation {
            StressOperation::Basic(operation) => operation.writes(),
            StressOperation::Mixed { .. } => false,
            StressOperation::User { weights, .. } => {
                weights.iter().all(|(name, _)| name == "insert" || name.ends_with(".insert"))
            }
        }
    }
}

pub(crate) fn parse_consistency(text: &str) -> Result<Consistency, String> {
    one_of(text, CONSISTENCIES)
}

pub(crate) fn parse_serial_consistency(text: &str) -> Result<SerialConsistency, String> {
    one_of(text, SERIAL_CONSISTENCIES)
}

impl StressOperation {
    fn read(command: &str, reader: &mut OptionReader<'_>) -> StressOperation {
        match command {
            "mixed" => StressOperation::Mixed {
                weights: reader.value("ratio(", Vec::new(), basic_weights),
                clustering: reader.value("clustering=", Distribution::gaussian(1, 10), str::parse),
            },
            "user" => StressOperation::User {
                profiles: reader.text("profile=").unwrap_or_default().split(',').map(PathBuf::from).collect(),
                weights: reader.value("ops(", Vec::new(), weights),
                clustering: reader.value("clustering=", Distribution::gaussian(1, 10), str::parse),
            },
            basic => {
                let operation = one_of(basic, BASIC_OPERATIONS);
                StressOperation::Basic(operation.expect("every other command of the table is a basic operation"))
            }
        }
    }

    /// The name in the settings: `write`, `mixed`, `user`.
    pub fn name(&self) -> &'static str {
        match self {
            StressOperation::Basic(BasicOperation::CounterRead) => "counter_read",
            StressOperation::Basic(BasicOperation::CounterWrite) => "counter_write",
            StressOperation::Basic(BasicOperation::Read) => "read",
            StressOperation::Basic(BasicOperation::Write) => "write",
            StressOperation::Mixed { .. } => "mixed",
            StressOperation::User { .. } => "user",
        }
    }
}

impl BasicOperation {
    /// The name in the table and the summary.
    pub fn name(self) -> &'static str {
        match self {
            BasicOperation::CounterRead => "COUNTER_READ",
            BasicOperation::CounterWrite => "COUNTER_WRITE",
            BasicOperation::Read => "READ",
            BasicOperation::Write => "WRITE",
        }
    }

    pub fn writes(self) -> bool {
        matches!(self, BasicOperation::Write | BasicOperation::CounterWrite)
    }
}

impl StopRule {
    fn read(reader: &mut OptionReader<'_>) -> StopRule {
        if reader.flag("n=") {
            return StopRule::Partitions(reader.value("n=", 0, crate::distribution::parse_count));
        }
        if reader.flag("duration=") {
            return StopRule::Time(reader.value("duration=", Duration::ZERO, parse_duration));
        }
        let (min, max) = (
            reader.value("n>", 30, |text| whole_number(text, 1, u32::MAX)),
            reader.value("n<", 200, |text| whole_number(text, 1, u32::MAX)),
        );
        if min > max {
            reader.problem("n>", format!("{min} is above n<{max}: exchange them"));
        }
        let target = reader.value("err<", 0.02, |text| {
            let fraction = text.parse().ok().filter(|fraction: &f64| *fraction > 0.0 && *fraction < 1.0);
            fraction.ok_or("use a fraction between 0 and 1, as in err<0.02")
        });
        StopRule::StandardError { target, min_intervals: min, max_intervals: max }
    }
}

/// `30s`, `5m`, `2h`, `1d`; a number without a unit is seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "use a number and s, m, h or d, as in 5m".to_owned();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().map_err(|_| wrong())?;
    let factor = match unit.to_lowercase().as_str() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    match number.checked_mul(factor) {
        Some(0) => Err("the run has no time: use a number above 0".to_owned()),
        seconds => seconds.map(Duration::from_secs).ok_or_else(wrong),
    }
}

fn weights(text: &str) -> Result<Vec<(String, f64)>, String> {
    let mut weights = Vec::new();
    for (name, value) in pairs(text)? {
        let weight = value.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
        weights.push((name, weight.ok_or_else(|| format!("{value} is not a weight: use a number from 0 on"))?));
    }
    let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
    if sum > 0.0 { Ok(weights) } else { Err("one weight must be above 0, as in read=3,write=1".to_owned()) }
}

fn basic_weights(text: &str) -> Result<Vec<(BasicOperation, f64)>, String> {
    let mut basic: Vec<(BasicOperation, f64)> = Vec::new();
    for (name, weight) in weights(text)? {
        let operation =
            one_of(&name, BASIC_OPERATIONS).map_err(|hint| format!("{name} is not a basic command: {hint}"))?;
        if basic.iter().any(|(other, _)| *other == operation) {
            return Err(format!("{name} is there twice"));
        }
        basic.push((operation, weight));
    }
    Ok(basic)
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = CONSISTENCIES.iter().find(|(_, level)| level == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl fmt::Display for SerialConsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SERIAL_CONSISTENCIES.iter().find(|(_, level)| level == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}
