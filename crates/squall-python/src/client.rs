//! The `client` object of a scenario: turns the arguments of `client.get(...)` and the other
//! methods into an [`Operation`]. It renders requests but sends none; the driver performs the
//! operations. Scenario code calls it, and the driver renders constant requests with it.

use http::Method;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyMapping, PyString},
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
    routes::{RouteRequestSpec, RoutedRequest, Routes, authorization},
    running_code,
    streamed_response::PyStreamedResponse,
    websocket::{WebSocket, WebSocketHandshake},
};

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
            let (py, template) = (url.py(), url.to_str()?);
            let name = options.name.clone().unwrap_or_else(|| PyString::new(py, &template_name(&method, template)));
            let options = ClientCallOptions { path_params: None, name: Some(name), ..options.clone() };
            return self.call(
                method,
                &PyString::new(py, &request_encode::fill_path_params(template, values)?),
                &options,
            );
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

/// The methods that differ only in their verb. Their options are keyword parameters, not
/// `**options`, so that Python does not build a dict for every call.
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

/// Refuses `follow_redirects=False`: other HTTP clients decide about redirects call by call, Squall
/// decides for the whole run.
fn check_follow_redirects(follow_redirects: Option<bool>) -> PyResult<()> {
    match follow_redirects {
        Some(false) => Err(PyValueError::new_err(
            "follow_redirects=False does not work for one call; use --max-redirects 0 for the run",
        )),
        _ => Ok(()),
    }
}

/// The name of a URL with placeholders: the method and the path as written.
fn template_name(method: &Method, template: &str) -> String {
    let path = match template.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => template,
    };
    format!("{method} {}", path.split(['?', '#']).next().unwrap_or(path))
}

/// The keyword arguments of a call.
#[derive(Clone, Default)]
struct ClientCallOptions<'py> {
    headers: Option<Bound<'py, PyAny>>,
    params: Option<Bound<'py, PyAny>>,
    json: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    files: Option<Bound<'py, PyAny>>,
    cookies: Option<Bound<'py, PyAny>>,
    auth: Option<Bound<'py, PyAny>>,
    timeout: Option<Bound<'py, PyAny>>,
    name: Option<Bound<'py, PyString>>,
    /// Values for the placeholders in a URL like `/users/{id}`. The URL as written is then the
    /// request's name.
    path_params: Option<Bound<'py, PyAny>>,
    /// Headers that the protocol adds, such as those of a WebSocket handshake.
    protocol_headers: Vec<(&'static str, String)>,
}

impl<'py> ClientCallOptions<'py> {
    fn is_empty(&self) -> bool {
        let ClientCallOptions {
            headers,
            params,
            json,
            data,
            files,
            cookies,
            auth,
            timeout,
            name,
            path_params,
            protocol_headers,
        } = self;
        let values = [headers, params, json, data, files, cookies, auth, timeout, path_params];
        protocol_headers.is_empty() && name.is_none() && values.iter().all(|value| value.is_none())
    }

