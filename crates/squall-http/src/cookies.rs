//! The cookie jar of one user (RFC 6265). It costs nothing until a server sets the first cookie,
//! and no memory per request afterwards. It has no list of public suffixes: a domain needs a dot,
//! or must be the host itself.

mod cookie_date;
mod set_cookie;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::set_cookie::SetCookie;
use crate::origin::Origin;
use crate::request::PreparedRequest;
use crate::response::HeaderIter;

/// As many as browsers keep for one site. Further cookies are ignored, so a server cannot exhaust memory.
const MAX_COOKIES: usize = 180;
/// Longest name and value together; longer cookies are ignored, as in browsers.
const MAX_COOKIE_BYTES: usize = 4096;
/// Longer than any run, and short enough to be added to any clock.
const MAX_COOKIE_LIFETIME: Duration = Duration::from_secs(400 * 24 * 3600);

/// The cookies of one user, shared by its sessions, streams and WebSockets. They are never borrowed
/// across an `.await`.
#[derive(Debug, Default, Clone)]
pub struct Cookies(Rc<RefCell<CookieJar>>);

impl Cookies {
    /// Stores the cookies that the response to `request` sets.
    pub(crate) fn store_from_response(&self, request: &PreparedRequest, headers: HeaderIter<'_>) {
        self.0.borrow_mut().store_from_response(&request.origin, request.path_and_query(), headers);
    }

    /// The bytes of `request` with its cookies; `out` holds them if there are cookies to add.
    pub(crate) fn render_request<'w>(
        &self,
        request: &'w PreparedRequest,
        now: Instant,
        out: &'w mut Vec<u8>,
    ) -> &'w [u8] {
        let mut jar = self.0.borrow_mut();
        if jar.cookies.is_empty() {
            return request.as_bytes();
        }
        let line = jar.header_for_request(request, now);
        if line.is_empty() {
            return request.as_bytes();
        }
        request.render_with_cookies(line, out);
        out
    }

    /// The cookies for the target of `request`, as a header value.
    pub(crate) fn cookie_header(&self, request: &PreparedRequest, now: Instant) -> String {
        self.0.borrow_mut().header_for_request(request, now).to_owned()
    }
}

#[derive(Debug, Default)]
struct CookieJar {
    /// Longer paths first, then older ones: the order in which they are sent.
    cookies: Vec<StoredCookie>,
    header_buffer: String,
}

#[derive(Debug)]
struct StoredCookie {
    name: Box<str>,
    value: Box<str>,
    domain: Box<str>,
    /// Sent only to the host that set it, not to its subdomains.
    host_only: bool,
    path: Box<str>,
    secure: bool,
    expires_at: Option<Instant>,
}

impl CookieJar {
    /// Reads the Set-Cookie headers of a response. Like a browser, it ignores malformed cookies and
    /// those of another domain.
    fn store_from_response(&mut self, origin: &Origin, target: &str, headers: HeaderIter<'_>) {
        let now = Instant::now();
        for (_, value) in headers.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            if let Some(cookie) = SetCookie::parse(value) {
                self.store(origin, path_of_target(target), &cookie, now);
            }
        }
    }

    /// The cookies to add to this request: those for its target that the request does not set itself.
    fn header_for_request(&mut self, request: &PreparedRequest, now: Instant) -> &str {
        self.render_header(&request.origin, request.path_and_query(), now, |name| !request.has_cookie(name))
    }

    /// The cookies for this target, as `a=1; b=2`, or nothing.
    fn render_header(&mut self, origin: &Origin, target: &str, now: Instant, wanted: impl Fn(&str) -> bool) -> &str {
        self.header_buffer.clear();
        let path = path_of_target(target);
        for cookie in self.cookies.iter().filter(|cookie| cookie.is_sent_to(origin, path, now) && wanted(&cookie.name))
        {
            if !self.header_buffer.is_empty() {
                self.header_buffer.push_str("; ");
            }
            self.header_buffer.push_str(&cookie.name);
            self.header_buffer.push('=');
            self.header_buffer.push_str(&cookie.value);
        }
        &self.header_buffer
    }

    fn store(&mut self, origin: &Origin, path: &str, cookie: &SetCookie<'_>, now: Instant) {
        if cookie.name.len() + cookie.value.len() > MAX_COOKIE_BYTES {
            return;
        }
        if !may_be_set(origin, cookie) {
            return;
        }
        let Some((domain, host_only)) = cookie_domain(origin, cookie.domain) else { return };
        let path = match cookie.path {
            Some(path) if path.starts_with('/') => path,
            _ => default_path(path),
        };
        let lasting = lifetime(cookie);
        let same =
            |other: &StoredCookie| *other.name == *cookie.name && *other.domain == *domain && *other.path == *path;
        let old = self.cookies.iter().position(same);
        if lasting == Some(Duration::ZERO) {
            old.map(|index| self.cookies.remove(index));
            return;
        }
        let stored = StoredCookie {
            name: cookie.name.into(),
            value: cookie.value.into(),
            path: path.into(),
            secure: cookie.secure,
            expires_at: lasting.map(|lasting| now + lasting.min(MAX_COOKIE_LIFETIME)),
            domain: domain.into(),
            host_only,
        };
        if let Some(index) = old {
            self.cookies[index] = stored;
            return;
        }
        self.cookies.retain(|other| other.expires_at.is_none_or(|until| until > now));
        if self.cookies.len() < MAX_COOKIES {
            let at = self.cookies.partition_point(|other| other.path.len() >= stored.path.len());
            self.cookies.insert(at, stored);
        }
    }
}

