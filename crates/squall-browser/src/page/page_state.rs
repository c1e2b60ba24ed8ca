//! What the events of a page say: its document, its navigations, its requests, its console. It sends
//! nothing. The connection calls it for each event; [`Page`](super::Page) waits for its changes.

use serde_json::Value;
use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;

use super::measurements::{ConsoleError, PageLoad, PageMeasurements, RequestResult, SentRequest, Vitals};
use crate::{CdpError, StepError};

/// The function through which a document sends its vitals when it is left.
pub(super) const BINDING: &str = "__squall";
/// The most requests and console messages that a page keeps between two takes, so that a page in a loop
/// does not fill the memory.
const MAX_KEPT: usize = 10_000;

pub(super) struct PageState {
    inner: RefCell<PageData>,
    changed: Notify,
}

#[derive(Default)]
pub(super) struct PageData {
    main_frame: String,
    step: usize,
    /// How many documents have been shown so far.
    document_number: u64,
    /// The document that is shown; `None` until the first navigation.
    document: Option<Document>,
    /// A navigation has begun and has not replaced the document yet.
    navigating: bool,
    /// The status of the document that arrives, by its loader.
    arriving: Option<(String, u16)>,
    open_requests: HashMap<String, OpenRequest>,
    finished: PageMeasurements,
    crashed: bool,
    /// Why no further event will come.
    closed: Option<CdpError>,
}

struct Document {
    loader: String,
    url: String,
    step: usize,
    status: Option<u16>,
    loaded: bool,
    painted: bool,
    vitals: Vitals,
}

struct OpenRequest {
    step: usize,
    sent_at: f64,
    status: Option<u16>,
    from_cache: bool,
}

impl PageState {
    pub(super) fn new() -> Rc<PageState> {
        Rc::new(PageState { inner: RefCell::default(), changed: Notify::new() })
    }

    pub(super) fn set_main_frame(&self, frame: String) {
        self.inner.borrow_mut().main_frame = frame;
    }

    pub(super) fn begin_step(&self, index: usize) {
        self.inner.borrow_mut().step = index;
    }

    /// The number of the document that is shown; 0 until the first navigation.
    pub(super) fn document_number(&self) -> u64 {
        self.inner.borrow().document_number
    }

    /// Waits until `reached`, or until the page is gone. `None` at the deadline.
    pub(super) async fn wait_until(&self, deadline: Instant, reached: impl Fn(&PageData) -> bool) -> Option<()> {
        loop {
            let changed = self.changed.notified();
            {
                let page = self.inner.borrow();
                if reached(&page) || page.crashed || page.closed.is_some() {
                    return Some(());
                }
            }
            tokio::time::timeout_at(deadline.into(), changed).await.ok()?;
        }
    }

    /// Why no further step can succeed: the page has crashed, or its connection is closed.
    pub(super) fn end_error(&self) -> Option<StepError> {
        let page = self.inner.borrow();
        match page.crashed {
            true => Some(StepError::Crashed),
            false => page.closed.clone().map(StepError::from),
        }
    }

    pub(super) fn has_document(&self) -> bool {
        self.inner.borrow().document.is_some()
    }

    pub(super) fn document_status(&self) -> Option<u16> {
        self.inner.borrow().document.as_ref().and_then(|document| document.status)
    }

    pub(super) fn url(&self) -> String {
        self.inner.borrow().document.as_ref().map(|document| document.url.clone()).unwrap_or_default()
    }

    /// Whether the current step has loaded the document that is shown.
    pub(super) fn loaded_in_this_step(&self) -> bool {
        let page = self.inner.borrow();
        page.document.as_ref().is_some_and(|document| document.step == page.step)
    }

    pub(super) fn set_vitals(&self, document: u64, vitals: Vitals) {
        let mut page = self.inner.borrow_mut();
        if page.document_number == document
            && let Some(document) = &mut page.document
        {
            document.vitals = vitals;
        }
    }

    /// How far the load has come, for a message.
    pub(super) fn describe_load(&self) -> String {
        let page = self.inner.borrow();
        let open = page.open_requests.len();
        match &page.document {
            Some(document) if !page.navigating => {
                format!("{} is not loaded, and {open} of its requests have no answer", document.url)
            }
            _ => format!("the page has not answered, and {open} requests have no answer"),
        }
    }

    pub(super) fn take_finished(&self) -> PageMeasurements {
        std::mem::take(&mut self.inner.borrow_mut().finished)
    }

