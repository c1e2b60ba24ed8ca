//! The client of a fleet's API, on the HTTP client of the load generator. Turns API errors into
//! messages that say what to do. `squall test`, `squall up` and `squall down` call it.

use http::Method;
use serde_json::Value;
use squall_http::{BodyMode, Connector, HttpConfig, HttpRequest, PreparedRequest, Session, TlsOptions};
use std::time::{Duration, Instant};

use crate::{args::ApiArgs, command_line::without_credentials, exit::CliError, local_fleet_state};

/// Long, because the request that starts a test waits for the workers.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a test waits for the first worker to join.
const WORKER_START_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shown during that wait.
pub(crate) const NO_WORKER_MESSAGE: &str = "no worker is alive; waiting a few seconds for one to come up";

/// Where an orchestrator listens by default.
const DEFAULT_API_URL: &str = "http://127.0.0.1:8080";
const NO_FLEET_REMEDY: &str = "Is `squall orchestrator` running there? `squall up` starts a fleet on this machine; \
                               --api URL names another";

/// A client of the API of one fleet.
pub(crate) struct ApiClient {
    base_url: String,
    /// The URL in messages: without credentials.
    display_url: String,
    token: Option<String>,
    /// What to do if nothing responds.
    remedy: &'static str,
    connector: Connector,
    session: Session,
    runtime: tokio::runtime::Runtime,
}

impl ApiClient {
    pub(crate) fn new(args: &ApiArgs) -> Result<ApiClient, CliError> {
        let default_url = || {
            local_fleet_state::running_fleet_api().unwrap_or_else(|| {
                if let Some(ended) = local_fleet_state::ended_fleet_api() {
                    eprintln!(
                        "squall: the fleet that `squall up` started ({ended}) has ended; using {DEFAULT_API_URL}"
                    );
                }
                DEFAULT_API_URL.to_owned()
            })
        };
        let base = args.api.clone().unwrap_or_else(default_url);
        ApiClient::with_base_url(&base, args.token.as_ref().map(|secret| secret.0.clone()), args.api_ca.clone())
    }

    pub(crate) fn with_base_url(
        base: &str,
        token: Option<String>,
        ca: Option<std::path::PathBuf>,
    ) -> Result<ApiClient, CliError> {
        ApiClient::with_timeout(REQUEST_TIMEOUT, base, token, ca)
    }

    /// A client whose requests end after `timeout`.
    pub(crate) fn with_timeout(
        timeout: Duration,
        base: &str,
        token: Option<String>,
        ca: Option<std::path::PathBuf>,
    ) -> Result<ApiClient, CliError> {
        let config = HttpConfig {
            timeout,
            connect_timeout: timeout.min(Duration::from_secs(5)),
            tls: TlsOptions { ca, ..TlsOptions::default() },
            ..HttpConfig::default()
        };
        let connector = Connector::new(config).map_err(|error| CliError::new(format!("--api: {error}")))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let base = base.trim_end_matches('/').to_owned();
        Ok(ApiClient {
            display_url: match base.rsplit_once('@') {
                Some((_, host)) if !base.contains("://") => format!("…@{host}"),
                _ => without_credentials(&base),
            },
            base_url: base,
            token,
            remedy: NO_FLEET_REMEDY,
            session: Session::new(&connector),
            connector,
            runtime: runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?,
        })
    }

