//! Tests of the API of a fleet in this process: real HTTP and WebSocket on loopback, and fake
//! workers that report made-up measurements.

mod access;
mod bad_requests;
mod fleet_actions;
mod live;
mod resources;
mod run_lifecycle;
mod runs;
mod scenarios;
mod streams_and_grid;
mod support;
mod ui;
mod vikhry;
mod vikhry_feed;
mod websocket;
