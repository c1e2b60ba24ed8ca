//! The `client` object of a scenario: turns the arguments of `client.get(...)` and the other
//! methods into an [`Operation`]. It renders requests but sends none; the driver performs the
//! operations. Scenario code calls it, and the driver renders constant requests with it.

mod call_options;

use http::Method;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyString},
};
use squall_http::OMIT_HEADER;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    cql, exceptions,
    function_stepper::in_coroutine,
    operation::{Operation, OperationWork},
    operation_queue::OperationQueue,
    request_encode,
    routes::{RouteRequestSpec, RoutedRequest, Routes},
    running_code,
    streamed_response::PyStreamedResponse,
    websocket::{WebSocket, WebSocketHandshake},
};
use call_options::{ClientCallOptions, check_follow_redirects, header_pairs};

/// How many URL objects a client remembers. A power of two, because `slot_of` masks with it.
const KNOWN_URL_SLOTS: usize = 64;

/// The `client` argument of the scenario's functions. It holds no state of a user: all users of a
/// thread share one, except on asyncio, where each user has a copy with its own queue.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct Client {
    routes: Routes,
    /// Where operations are submitted if the user runs on asyncio; otherwise coroutines yield them.
    queue: Option<Py<OperationQueue>>,
    /// Routes by the identity of the URL object: a literal in the source is the same object in
    /// every call. Locked only briefly.
    known: Arc<Mutex<Vec<Option<KnownUrl>>>>,
}

/// A URL whose route is known. It holds the URL object, so that no other object gets the same
/// address.
struct KnownUrl {
    url: Py<PyString>,
    method: Method,
    route: usize,
}

impl Client {
    pub(crate) fn new(routes: Routes, queue: Option<Py<OperationQueue>>) -> Client {
        Client { routes, queue, known: Arc::default() }
    }

    /// The same client for another user. Both share the routes and the remembered URLs.
    pub(crate) fn with_queue(&self, queue: Py<OperationQueue>) -> Client {
        Client { routes: self.routes.clone(), queue: Some(queue), known: self.known.clone() }
    }

    fn operation(&self, py: Python<'_>, work: OperationWork) -> PyResult<Operation> {
        running_code::refuse_in_forked_child()?;
        Ok(Operation::new(work, self.queue(py)))
    }

    fn queue(&self, py: Python<'_>) -> Option<Py<OperationQueue>> {
        self.queue.as_ref().map(|queue| queue.clone_ref(py))
    }

