//! A Playwright browser grid: clients connect to one WebSocket URL, and get a warm, isolated browser
//! of any worker.
//! It does not drive browsers and does not read what clients and browsers say to each other.
//! squall-cli starts its parts.
//!
//! * [`serve`]: the server, which gives clients a slot and relays.
//! * [`GridWorker`]: offers slots, and serves sessions with browsers on its machine.
//! * [`relay`]: forwards a WebSocket by its frame headers.

mod direct;
mod error_text;
mod handshake;
mod offer_message;
mod playwright_version;
pub mod relay;
mod server;
mod worker;

pub use server::{ApiKey, KeyLimits, ServerConfig, serve};
pub use worker::{
    BrowserRules, ConfinementError, GridWorker, GridWorkerConfig, GridWorkerError, Isolation, NodeHostError, PoolError,
    ServerOffers, SlotOffers, exec_confined,
};
