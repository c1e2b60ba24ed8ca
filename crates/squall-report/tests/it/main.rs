//! The report as its users see it: runs made by the real recorder and collector, rendered and read back.

mod compare;
mod docs;
mod files;
mod hdr_log;
mod html;
mod live_output;
mod prometheus;
mod result;
mod robust;
mod sample;
mod schema;
mod summary;
mod verdict;