    fn request_operation<'py>(
        &self,
        method: Method,
        url: &Bound<'py, PyString>,
        options: &ClientCallOptions<'py>,
    ) -> PyResult<Operation> {
        let call = self.call(method, url, options)?;
        self.operation(url.py(), OperationWork::Request(call))
    }

    fn call<'py>(
        &self,
        method: Method,
        url: &Bound<'py, PyString>,
        options: &ClientCallOptions<'py>,
    ) -> PyResult<RoutedRequest> {
        if let Some(values) = &options.path_params {
            return self.call_with_path_params(method, url, values, options);
        }
        let by_url = options.name.is_none() && options.timeout.is_none();
        let known = if by_url { self.known_route(&method, url) } else { None };
        let mut spec = RouteRequestSpec {
            method,
            url: url.to_str()?,
            name: None,
            query: None,
            headers: Vec::new(),
            body: &[],
            timeout: None,
            known_route: known,
        };
        if options.is_empty() {
            let call = self.routes.call(&spec).map_err(|error| exceptions::bad_request(&error))?;
            self.remember_route(&spec, url, call.route);
            return Ok(call);
        }
        let mut body = Vec::new();
        let content_type = options.body(&mut body)?;
        let extra = options.extra_headers()?;
        let mut pairs = Vec::new();
        if let Some(headers) = &options.headers {
            header_pairs(headers, &mut pairs)?;
        }
        let mut headers: Vec<(&str, &str)> = Vec::with_capacity(pairs.len() + extra.len() + 1);
        for (name, value) in &pairs {
            let name = name.to_str()?;
            // `auth=` replaces an Authorization header.
            if options.auth.is_none() || !name.eq_ignore_ascii_case("authorization") {
                headers.push((name, value.as_ref().map_or(Ok(OMIT_HEADER), |value| value.to_str())?));
            }
        }
        headers.extend(extra.iter().map(|(name, value)| (*name, value.as_str())));
        if let Some(content_type) = &content_type
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            headers.push(("Content-Type", content_type));
        }
        // An empty name counts as no name.
        spec.name = options.name.as_ref().map(|name| name.to_str()).transpose()?.filter(|name| !name.is_empty());
        (spec.query, spec.timeout) = (options.query()?, options.timeout()?);
        (spec.headers, spec.body) = (headers, &body);
        let call = self.routes.call(&spec).map_err(|error| exceptions::bad_request(&error))?;
        if by_url {
            self.remember_route(&spec, url, call.route);
        }
        Ok(call)
    }

    /// The call whose URL is `template` with `values` for its placeholders.
    fn call_with_path_params<'py>(
        &self,
        method: Method,
        template: &Bound<'py, PyString>,
        values: &Bound<'py, PyAny>,
        options: &ClientCallOptions<'py>,
    ) -> PyResult<RoutedRequest> {
        let (py, template) = (template.py(), template.to_str()?);
        let name = options.name.clone().unwrap_or_else(|| PyString::new(py, &template_name(&method, template)));
        let options = ClientCallOptions { path_params: None, name: Some(name), ..options.clone() };
        self.call(method, &PyString::new(py, &request_encode::fill_path_params(template, values)?), &options)
    }

    fn known_route(&self, method: &Method, url: &Bound<'_, PyString>) -> Option<usize> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(slot_of(url))?.as_ref()?;
        (entry.url.is(url) && entry.method == *method).then_some(entry.route)
    }

    fn remember_route(&self, spec: &RouteRequestSpec<'_>, url: &Bound<'_, PyString>, route: Option<usize>) {
        let (None, Some(route)) = (spec.known_route, route) else { return };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            known.resize_with(KNOWN_URL_SLOTS, || None);
        }
        let entry = KnownUrl { url: url.clone().unbind(), method: spec.method.clone(), route };
        let old = known[slot_of(url)].replace(entry);
        drop(known);
        drop(old);
    }

    /// Renders a constant request.
    pub(crate) fn render(&self, method: &str, url: &str, options: &Bound<'_, PyDict>) -> PyResult<RoutedRequest> {
        let url = PyString::new(options.py(), url);
        self.call(method_of(method)?, &url, &ClientCallOptions::read(options)?)
    }

    /// One entry of a batch: `{"method": "GET", "path": "/x", …}`, a path, or `(method, path)`.
    fn batch_entry(&self, entry: &Bound<'_, PyAny>) -> PyResult<RoutedRequest> {
        if let Ok(path) = entry.cast::<PyString>() {
            return self.call(Method::GET, path, &ClientCallOptions::default());
        }
        if let Ok((method, path)) = entry.extract::<(String, Bound<'_, PyString>)>() {
            return self.call(method_of(&method)?, &path, &ClientCallOptions::default());
        }
        let options = entry
            .cast::<PyDict>()
            .map_err(|_| PyTypeError::new_err("client.batch takes paths, (method, path) pairs or dicts with a `path`"))?
            .copy()?;
        let take = |key: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            let value = options.get_item(key)?;
            if value.is_some() {
                options.del_item(key)?;
            }
            Ok(value)
        };
        let method = take("method")?.map_or(Ok(Method::GET), |method| method_of(&method.extract::<String>()?))?;
        let path = match (take("path")?, take("url")?) {
            (Some(path), None) | (None, Some(path)) => path,
            _ => return Err(PyValueError::new_err("an entry of client.batch needs exactly one of `path` and `url`")),
        };
        self.call(method, path.cast::<PyString>()?, &ClientCallOptions::read(&options)?)
    }
}

