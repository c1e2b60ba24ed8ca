//! Requests rendered once and resent: one entry for each method and route of a thread, patched where a call brings headers, a query
//! or a body of its own. Sends nothing.

use http::Method;
use squall_http::{Connector, HttpRequest, PreparedRequest, RequestError, basic_auth};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use url::Url;

/// Rendered requests that are kept for further calls of the same route.
const IDLE_PER_ROUTE: usize = 1024;
/// URLs that carry an id make a route each; past this many they are rendered for one call and forgotten.
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

/// Where relative URLs lead.
#[derive(Debug, Clone)]
pub(crate) struct BaseUrl {
    /// None if there is no target, and only absolute URLs lead somewhere.
    url: Option<Url>,
    /// The base URL's own path without its last slash.
    prefix: String,
}

#[derive(Default)]
struct ClientRouteTable {
    /// Of calls without a name; few methods and timeouts share one.
    by_url: HashMap<String, Vec<usize>>,
    /// Of calls that bring a name; it may serve several origins, and each needs a request of its own.
    by_name: HashMap<String, Vec<usize>>,
    routes: Vec<Route>,
}

struct Route {
    method: Method,
    timeout: Option<Duration>,
    /// Where it leads, unless that is the target.
    origin: Option<String>,
    name: Arc<str>,
    /// As it is sent when a call brings nothing of its own.
    plain: Arc<PreparedRequest>,
    /// Copies that are not in flight. In boxes, because they change hands several times per request.
    #[allow(clippy::vec_box)]
    idle: Vec<Box<PreparedRequest>>,
}

/// A request that is ready to be sent.
pub(crate) struct PreparedCall {
    /// Its place in the table; `None` if it is not kept.
    pub(crate) route: Option<usize>,
    /// Under which it is recorded.
    pub(crate) name: Arc<str>,
    pub(crate) request: CallRequest,
}

/// Rendered bytes, of the route or of this call.
pub(crate) enum CallRequest {
    Shared(Arc<PreparedRequest>),
    Own(Box<PreparedRequest>),
}

/// What a call asks for.
pub(crate) struct RouteCallSpec<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) query: Option<String>,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: &'a [u8],
    pub(crate) timeout: Option<Duration>,
    /// The route, where the caller has seen that it is the same.
    pub(crate) known_route: Option<usize>,
}

impl PreparedCall {
    pub(crate) fn request(&self) -> &PreparedRequest {
        match &self.request {
            CallRequest::Shared(shared) => shared,
            CallRequest::Own(own) => own,
        }
    }
}

impl BaseUrl {
    /// Paths start at `target`; if `adrift`, at nothing.
    pub(crate) fn new(target: &str, adrift: bool) -> Result<BaseUrl, String> {
        let url = Url::parse(target).map_err(|error| format!("`{target}` is not a URL: {error}"))?;
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(BaseUrl { url: (!adrift).then_some(url), prefix })
    }
}

impl Routes {
    pub(crate) fn new(connector: Connector, base: BaseUrl, headers: Vec<(String, String)>) -> Routes {
        Routes { inner: Arc::new(RoutesInner { connector, base, headers, table: Mutex::default() }) }
    }

    pub(crate) fn connector(&self) -> Connector {
        self.inner.connector.clone()
    }

    /// Renders what is asked for.
    pub(crate) fn call(&self, ask: &RouteCallSpec<'_>) -> Result<PreparedCall, RequestError> {
        let plain = ask.headers.is_empty() && ask.query.is_none() && ask.body.is_empty() && ask.name.is_none();
        let mut table = self.table();
        let found = ask.known_route.or_else(|| table.find(ask));
        let Some(index) = found else { return self.first_call(ask, plain, table) };
        let route = &mut table.routes[index];
        let (route_index, name) = (Some(index), route.name.clone());
        if plain {
            return Ok(PreparedCall { route: route_index, name, request: CallRequest::Shared(route.plain.clone()) });
        }
        let mut own = route.idle.pop().unwrap_or_else(|| Box::new((*route.plain).clone()));
        let same_path = ask.query.is_none() && ask.name.is_none();
        if same_path && own.path_and_query() == route.plain.path_and_query() {
            drop(table);
            own.update_keeping_path(&ask.headers, ask.body)?;
        } else {
            drop(table);
            own.update(&self.path(ask.url, ask.query.as_deref()), &ask.headers, ask.body)?;
        }
        Ok(PreparedCall { route: route_index, name, request: CallRequest::Own(own) })
    }

