//! The browser of virtual users: starts Chromium, opens isolated pages, runs steps on them (goto, click,
//! fill, …) and measures page loads, over the DevTools protocol (CDP) and without Node.
//!
//! It knows no schedule and no histogram, and reads no scenario: squall-scenario renders the steps and
//! records what a page measured. Everything runs on the thread that started the browser, inside a
//! tokio `LocalSet`.
//!
//! ```no_run
//! # #[cfg(feature = "cdp")]
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use squall_browser::{Browser, BrowserAction, BrowserConfig, BrowserStep, Expectation};
//! use std::time::{Duration, Instant};
//!
//! let browser = Browser::launch(&BrowserConfig::default()).await?;
//! let page = browser.new_page().await?;
//! let goto = BrowserAction::Goto { url: "http://127.0.0.1:8089/shop".to_owned() };
//! let expect = Expectation { text: Some("Lamp".to_owned()), ..Expectation::default() };
//! let step = BrowserStep { action: Some(goto), expect };
//! page.run_step(0, &step, Instant::now() + Duration::from_secs(30)).await.result?;
//! println!("{:?}", page.close().await.loads);
//! # Ok(()) }
//! ```

#[cfg(feature = "cdp")]
mod browser;
#[cfg(feature = "cdp")]
mod connection;
#[cfg(feature = "cdp")]
mod executable;
mod keys;
pub mod message;
#[cfg(feature = "cdp")]
mod page;
#[cfg(feature = "cdp")]
mod process;
mod step;
#[cfg(feature = "cdp")]
mod step_error;

#[cfg(feature = "cdp")]
pub use browser::{Browser, BrowserConfig, BrowserConnectError, LaunchError};
#[cfg(feature = "cdp")]
pub use connection::CdpError;
#[cfg(feature = "cdp")]
pub use executable::{ExecutableError, find_executable};
pub use keys::is_known_key;
#[cfg(feature = "cdp")]
pub use page::{
    ConsoleError, PAGE_SCRIPT, Page, PageLoad, PageMeasurements, RequestResult, SentRequest, StepRun, Vitals,
};
pub use step::{BrowserAction, BrowserStep, Expectation};
#[cfg(feature = "cdp")]
pub use step_error::StepError;
