//! Rendered requests by route: a thread renders a method and URL once, and patches the bytes for
//! calls with their own headers, query or body. It sends nothing. The client asks it for prepared
//! calls; the driver sends them and recycles their buffers.

use http::Method;
use squall_http::{Connector, HttpRequest, PreparedRequest, RequestError, basic_auth};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use url::Url;

/// How many rendered requests a route keeps for further calls.
const IDLE_PER_ROUTE: usize = 1024;
/// How many routes a thread keeps. Every URL with an id in it makes a route; beyond this number,
/// requests are rendered for one call and dropped.
const MAX_ROUTES: usize = 4096;

/// The routes of one engine thread, shared by the clients of its users.
#[derive(Clone)]
pub(crate) struct Routes {
    inner: Arc<RoutesInner>,
}

struct RoutesInner {
    connector: Connector,
    base: BaseUrl,
    /// Sent with every request.
    headers: Vec<(String, String)>,
    table: Mutex<ClientRouteTable>,
}

/// The base of relative URLs.
#[derive(Debug, Clone)]
pub(crate) struct BaseUrl {
    /// `None` if there is no target; then only absolute URLs are valid.
    url: Option<Url>,
    /// The path of the base URL without its last slash.
    prefix: String,
}

/// The target of the run cannot be the base of URLs.
#[derive(Debug, thiserror::Error)]
#[error("`{target}` is not a URL: {error}")]
pub(crate) struct InvalidTargetError {
    target: String,
    error: url::ParseError,
}

#[derive(Default)]
struct ClientRouteTable {
    /// Routes of calls without a name. The routes of one URL differ in method or timeout.
    by_url: HashMap<String, Vec<usize>>,
    /// Routes of calls with a name. One name may have several origins, and each origin needs its
    /// own request.
    by_name: HashMap<String, Vec<usize>>,
    routes: Vec<Route>,
}

struct Route {
    method: Method,
    timeout: Option<Duration>,
    /// The origin of an absolute URL; `None` for the target.
    origin: Option<String>,
    name: Arc<str>,
    /// The request for calls without their own headers, query or body.
    plain: Arc<PreparedRequest>,
    /// Copies that are not in flight. They are boxed, because a request moves several times.
    #[allow(clippy::vec_box)]
    idle: Vec<Box<PreparedRequest>>,
}

/// A request that is ready to be sent.
pub(crate) struct RoutedRequest {
    /// The index of its route in the table; `None` if the table does not keep the route.
    pub(crate) route: Option<usize>,
    /// The name that the request is recorded under.
    pub(crate) name: Arc<str>,
    pub(crate) request: CallRequest,
}

/// A rendered request: shared by all calls of the route, or owned by this call.
pub(crate) enum CallRequest {
    Shared(Arc<PreparedRequest>),
    Own(Box<PreparedRequest>),
}

/// The parts of a call.
pub(crate) struct RouteRequestSpec<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) query: Option<String>,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: &'a [u8],
    pub(crate) timeout: Option<Duration>,
    /// The route, if the caller already knows it.
    pub(crate) known_route: Option<usize>,
}

impl RoutedRequest {
    pub(crate) fn request(&self) -> &PreparedRequest {
        match &self.request {
            CallRequest::Shared(shared) => shared,
            CallRequest::Own(own) => own,
        }
    }
}

impl BaseUrl {
    /// The base of URLs as text; empty if there is no target.
    #[cfg(feature = "browser")]
    pub(crate) fn as_str(&self) -> &str {
        self.url.as_ref().map_or("", Url::as_str)
    }

    /// Paths are relative to `target`. With `absolute_only`, relative URLs are errors.
    pub(crate) fn new(target: &str, absolute_only: bool) -> Result<BaseUrl, InvalidTargetError> {
        if absolute_only {
            // The target may be a database.
            return Ok(BaseUrl { url: None, prefix: String::new() });
        }
        let url = Url::parse(target).map_err(|error| InvalidTargetError { target: target.to_owned(), error })?;
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(BaseUrl { url: Some(url), prefix })
    }
}

impl Routes {
    pub(crate) fn new(connector: Connector, base: BaseUrl, headers: Vec<(String, String)>) -> Routes {
        Routes { inner: Arc::new(RoutesInner { connector, base, headers, table: Mutex::default() }) }
    }

    pub(crate) fn connector(&self) -> Connector {
        self.inner.connector.clone()
    }

    /// Renders the request of a call.
    pub(crate) fn call(&self, spec: &RouteRequestSpec<'_>) -> Result<RoutedRequest, RequestError> {
        let plain = spec.headers.is_empty() && spec.query.is_none() && spec.body.is_empty() && spec.name.is_none();
        let mut table = self.table();
        let found = spec.known_route.or_else(|| table.find(spec));
        let Some(index) = found else { return self.first_call(spec, plain, table) };
        let route = &mut table.routes[index];
        let (route_index, name) = (Some(index), route.name.clone());
        if plain {
            return Ok(RoutedRequest { route: route_index, name, request: CallRequest::Shared(route.plain.clone()) });
        }
        let mut own = route.idle.pop().unwrap_or_else(|| Box::new((*route.plain).clone()));
        let same_path = spec.query.is_none() && spec.name.is_none();
        if same_path && own.path_and_query() == route.plain.path_and_query() {
            drop(table);
            own.update_keeping_path(&spec.headers, spec.body)?;
        } else {
            drop(table);
            own.update(&self.path(spec.url, spec.query.as_deref()), &spec.headers, spec.body)?;
        }
        Ok(RoutedRequest { route: route_index, name, request: CallRequest::Own(own) })
    }

