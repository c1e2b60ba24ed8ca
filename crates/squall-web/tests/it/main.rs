//! The API over a fleet in this process: real HTTP and WebSocket on loopback, workers that only pretend to make load.

mod bodies;
mod doors;
mod feed;
mod life;
mod resources;
mod seed;
mod support;