    /// Says what to do if nothing responds, for an API that is not a fleet's.
    #[cfg(feature = "grid")]
    #[must_use]
    pub(crate) fn with_remedy(self, remedy: &'static str) -> ApiClient {
        ApiClient { remedy, ..self }
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Value, CliError> {
        self.call(Method::GET, path, None)
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.call(Method::POST, path, Some(body))
    }

    /// Posts again until a worker has joined, because workers that have just started are not
    /// members yet. Calls `on_wait` with a notice if it has to wait.
    pub(crate) fn post_when_workers_ready(
        &mut self,
        path: &str,
        body: &Value,
        on_wait: impl FnOnce(&str),
    ) -> Result<Value, CliError> {
        let deadline = Instant::now() + WORKER_START_TIMEOUT;
        let mut on_wait = Some(on_wait);
        loop {
            let (status, response) = self.send(Method::POST, path, Some(body))?;
            let no_workers = response["error"]["code"] == "no_alive_workers";
            if !no_workers || Instant::now() >= deadline {
                return success_body(status, response);
            }
            if let Some(on_wait) = on_wait.take() {
                on_wait(NO_WORKER_MESSAGE);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The epoch of the running test, if there is one.
    pub(crate) fn running_test_epoch(&mut self) -> Result<Option<u64>, CliError> {
        let status = self.get("/api/v1/tests/current")?;
        let is_running = status["state"] == "PREPARING" || status["state"] == "RUNNING";
        Ok(status["epoch"].as_u64().filter(|_| is_running))
    }

    fn call(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CliError> {
        let (status, response) = self.send(method, path, body)?;
        success_body(status, response)
    }

    fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<(u16, Value), CliError> {
        let url_error = |error: &dyn std::fmt::Display| {
            // The error may quote the URL, whose credentials must not be printed.
            let error = error.to_string().replace(&self.base_url, &self.display_url);
            CliError::new(format!("--api {}: {error}", self.display_url))
        };
        let mut request =
            HttpRequest::new(method, &format!("{}{path}", self.base_url)).map_err(|error| url_error(&error))?;
        // A server of a grid answers in plain text otherwise.
        request.headers.push(("Accept".to_owned(), "application/json".to_owned()));
        if let Some(token) = &self.token {
            request.headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        if let Some(body) = body {
            request.headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
            request.body = body.to_string().into();
        }
        let request = PreparedRequest::new(&request, &self.connector).map_err(|error| url_error(&error))?;
        let exchange = self.runtime.block_on(self.session.send(&request, BodyMode::Keep));
        let response = exchange.result.map_err(|error| {
            // The HTTP client names the flags of `squall run`; this command has others.
            let error = error.to_string().replace("--ca FILE, or --insecure", "--api-ca FILE");
            let stop = if error.ends_with(['?', '.', '!']) { "" } else { "." };
            CliError::unreachable(format!(
                "no response from the API at {}: {error}{stop} {}",
                self.display_url, self.remedy
            ))
        })?;
        let body: Option<Value> = serde_json::from_slice(response.body()).ok();
        match (response.status, body) {
            (status, Some(body)) if status < 300 || body["error"]["message"].is_string() => Ok((status, body)),
            (status, _) => Err(CliError::new(format!(
                "{} does not respond like Squall's API (status {status}): check --api",
                self.display_url
            ))),
        }
    }
}

fn success_body(status: u16, body: Value) -> Result<Value, CliError> {
    if status < 300 { Ok(body) } else { Err(api_error(&body["error"])) }
}

fn api_error(error: &Value) -> CliError {
    // A grid names its errors by their status.
    if error["code"] == 401 {
        return CliError::new("the server of the grid requires an API key that it knows: give --server-key @FILE");
    }
    let message = error["message"].as_str().unwrap_or_default();
    let remedy = match error["code"].as_str().unwrap_or_default() {
        "store_unreachable" => return CliError::unreachable(message),
        "unauthorized" => ". Give --token TOKEN, or set SQUALL_TOKEN",
        "payload_too_large" => ". `squall run … --cluster redis://…` sends it to the fleet without the API",
        "invalid_state" if error["details"]["expected"][0] == "IDLE" => {
            ". `squall test status` shows the running test, `squall test stop` ends it"
        }
        "invalid_state" if error["details"]["current"] == "IDLE" => ". `squall test start` starts a test",
        "invalid_state" if error["details"]["current"] == "PREPARING" => {
            ". The workers prepare the test: try again when `squall test status` says that it is running"
        }
        _ => "",
    };
    CliError::new(format!("{message}{remedy}"))
}
