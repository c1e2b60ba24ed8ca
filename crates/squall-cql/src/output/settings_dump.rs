//! The settings that cassandra-stress prints before a run. Lines about Thrift and Java classes are
//! left out, and passwords are never shown.

use super::progress::in_largest_unit;
use crate::{
    NodeList, Pacing, PartitionOrder, Population, Ratio, SequenceEnd, StopRule, StressOperation, StressSettings,
    ThreadPlan, WarmUp,
};
use std::fmt::{Display, Write};

/// The settings, one group after the other.
pub fn settings_dump(settings: &StressSettings) -> String {
    let mut dump = Dump("******************** Stress Settings ********************\n".to_owned());
    dump.command(settings);
    dump.rate(settings);
    dump.population(settings);
    dump.insert(settings);
    if !matches!(settings.command.operation, StressOperation::User { .. }) {
        dump.columns(settings);
    }
    dump.errors_and_log(settings);
    dump.connection(settings);
    dump.schema(settings);
    dump.others(settings);
    dump.0.push('\n');
    dump.0
}

struct Dump(String);

impl Dump {
    fn group(&mut self, name: &str) {
        let _ = writeln!(self.0, "{name}:");
    }

    fn put(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "  {name}: {value}");
    }

    fn optional(&mut self, name: &str, value: Option<impl Display>) {
        match value {
            Some(value) => self.put(name, value),
            None => self.put(name, "null"),
        }
    }

    fn command(&mut self, settings: &StressSettings) {
        let command = &settings.command;
        self.group("Command");
        self.put("Type", command.operation.name());
        match command.stop {
            StopRule::Partitions(count) => self.put("Count", count),
            _ => self.put("Count", -1),
        }
        if let StopRule::Time(time) = command.stop {
            let (number, unit) = in_largest_unit(time);
            self.put("Duration", format!("{number} {unit}"));
        }
        self.put("No Warmup", command.warm_up == WarmUp::Skip);
        self.put("Consistency Level", command.consistency);
        self.put("Serial Consistency Level", command.serial_consistency);
        match command.stop {
            StopRule::StandardError { target, min_intervals, max_intervals } => {
                self.put("Target Uncertainty", format!("{target:.3}"));
                self.put("Minimum Uncertainty Measurements", min_intervals);
                self.put("Maximum Uncertainty Measurements", max_intervals);
            }
            _ => self.put("Target Uncertainty", "not applicable"),
        }
        if !matches!(command.operation, StressOperation::User { .. }) {
            self.put("Key Size (bytes)", command.key_size);
            self.put("Counter Increment Distibution", &command.add);
        }
        self.operation(&command.operation);
    }

    fn operation(&mut self, operation: &StressOperation) {
        let (ratios, clustering) = match operation {
            StressOperation::Basic(_) => return,
            StressOperation::Mixed { weights, clustering } => {
                (weights.iter().map(|(kind, weight)| format!("{}={weight:?}", kind.name())).collect(), clustering)
            }
            StressOperation::User { weights, clustering, .. } => {
                (weights.iter().map(|(name, weight)| format!("{name}={weight:?}")).collect::<Vec<_>>(), clustering)
            }
        };
        self.put("Command Ratios", format!("{{{}}}", ratios.join(", ")));
        self.put("Command Clustering Distribution", clustering);
        if let StressOperation::User { profiles, .. } = operation {
            let files: Vec<String> = profiles.iter().map(|file| file.display().to_string()).collect();
            self.put("Profile File", files.join(","));
        }
    }

    fn rate(&mut self, settings: &StressSettings) {
        self.group("Rate");
        match settings.rate.threads {
            ThreadPlan::Fixed(count) => {
                self.put("Auto", false);
                self.put("Thread Count", count);
            }
            ThreadPlan::Steps { min, max, until_saturated } => {
                self.put("Auto", until_saturated);
                self.put("Min Threads", min);
                self.put("Max Threads", max);
            }
        }
        let (rate, fixed) = match settings.rate.pacing {
            Pacing::Unlimited => (0, false),
            Pacing::Throttle(rate) => (rate, false),
            Pacing::Fixed(rate) => (rate, true),
        };
        self.put("OpsPer Sec", rate);
        self.put("Fixed", fixed);
        self.put("Processes", settings.rate.processes);
    }

    fn population(&mut self, settings: &StressSettings) {
        self.group("Population");
        let wrap = match &settings.population.seeds {
            Population::Sequence { sequence, read_lookback } => {
                self.put("Sequence", format!("{}..{}", sequence.first, sequence.last));
                if let Some(distance) = read_lookback {
                    self.put("Read Look Back", distance);
                }
                sequence.end == SequenceEnd::Wrap
            }
            Population::Drawn(distribution) => {
                self.put("Distribution", distribution);
                false
            }
        };
        let order = match settings.population.order {
            PartitionOrder::Generated => "ARBITRARY",
            PartitionOrder::Sorted => "SORTED",
            PartitionOrder::Shuffled => "SHUFFLED",
        };
        self.put("Order", order);
        self.put("Wrap", wrap);
        self.put("Seeds", settings.population.data_set.name());
    }

    fn insert(&mut self, settings: &StressSettings) {
        let insert = &settings.insert;
        self.group("Insert");
        self.put("Revisits", &insert.revisit);
        self.put("Visits", &insert.visits);
        self.put("Row Population Ratio", insert.row_population.clone().unwrap_or_else(Ratio::one));
        self.put("Batch Type", insert.batch.map_or("not batching", |kind| kind.name()));
    }

    fn columns(&mut self, settings: &StressSettings) {
        let columns = &settings.columns;
        self.group("Columns");
        self.put("Max Columns Per Key", columns.names.len());
        self.put("Column Names", format!("[{}]", columns.names.join(", ")));
        self.put("Comparator", columns.comparator);
        self.optional("Timestamp", columns.timestamp);
        self.put("Variable Column Count", false);
        self.put("Slice", columns.slice);
        self.put("Size Distribution", &columns.size);
        self.put("Count Distribution", format!("Fixed:  key={}", columns.names.len()));
    }

    fn errors_and_log(&mut self, settings: &StressSettings) {
        self.group("Errors");
        self.put("Ignore", settings.errors.ignore);
        self.put("Tries", u64::from(settings.errors.retries) + 1);
        let log = &settings.log;
        self.group("Log");
        self.put("No Summary", !log.print_summary);
        self.put("No Settings", !log.print_settings);
        self.optional("File", log.file.as_ref().map(|file| file.display()));
        self.put("Interval Millis", log.interval.as_millis());
        self.put("Level", log.level.name());
    }

    fn connection(&mut self, settings: &StressSettings) {
        let mode = &settings.mode;
        self.group("Mode");
        self.put("Connection Style", if mode.unprepared { "CQL" } else { "CQL_PREPARED" });
        self.put("CQL Version", "CQL3");
        self.put("Protocol Version", "V4");
        self.optional("Username", mode.user.as_ref());
        self.optional("Password", mode.password.as_ref().map(|_| "*suppressed*"));
        self.optional("Max Pending Per Connection", mode.max_pending);
        self.put("Connections Per Host", mode.connections_per_host);
        self.put("Compression", mode.compression.name());
        let nodes = &settings.nodes;
        self.group("Node");
        match &nodes.nodes {
            NodeList::Listed(listed) => {
                let hosts: Vec<&str> = listed.iter().map(|node| node.host.as_str()).collect();
                self.put("Nodes", format!("[{}]", hosts.join(", ")));
            }
            NodeList::File(file) => self.put("File", file.display()),
        }
        self.put("Is White List", nodes.whitelist);
        self.optional("Datacenter", nodes.datacenter.as_ref());
    }

    fn schema(&mut self, settings: &StressSettings) {
        let schema = &settings.schema;
        let list = |options: &[(String, String)]| {
            let options: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{{{}}}", options.join(", "))
        };
        self.group("Schema");
        self.put("Keyspace", &schema.keyspace);
        self.put("Replication Strategy", &schema.replication_strategy);
        // The spelling of the original.
        self.put("Replication Strategy Pptions", list(&schema.replication_options));
        self.optional("Table Compression", schema.compression.as_ref());
        self.optional("Table Compaction Strategy", schema.compaction_strategy.as_ref());
        self.put("Table Compaction Strategy Options", list(&schema.compaction_options));
    }

    fn others(&mut self, settings: &StressSettings) {
        self.group("Transport");
        self.optional("Truststore", settings.tls.as_ref().map(|tls| tls.truststore.display()));
        self.optional(
            "Keystore",
            settings.tls.as_ref().and_then(|tls| tls.keystore.as_ref()).map(|file| file.display()),
        );
        self.group("Port");
        self.put("Native Port", settings.nodes.port);
        self.group("Graph");
        self.optional("File", settings.graph.as_ref().map(|graph| graph.file.display()));
        self.group("TokenRange");
        self.put("Wrap", settings.token_range.wrap);
        self.put("Split Factor", settings.token_range.split_factor);
    }
}