    /// Renders the first call of a route and adds the route to the table.
    #[cold]
    fn first_call(
        &self,
        spec: &RouteRequestSpec<'_>,
        plain: bool,
        mut table: MutexGuard<'_, ClientRouteTable>,
    ) -> Result<RoutedRequest, RequestError> {
        let mut own = self.prepare(spec)?;
        let name: Arc<str> = spec.name.map_or_else(|| route_name(&spec.method, &own), Arc::from);
        let route = table.add(spec, &name, &own);
        drop(table);
        if !plain {
            own.update(&self.path(spec.url, spec.query.as_deref()), &spec.headers, spec.body)?;
        }
        Ok(RoutedRequest { route, name, request: CallRequest::Own(Box::new(own)) })
    }

    /// Keeps the buffer of a finished call for the next call of its route.
    pub(crate) fn recycle(&self, call: RoutedRequest) {
        if let (Some(index), CallRequest::Own(own)) = (call.route, call.request) {
            let mut table = self.table();
            let idle = &mut table.routes[index].idle;
            if idle.len() < IDLE_PER_ROUTE {
                idle.push(own);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, ClientRouteTable> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the request of a route, without the parts that differ from call to call.
    fn prepare(&self, spec: &RouteRequestSpec<'_>) -> Result<PreparedRequest, RequestError> {
        let mut request = match is_absolute(spec.url) {
            true => HttpRequest::new(spec.method.clone(), spec.url)?,
            false if has_scheme(spec.url) => {
                let reason = "the client supports only http:// and https://".to_owned();
                return Err(RequestError::BadUrl { url: spec.url.to_owned(), reason });
            }
            false => HttpRequest {
                method: spec.method.clone(),
                url: self.inner.base.url.clone().ok_or_else(|| no_target(spec.url))?,
                headers: Vec::new(),
                body: bytes::Bytes::new(),
                timeout: None,
            },
        };
        request.headers.clone_from(&self.inner.headers);
        request.timeout = spec.timeout;
        let mut prepared = PreparedRequest::new(&request, &self.inner.connector)?;
        // Drops the query of the first call, which is not part of the route.
        prepared.update(&self.path(spec.url, None), &[], &[])?;
        Ok(prepared)
    }

    /// The path and query of a call.
    fn path(&self, url: &str, query: Option<&str>) -> String {
        let mut path = String::with_capacity(url.len() + 16);
        if is_absolute(url) {
            let host = url.find("://").map_or(0, |at| at + 3);
            let rest = &url[host..];
            let rest = rest.find(['/', '?']).map_or("", |at| &rest[at..]);
            path.push_str(if rest.starts_with('/') { "" } else { "/" });
            path.push_str(rest);
        } else {
            path.push_str(&self.inner.base.prefix);
            path.push_str(if url.starts_with('/') { "" } else { "/" });
            path.push_str(url);
        }
        path.truncate(path.find('#').unwrap_or(path.len()));
        if let Some(query) = query {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(query);
        }
        path
    }
}

impl ClientRouteTable {
    fn find(&self, spec: &RouteRequestSpec<'_>) -> Option<usize> {
        let known = match spec.name {
            Some(name) => self.by_name.get(name),
            None => self.by_url.get(spec.url),
        };
        known?.iter().copied().find(|&index| {
            let route = &self.routes[index];
            let same_origin = spec.name.is_none() || route.origin.as_deref() == origin(spec.url);
            same_origin && route.method == spec.method && route.timeout == spec.timeout
        })
    }

    fn add(&mut self, spec: &RouteRequestSpec<'_>, name: &Arc<str>, prepared: &PreparedRequest) -> Option<usize> {
        if self.routes.len() >= MAX_ROUTES {
            return None;
        }
        let index = self.routes.len();
        self.routes.push(Route {
            method: spec.method.clone(),
            timeout: spec.timeout,
            origin: origin(spec.url).map(str::to_owned),
            name: name.clone(),
            plain: Arc::new(prepared.clone()),
            idle: Vec::new(),
        });
        let indexes = match spec.name {
            Some(name) => self.by_name.entry(name.to_owned()),
            None => self.by_url.entry(spec.url.to_owned()),
        };
        indexes.or_default().push(index);
        Some(index)
    }
}

#[cold]
fn no_target(path: &str) -> RequestError {
    let reason = "has no target to start from: give --target, or @scenario(target=\"http://…\")";
    RequestError::InvalidPath { path: path.to_owned(), reason }
}

/// Scheme, host and port of an absolute URL.
fn origin(url: &str) -> Option<&str> {
    if !is_absolute(url) {
        return None;
    }
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    Some(&url[..end])
}

/// Whether a URL starts with a scheme, such as `ftp://`.
fn has_scheme(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_absolute(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// The name of a route: method and path, without the query.
fn route_name(method: &Method, prepared: &PreparedRequest) -> Arc<str> {
    let path = prepared.path_and_query();
    Arc::from(format!("{method} {}", &path[..path.find('?').unwrap_or(path.len())]))
}

/// The Authorization header of a user and password.
pub(crate) fn authorization(user: &str, password: &str) -> String {
    basic_auth(user, password)
}