impl StoredCookie {
    fn is_sent_to(&self, origin: &Origin, path: &str, now: Instant) -> bool {
        let host = origin.host_text();
        let domain = if self.host_only { *host == *self.domain } else { domain_matches(host, &self.domain) };
        domain
            && path_matches(path, &self.path)
            && (!self.secure || origin.is_trustworthy())
            && self.expires_at.is_none_or(|until| until > now)
    }
}

/// Whether a cookie satisfies its name prefix (`__Secure-`, `__Host-`, RFC 6265bis), and a Secure one came over TLS.
fn may_be_set(origin: &Origin, cookie: &SetCookie<'_>) -> bool {
    let secure = cookie.secure;
    let has_prefix =
        |prefix: &str| cookie.name.get(..prefix.len()).is_some_and(|name| name.eq_ignore_ascii_case(prefix));
    let of_one_host = secure && cookie.domain.is_none() && cookie.path == Some("/");
    (!secure || origin.is_trustworthy())
        && (!has_prefix("__Secure-") || secure)
        && (!has_prefix("__Host-") || of_one_host)
}

/// Which hosts receive a cookie; `None` if the server may not set it.
fn cookie_domain(origin: &Origin, asked: Option<&str>) -> Option<(String, bool)> {
    let host = origin.host_text();
    let asked = asked.map(|asked| asked.trim_start_matches('.').to_ascii_lowercase()).filter(|asked| !asked.is_empty());
    match asked {
        None => Some((host.to_owned(), true)),
        Some(asked) if asked == host => Some((asked, origin.is_ip_address())),
        Some(asked) if asked.contains('.') && domain_matches(host, &asked) && !origin.is_ip_address() => {
            Some((asked, false))
        }
        Some(_) => None,
    }
}

/// Time to live: `None` means as long as the user, zero means expired.
fn lifetime(cookie: &SetCookie<'_>) -> Option<Duration> {
    if let Some(age) = cookie.max_age {
        return Some(age);
    }
    let end = u64::try_from(cookie.expires?).unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Duration::from_secs(end).saturating_sub(now))
}