    /// The first call of a route.
    #[cold]
    fn first_call(
        &self,
        ask: &RouteCallSpec<'_>,
        plain: bool,
        mut table: MutexGuard<'_, ClientRouteTable>,
    ) -> Result<PreparedCall, RequestError> {
        let mut own = self.prepare(ask)?;
        let name: Arc<str> = ask.name.map_or_else(|| route_name(&ask.method, &own), Arc::from);
        let route = table.add(ask, &name, &own);
        drop(table);
        if !plain {
            own.update(&self.path(ask.url, ask.query.as_deref()), &ask.headers, ask.body)?;
        }
        Ok(PreparedCall { route, name, request: CallRequest::Own(Box::new(own)) })
    }

    /// Takes back what a call has used.
    pub(crate) fn recycle(&self, call: PreparedCall) {
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

    /// The request of a route: without what differs from call to call.
    fn prepare(&self, ask: &RouteCallSpec<'_>) -> Result<PreparedRequest, RequestError> {
        let mut request = match is_absolute(ask.url) {
            true => HttpRequest::new(ask.method.clone(), ask.url)?,
            false if has_scheme(ask.url) => {
                let reason = "only http:// and https:// can be asked".to_owned();
                return Err(RequestError::BadUrl { url: ask.url.to_owned(), reason });
            }
            false => HttpRequest {
                method: ask.method.clone(),
                url: self.inner.base.url.clone().ok_or_else(|| no_target(ask.url))?,
                headers: Vec::new(),
                body: bytes::Bytes::new(),
                timeout: None,
            },
        };
        request.headers.clone_from(&self.inner.headers);
        request.timeout = ask.timeout;
        let mut prepared = PreparedRequest::new(&request, &self.inner.connector)?;
        // Without the query of the call that happens to be the first.
        prepared.update(&self.path(ask.url, None), &[], &[])?;
        Ok(prepared)
    }

    /// Path and query as a call asks for them.
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
    fn find(&self, ask: &RouteCallSpec<'_>) -> Option<usize> {
        let known = match ask.name {
            Some(name) => self.by_name.get(name),
            None => self.by_url.get(ask.url),
        };
        known?.iter().copied().find(|&index| {
            let route = &self.routes[index];
            let here = ask.name.is_none() || route.origin.as_deref() == origin(ask.url);
            here && route.method == ask.method && route.timeout == ask.timeout
        })
    }

    fn add(&mut self, ask: &RouteCallSpec<'_>, name: &Arc<str>, prepared: &PreparedRequest) -> Option<usize> {
        if self.routes.len() >= MAX_ROUTES {
            return None;
        }
        let index = self.routes.len();
        self.routes.push(Route {
            method: ask.method.clone(),
            timeout: ask.timeout,
            origin: origin(ask.url).map(str::to_owned),
            name: name.clone(),
            plain: Arc::new(prepared.clone()),
            idle: Vec::new(),
        });
        let places = match ask.name {
            Some(name) => self.by_name.entry(name.to_owned()),
            None => self.by_url.entry(ask.url.to_owned()),
        };
        places.or_default().push(index);
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

/// Whether it leads somewhere else by other means.
fn has_scheme(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_absolute(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// The method and the path, without the query.
fn route_name(method: &Method, prepared: &PreparedRequest) -> Arc<str> {
    let path = prepared.path_and_query();
    Arc::from(format!("{method} {}", &path[..path.find('?').unwrap_or(path.len())]))
}

/// The value of an Authorization header.
pub(crate) fn authorization(user: &str, password: &str) -> String {
    basic_auth(user, password)
}
