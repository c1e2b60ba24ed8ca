//! The arguments of `squall stream …`. Refuses to act on them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{Compression, PartitionHasher, RecordLayout};

const WORKER_EXAMPLES: &str = "\
Examples:
  squall stream worker shop:app
  squall stream worker shop:app --processors printer --redis redis://10.0.0.5
  squall stream worker shop:app --prometheus 127.0.0.1:9464 --log-format json

A first SIGTERM or Ctrl-C finishes the iterations in hand, acknowledges them and hands the partitions over; a second one ends at once.
Exit codes: 0 stopped by a signal, 1 a processor halted, 2 the app cannot be loaded, 3 Redis cannot be reached, 130 ended at once.";

/// Ordered streams on Redis.
#[derive(Debug, Subcommand)]
pub enum StreamCommand {
    /// Send one record.
    #[command(
        after_help = "Examples:\n  squall stream send shop.orders '{\"id\":1,\"amount\":99}' --partition-by id\n  squall stream send shop.orders '{\"id\":2}' --no-wait --redis redis://10.0.0.5"
    )]
    Send(SendArgs),
    /// Send the records of a file, one JSON object per line.
    #[command(
        after_help = "Examples:\n  squall stream sendmany shop.orders orders.jsonl --partition-by id\n  squall stream sendmany shop.orders - < orders.jsonl"
    )]
    Sendmany(SendManyArgs),
    /// Run the processors and tasks of an app written in Python.
    #[command(after_help = WORKER_EXAMPLES)]
    Worker(StreamWorkerArgs),
    /// Print events as they come, without taking them.
    #[command(
        after_help = "Examples:\n  squall stream tail shop.orders\n  squall stream tail shop.orders --from-start --count 10"
    )]
    Tail(TailArgs),
    /// Show how far a processor is behind in each partition.
    #[command(
        after_help = "Examples:\n  squall stream lag shop.orders.printer\n  squall stream lag shop.orders.printer --json"
    )]
    Lag(ProcessorArgs),
    /// Show who runs a processor and who holds which partition.
    #[command(
        after_help = "Examples:\n  squall stream members shop.orders.printer\n  squall stream members shop.orders.printer --json"
    )]
    Members(ProcessorArgs),
    /// Make a stopped processor begin again, or be forgotten.
    #[command(
        after_help = "Examples:\n  squall stream reset shop.orders.printer\n  squall stream reset shop.orders.printer --start '$'"
    )]
    Reset(ResetArgs),
    /// Show partitions that stand still, and let them go on.
    #[command(
        after_help = "Examples:\n  squall stream quarantine shop.orders.printer\n  squall stream quarantine shop.orders.printer --clear 3"
    )]
    Quarantine(QuarantineArgs),
}

#[derive(Debug, Args)]
pub(super) struct RedisArgs {
    /// The server.
    #[arg(
        long,
        env = "SQUALL_REDIS",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379",
        value_name = "URL"
    )]
    pub(super) redis: String,
    /// Put before every key, with cluster hash tags; '' for the plain key names of the original system.
    #[arg(long, default_value = "squall", value_name = "NAME")]
    pub(super) namespace: String,
}

#[derive(Debug, Args)]
pub(super) struct SendTargetArgs {
    /// APP.STREAM
    pub(super) stream: String,
    /// The field whose value orders the events.
    #[arg(long, value_name = "FIELD")]
    pub(super) partition_by: Option<String>,
    /// How many partitions the stream has [default: as stored, else 16].
    #[arg(long)]
    pub(super) partitions: Option<u32>,
    /// How keys become partitions [default: as stored, else xxh64].
    #[arg(long)]
    pub(super) hasher: Option<PartitionHasher>,
    /// How many events a partition may hold.
    #[arg(long, default_value_t = 50_000)]
    pub(super) partition_size: usize,
    /// How records are laid out.
    #[arg(long, default_value = "json")]
    pub(super) layout: RecordLayout,
    /// How records are compressed.
    #[arg(long, default_value = "none")]
    pub(super) compression: Compression,
    /// Fail at once when a partition is full, instead of waiting half a minute.
    #[arg(long)]
    pub(super) no_wait: bool,
    /// Drop the oldest events of a full partition that no processor reads.
    #[arg(long)]
    pub(super) drop_unread: bool,
    #[command(flatten)]
    pub(super) server: RedisArgs,
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

/// Arguments of `squall stream worker`.
#[derive(Debug, Clone, Args)]
pub struct StreamWorkerArgs {
    /// MODULE:APP, looked for in the current folder first
    pub app: String,
    /// Which processors: all, or names with commas between.
    #[arg(long, default_value = "all", value_name = "NAMES")]
    pub processors: String,
    /// The server [default: as the app says, else redis://127.0.0.1:6379].
    #[arg(long, env = "SQUALL_REDIS", hide_env_values = true, value_name = "URL")]
    pub redis: Option<String>,
    /// Put before every key, with cluster hash tags; '' for the plain key names of the original system [default: as the app says,
    /// else squall].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Answer Prometheus at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR")]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Let --prometheus listen on an address that other machines can reach.
    #[arg(long)]
    pub allow_remote: bool,
    /// Least severe events to log [default: as the app says, else info].
    #[arg(long, value_parser = ["error", "warning", "info", "debug"], value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// How events are logged [default: as the app says, else console].
    #[arg(long, value_parser = ["console", "json"], value_name = "FORMAT")]
    pub log_format: Option<String>,
}

#[derive(Debug, Args)]
pub struct TailArgs {
    /// APP.STREAM
    pub(super) stream: String,
    /// Begin with the first event that is still there.
    #[arg(long)]
    pub(super) from_start: bool,
    /// End after so many events.
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
    /// Where to begin: 0 for the first event, $ for what comes next, or an id.
    #[arg(long, default_value = "0", value_name = "ID")]
    pub(super) start: String,
    /// Forget the processor instead.
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
    /// Let this partition go on.
    #[arg(long, value_name = "PARTITION")]
    pub(super) clear: Option<u32>,
    /// Let all partitions go on.
    #[arg(long, conflicts_with = "clear")]
    pub(super) clear_all: bool,
    /// Leave out the events that failed.
    #[arg(long, requires = "clearing")]
    pub(super) skip: bool,
    #[command(flatten)]
    pub(super) server: RedisArgs,
}
