//! Tests of every rendering: the runs come from the real recorder and collector, and the tests
//! parse the output.

mod arbitrary_runs;
mod compare;
mod csv_and_junit;
mod documentation;
mod hdr_log;
mod html;
mod live_output;
mod loadpilot;
mod prometheus;
mod result;
mod sample_run;
mod schema;
mod summary;
mod verdict;
