//! Builds requests: URL and body, split into constant parts and templates. Headers are built in `headers`.
//! Sends nothing.

use squall_http::{Connector, HttpRequest, IpFamily, PreparedRequest};
use std::cell::Cell;
use url::Url;

use super::{
    ScenarioBuilder,
    headers::{SourcedHeader, encode_constant_header},
    value::positive_duration,
};
use crate::{
    RawHttp, Sourced,
    compiled_scenario::{CompiledRequest, HeaderTemplate, RequestTemplate},
    error::{SourceLocation, did_you_mean},
    read::{NameValuePairs, RawBody, RawJson, RawRequest},
    template::{Escape, Template, TemplatePart, write_json_string},
};

/// The base URL of paths.
#[derive(Debug, Clone)]
pub(super) struct TargetUrl {
    /// As given.
    pub(super) url: String,
}

/// The settings that all requests of a scenario share.
pub(super) struct RequestDefaults {
    target: Option<TargetUrl>,
    connector: Connector,
    pub(super) headers: Vec<SourcedHeader>,
    pub(super) authorization: Option<SourcedHeader>,
    /// A request has a path, and the scenario has no target.
    pub(super) target_missing: Cell<bool>,
}

/// Replaces a missing or wrong URL while building continues. Nothing is sent to it.
const PLACEHOLDER_URL: &str = "http://target.invalid";

impl RequestDefaults {
    pub(super) fn new(
        builder: &mut ScenarioBuilder<'_, '_>,
        http: &RawHttp,
        target: Option<TargetUrl>,
        connector: Connector,
    ) -> RequestDefaults {
        let headers = builder.headers(&http.headers);
        let authorization = builder.authorization(http.basic.as_ref(), http.bearer.as_ref());
        let named = headers.iter().any(|header| header.name.eq_ignore_ascii_case("authorization"));
        if let (Some(login), true) = (&authorization, named) {
            builder.problems.add(&login.location, "there is an Authorization header and a login: keep one");
        }
        RequestDefaults { target, connector, headers, authorization, target_missing: Cell::new(false) }
    }
}

/// A request's body and the content type that it implies.
struct CompiledBody {
    content: BodyContent,
    content_type: Option<&'static str>,
}

enum BodyContent {
    Bytes(Vec<u8>),
    Template(Template),
}

impl ScenarioBuilder<'_, '_> {
    /// Parses the target.
    pub(super) fn target(&mut self, given: &Sourced<String>) -> TargetUrl {
        let before = self.problems.count();
        let text = self.constant_text(given, "the target");
        match Url::parse(&text) {
            _ if self.problems.count() > before => {}
            Ok(url) if !matches!(url.scheme(), "http" | "https") => {
                let message = format!("`{text}` is not a target: it does not begin with http:// or https://");
                self.problems.add_with_hint(&given.location, message, suggest_url(&text));
            }
            Ok(url) if url.query().is_some() || url.fragment().is_some() => {
                self.problems.add(&given.location, "a target has no query: paths are added to its end");
            }
            Ok(_) => return TargetUrl { url: text },
            Err(error) => {
                let hint = if text.contains("://") { "write http://host:port" } else { "begin it with http://" };
                self.problems.add_with_hint(&given.location, format!("`{text}` is not a URL: {error}"), hint);
            }
        }
        TargetUrl { url: PLACEHOLDER_URL.to_owned() }
    }

