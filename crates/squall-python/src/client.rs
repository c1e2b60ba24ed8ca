//! The client that a scenario is given: keyword arguments in, an operation out. Renders, but sends nothing.

use http::Method;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyMapping, PyString, PyTuple},
};
use std::time::Duration;

use crate::{
    encode,
    operation::{Operation, Work},
    port::Port,
    raise,
    routes::{Ask, Call, Routes, authorization},
};

/// HTTP client of one virtual user.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct Client {
    routes: Routes,
    /// Where operations go, if the user lives on asyncio; otherwise they are yielded.
    port: Option<Py<Port>>,
}

impl Client {
    pub(crate) fn new(routes: Routes, port: Option<Py<Port>>) -> Client {
        Client { routes, port }
    }

    fn operation(&self, py: Python<'_>, work: Work) -> Operation {
        Operation::new(work, self.port.as_ref().map(|port| port.clone_ref(py)))
    }

    fn ask(
        &self,
        method: Method,
        url: &Bound<'_, PyString>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let call = self.call(method, url.to_str()?, options)?;
        Ok(self.operation(url.py(), Work::Request(Box::new(call))))
    }

    fn call(&self, method: Method, url: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Call> {
        let Some(options) = options else {
            let ask = Ask { method, url, name: None, query: None, headers: Vec::new(), body: &[], timeout: None };
            return self.routes.call(&ask).map_err(|error| raise::bad_request(&error));
        };
        let options = Options::read(options)?;
        let mut body = Vec::new();
        let content_type = options.body(&mut body)?;
        let extra = options.extra_headers()?;
        let mut pairs = Vec::new();
        if let Some(headers) = &options.headers {
            header_pairs(headers, &mut pairs)?;
        }
        let mut headers: Vec<(&str, &str)> = Vec::with_capacity(pairs.len() + extra.len() + 1);
        for (name, value) in &pairs {
            headers.push((name.to_str()?, value.to_str()?));
        }
        headers.extend(extra.iter().map(|(name, value)| (*name, value.as_str())));
        if let Some(kind) = &content_type
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            headers.push(("Content-Type", kind));
        }
        let name = options.name.as_ref().map(|name| name.to_str()).transpose()?;
        let (query, timeout) = (options.query()?, options.timeout()?);
        let ask = Ask { method, url, name, query, headers, body: &body, timeout };
        self.routes.call(&ask).map_err(|error| raise::bad_request(&error))
    }

    /// A request as its parts say.
    pub(crate) fn render(&self, method: &str, url: &str, options: &Bound<'_, PyDict>) -> PyResult<Call> {
        self.call(method_of(method)?, url, Some(options))
    }

    /// One entry of a batch: `{"method": "GET", "path": "/x", …}`, a path, or `(method, path)`.
    fn entry(&self, entry: &Bound<'_, PyAny>) -> PyResult<Call> {
        if let Ok(path) = entry.cast::<PyString>() {
            return self.call(Method::GET, path.to_str()?, None);
        }
        if let Ok((method, path)) = entry.extract::<(String, Bound<'_, PyString>)>() {
            return self.call(method_of(&method)?, path.to_str()?, None);
        }
        let options = entry
            .cast::<PyDict>()
            .map_err(|_| PyTypeError::new_err("batch takes paths, (method, path) pairs or dicts with a path"))?
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
            _ => return Err(PyValueError::new_err("a batch entry needs one `path` (or `url`)")),
        };
        self.call(method, path.cast::<PyString>()?.to_str()?, Some(&options))
    }
}

#[pymethods]
impl Client {
    #[pyo3(signature = (url, /, **options))]
    fn get(&self, url: &Bound<'_, PyString>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Operation> {
        self.ask(Method::GET, url, options)
    }

    #[pyo3(signature = (url, /, **options))]
    fn post(&self, url: &Bound<'_, PyString>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Operation> {
        self.ask(Method::POST, url, options)
    }

    #[pyo3(signature = (url, /, **options))]
    fn put(&self, url: &Bound<'_, PyString>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Operation> {
        self.ask(Method::PUT, url, options)
    }

    #[pyo3(signature = (url, /, **options))]
    fn patch(&self, url: &Bound<'_, PyString>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Operation> {
        self.ask(Method::PATCH, url, options)
    }

    #[pyo3(signature = (url, /, **options))]
    fn delete(&self, url: &Bound<'_, PyString>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Operation> {
        self.ask(Method::DELETE, url, options)
    }

    #[pyo3(signature = (url, /, **options))]
    fn head(&self, url: &Bound<'_, PyString>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Operation> {
        self.ask(Method::HEAD, url, options)
    }

    #[pyo3(signature = (method, url, /, **options))]
    fn request(
        &self,
        method: &str,
        url: &Bound<'_, PyString>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        self.ask(method_of(method)?, url, options)
    }

    /// Sends all requests at once; ends with their responses in the order in which they were given.
    fn batch(&self, requests: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let calls = requests.try_iter()?.map(|entry| self.entry(&entry?)).collect::<PyResult<Vec<_>>>()?;
        Ok(self.operation(requests.py(), Work::Batch(calls)))
    }
}

