//! One page with a browser context of its own: opens it, runs steps on it, closes it. What the page
//! measures meanwhile is kept by [`page_state`]; the caller takes it and records it. Made by
//! [`Browser::new_page`](crate::Browser::new_page).

mod actions;
mod measurements;
mod page_state;

use serde_json::{Value, json};
use std::{
    rc::{Rc, Weak},
    time::{Duration, Instant},
};

use crate::{
    BrowserAction, BrowserStep, CdpError, StepError,
    connection::{Connection, EventListener},
};
pub use measurements::{ConsoleError, PageLoad, PageMeasurements, RequestResult, SentRequest, Vitals};
use page_state::{BINDING, PageState};

/// What runs in every document: observes the figures of the page, and finds elements for steps.
pub const PAGE_SCRIPT: &str = include_str!("page/page.js");
/// A page that paints nothing has no first paint to wait for.
const PAINT_TIMEOUT: Duration = Duration::from_secs(2);
/// A page whose script is busy for longer has no vitals.
const VITALS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long closing a page may take before its browser is left to itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A page. Closing or dropping it removes its context with all cookies and storage.
pub struct Page {
    connection: Connection,
    context: String,
    session: String,
    state: Rc<PageState>,
    /// Kept for as long as the page, because the connection holds it weakly.
    listener: Option<Rc<PageListener>>,
}

/// A step that has run.
#[derive(Debug)]
pub struct StepRun {
    pub result: Result<(), StepError>,
    /// When the action and what it loaded were done. The wait for the first paint is not included.
    pub ended: Instant,
}

impl Page {
    pub(crate) async fn open(connection: &Connection, viewport: (u32, u32)) -> Result<Page, CdpError> {
        let created = connection.call(None, "Target.createBrowserContext", json!({ "disposeOnDetach": true })).await?;
        let context = text(&created["browserContextId"]);
        let (width, height) = viewport;
        let target = json!({ "url": "about:blank", "browserContextId": context, "width": width, "height": height });
        // From here on the page's drop removes the context.
        let state = PageState::new();
        let mut page = Page { connection: connection.clone(), context, session: String::new(), state, listener: None };
        let target = connection.call(None, "Target.createTarget", target).await?;
        page.state.set_main_frame(text(&target["targetId"]));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = connection.call(None, "Target.attachToTarget", attach).await?;
        page.session = text(&attached["sessionId"]);
        let listener =
            PageListener { connection: connection.clone(), session: page.session.clone(), state: page.state.clone() };
        let listener = page.listener.insert(Rc::new(listener));
        let weak: Weak<PageListener> = Rc::downgrade(listener);
        connection.listen(&page.session, weak);
        page.prepare(viewport).await?;
        Ok(page)
    }

