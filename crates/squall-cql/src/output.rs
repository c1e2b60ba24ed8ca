//! What cassandra-stress prints, as pure functions: table, summary, HdrHistogram log, settings and
//! progress lines, in the form that the tools around it parse.
//! It measures nothing, computes no percentiles and writes to no file.

mod hdr_log_line;
mod java_number;
mod progress;
mod settings_dump;
mod summary;
mod table;

pub use hdr_log_line::{hdr_log_header, hdr_log_line};
pub(crate) use java_number::fixed;
pub use progress::{host_line, improvement_line, running_line, step_line, warm_up_line};
pub use settings_dump::settings_dump;
pub use summary::{OperationSummary, summary};
pub use table::{Latencies, OperationRates, TableRow, labelled_line, table_header};
