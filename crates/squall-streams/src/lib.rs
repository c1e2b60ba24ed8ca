//! Partitioned, ordered stream processing on Redis or Valkey.
//!
//! A stream divides records into partitions by key. One worker at a time processes a partition,
//! strictly in order, each event at least once. A worker that has lost a partition cannot
//! acknowledge its events. The crate does not know load tests.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use squall_streams::{FailurePolicy, Processor, StreamApp};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { order_id: u64, amount: u64 }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let app = StreamApp::connect("myapp", "redis://127.0.0.1").await?;
//! let orders = app.stream::<Order>("orders").partition_by("order_id").open().await?;
//! orders.send(&Order { order_id: 1, amount: 99 }).await?;
//!
//! let printer = Processor::new("printer", &orders, |mut events| async move {
//!     let mut records = events.records();
//!     while let Some(order) = records.next().await {
//!         println!("{}", order.amount);
//!     }
//!     Ok::<(), std::io::Error>(())
//! });
//! app.worker().processor(printer.policy(FailurePolicy::quarantine())).run(Default::default()).await?;
//! # Ok(())
//! # }
//! ```

pub mod admin;
mod app;
mod background_task;
#[cfg(feature = "cli")]
pub mod cli;
mod codec;
mod crontab;
mod entry;
mod events;
mod executor;
mod executor_context;
mod failure_policy;
mod leader_election;
mod leased_partition;
mod metrics;
mod middleware;
mod names;
mod partition_buffer;
mod partition_hasher;
mod processor;
mod python_repr;
mod raw_events;
mod runnel_members;
mod sender;
mod stream;
mod worker;

pub use app::{ConnectError, StreamApp};
pub use background_task::{BackgroundTask, TaskScheduleError};
pub use codec::{Compression, DecodeError, EncodeError, RecordLayout, decompress};
pub use entry::{Entry, EntryBody, EntryId};
pub use events::{Event, FenceToken, PartitionEvents, PartitionRecords};
pub use executor::ExecutorError;
pub use failure_policy::{FailurePolicy, OnFailure};
pub use leased_partition::PartitionError;
pub use metrics::StreamMetrics;
pub use middleware::{BoxError, DeadLetter, DeadLetterQueue, Middleware, ProcessingFailure};
pub use names::{NameError, Namespace, ProcessorName, StreamName};
pub use partition_hasher::PartitionHasher;
pub use processor::{Processor, ProcessorSettings, ZeroSettingError};
pub use python_repr::python_repr;
pub use raw_events::{PollOutcome, RawEvent, RawPartitionEvents, RawRecord};
pub use sender::{SendError, WhenFull};
pub use stream::{RecordStream, StreamBuilder, StreamOpenError};
pub use worker::AppWorker;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
