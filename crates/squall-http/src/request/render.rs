//! Writes heads: the constant part once, the whole at every change. Validates names and values before they get there.

use std::io::Write as _;
use std::ops::Range;

use http::Method;

use super::{Prepared, Request, basic_auth};
use crate::connector::Connector;
use crate::error::RequestError;
use crate::origin::Origin;

/// What is the same in every rendering of one request.
#[derive(Debug)]
pub(super) struct Constant {
    /// Method, space, and with a forward proxy the origin.
    start: Vec<u8>,
    /// Header lines.
    lines: Vec<u8>,
    /// Where their names are.
    names: Vec<Range<usize>>,
    /// The request's own cookies, joined.
    cookie: String,
    /// It announces the end of its connection.
    pub(super) closes: bool,
}

impl Constant {
    /// Writes the lines, without those that one of `headers` stands in for.
    fn write(&self, headers: &[(&str, &str)], wire: &mut Vec<u8>) {
        let given = |name: &[u8]| headers.iter().any(|(other, _)| other.as_bytes().eq_ignore_ascii_case(name));
        let names = || self.names.iter().map(|range| &self.lines[range.clone()]);
        if !names().any(given) {
            wire.extend_from_slice(&self.lines);
            return;
        }
        let ends = self.names.iter().skip(1).map(|range| range.start).chain([self.lines.len()]);
        for (name, end) in self.names.iter().zip(ends) {
            if !given(&self.lines[name.clone()]) {
                wire.extend_from_slice(&self.lines[name.start..end]);
            }
        }
    }

    pub(super) fn new(
        request: &Request,
        origin: &Origin,
        connector: &Connector,
        forward: bool,
    ) -> Result<Constant, RequestError> {
        let mut start = format!("{} ", request.method).into_bytes();
        if forward {
            start.extend_from_slice(origin.to_string().as_bytes());
        }
        let mut constant = Constant {
            start,
            lines: Vec::new(),
            names: Vec::new(),
            cookie: String::new(),
            closes: !connector.config().keep_alive,
        };
        let has = |name: &str| request.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut default = |name: &str, value: &str| {
            if !has(name) {
                line(&mut constant.lines, name, value);
            }
        };
        default("Host", &origin.host_header());
        default("User-Agent", concat!("squall/", env!("CARGO_PKG_VERSION")));
        default("Accept", "*/*");
        if connector.config().decompress {
            default("Accept-Encoding", crate::decode::ACCEPTED);
        }
        if !connector.config().keep_alive {
            default("Connection", "close");
        }
        let url = &request.url;
        if !url.username().is_empty() || url.password().is_some() {
            let decode = |text: &str| percent_decode(text);
            let password = url.password().map(decode).unwrap_or_default();
            default("Authorization", &basic_auth(&decode(url.username()), &password));
        }
        if forward && let Some(value) = connector.proxy().and_then(|proxy| proxy.authorization.as_deref()) {
            default("Proxy-Authorization", value);
        }
        for (name, value) in &request.headers {
            check(name, value)?;
            constant.closes |= closes(name, value);
            field(&mut constant.lines, &mut constant.cookie, name, value);
        }
        let mut at = 0;
        for line in constant.lines.split_inclusive(|&byte| byte == b'\n') {
            let name = line.iter().position(|&byte| byte == b':').unwrap_or(0);
            constant.names.push(at..at + name);
            at += line.len();
        }
        Ok(constant)
    }
}