    fn read(options: &Bound<'py, PyDict>) -> PyResult<ClientCallOptions<'py>> {
        let mut read = ClientCallOptions::default();
        for (key, value) in options.iter() {
            if value.is_none() && !key.eq("json")? {
                continue;
            }
            let field = match key.cast::<PyString>()?.to_str()? {
                "headers" => &mut read.headers,
                "params" => &mut read.params,
                "json" => &mut read.json,
                "data" | "content" => &mut read.data,
                "files" => &mut read.files,
                "cookies" => &mut read.cookies,
                "auth" => &mut read.auth,
                "timeout" => &mut read.timeout,
                "path_params" => &mut read.path_params,
                "follow_redirects" => {
                    check_follow_redirects(value.extract()?)?;
                    continue;
                }
                "name" => {
                    read.name = Some(value.cast_into::<PyString>()?);
                    continue;
                }
                other => {
                    return Err(PyTypeError::new_err(format!(
                        "the client has no option `{other}`; the options are headers, params, json, data, content, files, \
                         cookies, auth, timeout, name, path_params and follow_redirects"
                    )));
                }
            };
            *field = Some(value);
        }
        Ok(read)
    }

    /// Appends the body to `out` and returns its content type, if Squall sets one.
    fn body(&self, out: &mut Vec<u8>) -> PyResult<Option<String>> {
        let json = self.json.as_ref().filter(|json| !json.is_none());
        if json.is_some() && (self.data.is_some() || self.files.is_some()) {
            return Err(PyValueError::new_err(
                "json= cannot be combined with data=, content= or files=: a request has one body",
            ));
        }
        if let Some(json) = json {
            request_encode::json(json, out, 0)?;
            return Ok(Some("application/json".to_owned()));
        }
        if let Some(files) = &self.files {
            return request_encode::multipart(files, self.data.as_ref(), out).map(Some);
        }
        let Some(data) = &self.data else { return Ok(None) };
        if request_encode::write_raw(data, out)? {
            return Ok(None);
        }
        let mut form = String::new();
        request_encode::form(data, &mut form)?;
        out.extend_from_slice(form.as_bytes());
        Ok(Some("application/x-www-form-urlencoded".to_owned()))
    }

    fn query(&self) -> PyResult<Option<String>> {
        let Some(params) = &self.params else { return Ok(None) };
        if let Ok(text) = params.cast::<PyString>() {
            return Ok(Some(text.to_str()?.trim_start_matches('?').to_owned()));
        }
        let mut query = String::new();
        request_encode::form(params, &mut query)?;
        Ok((!query.is_empty()).then_some(query))
    }

    fn timeout(&self) -> PyResult<Option<Duration>> {
        self.timeout.as_ref().map(|timeout| seconds_of(timeout.extract()?)).transpose()
    }

    /// The headers that come from `auth=`, `cookies=` and the protocol.
    fn extra_headers(&self) -> PyResult<Vec<(&'static str, String)>> {
        let mut extra = self.protocol_headers.clone();
        if let Some(auth) = &self.auth {
            extra.push(("Authorization", authorization_of(auth)?));
        }
        if let Some(cookies) = &self.cookies {
            let mut text = String::new();
            for (name, value) in cookies.cast::<PyDict>()?.iter() {
                let separator = if text.is_empty() { "" } else { "; " };
                text += &format!("{separator}{}={}", name.str()?.to_str()?, value.str()?.to_str()?);
            }
            extra.push(("Cookie", text));
        }
        Ok(extra)
    }
}

/// The Authorization header of `auth=`: `(user, password)`, or a bearer token as a string.
fn authorization_of(auth: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(token) = auth.cast::<PyString>() {
        return Ok(format!("Bearer {}", token.to_str()?));
    }
    match auth.extract::<Vec<String>>().as_deref() {
        Ok([user, password]) => Ok(authorization(user, password)),
        _ => Err(PyTypeError::new_err("auth= takes (user, password), or a bearer token as a string")),
    }
}

/// Header names and values. A header whose value is `None` is removed from the request.
type HeaderPairs<'py> = Vec<(Bound<'py, PyString>, Option<Bound<'py, PyString>>)>;

fn header_text<'py>(value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    match value.cast_into::<PyString>() {
        Ok(text) => Ok(text),
        Err(other) => match other.into_inner().cast_into::<PyBytes>() {
            Ok(bytes) => Ok(bytes.call_method1("decode", ("latin-1",))?.cast_into::<PyString>()?),
            Err(other) => other.into_inner().str(),
        },
    }
}

fn header_pairs<'py>(headers: &Bound<'py, PyAny>, out: &mut HeaderPairs<'py>) -> PyResult<()> {
    let mut push = |name: Bound<'py, PyAny>, value: Bound<'py, PyAny>| -> PyResult<()> {
        let value = if value.is_none() { None } else { Some(header_text(value)?) };
        out.push((header_text(name)?, value));
        Ok(())
    };
    if let Ok(dict) = headers.cast::<PyDict>() {
        return dict.iter().try_for_each(|(name, value)| push(name, value));
    }
    if let Ok(mapping) = headers.cast::<PyMapping>() {
        for item in mapping.items()?.iter() {
            let (name, value) = item.extract()?;
            push(name, value)?;
        }
        return Ok(());
    }
    for item in headers.try_iter()? {
        let (name, value) = item?.extract()?;
        push(name, value)?;
    }
    Ok(())
}