    pub(super) fn request(
        &mut self,
        raw: &RawRequest,
        location: &SourceLocation,
        defaults: &RequestDefaults,
    ) -> Option<CompiledRequest> {
        let method = self.method(raw);
        let body = raw.body.as_ref().map(|body| self.body(body));
        let headers = self.all_headers(raw, body.as_ref().and_then(|body| body.content_type), defaults);
        let timeout = raw.timeout.as_ref().and_then(|given| positive_duration(given, self.problems));
        let Some(url) = &raw.url else {
            let hint = "add get = \"/path\" (or post, put, patch, delete, head, options)";
            self.problems.add_with_hint(location, "there is no request here", hint);
            return None;
        };
        let shown = format!("{method} {}", without_credentials(&url.value));
        let (origin, mut path) = self.split_url(url, defaults)?;
        self.add_query(&raw.query, &mut path);
        let path = path.fold_constants();
        // Again, because each request has a copy of the target's path and of the scenario's headers.
        let header_bytes = headers.iter().map(|header| header.value.longest_text(&self.scope.variable_lengths));
        let bytes = header_bytes.fold(path.longest_text(&self.scope.variable_lengths), usize::saturating_add);
        if !self.add_template_bytes(bytes, &url.location) {
            return None;
        }
        let (constant, dynamic): (Vec<SourcedHeader>, Vec<SourcedHeader>) =
            headers.into_iter().partition(|header| header.value.constant().is_some());
        let (bytes, template) = match body.map(|body| body.content) {
            None => (Vec::new(), None),
            Some(BodyContent::Bytes(bytes)) => (bytes, None),
            Some(BodyContent::Template(template)) => match template.constant() {
                Some(text) => (text.as_bytes().to_vec(), None),
                None => (Vec::new(), Some(template)),
            },
        };
        let full = format!("{origin}{}", path.constant().unwrap_or("/"));
        let parsed = match Url::parse(&full) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.problems.add(&url.location, format!("`{full}` is not a URL: {error}"));
                return None;
            }
        };
        let request = HttpRequest {
            method: method.parse().unwrap_or_default(),
            url: parsed,
            headers: constant.iter().map(encode_constant_header).collect(),
            body: bytes.into(),
            timeout,
        };
        self.validate_request(&request, defaults, url, &constant);
        let is_dynamic = path.constant().is_none() || !dynamic.is_empty() || template.is_some();
        let dynamic = is_dynamic.then(|| RequestTemplate {
            path,
            origin,
            headers: dynamic
                .into_iter()
                .map(|SourcedHeader { name, value, encoding, .. }| HeaderTemplate { name, value, encoding })
                .collect(),
            body: template,
        });
        Some(CompiledRequest { constant: request, template: dynamic, display_text: shown })
    }

    /// Lets the HTTP client validate the request before the run.
    fn validate_request(
        &mut self,
        request: &HttpRequest,
        defaults: &RequestDefaults,
        url: &Sourced<String>,
        headers: &[SourcedHeader],
    ) {
        let http = defaults.connector.config();
        let direct = http.proxy.is_none() && http.unix_socket.is_none() && http.resolve.is_empty();
        let other_family = match (http.ip, request.url.host()) {
            (IpFamily::V4, Some(url::Host::Ipv6(_))) => Some("an IPv6 address cannot be reached with IPv4 only"),
            (IpFamily::V6, Some(url::Host::Ipv4(_))) => Some("an IPv4 address cannot be reached with IPv6 only"),
            _ => None,
        };
        if let Some(message) = other_family.filter(|_| direct) {
            self.problems.add(&url.location, message);
        }
        let Err(error) = PreparedRequest::new(request, &defaults.connector) else { return };
        let text = error.to_string();
        let guilty = headers.iter().find(|header| text.contains(&header.name) && !header.name.is_empty());
        match guilty {
            Some(header) => {
                let hint = "a header is a name of letters, digits and -, and a value of one line";
                self.problems.add_with_hint(&header.location, text, hint);
            }
            None => self.problems.add(&url.location, text),
        }
    }

    fn method(&mut self, raw: &RawRequest) -> String {
        let Some(given) = &raw.method else { return "GET".to_owned() };
        let method = given.value.to_ascii_uppercase();
        let known = method.parse::<http::Method>().is_ok() && method != "CONNECT";
        if !known {
            self.problems.add_with_hint(
                &given.location,
                format!("`{}` is not a method", given.value),
                "use GET, POST, PUT, …",
            );
        }
        if known { method } else { "GET".to_owned() }
    }

    /// Splits a URL or path into scheme and authority, and the path template.
    pub(super) fn split_url(
        &mut self,
        given: &Sourced<String>,
        defaults: &RequestDefaults,
    ) -> Option<(String, Template)> {
        let template = self.template(given).into_path().fold_constants();
        let starts_with_value = matches!(template.parts.first(), Some(TemplatePart::Value(..)));
        let first = match template.parts.first() {
            Some(TemplatePart::Text(text)) => text.as_str(),
            _ => "",
        };
        if given.value.contains(|c: char| c.is_ascii_control()) {
            let message = format!("{:?} has a line break or another control character in it", given.value);
            self.problems.add_with_hint(&given.location, message, "write it as %0A, or leave it out");
            return None;
        }
        let scheme = first.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if matches!(scheme.as_deref(), Some("http" | "https")) {
            return self.split_absolute_url(given, template);
        }
        if first.split('/').next().is_some_and(|scheme| scheme.ends_with(':')) && first.contains("://") {
            self.problems.add_with_hint(
                &given.location,
                format!("`{}` cannot be tested", given.value),
                suggest_url(&given.value),
            );
            return None;
        }
        if !(starts_with_value || first.is_empty() || first.starts_with('/') || first.starts_with('?')) {
            let message = format!("`{}` is neither a path nor a URL", given.value);
            self.problems.add_with_hint(&given.location, message, "begin it with / or http://");
            return None;
        }
        defaults.target_missing.set(defaults.target_missing.get() || defaults.target.is_none());
        let target = defaults.target.as_ref().map_or(PLACEHOLDER_URL, |target| target.url.as_str());
        let base = Url::parse(target).unwrap_or_else(|_| Url::parse(PLACEHOLDER_URL).expect("a sound URL"));
        let origin = scheme_and_authority(&base);
        let mut path = Template::default();
        if !starts_with_value {
            path.push_text(base.path().trim_end_matches('/'));
        }
        path.append(template);
        Some((origin, path))
    }

    fn split_absolute_url(&mut self, given: &Sourced<String>, mut template: Template) -> Option<(String, Template)> {
        let more = template.parts.len() > 1;
        let Some(TemplatePart::Text(first)) = template.parts.first_mut() else { return None };
        let host = first.find("://").map_or(0, |at| at + 3);
        let end = first[host..].find(['/', '?', '#']).map(|at| host + at);
        if end.is_none() && more {
            let hint = "put the path behind a / and keep the host constant";
            self.problems.add_with_hint(&given.location, "the host of a request cannot change during the run", hint);
            return None;
        }
        let rest = first.split_off(end.unwrap_or(first.len()));
        let base = match Url::parse(first) {
            Ok(base) => base,
            Err(error) => {
                self.problems.add(&given.location, format!("`{first}` is not a URL: {error}"));
                return None;
            }
        };
        *first = rest;
        if first.is_empty() || first.starts_with(['?', '#']) {
            first.insert(0, '/');
        }
        Some((scheme_and_authority(&base), template))
    }

    fn add_query(&mut self, query: &NameValuePairs, path: &mut Template) {
        let mut joined = path.parts.iter().any(|part| matches!(part, TemplatePart::Text(text) if text.contains('?')));
        for (name, value) in query {
            path.push_text(if std::mem::replace(&mut joined, true) { "&" } else { "?" });
            self.add_pair(name, value, path);
        }
    }

    /// Appends `name=value`, both encoded.
    fn add_pair(&mut self, name: &Sourced<String>, value: &Sourced<String>, out: &mut Template) {
        let mut text = String::new();
        Escape::Query.write(&name.value, false, &mut text);
        text.push('=');
        out.push_text(&text);
        for part in self.template(value).parts {
            match part {
                TemplatePart::Text(text) => {
                    let mut encoded = String::new();
                    Escape::Query.write(&text, false, &mut encoded);
                    out.push_text(&encoded);
                }
                TemplatePart::Value(expr, _) => out.parts.push(TemplatePart::Value(expr, Escape::Query)),
            }
        }
    }

    fn body(&mut self, raw: &RawBody) -> CompiledBody {
        let (content, content_type) = match raw {
            RawBody::Text(text) => (BodyContent::Template(self.template(text).fold_constants()), None),
            RawBody::File(file) => (BodyContent::Bytes(self.read_file(file).unwrap_or_default()), None),
            RawBody::JsonText(text) => (BodyContent::Template(self.json_text(text)), Some("application/json")),
            RawBody::Json(value) => (BodyContent::Template(self.json_template(value)), Some("application/json")),
            RawBody::Form(pairs) => {
                let mut form = Template::default();
                for (index, (name, value)) in pairs.iter().enumerate() {
                    form.push_text(if index == 0 { "" } else { "&" });
                    self.add_pair(name, value, &mut form);
                }
                (BodyContent::Template(form.fold_constants()), Some("application/x-www-form-urlencoded"))
            }
        };
        CompiledBody { content, content_type }
    }

    /// JSON text from a flag. Reports text that is not JSON with any values of its templates.
    fn json_text(&mut self, given: &Sourced<String>) -> Template {
        let before = self.problems.count();
        let template = self.template(given).fold_constants();
        // Each value is replaced by a digit, which is valid inside a string, as a number and next to a digit.
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Value(..) => "1".to_owned(),
        };
        let sample: String = template.parts.iter().map(part).collect();
        if self.problems.count() == before
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&sample)
        {
            let hint = "write for example {\"name\": \"value\"}; text that is not JSON is sent with `body`";
            self.problems.add_with_hint(&given.location, format!("`{}` is not JSON: {error}", given.value), hint);
        }
        template
    }

    /// A JSON value as a template. A string that is just one `{{ expression }}` takes the type of its value.
    pub(super) fn json_template(&mut self, value: &RawJson) -> Template {
        let mut out = Template::default();
        self.write_json(value, &mut out);
        out.fold_constants()
    }

    fn write_json(&mut self, value: &RawJson, out: &mut Template) {
        match value {
            RawJson::Literal(given) => out.push_text(&given.value),
            RawJson::Text(given) => {
                let template = self.template(given);
                if let [TemplatePart::Value(expr, _)] = template.parts.as_slice() {
                    out.parts.push(TemplatePart::Value(expr.clone(), Escape::JsonValue));
                    return;
                }
                out.push_text("\"");
                for part in template.parts {
                    match part {
                        TemplatePart::Text(text) => {
                            let mut quoted = String::new();
                            write_json_string(&text, &mut quoted);
                            out.push_text(&quoted[1..quoted.len() - 1]);
                        }
                        TemplatePart::Value(expr, _) => out.parts.push(TemplatePart::Value(expr, Escape::Json)),
                    }
                }
                out.push_text("\"");
            }
            RawJson::Array(items) => {
                out.push_text("[");
                for (index, item) in items.iter().enumerate() {
                    out.push_text(if index == 0 { "" } else { "," });
                    self.write_json(item, out);
                }
                out.push_text("]");
            }
            RawJson::Object(entries) => {
                out.push_text("{");
                for (index, (key, item)) in entries.iter().enumerate() {
                    out.push_text(if index == 0 { "" } else { "," });
                    let mut quoted = String::new();
                    write_json_string(key, &mut quoted);
                    out.push_text(&quoted);
                    out.push_text(":");
                    self.write_json(item, out);
                }
                out.push_text("}");
            }
        }
    }
}

/// A hint that corrects a URL with another scheme.
fn suggest_url(text: &str) -> String {
    match text.split_once("://") {
        None => format!("write http://{text}"),
        Some((scheme, rest)) => match did_you_mean(&scheme.to_lowercase(), ["http", "https"]) {
            Some(known) => format!("did you mean {known}://{rest}?"),
            None => "only http:// and https:// work".to_owned(),
        },
    }
}

/// `url` without user and password, for reports.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some(host) = url.find("://").map(|at| at + 3) else { return url.to_owned() };
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    match url[host..end].rfind('@') {
        Some(at) => format!("{}{}", &url[..host], &url[host + at + 1..]),
        None => url.to_owned(),
    }
}

/// Scheme, credentials, host and port of `url`, as written.
fn scheme_and_authority(url: &Url) -> String {
    url[..url::Position::BeforePath].to_owned()
}
