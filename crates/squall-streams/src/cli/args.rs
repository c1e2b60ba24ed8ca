//! The arguments of `squall stream …`. Only parses them; [`super`] runs the commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::StreamCommandError;
use crate::{Compression, PartitionHasher, RecordLayout};

const WORKER_EXAMPLES: &str = "\
Examples:
  squall stream worker shop:app
  squall stream worker shop:app --processors printer --redis redis://10.0.0.5
  squall stream worker shop:app --prometheus 127.0.0.1:9464 --log-format json

The first SIGTERM or Ctrl-C finishes and acknowledges the current iterations and hands the partitions over; the second ends the worker at once.
Exit codes: 0 stopped by a signal, 1 a processor halted, 2 the app cannot be loaded, 3 Redis cannot be reached, 130 ended at once.";

/// Ordered streams on Redis.
#[derive(Debug, Subcommand)]
pub enum StreamCommand {
    /// Send one record.
    #[command(
        after_help = "Examples:\n  squall stream send shop.orders '{\"id\":1,\"amount\":99}' --partition-by id\n  squall stream send shop.orders '{\"id\":2}' --no-wait --redis redis://10.0.0.5\n  squall stream send shop:orders '{\"id\":3,\"amount\":5}'"
    )]
    Send(SendArgs),
    /// Send the records of a file, one JSON object per line.
    #[command(
        after_help = "Examples:\n  squall stream sendmany shop.orders orders.jsonl --partition-by id\n  squall stream sendmany shop.orders - < orders.jsonl\n  squall stream sendmany shop:orders orders.jsonl"
    )]
    Sendmany(SendManyArgs),
    /// Run the processors and tasks of an app written in Python.
    #[command(after_help = WORKER_EXAMPLES)]
    Worker(StreamWorkerArgs),
    /// Print new events without taking them.
    #[command(
        after_help = "Examples:\n  squall stream tail shop.orders\n  squall stream tail shop.orders --from-start --count 10"
    )]
    Tail(TailArgs),
    /// Show how far a processor is behind in each partition.
    #[command(
        after_help = "Examples:\n  squall stream lag shop.orders.printer\n  squall stream lag shop.orders.printer --json"
    )]
    Lag(ProcessorArgs),
    /// Show the workers of a processor and the partitions they hold.
    #[command(
        after_help = "Examples:\n  squall stream members shop.orders.printer\n  squall stream members shop.orders.printer --json"
    )]
    Members(ProcessorArgs),
    /// Restart a stopped processor at a position, or remove it.
    #[command(
        after_help = "Examples:\n  squall stream reset shop.orders.printer\n  squall stream reset shop.orders.printer --start '$'"
    )]
    Reset(ResetArgs),
    /// Show and clear the quarantine of partitions.
    #[command(
        after_help = "Examples:\n  squall stream quarantine shop.orders.printer\n  squall stream quarantine shop.orders.printer --clear 3"
    )]
    Quarantine(QuarantineArgs),
}

#[derive(Debug, Args)]
pub(super) struct RedisArgs {
    /// URL of the Redis server.
    #[arg(
        long,
        env = "SQUALL_REDIS",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379",
        value_name = "URL"
    )]
    pub(super) redis: String,
    /// Prefix of every key, with cluster hash tags; '' for the key names of runnel.
    #[arg(long, default_value = "squall", value_name = "NAME")]
    pub(super) namespace: String,
}

#[derive(Debug, Args)]
pub(super) struct SendTargetArgs {
    /// APP.STREAM, or MODULE:STREAM for a stream of a Python app, with its record type and options.
    pub(super) stream: String,
    /// Field whose value is the partition key.
    #[arg(long, value_name = "FIELD")]
    pub(super) partition_by: Option<String>,
    /// Number of partitions [default: as stored, else 16].
    #[arg(long)]
    pub(super) partitions: Option<u32>,
    /// Hash function from keys to partitions [default: as stored, else xxh64].
    #[arg(long)]
    pub(super) hasher: Option<PartitionHasher>,
    /// Number of events a partition may hold [default: 50000].
    #[arg(long)]
    pub(super) partition_size: Option<usize>,
    /// Layout of records [default: json].
    #[arg(long)]
    pub(super) layout: Option<RecordLayout>,
    /// Compression of records [default: none].
    #[arg(long)]
    pub(super) compression: Option<Compression>,
    /// Fail at once if a partition is full, instead of waiting up to 30 s.
    #[arg(long)]
    pub(super) no_wait: bool,
    /// Drop the oldest events of a full partition if no processor is registered on it.
    #[arg(long)]
    pub(super) drop_unread: bool,
    /// URL of the Redis server [default: as in the Python app, else redis://127.0.0.1:6379].
    #[arg(long, env = "SQUALL_REDIS", hide_env_values = true, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// Prefix of every key, with cluster hash tags; '' for the key names of runnel [default: as in
    /// the Python app, else squall].
    #[arg(long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct SendArgs {
    #[command(flatten)]
    pub(super) target: SendTargetArgs,
    /// The record, a JSON object.
    pub(super) json: String,
}

