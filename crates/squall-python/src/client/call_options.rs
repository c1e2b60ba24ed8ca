//! The keyword arguments of `client.get(…)` and the other methods: reads them, and turns them into
//! the headers, the query and the body of a request. It renders no request and chooses no route;
//! `Client` does.

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyMapping, PyString},
};
use std::time::Duration;

use super::seconds_of;
use crate::{request_encode, routes::authorization};

/// The keyword arguments of a call.
#[derive(Clone, Default)]
pub(super) struct ClientCallOptions<'py> {
    pub(super) headers: Option<Bound<'py, PyAny>>,
    pub(super) params: Option<Bound<'py, PyAny>>,
    pub(super) json: Option<Bound<'py, PyAny>>,
    pub(super) data: Option<Bound<'py, PyAny>>,
    pub(super) files: Option<Bound<'py, PyAny>>,
    pub(super) cookies: Option<Bound<'py, PyAny>>,
    pub(super) auth: Option<Bound<'py, PyAny>>,
    pub(super) timeout: Option<Bound<'py, PyAny>>,
    pub(super) name: Option<Bound<'py, PyString>>,
    /// Values for the placeholders in a URL like `/users/{id}`. The URL as written is then the
    /// request's name.
    pub(super) path_params: Option<Bound<'py, PyAny>>,
    /// Headers that the protocol adds, such as those of a WebSocket handshake.
    pub(super) protocol_headers: Vec<(&'static str, String)>,
}

impl<'py> ClientCallOptions<'py> {
    pub(super) fn is_empty(&self) -> bool {
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

    pub(super) fn read(options: &Bound<'py, PyDict>) -> PyResult<ClientCallOptions<'py>> {
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
    pub(super) fn body(&self, out: &mut Vec<u8>) -> PyResult<Option<String>> {
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

    pub(super) fn query(&self) -> PyResult<Option<String>> {
        let Some(params) = &self.params else { return Ok(None) };
        if let Ok(text) = params.cast::<PyString>() {
            return Ok(Some(text.to_str()?.trim_start_matches('?').to_owned()));
        }
        let mut query = String::new();
        request_encode::form(params, &mut query)?;
        Ok((!query.is_empty()).then_some(query))
    }

    pub(super) fn timeout(&self) -> PyResult<Option<Duration>> {
        self.timeout.as_ref().map(|timeout| seconds_of(timeout.extract()?)).transpose()
    }

    /// The headers that come from `auth=`, `cookies=` and the protocol.
    pub(super) fn extra_headers(&self) -> PyResult<Vec<(&'static str, String)>> {
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

pub(super) fn header_pairs<'py>(headers: &Bound<'py, PyAny>, out: &mut HeaderPairs<'py>) -> PyResult<()> {
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

/// Refuses `follow_redirects=False`: other HTTP clients decide about redirects call by call, Squall
/// decides for the whole run.
pub(super) fn check_follow_redirects(follow_redirects: Option<bool>) -> PyResult<()> {
    match follow_redirects {
        Some(false) => Err(PyValueError::new_err(
            "follow_redirects=False does not work for one call; use --max-redirects 0 for the run",
        )),
        _ => Ok(()),
    }
}
