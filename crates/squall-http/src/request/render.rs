//! Renders request heads: the constant part once, the whole head at every change. It validates names and values first.

use std::io::Write as _;
use std::ops::Range;

use http::Method;

use super::{HttpRequest, PreparedRequest, basic_auth};
use crate::connector::Connector;
use crate::error::RequestError;
use crate::origin::Origin;

/// The parts that are the same in every rendering of one request.
#[derive(Debug)]
pub(super) struct FixedHead {
    /// Method, space, and with a forward proxy the origin.
    request_line_start: Vec<u8>,
    /// Header lines.
    header_lines: Vec<u8>,
    /// Positions of the header names.
    name_ranges: Vec<Range<usize>>,
    /// The request's own cookies, joined.
    cookie: String,
    /// Whether it contains `Connection: close`.
    pub(super) closes_connection: bool,
}

impl FixedHead {
    /// Writes the lines that none of `headers` replaces.
    fn write_lines(&self, headers: &[(&str, &str)], wire: &mut Vec<u8>) {
        let given = |name: &[u8]| headers.iter().any(|(other, _)| other.as_bytes().eq_ignore_ascii_case(name));
        let names = || self.name_ranges.iter().map(|range| &self.header_lines[range.clone()]);
        if !names().any(given) {
            wire.extend_from_slice(&self.header_lines);
            return;
        }
        let ends = self.name_ranges.iter().skip(1).map(|range| range.start).chain([self.header_lines.len()]);
        for (name, end) in self.name_ranges.iter().zip(ends) {
            if !given(&self.header_lines[name.clone()]) {
                wire.extend_from_slice(&self.header_lines[name.start..end]);
            }
        }
    }

    pub(super) fn new(
        request: &HttpRequest,
        origin: &Origin,
        connector: &Connector,
        forward: bool,
    ) -> Result<FixedHead, RequestError> {
        let mut start = format!("{} ", request.method).into_bytes();
        if forward {
            start.extend_from_slice(origin.to_string().as_bytes());
        }
        let mut constant = FixedHead {
            request_line_start: start,
            header_lines: Vec::new(),
            name_ranges: Vec::new(),
            cookie: String::new(),
            closes_connection: !connector.config().keep_alive,
        };
        let has = |name: &str| request.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut default = |name: &str, value: &str| {
            if !has(name) {
                write_header_line(&mut constant.header_lines, name, value);
            }
        };
        default("Host", &origin.host_header());
        default("User-Agent", concat!("squall/", env!("CARGO_PKG_VERSION")));
        default("Accept", "*/*");
        if connector.config().decompress {
            default("Accept-Encoding", crate::decode::ACCEPT_ENCODING);
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
            check_header(name, value)?;
            constant.closes_connection |= announces_close(name, value);
            write_header(&mut constant.header_lines, &mut constant.cookie, name, value);
        }
        let mut at = 0;
        for line in constant.header_lines.split_inclusive(|&byte| byte == b'\n') {
            let name = line.iter().position(|&byte| byte == b':').unwrap_or(0);
            constant.name_ranges.push(at..at + name);
            at += line.len();
        }
        Ok(constant)
    }
}

impl PreparedRequest {
    /// Writes head and body again; the headers are already validated.
    pub(super) fn render(&mut self, headers: &[(&str, &str)], body: &[u8]) {
        let constant = self.fixed_head.clone();
        let wire = &mut self.rendered;
        wire.clear();
        wire.extend_from_slice(&constant.request_line_start);
        wire.extend_from_slice(self.path_and_query.as_bytes());
        wire.extend_from_slice(b" HTTP/1.1\r\n");
        constant.write_lines(headers, wire);
        let mut cookie = String::new();
        self.closes_connection = constant.closes_connection;
        for (name, value) in headers.iter().filter(|(_, value)| !is_omitted(value)) {
            self.closes_connection |= announces_close(name, value);
            write_header(wire, &mut cookie, name, value);
        }
        let sends_body = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        if sends_body || !body.is_empty() {
            write!(wire, "Content-Length: {}\r\n", body.len()).expect("writing to a Vec cannot fail");
        }
        self.own_cookies_offset = None;
        if !(cookie.is_empty() && constant.cookie.is_empty()) {
            wire.extend_from_slice(b"Cookie: ");
            self.own_cookies_offset = Some(wire.len());
            wire.extend_from_slice(constant.cookie.as_bytes());
            if !cookie.is_empty() && !constant.cookie.is_empty() {
                wire.extend_from_slice(b"; ");
            }
            wire.extend_from_slice(cookie.as_bytes());
            self.cookie_insert_offset = wire.len();
            wire.extend_from_slice(b"\r\n");
        } else {
            self.cookie_insert_offset = wire.len();
        }
        wire.extend_from_slice(b"\r\n");
        self.body_offset = wire.len();
        wire.extend_from_slice(body);
    }

    /// Renders once more into `out`, with these cookies too.
    pub(crate) fn render_with_cookies(&self, cookies: &str, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.rendered[..self.cookie_insert_offset]);
        out.extend_from_slice(if self.own_cookies_offset.is_some() { b"; " } else { b"Cookie: " });
        out.extend_from_slice(cookies.as_bytes());
        if self.own_cookies_offset.is_none() {
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(&self.rendered[self.cookie_insert_offset..]);
    }

    /// Whether the request sets this cookie itself.
    pub(crate) fn has_cookie(&self, name: &str) -> bool {
        let own = self.own_cookies_offset.map_or(&[][..], |from| &self.rendered[from..self.cookie_insert_offset]);
        own.split(|&byte| byte == b';').any(|pair| {
            let pair = pair.trim_ascii_start();
            pair.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
        })
    }

    /// The header lines as rendered.
    pub(crate) fn header_lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let head = std::str::from_utf8(&self.rendered[..self.body_offset]).expect("a head is rendered from strings");
        head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "))
    }
}

/// Rejects an invalid header, one that could end its line, and one that would contradict the client's framing.
pub(super) fn check_header(name: &str, value: &str) -> Result<(), RequestError> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(RequestError::InvalidHeaderName { name: name.into() });
    }
    if !is_omitted(value) && value.bytes().any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) {
        return Err(RequestError::InvalidHeaderValue { name: name.into() });
    }
    if name.eq_ignore_ascii_case("transfer-encoding") {
        return Err(RequestError::ReservedHeader { name: name.into() });
    }
    Ok(())
}

/// Marks a header that one request leaves out, even if the client would send its own. Compared by
/// address, not by content.
pub static OMIT_HEADER: &str = "\0 left out";

fn is_omitted(value: &str) -> bool {
    std::ptr::eq(value, OMIT_HEADER)
}

/// Writes a header line. Cookies are collected, because a request may have only one Cookie line.
fn write_header(lines: &mut Vec<u8>, cookie: &mut String, name: &str, value: &str) {
    if name.eq_ignore_ascii_case("cookie") {
        if !cookie.is_empty() {
            cookie.push_str("; ");
        }
        cookie.push_str(value.trim());
    } else if !name.eq_ignore_ascii_case("content-length") {
        // Recorded requests carry a Content-Length. The client computes its own from the body.
        write_header_line(lines, name, value.trim());
    }
}

fn write_header_line(lines: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        lines.extend_from_slice(part.as_bytes());
    }
}

/// Whether a header is `Connection: close`.
fn announces_close(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case("connection") && value.to_ascii_lowercase().contains("close")
}

fn is_token(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}

/// Called for every byte of every header name of a call.
static TOKEN_BYTES: [bool; 256] = {
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

/// Decodes the URL's percent-encoded user and password.
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