impl Prepared {
    /// Writes head and body anew; the headers have been checked.
    pub(super) fn render(&mut self, headers: &[(&str, &str)], body: &[u8]) {
        let constant = self.constant.clone();
        let wire = &mut self.wire;
        wire.clear();
        wire.extend_from_slice(&constant.start);
        wire.extend_from_slice(self.target.as_bytes());
        wire.extend_from_slice(b" HTTP/1.1\r\n");
        constant.write(headers, wire);
        let mut cookie = String::new();
        self.closes = constant.closes;
        for (name, value) in headers.iter().filter(|(_, value)| !is_absent(value)) {
            self.closes |= closes(name, value);
            field(wire, &mut cookie, name, value);
        }
        let sends_body = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        if sends_body || !body.is_empty() {
            write!(wire, "Content-Length: {}\r\n", body.len()).expect("writing to a Vec cannot fail");
        }
        self.cookies_from = None;
        if !(cookie.is_empty() && constant.cookie.is_empty()) {
            wire.extend_from_slice(b"Cookie: ");
            self.cookies_from = Some(wire.len());
            wire.extend_from_slice(constant.cookie.as_bytes());
            if !cookie.is_empty() && !constant.cookie.is_empty() {
                wire.extend_from_slice(b"; ");
            }
            wire.extend_from_slice(cookie.as_bytes());
            self.cookie_at = wire.len();
            wire.extend_from_slice(b"\r\n");
        } else {
            self.cookie_at = wire.len();
        }
        wire.extend_from_slice(b"\r\n");
        self.body_at = wire.len();
        wire.extend_from_slice(body);
    }

    /// Renders once more into `out`, with these cookies too.
    pub(crate) fn render_with_cookies(&self, cookies: &str, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.wire[..self.cookie_at]);
        out.extend_from_slice(if self.cookies_from.is_some() { b"; " } else { b"Cookie: " });
        out.extend_from_slice(cookies.as_bytes());
        if self.cookies_from.is_none() {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(&self.wire[self.cookie_at..]);
    }

    /// Whether the request itself says what this cookie is.
    pub(crate) fn has_cookie(&self, name: &str) -> bool {
        let own = self.cookies_from.map_or(&[][..], |from| &self.wire[from..self.cookie_at]);
        own.split(|&byte| byte == b';').any(|pair| {
            let pair = pair.trim_ascii_start();
            pair.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
        })
    }

    /// The header lines as rendered.
    pub(crate) fn header_lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let head = std::str::from_utf8(&self.wire[..self.body_at]).expect("a head is rendered from strings");
        head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "))
    }
}

/// Refuses what is not a header, could end its line, or would contradict the framing that we set.
pub(super) fn check(name: &str, value: &str) -> Result<(), RequestError> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(RequestError::HeaderName { name: name.into() });
    }
    if !is_absent(value) && value.bytes().any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) {
        return Err(RequestError::HeaderValue { name: name.into() });
    }
    if name.eq_ignore_ascii_case("transfer-encoding") {
        return Err(RequestError::ReservedHeader { name: name.into() });
    }
    Ok(())
}

/// The value of a header that is to be left out of one request, also where the client would send one of its own: this very text.
pub static ABSENT: &str = "\0 left out";

fn is_absent(value: &str) -> bool {
    std::ptr::eq(value, ABSENT)
}

/// Writes a header's line; cookies are gathered, since a request may have only one Cookie line.
fn field(lines: &mut Vec<u8>, cookie: &mut String, name: &str, value: &str) {
    if name.eq_ignore_ascii_case("cookie") {
        if !cookie.is_empty() {
            cookie.push_str("; ");
        }
        cookie.push_str(value.trim());
    } else if !name.eq_ignore_ascii_case("content-length") {
        // Recorded requests carry a length; ours is computed from the body and cannot be wrong.
        line(lines, name, value.trim());
    }
}

fn line(lines: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        lines.extend_from_slice(part.as_bytes());
    }
}

/// Whether a header announces the end of its connection.
fn closes(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case("connection") && value.to_ascii_lowercase().contains("close")
}

fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// Asked for every byte of every name that a call brings along.
static TOKEN: [bool; 256] = {
    let mut token = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        token[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        token[others[at] as usize] = true;
        at += 1;
    }
    token
};

/// Undoes the URL's own encoding of user and password.
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
