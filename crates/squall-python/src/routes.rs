//! Requests rendered once and resent: one entry for each method and route of a thread, patched where a call brings headers, a query
//! or a body of its own. Sends nothing.

use http::Method;
use squall_http::{Connector, Prepared, Request, RequestError, basic_auth};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use url::Url;

/// Rendered requests that are kept for further calls of the same route.
const IDLE_PER_ROUTE: usize = 1024;
/// URLs that carry an id make a route each; past this many they are rendered for one call and forgotten.
const MOST_ROUTES: usize = 4096;

/// The routes of one engine thread, shared by the clients of its users.
#[derive(Clone)]
pub(crate) struct Routes {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    base: Base,
    /// Sent with every request.
    headers: Vec<(String, String)>,
    table: Mutex<Table>,
}

/// Where relative URLs lead.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    url: Url,
    /// The base URL's own path without its last slash.
    prefix: String,
}

#[derive(Default)]
struct Table {
    /// By name or URL; few methods and timeouts share one.
    by_key: HashMap<String, Vec<usize>>,
    routes: Vec<Route>,
}

struct Route {
    method: Method,
    timeout: Option<Duration>,
    name: Arc<str>,
    /// As it is sent when a call brings nothing of its own.
    plain: Arc<Prepared>,
    /// Copies that are not in flight.
    idle: Vec<Prepared>,
}

/// A request that is ready to be sent.
pub(crate) struct Call {
    /// Its place in the table; `None` if it is not kept.
    pub(crate) route: Option<usize>,
    /// Under which it is recorded.
    pub(crate) name: Arc<str>,
    pub(crate) request: Ready,
}

/// Rendered bytes, of the route or of this call.
pub(crate) enum Ready {
    Shared(Arc<Prepared>),
    Own(Prepared),
}

/// What a call asks for.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) query: Option<String>,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: &'a [u8],
    pub(crate) timeout: Option<Duration>,
}

impl Call {
    pub(crate) fn request(&self) -> &Prepared {
        match &self.request {
            Ready::Shared(shared) => shared,
            Ready::Own(own) => own,
        }
    }
}

impl Base {
    pub(crate) fn new(target: &str) -> Result<Base, String> {
        let url = Url::parse(target).map_err(|error| format!("`{target}` is not a URL: {error}"))?;
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Base { url, prefix })
    }
}

impl Routes {
    pub(crate) fn new(connector: Connector, base: Base, headers: Vec<(String, String)>) -> Routes {
        Routes { shared: Arc::new(Shared { connector, base, headers, table: Mutex::default() }) }
    }

    /// Renders what is asked for.
    pub(crate) fn call(&self, ask: &Ask<'_>) -> Result<Call, RequestError> {
        let plain = ask.headers.is_empty() && ask.query.is_none() && ask.body.is_empty() && ask.name.is_none();
        let mut table = self.table();
        let found = table.find(ask);
        let (index, name, mut own) = match found {
            Some(index) if plain => {
                let route = &table.routes[index];
                return Ok(Call {
                    route: Some(index),
                    name: route.name.clone(),
                    request: Ready::Shared(route.plain.clone()),
                });
            }
            Some(index) => {
                let route = &mut table.routes[index];
                let own = route.idle.pop().unwrap_or_else(|| (*route.plain).clone());
                (Some(index), route.name.clone(), own)
            }
            None => {
                let prepared = self.prepare(ask)?;
                let name: Arc<str> = ask.name.map_or_else(|| route_name(&ask.method, &prepared), Arc::from);
                let index = table.add(ask, &name, &prepared);
                (index, name, prepared)
            }
        };
        drop(table);
        if !plain {
            let path = self.path(ask);
            own.patch(&path, &ask.headers, ask.body)?;
        }
        Ok(Call { route: index, name, request: Ready::Own(own) })
    }

    /// Takes back what a call has used.
    pub(crate) fn give_back(&self, call: Call) {
        if let (Some(index), Ready::Own(own)) = (call.route, call.request) {
            let mut table = self.table();
            let idle = &mut table.routes[index].idle;
            if idle.len() < IDLE_PER_ROUTE {
                idle.push(own);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request of a route: without what differs from call to call.
    fn prepare(&self, ask: &Ask<'_>) -> Result<Prepared, RequestError> {
        let mut request = match is_absolute(ask.url) {
            true => Request::new(ask.method.clone(), ask.url)?,
            false => Request {
                method: ask.method.clone(),
                url: self.shared.base.url.clone(),
                headers: Vec::new(),
                body: bytes::Bytes::new(),
                timeout: None,
            },
        };
        request.headers.clone_from(&self.shared.headers);
        request.timeout = ask.timeout;
        let mut prepared = Prepared::new(&request, &self.shared.connector)?;
        prepared.patch(&self.path(ask), &[], &[])?;
        Ok(prepared)
    }

    /// Path and query as the call asks for them.
    fn path(&self, ask: &Ask<'_>) -> String {
        let mut path = String::with_capacity(ask.url.len() + 16);
        if is_absolute(ask.url) {
            let host = ask.url.find("://").map_or(0, |at| at + 3);
            let rest = &ask.url[host..];
            let rest = rest.find(['/', '?']).map_or("", |at| &rest[at..]);
            path.push_str(if rest.starts_with('/') { "" } else { "/" });
            path.push_str(rest);
        } else {
            path.push_str(&self.shared.base.prefix);
            path.push_str(if ask.url.starts_with('/') { "" } else { "/" });
            path.push_str(ask.url);
        }
        path.truncate(path.find('#').unwrap_or(path.len()));
        if let Some(query) = &ask.query {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(query);
        }
        path
    }
}

impl Table {
    fn find(&self, ask: &Ask<'_>) -> Option<usize> {
        let known = match ask.name {
            Some(name) => self.by_key.get(&named_key(name, ask.url)),
            None => self.by_key.get(ask.url),
        };
        known?.iter().copied().find(|&index| {
            let route = &self.routes[index];
            route.method == ask.method && route.timeout == ask.timeout
        })
    }

    fn add(&mut self, ask: &Ask<'_>, name: &Arc<str>, prepared: &Prepared) -> Option<usize> {
        if self.routes.len() >= MOST_ROUTES {
            return None;
        }
        let key = match ask.name {
            Some(name) => named_key(name, ask.url),
            None => ask.url.to_owned(),
        };
        let index = self.routes.len();
        self.routes.push(Route {
            method: ask.method.clone(),
            timeout: ask.timeout,
            name: name.clone(),
            plain: Arc::new(prepared.clone()),
            idle: Vec::new(),
        });
        self.by_key.entry(key).or_default().push(index);
        Some(index)
    }
}

/// A name may serve several origins; each needs a request of its own. No URL contains the separator.
fn named_key(name: &str, url: &str) -> String {
    if !is_absolute(url) {
        return format!("\0{name}");
    }
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    format!("{}\0{name}", &url[..end])
}

fn is_absolute(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// The method and the path, without the query.
fn route_name(method: &Method, prepared: &Prepared) -> Arc<str> {
    let path = prepared.path_and_query();
    Arc::from(format!("{method} {}", &path[..path.find('?').unwrap_or(path.len())]))
}

/// The value of an Authorization header.
pub(crate) fn authorization(user: &str, password: &str) -> String {
    basic_auth(user, password)
}
