//! Builds the settings of the HTTP client and rejects those that conflict.

use squall_http::{HttpConfig, HttpVersion, IpFamily, TlsOptions};
use std::{net::SocketAddr, path::PathBuf};
use url::Url;

use super::{ScenarioBuilder, value::positive_duration};
use crate::{
    RawHttp, Sourced,
    compiled_scenario::CompiledFlow,
    error::{ProblemList, SourceLocation},
    files::check_regular_file,
};

impl ScenarioBuilder<'_, '_> {
    pub(super) fn http(&mut self, raw: &RawHttp) -> HttpConfig {
        let default = HttpConfig::default();
        let on = |given: &Option<Sourced<bool>>, default: bool| given.as_ref().map_or(default, |given| given.value);
        let mut time = |given: &Option<Sourced<String>>, default| {
            given.as_ref().and_then(|given| positive_duration(given, self.problems)).unwrap_or(default)
        };
        let (timeout, connect_timeout) =
            (time(&raw.timeout, default.timeout), time(&raw.connect_timeout, default.connect_timeout));
        self.reject_unused(raw);
        HttpConfig {
            version: version(raw, self.problems),
            keep_alive: on(&raw.keep_alive, default.keep_alive),
            tls: self.tls(raw),
            proxy: self.proxy(raw),
            connect_timeout,
            timeout,
            max_redirects: raw.redirects.as_ref().map_or(default.max_redirects, |given| given.value),
            decompress: on(&raw.compression, default.decompress),
            ip: ip(raw, self.problems),
            unix_socket: raw.unix_socket.as_ref().map(|given| self.locate_file(given)),
            record_phases: on(&raw.phases, default.record_phases),
            resolve: raw.resolve.iter().filter_map(|pair| resolve(pair, self.problems)).collect(),
            cookies: on(&raw.cookies, default.cookies),
            ..default
        }
    }

    /// Reports settings that others make ineffective.
    fn reject_unused(&mut self, raw: &RawHttp) {
        if let (Some(_), Some(ca)) = (raw.insecure.as_ref().filter(|given| given.value), &raw.ca) {
            let hint = "`insecure` accepts any certificate: keep one of them";
            self.problems.add_with_hint(&ca.location, "a CA is not asked where any certificate is accepted", hint);
        }
        let family = raw.ip.iter().map(|given| &given.location);
        let names = raw.resolve.iter().map(|(host, _)| &host.location);
        if raw.unix_socket.is_some() {
            for location in family.chain(names) {
                self.problems.add_with_hint(location, "a Unix socket has no address to choose", "keep one of them");
            }
        } else if let Some(proxy) = raw.proxy.as_ref().and_then(|given| Url::parse(&given.value).ok()) {
            for (host, _) in raw.resolve.iter().filter(|(host, _)| proxy.host_str() != Some(&host.value)) {
                let message = format!("`{}` is looked up by the proxy, not here", host.value);
                self.problems.add_with_hint(
                    &host.location,
                    message,
                    "only the address of the proxy itself can be given",
                );
            }
        }
    }

    fn tls(&mut self, raw: &RawHttp) -> TlsOptions {
        if let (Some(cert), None) = (&raw.cert, &raw.key) {
            self.problems.add_with_hint(&cert.location, "a client certificate needs its key", "add `key`");
        }
        if let (None, Some(key)) = (&raw.cert, &raw.key) {
            self.problems.add_with_hint(&key.location, "a client key needs its certificate", "add `cert`");
        }
        let pair = raw.cert.is_some() && raw.key.is_some();
        TlsOptions {
            insecure: raw.insecure.as_ref().is_some_and(|given| given.value),
            ca: raw.ca.as_ref().and_then(|given| self.require_readable(given)),
            client_cert: raw.cert.as_ref().filter(|_| pair).and_then(|given| self.require_readable(given)),
            client_key: raw.key.as_ref().filter(|_| pair).and_then(|given| self.require_readable(given)),
            server_name: raw.server_name.as_ref().map(|given| given.value.clone()),
        }
    }

    /// The path of a file. Paths in flags are relative to the working directory, paths in the scenario to its
    /// folder.
    fn locate_file(&self, given: &Sourced<String>) -> PathBuf {
        match given.location {
            SourceLocation::File(_) | SourceLocation::Code(_) => self.files.locate(&given.value),
            SourceLocation::Flag(_) | SourceLocation::Unknown => PathBuf::from(&given.value),
        }
    }