    pub(super) fn take_all(&self) -> PageMeasurements {
        let mut page = self.inner.borrow_mut();
        page.leave_document();
        let open: Vec<OpenRequest> = page.open_requests.drain().map(|(_, request)| request).collect();
        for request in open.into_iter().filter(|request| !request.from_cache) {
            page.finish(request, None, 0, RequestResult::Cancelled);
        }
        std::mem::take(&mut page.finished)
    }
}

impl PageState {
    pub(super) fn on_event(&self, method: &str, params: &Value) {
        self.inner.borrow_mut().handle(method, params);
        self.changed.notify_waiters();
    }

    pub(super) fn on_closed(&self, reason: CdpError) {
        self.inner.borrow_mut().closed = Some(reason);
        self.changed.notify_waiters();
    }
}

impl PageData {
    pub(super) fn document_number(&self) -> u64 {
        self.document_number
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.document.as_ref().is_some_and(|document| document.loaded)
    }

    pub(super) fn is_painted(&self) -> bool {
        self.document.as_ref().is_some_and(|document| document.painted)
    }

    pub(super) fn is_navigating(&self) -> bool {
        self.navigating
    }

    fn handle(&mut self, method: &str, params: &Value) {
        match method {
            "Page.frameNavigated" => self.frame_navigated(&params["frame"]),
            "Page.navigatedWithinDocument" if self.is_main(&params["frameId"]) => {
                if let Some(document) = &mut self.document {
                    document.url = string(&params["url"]);
                }
            }
            "Page.frameRequestedNavigation" | "Page.frameStartedNavigating" => self.navigation_began(params),
            "Page.frameStoppedLoading" if self.is_main(&params["frameId"]) => self.navigating = false,
            "Page.lifecycleEvent" if self.is_main(&params["frameId"]) => self.lifecycle(params),
            "Network.requestWillBeSent" => self.request_sent(params),
            "Network.requestServedFromCache" => self.served_from_cache(params),
            "Network.responseReceived" => self.response_received(params),
            "Network.loadingFinished" => {
                let bytes = params["encodedDataLength"].as_f64().unwrap_or(0.0) as u64;
                self.request_ended(params, bytes, None);
            }
            "Network.loadingFailed" => self.request_ended(params, 0, Some(failure(params))),
            "Runtime.consoleAPICalled" if params["type"] == "error" => self.console_error(console_text(params)),
            "Runtime.exceptionThrown" => {
                let details = &params["exceptionDetails"];
                let described = details["exception"]["description"].as_str().or(details["text"].as_str());
                self.console_error(described.unwrap_or("an exception").to_owned());
            }
            // Failed requests are counted as such.
            "Log.entryAdded" if params["entry"]["level"] == "error" && params["entry"]["source"] != "network" => {
                self.console_error(string(&params["entry"]["text"]));
            }
            "Runtime.bindingCalled" if params["name"] == BINDING => {
                let vitals = params["payload"].as_str().and_then(|text| serde_json::from_str(text).ok());
                if let (Some(document), Some(vitals)) = (&mut self.document, vitals) {
                    document.vitals = vitals;
                }
            }
            "Inspector.targetCrashed" => self.crashed = true,
            _ => {}
        }
    }

    fn is_main(&self, frame: &Value) -> bool {
        frame.as_str() == Some(&self.main_frame)
    }

    fn navigation_began(&mut self, params: &Value) {
        let stays = params["navigationType"].as_str().is_some_and(|kind| kind.ends_with("SameDocument"));
        let elsewhere = ["newTab", "newWindow", "download"].iter().any(|place| params["disposition"] == *place);
        if self.is_main(&params["frameId"]) && !stays && !elsewhere {
            self.navigating = true;
        }
    }

    fn frame_navigated(&mut self, frame: &Value) {
        if !self.is_main(&frame["id"]) {
            return;
        }
        self.leave_document();
        let loader = string(&frame["loaderId"]);
        let status = self.arriving.take().filter(|(of, _)| *of == loader).map(|(_, status)| status);
        let url = string(&frame["url"]);
        self.document_number += 1;
        self.navigating = false;
        let (step, vitals) = (self.step, Vitals::default());
        self.document = Some(Document { loader, url, step, status, loaded: false, painted: false, vitals });
    }

