//! Actions on elements of a page: waits until the element can be used, then sends real input events. The
//! waiting happens in the page (`page.js`). Called by [`Page::run_step`].

use serde_json::{Value, json};
use std::time::{Duration, Instant};

use super::Page;
use crate::{BrowserAction, CdpError, Expectation, StepError, keys::key_events};

/// How long a page that is replaced is left alone before the action is tried on the next one.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// The page stops trying this long before the step's deadline.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);
/// How long after the deadline a page that is busy may still say what stood in the way.
const ANSWER_GRACE: Duration = Duration::from_secs(1);

impl Page {
    pub(super) async fn interact(&self, action: &BrowserAction, deadline: Instant) -> Result<(), StepError> {
        let name = action.to_string();
        let element = |function: &'static str, args: Value| self.act_on_element(&name, function, args, deadline);
        let input = |method: &'static str, params: Value| self.input(&name, method, params, deadline);
        match action {
            BrowserAction::Goto { .. } => unreachable!("`goto` needs no element"),
            BrowserAction::WaitFor { selector } => {
                return element("waitFor", json!({ "selector": selector })).await.map(drop);
            }
            BrowserAction::Click { selector } => {
                let at = element("click", json!({ "selector": selector })).await?;
                for event in click_events(&at) {
                    input("Input.dispatchMouseEvent", event).await?;
                }
            }
            BrowserAction::Fill { selector, value } => {
                let found = element("fill", json!({ "selector": selector, "value": value })).await?;
                if found["insert"] == true {
                    input("Input.insertText", json!({ "text": value })).await?;
                }
            }
            BrowserAction::Select { selector, value } => {
                element("select", json!({ "selector": selector, "value": value })).await?;
            }
            BrowserAction::Press { key, selector } => {
                if let Some(selector) = selector {
                    element("focus", json!({ "selector": selector })).await?;
                }
                let unknown = || StepError::Impossible { action: name.clone(), problem: "no such key".to_owned() };
                let [down, up] = key_events(key).ok_or_else(unknown)?;
                input("Input.dispatchKeyEvent", down).await?;
                input("Input.dispatchKeyEvent", up).await?;
            }
        }
        self.finish_navigation(&name, deadline).await
    }

    pub(super) async fn expect(&self, expect: &Expectation, deadline: Instant) -> Result<(), StepError> {
        let Expectation { url, text, selector, visible, hidden } = expect;
        let args = json!({ "url": url, "text": text, "selector": selector, "visible": visible, "hidden": hidden });
        match self.act_on_element("expect", "expect", args, deadline).await {
            Err(StepError::Timeout { problem, .. }) => Err(StepError::Expectation { problem }),
            other => other.map(drop),
        }
    }

    /// Sends an input event and waits until the page has handled it. Its reply can be lost with a page that
    /// the event leaves.
    async fn input(
        &self,
        action: &str,
        method: &'static str,
        params: Value,
        deadline: Instant,
    ) -> Result<(), StepError> {
        let busy = || StepError::Timeout {
            action: action.to_owned(),
            problem: "the page is still busy with the input".to_owned(),
        };
        let handled = tokio::time::timeout_at(deadline.into(), self.command(method, params));
        match handled.await.map_err(|_| busy())? {
            Err(CdpError::Refused { .. }) | Ok(_) => Ok(()),
            Err(closed) => Err(closed.into()),
        }
    }

    /// Runs a function of `page.js` until it succeeds, on whichever document is there.
    async fn act_on_element(
        &self,
        action: &str,
        function: &'static str,
        args: Value,
        deadline: Instant,
    ) -> Result<Value, StepError> {
        let timeout = |problem: String| StepError::Timeout { action: action.to_owned(), problem };
        let impossible = |problem: String| StepError::Impossible { action: action.to_owned(), problem };
        if !self.state.has_document() {
            return Err(impossible("no page is open; the first step is a goto".to_owned()));
        }
        let mut problem = "the page did not answer".to_owned();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timeout(problem));
            }
            let budget = left.saturating_sub(ANSWER_MARGIN).as_millis();
            let expression = format!("globalThis[Symbol.for('squall')].act('{function}', {args}, {budget})");
            let outcome = match tokio::time::timeout(left + ANSWER_GRACE, self.evaluate(&expression)).await {
                Err(_) => continue,
                // The document was replaced, or the next one has not run its script yet.
                Ok(Err(CdpError::Refused { .. })) => {
                    if let Some(ended) = self.state.end_error() {
                        return Err(ended);
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                Ok(Err(ended)) => return Err(self.state.end_error().unwrap_or(ended.into())),
                Ok(Ok(mut outcome)) => {
                    if let Some(reason) = outcome["impossible"].as_str() {
                        return Err(impossible(reason.to_owned()));
                    }
                    if outcome["done"].is_object() {
                        return Ok(outcome["done"].take());
                    }
                    outcome
                }
            };
            problem = outcome["problem"].as_str().unwrap_or("the page did not answer").to_owned();
        }
    }

    /// Waits for the page that an input event has opened, if it has opened one. Two drawn frames after the
    /// event, the browser has announced the navigation.
    async fn finish_navigation(&self, action: &str, deadline: Instant) -> Result<(), StepError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let drawn = self.evaluate("globalThis[Symbol.for('squall')].settle()");
        match tokio::time::timeout(left, drawn).await {
            // The document was replaced, or is busy: its events say what happens.
            Err(_) | Ok(Ok(_) | Err(CdpError::Refused { .. })) => {}
            Ok(Err(ended)) => return Err(ended.into()),
        }
        let loaded = self.state.wait_until(deadline, |page| !page.is_navigating() && page.is_loaded()).await;
        let slow = || StepError::Timeout { action: action.to_owned(), problem: self.state.describe_load() };
        loaded.ok_or_else(slow)?;
        match self.state.document_status().filter(|_| self.state.loaded_in_this_step()) {
            Some(status) if status >= 400 => Err(StepError::Status { url: self.state.url(), status }),
            _ => Ok(()),
        }
    }
}

/// The events of a click on the point `at`.
fn click_events(at: &Value) -> [Value; 3] {
    [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)].map(|(kind, buttons)| {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let clicks = u32::from(kind != "mouseMoved");
        json!({ "type": kind, "x": at["x"], "y": at["y"], "button": button, "buttons": buttons, "clickCount": clicks })
    })
}