/// All methods of the Python class, because pyo3 takes one block of them. The methods of the list differ
/// only in their verb. Their options are keyword parameters, not `**options`, so that Python does not
/// build a dict for every call.
macro_rules! client_methods {
    ($($name:ident $verb:ident)*) => {
        #[pymethods]
        impl Client {
            $(
                #[doc = concat!(
                    "Sends a ", stringify!($verb), " request and returns its response; in `async def`, await it.\n\n"
                )]
                /// `url` is absolute or relative to the target. `headers`, `params`, `cookies`:
                /// dicts; `json`, `data` or `content`, `files`: the body; `auth`: (user, password)
                /// or a token; `timeout`: seconds; `name`: the request's name in the report;
                /// `path_params`: values for placeholders in the URL such as `/users/{id}`.
                #[pyo3(signature = (
                    url, /, *, headers=None, params=None, json=None, data=None, content=None, files=None,
                    cookies=None, auth=None, timeout=None, name=None, path_params=None, follow_redirects=None
                ))]
                #[allow(clippy::too_many_arguments)] // The keywords of the Python method.
                fn $name<'py>(
                    &self,
                    url: &Bound<'py, PyString>,
                    headers: Option<Bound<'py, PyAny>>,
                    params: Option<Bound<'py, PyAny>>,
                    json: Option<Bound<'py, PyAny>>,
                    data: Option<Bound<'py, PyAny>>,
                    content: Option<Bound<'py, PyAny>>,
                    files: Option<Bound<'py, PyAny>>,
                    cookies: Option<Bound<'py, PyAny>>,
                    auth: Option<Bound<'py, PyAny>>,
                    timeout: Option<Bound<'py, PyAny>>,
                    name: Option<Bound<'py, PyString>>,
                    path_params: Option<Bound<'py, PyAny>>,
                    follow_redirects: Option<bool>,
                ) -> PyResult<Operation> {
                    check_follow_redirects(follow_redirects)?;
                    let data = data.or(content);
                    let protocol_headers = Vec::new();
                    let call_options =
                        ClientCallOptions { headers, params, json, data, files, cookies, auth, timeout, name, path_params, protocol_headers };
                    self.request_operation(Method::$verb, url, &call_options)
                }
            )*

            /// Sends a request with any method. It takes the keywords of `get`.
            #[pyo3(signature = (method, url, /, **options))]
            fn request(
                &self,
                method: &str,
                url: &Bound<'_, PyString>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Operation> {
                let options = options.map(ClientCallOptions::read).transpose()?.unwrap_or_default();
                self.request_operation(method_of(method)?, url, &options)
            }

            /// Returns a WebSocket. It connects in `async with` or with `connect()`, not before.
            #[pyo3(signature = (url, /, **options))]
            fn websocket(&self, url: &Bound<'_, PyString>, options: Option<&Bound<'_, PyDict>>) -> PyResult<WebSocket> {
                let text = url.to_str()?;
                // `ws://` connects to the same port as `http://`, `wss://` to the same as
                // `https://`.
                let http = text.strip_prefix("ws").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
                let url = http.map_or_else(|| url.clone(), |rest| PyString::new(url.py(), &format!("http{rest}")));
                let handshake = WebSocketHandshake::new();
                let mut options = options.map(ClientCallOptions::read).transpose()?.unwrap_or_default();
                options.protocol_headers.clone_from(&handshake.headers);
                let call = self.call(Method::GET, &url, &options)?;
                let name = call.name.strip_prefix("GET ").map_or_else(|| call.name.to_string(), |path| format!("WS {path}"));
                Ok(WebSocket::new(self.routes.connector(), call.request().clone(), name, handshake, self.queue(url.py())))
            }

            /// Returns a request whose response body is read in chunks. It is sent in `async with`
            /// or with `open()`, not before.
            #[pyo3(signature = (method, url, /, **options))]
            fn stream(
                &self,
                method: &str,
                url: &Bound<'_, PyString>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<PyStreamedResponse> {
                let options = options.map(ClientCallOptions::read).transpose()?.unwrap_or_default();
                let call = self.call(method_of(method)?, url, &options)?;
                let (request, name) = (call.request().clone(), call.name.to_string());
                Ok(PyStreamedResponse::new(self.routes.connector(), request, name, self.queue(url.py())))
            }

            /// Sends a CQL statement and returns its rows; in `async def`, await it.
            ///
            /// `values` has one value for each `?`. `name`: its name in the report; `consistency`,
            /// `page_size`, `timeout` (seconds): in place of those of `@scenario(cql=…)`.
            #[pyo3(signature = (statement, values=None, /, *, name=None, consistency=None, page_size=None, timeout=None))]
            #[allow(clippy::too_many_arguments)] // The keywords of the Python method.
            fn cql(
                &self,
                py: Python<'_>,
                statement: &str,
                values: Option<&Bound<'_, PyAny>>,
                name: Option<&str>,
                consistency: Option<&str>,
                page_size: Option<u16>,
                timeout: Option<f64>,
            ) -> PyResult<Operation> {
                let options = cql::CallOptions { name, consistency, page_size, timeout };
                let work = cql::StatementCall::new(statement, &options)?.work(values)?;
                self.operation(py, work)
            }

            /// Returns a CQL statement to be sent many times: `await statement(values)`. It takes the
            /// keywords of `cql`.
            #[pyo3(signature = (statement, /, *, name=None, consistency=None, page_size=None, timeout=None))]
            fn cql_prepared(
                &self,
                py: Python<'_>,
                statement: &str,
                name: Option<&str>,
                consistency: Option<&str>,
                page_size: Option<u16>,
                timeout: Option<f64>,
            ) -> PyResult<cql::CqlStatement> {
                let options = cql::CallOptions { name, consistency, page_size, timeout };
                Ok(cql::CqlStatement::new(cql::StatementCall::new(statement, &options)?, self.queue(py)))
            }

            /// Sends all requests at once and returns their responses in the order of the requests.
            fn batch(&self, requests: &Bound<'_, PyAny>) -> PyResult<Operation> {
                if requests.is_instance_of::<PyString>() {
                    return Err(PyTypeError::new_err("client.batch takes a list of requests, not one string"));
                }
                let calls = requests.try_iter()?.map(|entry| self.batch_entry(&entry?)).collect::<PyResult<Vec<_>>>()?;
                self.operation(requests.py(), OperationWork::Batch(calls))
            }
        }
    };
}