    /// Keeps the figures of the document that is replaced. Neither a document that never loaded nor Chromium's
    /// own error page is a page load.
    fn leave_document(&mut self) {
        let is_load = |document: &Document| document.loaded && !document.url.starts_with("chrome-error:");
        if let Some(document) = self.document.take().filter(is_load) {
            self.finished.loads.push(PageLoad { step: document.step, vitals: document.vitals });
        }
    }

    fn lifecycle(&mut self, params: &Value) {
        let Some(document) = &mut self.document else { return };
        if params["loaderId"].as_str() != Some(&document.loader) {
            return;
        }
        match params["name"].as_str() {
            Some("load") => document.loaded = true,
            Some("firstContentfulPaint") => document.painted = true,
            _ => {}
        }
    }

    fn request_sent(&mut self, params: &Value) {
        let url = params["request"]["url"].as_str().unwrap_or_default();
        if !url.starts_with("http") {
            return;
        }
        let id = string(&params["requestId"]);
        let sent_at = params["timestamp"].as_f64().unwrap_or(0.0);
        // The request was redirected: its first part has ended.
        if let (Some(status), Some(mut first)) =
            (params["redirectResponse"]["status"].as_u64(), self.open_requests.remove(&id))
        {
            let bytes = params["redirectResponse"]["encodedDataLength"].as_f64().unwrap_or(0.0) as u64;
            first.status = Some(status as u16);
            self.finish(first, Some(sent_at), bytes, RequestResult::Status(status as u16));
        }
        if self.open_requests.len() < MAX_KEPT {
            let request = OpenRequest { step: self.step, sent_at, status: None, from_cache: false };
            self.open_requests.insert(id, request);
        }
    }

    fn served_from_cache(&mut self, params: &Value) {
        if let Some(request) = params["requestId"].as_str().and_then(|id| self.open_requests.get_mut(id)) {
            request.from_cache = true;
        }
    }

    fn response_received(&mut self, params: &Value) {
        let (Some(id), response) = (params["requestId"].as_str(), &params["response"]) else { return };
        let status = response["status"].as_u64().unwrap_or(0) as u16;
        if params["type"] == "Document" && self.is_main(&params["frameId"]) {
            match &mut self.document {
                Some(document) if params["loaderId"].as_str() == Some(&document.loader) => {
                    document.status = Some(status)
                }
                _ => self.arriving = Some((string(&params["loaderId"]), status)),
            }
        }
        if let Some(request) = self.open_requests.get_mut(id) {
            request.status = Some(status);
            request.from_cache |= response["fromDiskCache"] == true || response["fromPrefetchCache"] == true;
        }
    }

    fn request_ended(&mut self, params: &Value, bytes: u64, failure: Option<RequestResult>) {
        let Some(request) = params["requestId"].as_str().and_then(|id| self.open_requests.remove(id)) else { return };
        if request.from_cache {
            return;
        }
        // A browser also cancels what it cannot use, such as the HTML of a 404 in place of a script.
        let result = match (failure, request.status) {
            (Some(_), Some(status)) if status >= 400 => RequestResult::Status(status),
            (Some(failure), _) => failure,
            (None, status) => RequestResult::Status(status.unwrap_or(0)),
        };
        let ended = params["timestamp"].as_f64();
        self.finish(request, ended, bytes, result);
    }

    fn finish(&mut self, request: OpenRequest, ended: Option<f64>, bytes: u64, result: RequestResult) {
        let seconds = ended.map_or(0.0, |ended| (ended - request.sent_at).clamp(0.0, 86_400.0));
        if self.finished.requests.len() < MAX_KEPT {
            let duration = Duration::from_secs_f64(seconds);
            self.finished.requests.push(SentRequest { step: request.step, duration, bytes, result });
        }
    }

    fn console_error(&mut self, message: String) {
        if self.finished.console_errors.len() < MAX_KEPT {
            let message = message.chars().take(500).collect();
            self.finished.console_errors.push(ConsoleError { step: self.step, message });
        }
    }
}

fn failure(params: &Value) -> RequestResult {
    match params["canceled"] == true {
        true => RequestResult::Cancelled,
        false => RequestResult::Failed(string(&params["errorText"])),
    }
}

/// The arguments of `console.error`, as far as they are text.
fn console_text(params: &Value) -> String {
    let shown = |argument: &Value| match &argument["value"] {
        Value::String(text) => text.clone(),
        Value::Null => string(&argument["description"]),
        other => other.to_string(),
    };
    let arguments = params["args"].as_array().map(Vec::as_slice).unwrap_or_default();
    arguments.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