/// A pause that costs no thread: `await squall.sleep(0.5)`.
#[pyfunction]
pub(crate) fn sleep(seconds: f64) -> PyResult<Operation> {
    Ok(Operation::new(Work::Sleep(seconds_of(seconds)?), None))
}

fn seconds_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no duration in seconds")))
}

fn method_of(method: &str) -> PyResult<Method> {
    Method::from_bytes(method.to_ascii_uppercase().as_bytes())
        .map_err(|_| PyValueError::new_err(format!("`{method}` is no HTTP method")))
}

/// The keyword arguments of a call.
#[derive(Default)]
struct Options<'py> {
    headers: Option<Bound<'py, PyAny>>,
    params: Option<Bound<'py, PyAny>>,
    json: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    files: Option<Bound<'py, PyAny>>,
    cookies: Option<Bound<'py, PyAny>>,
    auth: Option<Bound<'py, PyAny>>,
    timeout: Option<Bound<'py, PyAny>>,
    name: Option<Bound<'py, PyString>>,
}

impl<'py> Options<'py> {
    fn read(options: &Bound<'py, PyDict>) -> PyResult<Options<'py>> {
        let mut read = Options::default();
        for (key, value) in options.iter() {
            if value.is_none() && !key.eq("json")? {
                continue;
            }
            let place = match key.cast::<PyString>()?.to_str()? {
                "headers" => &mut read.headers,
                "params" => &mut read.params,
                "json" => &mut read.json,
                "data" | "content" => &mut read.data,
                "files" => &mut read.files,
                "cookies" => &mut read.cookies,
                "auth" => &mut read.auth,
                "timeout" => &mut read.timeout,
                "name" => {
                    read.name = Some(value.cast_into::<PyString>()?);
                    continue;
                }
                other => {
                    return Err(PyTypeError::new_err(format!(
                        "the client knows no `{other}`: there are headers, params, json, data, files, cookies, auth, \
                         timeout and name"
                    )));
                }
            };
            *place = Some(value);
        }
        Ok(read)
    }

    /// Renders the body and says its type, if it has one.
    fn body(&self, out: &mut Vec<u8>) -> PyResult<Option<String>> {
        let json = self.json.as_ref().filter(|json| !json.is_none());
        if json.is_some() && (self.data.is_some() || self.files.is_some()) {
            return Err(PyValueError::new_err("json= and data= or files= are two bodies: give one"));
        }
        if let Some(json) = json {
            encode::json(json, out, 0)?;
            return Ok(Some("application/json".to_owned()));
        }
        if let Some(files) = &self.files {
            return encode::multipart(files.cast::<PyDict>()?, self.data.as_ref(), out).map(Some);
        }
        let Some(data) = &self.data else { return Ok(None) };
        if let Ok(bytes) = data.cast::<PyBytes>() {
            out.extend_from_slice(bytes.as_bytes());
            return Ok(None);
        }
        if let Ok(text) = data.cast::<PyString>() {
            out.extend_from_slice(text.to_str()?.as_bytes());
            return Ok(None);
        }
        let mut form = String::new();
        encode::form(data, &mut form)?;
        out.extend_from_slice(form.as_bytes());
        Ok(Some("application/x-www-form-urlencoded".to_owned()))
    }

    fn query(&self) -> PyResult<Option<String>> {
        let Some(params) = &self.params else { return Ok(None) };
        if let Ok(text) = params.cast::<PyString>() {
            return Ok(Some(text.to_str()?.trim_start_matches('?').to_owned()));
        }
        let mut query = String::new();
        encode::form(params, &mut query)?;
        Ok((!query.is_empty()).then_some(query))
    }

    fn timeout(&self) -> PyResult<Option<Duration>> {
        self.timeout.as_ref().map(|timeout| seconds_of(timeout.extract()?)).transpose()
    }

    /// What `auth=` and `cookies=` become.
    fn extra_headers(&self) -> PyResult<Vec<(&'static str, String)>> {
        let mut extra = Vec::new();
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

/// `(user, password)`, or a bearer token as a string.
fn authorization_of(auth: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(token) = auth.cast::<PyString>() {
        return Ok(format!("Bearer {}", token.to_str()?));
    }
    let pair = auth.cast::<PyTuple>().ok().and_then(|pair| pair.extract::<(String, String)>().ok());
    let (user, password) =
        pair.ok_or_else(|| PyTypeError::new_err("auth= takes (user, password) or a bearer token"))?;
    Ok(authorization(&user, &password))
}

type HeaderPairs<'py> = Vec<(Bound<'py, PyString>, Bound<'py, PyString>)>;

fn header_pairs<'py>(headers: &Bound<'py, PyAny>, out: &mut HeaderPairs<'py>) -> PyResult<()> {
    let mut push = |name: Bound<'py, PyAny>, value: Bound<'py, PyAny>| -> PyResult<()> {
        let name = name.cast_into::<PyString>()?;
        let value = match value.cast_into::<PyString>() {
            Ok(text) => text,
            Err(other) => other.into_inner().str()?,
        };
        out.push((name, value));
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