client_methods! { get GET post POST put PUT patch PATCH delete DELETE head HEAD options OPTIONS }

/// The slot of a URL object by its address. Addresses of Python objects are multiples of 16.
fn slot_of(url: &Bound<'_, PyString>) -> usize {
    (url.as_ptr() as usize >> 4) & (KNOWN_URL_SLOTS - 1)
}

/// Pauses this user only: `await squall.sleep(0.5)`, or without `await` in a plain `def`.
#[pyfunction]
pub(crate) fn sleep<'py>(py: Python<'py>, seconds: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match in_coroutine() {
        true => Ok(Bound::new(py, timer(seconds.extract()?)?)?.into_any()),
        // On a fiber, on asyncio, or outside a run: the Python side finds out which.
        false => py.import("squall._blocking")?.call_method1("pause", (seconds,)),
    }
}

/// Returns an operation that pauses the user that awaits it.
#[pyfunction]
pub(crate) fn timer(seconds: f64) -> PyResult<Operation> {
    Ok(Operation::new(OperationWork::Sleep(seconds_of(seconds)?), None))
}

pub(crate) fn seconds_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is not a duration in seconds; give 0 or more")))
}

fn method_of(method: &str) -> PyResult<Method> {
    Method::from_bytes(method.to_ascii_uppercase().as_bytes())
        .map_err(|_| PyValueError::new_err(format!("`{method}` is not an HTTP method")))
}

/// The name of a URL with placeholders: the method and the path as written.
fn template_name(method: &Method, template: &str) -> String {
    let path = match template.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => template,
    };
    format!("{method} {}", path.split(['?', '#']).next().unwrap_or(path))
}
