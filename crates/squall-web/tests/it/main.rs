//! The API over a fleet in this process: real HTTP and WebSocket on loopback, workers that only pretend to make load.

mod access;
mod bad_requests;
mod live_feed;
mod resources;
mod run_lifecycle;
mod support;
mod vikhry;
