//! The grid with a real browser and stock Playwright clients. `scripts/install-playwright` installs
//! them.

mod bad_clients;
mod cdp;
mod clients;
mod direct;
mod keys;
mod recovery;
mod refusals;
mod security;
mod sessions;
mod support;
mod versions;