/// `host` is `domain` or ends in a dot and `domain`.
fn domain_matches(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// `path` is `prefix` or lies under it.
fn path_matches(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

fn path_of_target(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

/// The directory of a path: the default `Path` of a cookie.
fn default_path(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(end) => &path[..end],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cookies sent to `url` after `setter` has set `cookies`.
    #[track_caller]
    fn check(setter: &str, cookies: &[&str], url: &str, expected: &str) {
        let (mut jar, now) = (CookieJar::default(), Instant::now());
        let parts = |url: &str| {
            let url = url::Url::parse(url).expect("a URL");
            (Origin::from_url(&url).expect("an origin"), url.path().to_owned())
        };
        let (origin, path) = parts(setter);
        for cookie in cookies {
            jar.store(&origin, &path, &SetCookie::parse(cookie).expect("a cookie"), now);
        }
        let (origin, path) = parts(url);
        assert_eq!(jar.render_header(&origin, &path, now, |_| true), expected, "{cookies:?} from {setter} to {url}");
    }

    #[test]
    fn a_cookie_with_a_domain_goes_to_subdomains_too() {
        check("http://a.test/", &["k=v"], "http://a.test/x/y?z", "k=v");
        check("http://a.test/", &["k=v"], "http://b.a.test/", "");
        check("http://b.a.test/", &["k=v; Domain=.A.test"], "http://c.a.test/", "k=v");
        check("http://b.a.test/", &["k=v; Domain=a.test"], "http://xa.test/", "");
        check("http://a.test/", &["k=v; Domain=other.test"], "http://other.test/", "");
        check("http://a.test/", &["k=v; Domain=test"], "http://b.test/", "");
        check("http://127.0.0.1/", &["k=v; Domain=0.0.1"], "http://127.0.0.1/", "");
        check("http://127.0.0.1:81/", &["k=v; Domain=127.0.0.1"], "http://127.0.0.1:82/", "k=v");
        check("http://localhost/", &["k=v; Domain=localhost"], "http://localhost/", "k=v");
    }

    #[test]
    fn a_cookie_goes_to_its_path_and_paths_below() {
        check("http://a.test/shop/cart", &["k=v"], "http://a.test/shop/list", "k=v");
        check("http://a.test/shop/cart", &["k=v"], "http://a.test/shopping", "");
        check("http://a.test/", &["k=v; Path=/api"], "http://a.test/api", "k=v");
        check("http://a.test/", &["k=v; Path=/api"], "http://a.test/apis", "");
        check("http://a.test/x/", &["k=v; Path=relative"], "http://a.test/x/y", "k=v");
    }

    #[test]
    fn longer_paths_come_first_and_equal_ones_in_order() {
        let cookies = ["a=1; Path=/", "b=2; Path=/x/y", "c=3; Path=/x", "d=4; Path=/", "a=5; Path=/"];
        check("http://a.test/", &cookies, "http://a.test/x/y", "b=2; c=3; a=5; d=4");
    }

    #[test]
    fn expired_cookies_are_not_sent() {
        check("http://a.test/", &["k=v; Max-Age=0"], "http://a.test/", "");
        check("http://a.test/", &["k=v; Max-Age=-9"], "http://a.test/", "");
        check("http://a.test/", &["k=v; Max-Age=99999999999999"], "http://a.test/", "k=v");
        check("http://a.test/", &["k=v; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], "http://a.test/", "");
        check("http://a.test/", &["k=v; Expires=Fri, 01 Jan 2100 00:00:00 GMT"], "http://a.test/", "k=v");
        check("http://a.test/", &["k=v", "k=; Max-Age=0"], "http://a.test/", "");
    }

    #[test]
    fn secure_cookies_need_https_or_loopback() {
        check("https://a.test/", &["k=v; Secure"], "http://a.test/", "");
        check("https://a.test/", &["k=v; Secure"], "https://a.test/", "k=v");
        check("http://127.0.0.1/", &["k=v; Secure"], "http://127.0.0.1/", "k=v");
    }

    #[test]
    fn cookies_that_violate_their_name_prefix_are_ignored() {
        let named =
            ["__Secure-a=1", "__Host-b=2; Path=/", "__Host-c=3; Secure", "__host-d=4; Secure; Path=/; Domain=h.test"];
        check("https://h.test/", &named, "https://h.test/", "");
        let kept = ["__Secure-a=1; Secure", "__Host-b=2; Secure; Path=/"];
        check("https://h.test/", &kept, "https://h.test/", "__Secure-a=1; __Host-b=2");
        check("http://h.test/", &["a=1; Secure"], "https://h.test/", "");
    }

    #[test]
    fn the_jar_stops_at_its_cookie_limit() {
        let origin = Origin::from_url(&url::Url::parse("http://a.test/").expect("a URL")).expect("an origin");
        let mut jar = CookieJar::default();
        for number in 0..1000 {
            let header = format!("k{number}=v");
            jar.store(&origin, "/", &SetCookie::parse(&header).expect("a cookie"), Instant::now());
        }
        let header = format!("k={}", "v".repeat(5000));
        jar.store(&origin, "/", &SetCookie::parse(&header).expect("a cookie"), Instant::now());
        assert_eq!(jar.cookies.len(), MAX_COOKIES);
    }
}