#[derive(Debug, Args)]
pub struct SendManyArgs {
    #[command(flatten)]
    pub(super) target: SendTargetArgs,
    /// The file; `-` for standard input.
    pub(super) file: PathBuf,
}

/// Records for a stream of a Python app, which knows their type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppStreamSend {
    /// MODULE:STREAM
    pub stream: String,
    pub records: RecordSource,
    /// `None`: as in the app.
    pub redis: Option<String>,
    /// `None`: as in the app.
    pub namespace: Option<String>,
    pub no_wait: bool,
    pub drop_unread: bool,
}

/// Where the records to send are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordSource {
    /// One record, a JSON object.
    Json(String),
    /// A file with one JSON object per line; `-` for standard input.
    File(PathBuf),
}

impl StreamCommand {
    /// What to send to a stream of a Python app, if the command does that. A flag that the app
    /// defines is an error.
    pub fn app_stream_send(&self) -> Result<Option<AppStreamSend>, StreamCommandError> {
        let (target, records) = match self {
            Self::Send(args) => (&args.target, RecordSource::Json(args.json.clone())),
            Self::Sendmany(args) => (&args.target, RecordSource::File(args.file.clone())),
            _ => return Ok(None),
        };
        // The names of apps and streams have no colon.
        if !target.stream.contains(':') {
            return Ok(None);
        }
        if let Some(flag) = target.definition_flag() {
            return Err(StreamCommandError::DefinedByApp { stream: target.stream.clone(), flag });
        }
        Ok(Some(AppStreamSend {
            stream: target.stream.clone(),
            records,
            redis: target.redis.clone(),
            namespace: target.namespace.clone(),
            no_wait: target.no_wait,
            drop_unread: target.drop_unread,
        }))
    }
}

impl SendTargetArgs {
    /// The first given flag that describes the stream.
    fn definition_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--partition-by", self.partition_by.is_some()),
            ("--partitions", self.partitions.is_some()),
            ("--hasher", self.hasher.is_some()),
            ("--partition-size", self.partition_size.is_some()),
            ("--layout", self.layout.is_some()),
            ("--compression", self.compression.is_some()),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// Arguments of `squall stream worker`.
#[derive(Debug, Clone, Args)]
pub struct StreamWorkerArgs {
    /// MODULE:APP; Python looks for the module in the current folder first
    pub app: String,
    /// Processors to run: all, or names separated by commas.
    #[arg(long, default_value = "all", value_name = "NAMES")]
    pub processors: String,
    /// URL of the Redis server [default: as in the app, else redis://127.0.0.1:6379].
    #[arg(long, env = "SQUALL_REDIS", hide_env_values = true, value_name = "URL")]
    pub redis: Option<String>,
    /// Prefix of every key, with cluster hash tags; '' for the key names of runnel [default: as in
    /// the app, else squall].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Serve Prometheus metrics at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR")]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Let --prometheus listen on an address that other machines can reach.
    #[arg(long)]
    pub allow_remote: bool,
    /// Lowest level to log [default: as in the app, else info].
    #[arg(long, value_parser = ["error", "warning", "info", "debug"], value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Format of log lines [default: as in the app, else console].
    #[arg(long, value_parser = ["console", "json"], value_name = "FORMAT")]
    pub log_format: Option<String>,
}

#[derive(Debug, Args)]
pub struct TailArgs {
    /// APP.STREAM
    pub(super) stream: String,
    /// Start with the oldest stored event.
    #[arg(long)]
    pub(super) from_start: bool,
    /// End after N events.
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
    #[command(flatten)]
    pub(super) server: RedisArgs,
}

#[derive(Debug, Args)]
pub struct ProcessorArgs {
    /// APP.STREAM.PROCESSOR
    pub(super) processor: String,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) server: RedisArgs,
}

#[derive(Debug, Args)]
pub struct ResetArgs {
    /// APP.STREAM.PROCESSOR
    pub(super) processor: String,
    /// Start position: 0 for the first event, $ for new events only, or an id.
    #[arg(long, default_value = "0", value_name = "ID")]
    pub(super) start: String,
    /// Remove the processor from the stream instead.
    #[arg(long, conflicts_with = "start")]
    pub(super) remove: bool,
    #[command(flatten)]
    pub(super) server: RedisArgs,
}

#[derive(Debug, Args)]
#[group(id = "clearing", args = ["clear", "clear_all"], multiple = false)]
pub struct QuarantineArgs {
    /// APP.STREAM.PROCESSOR
    pub(super) processor: String,
    /// Clear the quarantine of this partition.
    #[arg(long, value_name = "PARTITION")]
    pub(super) clear: Option<u32>,
    /// Clear the quarantine of all partitions.
    #[arg(long, conflicts_with = "clear")]
    pub(super) clear_all: bool,
    /// Acknowledge the failed events, so that they are not processed again.
    #[arg(long, requires = "clearing")]
    pub(super) skip: bool,
    #[command(flatten)]
    pub(super) server: RedisArgs,
}
