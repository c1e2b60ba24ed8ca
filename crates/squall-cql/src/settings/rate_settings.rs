//! `-rate`: how many operations run at a time, and by what schedule they start.

use super::{CommandSettings, StopRule};
use crate::command_line::{CommandGroups, CommandLineProblem, OptionReader, whole_number};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    pub threads: ThreadPlan,
    pub pacing: Pacing,
    /// Threads of the generator that share the operations; 1 to 1,024.
    pub processes: u32,
}

/// How many operations run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadPlan {
    Fixed(u32),
    /// Several runs with more and more threads.
    Steps {
        min: u32,
        max: u32,
        /// Stops when the rate no longer improves; otherwise every step runs.
        until_saturated: bool,
    },
}

/// When operations start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// As soon as the one before has ended.
    Unlimited,
    /// At most this many per second; latency counts from the actual start.
    Throttle(u64),
    /// By a schedule of this many per second; latency counts from the due time.
    Fixed(u64),
}

const MAX_THREADS: u32 = 1_000_000;

impl RateSettings {
    pub(super) fn read(
        groups: &CommandGroups,
        command: &CommandSettings,
        problems: &mut Vec<CommandLineProblem>,
    ) -> RateSettings {
        let values = groups.group("-rate");
        let mut reader = OptionReader::new(&values, problems);
        let processes = reader.value("processes=", 1, |text| whole_number(text, 1, 1024));
        let threads = |text: &str| whole_number(text, 1, MAX_THREADS);
        let pacing = read_pacing(&mut reader);
        let plan = if reader.flag("threads=") {
            ThreadPlan::Fixed(reader.value("threads=", 1, threads))
        } else if writes_a_number(command) && !["auto", "threads>=", "threads<="].iter().any(|name| reader.flag(name)) {
            ThreadPlan::Fixed(200)
        } else {
            let (min, max) = (reader.value("threads>=", 4, threads), reader.value("threads<=", 1000, threads));
            if min > max {
                reader.problem(&format!("threads>={min}"), format!("it is above threads<={max}: exchange them"));
            }
            let bounded = reader.flag("threads>=") || reader.flag("threads<=");
            ThreadPlan::Steps { min, max, until_saturated: reader.flag("auto") || !bounded }
        };
        RateSettings { threads: plan, pacing, processes }
    }
}

/// `write` and `counter_write` with `n=` run with 200 threads if `-rate` names none.
fn writes_a_number(command: &CommandSettings) -> bool {
    let basic = matches!(command.operation, super::StressOperation::Basic(operation) if operation.writes());
    basic && matches!(command.stop, StopRule::Partitions(_))
}

fn read_pacing(reader: &mut OptionReader<'_>) -> Pacing {
    let throttle = reader.value("throttle=", 0, parse_rate);
    let fixed = reader.value("fixed=", 0, parse_rate);
    match (throttle, fixed) {
        (0, 0) => Pacing::Unlimited,
        (rate, 0) => Pacing::Throttle(rate),
        (0, rate) => Pacing::Fixed(rate),
        _ => {
            reader.exclude("throttle=", &["fixed="]);
            Pacing::Unlimited
        }
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let wrong = || "use a number and /s, as in 5000/s".to_owned();
    let number = text.strip_suffix("/s").or_else(|| text.strip_suffix("/S")).ok_or_else(wrong)?;
    crate::distribution::parse_count(number).map_err(|_| wrong()).and_then(|rate| {
        // The time between two starts is a whole number of nanoseconds.
        if rate <= 1_000_000_000 { Ok(rate) } else { Err("use at most 1000000000/s".to_owned()) }
    })
}