    pub(super) fn require_readable(&mut self, given: &Sourced<String>) -> Option<PathBuf> {
        let path = self.locate_file(given);
        match check_regular_file(&path).and_then(|()| std::fs::File::open(&path)) {
            Ok(_) => Some(path),
            Err(error) => {
                self.problems.add_with_hint(
                    &given.location,
                    format!("cannot read {}: {error}", path.display()),
                    path_base_hint(given),
                );
                None
            }
        }
    }

    /// Reports a server name without TLS: it has no effect, so the test is not the intended one.
    pub(super) fn reject_server_name_without_tls<'f>(
        &mut self,
        raw: &RawHttp,
        flows: impl Iterator<Item = &'f CompiledFlow>,
    ) {
        let mut urls = flows.flat_map(|flow| &flow.steps).map(|step| &step.request.constant.url).peekable();
        if let (Some(given), Some(_)) = (&raw.server_name, urls.peek())
            && urls.all(|url| url.scheme() == "http")
        {
            let message = "a server name is used for TLS only, and no request goes to https://";
            self.problems.add_with_hint(&given.location, message, "write https://, or leave it out");
        }
    }

    fn proxy(&mut self, raw: &RawHttp) -> Option<Url> {
        let given = raw.proxy.as_ref()?;
        if raw.unix_socket.is_some() {
            self.problems.add(&given.location, "both a proxy and a Unix socket are given: keep one");
        }
        let text = self.constant_text(given, "the proxy");
        let usable = |url: &Url| matches!(url.scheme(), "http" | "socks5" | "socks5h") && url.has_host();
        match Url::parse(&text) {
            Ok(url) if usable(&url) => Some(url),
            Ok(url) if url.scheme() == "https" => {
                let hint =
                    "use an http:// or socks5:// proxy; what goes to an https:// target stays encrypted through either";
                self.problems.add_with_hint(&given.location, "TLS to the proxy itself is not supported", hint);
                None
            }
            _ => {
                self.problems.add_with_hint(
                    &given.location,
                    "that is not a proxy",
                    "write http://host:port or socks5://host:port",
                );
                None
            }
        }
    }
}

/// A hint that says where relative paths start.
pub(super) fn path_base_hint(given: &Sourced<String>) -> &'static str {
    match given.location {
        SourceLocation::File(_) | SourceLocation::Code(_) => "a path starts at the folder of the scenario file",
        SourceLocation::Flag(_) | SourceLocation::Unknown => "a path starts at the working directory",
    }
}

fn version(raw: &RawHttp, problems: &mut ProblemList<'_>) -> HttpVersion {
    let Some(given) = &raw.version else { return HttpVersion::default() };
    match given.value.as_str() {
        "auto" => HttpVersion::Auto,
        "1" | "1.1" => HttpVersion::Http1,
        "2" | "2.0" => HttpVersion::Http2,
        other => {
            problems.add_with_hint(
                &given.location,
                format!("unknown HTTP version `{other}`"),
                "there are auto, 1.1 and 2",
            );
            HttpVersion::default()
        }
    }
}

fn ip(raw: &RawHttp, problems: &mut ProblemList<'_>) -> IpFamily {
    let Some(given) = &raw.ip else { return IpFamily::default() };
    match given.value.as_str() {
        "any" => IpFamily::Any,
        "4" => IpFamily::V4,
        "6" => IpFamily::V6,
        other => {
            problems.add_with_hint(
                &given.location,
                format!("unknown address family `{other}`"),
                "there are any, 4 and 6",
            );
            IpFamily::default()
        }
    }
}

fn resolve(pair: &(Sourced<String>, Sourced<String>), problems: &mut ProblemList<'_>) -> Option<(String, SocketAddr)> {
    let (host, address) = pair;
    let parsed = address.value.parse().ok();
    let parsed = parsed.or_else(|| Some(SocketAddr::new(address.value.parse().ok()?, 0)));
    if parsed.is_none() {
        problems.add(
            &address.location,
            format!("`{}` is not an address: write 127.0.0.1 or 127.0.0.1:8080", address.value),
        );
    }
    Some((host.value.clone(), parsed?))
}
