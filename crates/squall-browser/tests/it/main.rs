//! Real Chromium against small servers and the built-in shop.

mod pages;
mod processes;
mod support;
mod tls;