    /// Sets the size of the page, and enables its events.
    async fn prepare(&self, (width, height): (u32, u32)) -> Result<(), CdpError> {
        // Full Chromium takes the size of a new target for that of its window, whose frame it then takes off.
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 0, "mobile": false });
        let commands = [
            ("Emulation.setDeviceMetricsOverride", size),
            ("Page.enable", json!({})),
            ("Page.setLifecycleEventsEnabled", json!({ "enabled": true })),
            ("Network.enable", json!({ "maxTotalBufferSize": 0, "maxResourceBufferSize": 0 })),
            ("Runtime.enable", json!({})),
            ("Log.enable", json!({})),
            ("Runtime.addBinding", json!({ "name": BINDING })),
            ("Page.addScriptToEvaluateOnNewDocument", json!({ "source": PAGE_SCRIPT })),
        ];
        let replies: Vec<_> = commands
            .into_iter()
            .map(|(name, params)| self.connection.send(Some(&self.session), name, params))
            .collect();
        for reply in replies {
            reply.await?;
        }
        Ok(())
    }

    /// Runs one step. What the page measures from now on belongs to step number `index`.
    pub async fn run_step(&self, index: usize, step: &BrowserStep, deadline: Instant) -> StepRun {
        self.state.begin_step(index);
        let acted = match &step.action {
            Some(action) => self.act(action, deadline).await,
            None => Ok(()),
        };
        let acted_at = Instant::now();
        let (result, ended) = match acted {
            Ok(()) if !step.expect.is_empty() => (self.expect(&step.expect, deadline).await, Instant::now()),
            acted => (acted, acted_at),
        };
        self.settle().await;
        StepRun { result: self.state.end_error().map_or(result, Err), ended }
    }

    async fn act(&self, action: &BrowserAction, deadline: Instant) -> Result<(), StepError> {
        match action {
            BrowserAction::Goto { url } => self.goto(url, deadline).await,
            action => self.interact(action, deadline).await,
        }
    }

    async fn goto(&self, url: &str, deadline: Instant) -> Result<(), StepError> {
        let failed = |reason: &str| StepError::Navigation { url: url.to_owned(), reason: reason.to_owned() };
        let left = self.state.document_number();
        let slow = || StepError::Timeout { action: format!("goto {url}"), problem: self.state.describe_load() };
        let navigate = self.command("Page.navigate", json!({ "url": url }));
        let reply = match tokio::time::timeout_at(deadline.into(), navigate).await {
            Err(_) => return Err(slow()),
            Ok(Err(CdpError::Refused { message, .. })) => return Err(failed(&message)),
            Ok(reply) => reply?,
        };
        if let Some(reason) = reply["errorText"].as_str() {
            return Err(failed(reason));
        }
        // A navigation to another fragment of the same document loads nothing.
        if reply["loaderId"].as_str().is_none_or(str::is_empty) {
            return Ok(());
        }
        self.state
            .wait_until(deadline, |page| page.document_number() > left && page.is_loaded())
            .await
            .ok_or_else(slow)?;
        match self.state.document_status() {
            Some(status) if status >= 400 => Err(StepError::Status { url: url.to_owned(), status }),
            _ => Ok(()),
        }
    }

    /// Waits until the first content is painted and the page has drawn what the step changed, so that the
    /// vitals are there and the next step acts on what a person would see. Then reads the vitals.
    async fn settle(&self) {
        if !self.state.has_document() {
            return;
        }
        let deadline = Instant::now() + PAINT_TIMEOUT;
        self.state.wait_until(deadline, |page| page.is_painted() || !page.is_loaded()).await;
        let document = self.state.document_number();
        let expression = "(async () => { const squall = globalThis[Symbol.for('squall')]; await squall.settle(); \
                          return squall.readVitals(); })()";
        // A document that is left meanwhile has sent its vitals itself.
        let vitals = tokio::time::timeout(VITALS_TIMEOUT, self.evaluate(expression)).await;
        if let Ok(Ok(vitals)) = vitals
            && let Some(vitals) = Vitals::parse(&vitals)
        {
            self.state.set_vitals(document, vitals);
        }
    }

    /// A picture of the page as PNG.
    pub async fn screenshot(&self) -> Result<Vec<u8>, CdpError> {
        use base64::Engine as _;
        let method = "Page.captureScreenshot";
        let reply = self.command(method, json!({ "format": "png" })).await?;
        let decoded = base64::engine::general_purpose::STANDARD.decode(reply["data"].as_str().unwrap_or_default());
        decoded.map_err(|error| CdpError::Refused { method, message: error.to_string() })
    }

    /// Takes what has been measured: requests that have ended, and documents that have been left.
    pub fn take_measurements(&self) -> PageMeasurements {
        self.state.take_finished()
    }

    /// Closes the page and returns the rest of what it measured. Requests under way count as cancelled.
    pub async fn close(self) -> PageMeasurements {
        let dispose = json!({ "browserContextId": self.context });
        let closing = self.connection.call(None, "Target.disposeBrowserContext", dispose);
        // A browser that does not answer has failed the steps; there is nothing to add here.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
        self.state.take_all()
    }

    /// Takes what has been measured so far, as [`Page::close`] does, of a page that is about to be dropped.
    pub fn take_all_measurements(&self) -> PageMeasurements {
        self.state.take_all()
    }

    async fn command(&self, method: &'static str, params: Value) -> Result<Value, CdpError> {
        self.connection.call(Some(&self.session), method, params).await
    }

    /// The value of an expression, after its promise is settled.
    async fn evaluate(&self, expression: &str) -> Result<Value, CdpError> {
        let method = "Runtime.evaluate";
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut reply = self.command(method, params).await?;
        match reply["exceptionDetails"]["exception"]["description"].as_str() {
            Some(message) => Err(CdpError::Refused { method, message: message.to_owned() }),
            None => Ok(reply["result"]["value"].take()),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.connection.stop_listening(&self.session);
        // Repeated after `close`; the browser then refuses it.
        let dispose = json!({ "browserContextId": self.context });
        drop(self.connection.send(None, "Target.disposeBrowserContext", dispose));
    }
}

/// Passes the events of a page to its state, and answers dialogs, which would block every step.
struct PageListener {
    connection: Connection,
    session: String,
    state: Rc<PageState>,
}

impl EventListener for PageListener {
    fn on_event(&self, method: &str, params: &Value) {
        if method == "Page.javascriptDialogOpening" {
            let accept = json!({ "accept": true });
            drop(self.connection.send(Some(&self.session), "Page.handleJavaScriptDialog", accept));
        }
        self.state.on_event(method, params);
    }

    fn on_closed(&self, reason: CdpError) {
        self.state.on_closed(reason);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
