//! Builds the headers of requests: the scenario's, the request's own, and those of logins and bodies.
//! Called by `request`.

use super::{ScenarioBuilder, request::RequestDefaults};
use crate::{
    Sourced,
    compiled_scenario::HeaderEncoding,
    error::SourceLocation,
    read::{NameValuePairs, RawRequest},
    template::Template,
};

/// A header with its location.
#[derive(Clone)]
pub(super) struct SourcedHeader {
    pub(super) name: String,
    pub(super) value: Template,
    pub(super) encoding: HeaderEncoding,
    pub(super) location: SourceLocation,
}

impl ScenarioBuilder<'_, '_> {
    /// The scenario's headers and the request's own, which override those of the same name.
    pub(super) fn all_headers(
        &mut self,
        raw: &RawRequest,
        content_type: Option<&'static str>,
        defaults: &RequestDefaults,
    ) -> Vec<SourcedHeader> {
        let mut own = self.headers(&raw.headers);
        let has =
            |headers: &[SourcedHeader], name: &str| headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
        let authorization = self.authorization(raw.basic.as_ref(), raw.bearer.as_ref());
        if let (Some(given), true) = (&authorization, has(&own, "authorization")) {
            self.problems.add(&given.location, "the request has an Authorization header and a login: keep one");
        }
        own.extend(authorization);
        let inherited: Vec<SourcedHeader> =
            defaults.headers.iter().filter(|header| !has(&own, &header.name)).cloned().collect();
        let mut all = inherited;
        all.extend(own);
        if !has(&all, "authorization") {
            all.extend(defaults.authorization.clone());
        }
        if let Some(content_type) = content_type.filter(|_| !has(&all, "content-type")) {
            all.push(SourcedHeader {
                name: "Content-Type".to_owned(),
                value: Template::text(content_type),
                encoding: HeaderEncoding::Plain,
                location: SourceLocation::Unknown,
            });
        }
        all
    }

    pub(super) fn headers(&mut self, pairs: &NameValuePairs) -> Vec<SourcedHeader> {
        let mut host = false;
        for (name, _) in pairs {
            if name.value.eq_ignore_ascii_case("content-length") {
                let hint = "leave it out; a body is sent with the length that it has";
                self.problems.add_with_hint(&name.location, "Content-Length cannot be set", hint);
            }
            if name.value.eq_ignore_ascii_case("host") && std::mem::replace(&mut host, true) {
                self.problems.add(&name.location, "a request has one Host: keep one of them");
            }
        }
        let header = |(name, value): &(Sourced<String>, Sourced<String>)| SourcedHeader {
            name: name.value.clone(),
            value: self.template(value).fold_constants(),
            encoding: HeaderEncoding::Plain,
            location: name.location.clone(),
        };
        pairs.iter().map(header).collect()
    }

    pub(super) fn authorization(
        &mut self,
        basic: Option<&Sourced<String>>,
        bearer: Option<&Sourced<String>>,
    ) -> Option<SourcedHeader> {
        if let (Some(_), Some(bearer)) = (basic, bearer) {
            self.problems.add(&bearer.location, "both `basic` and `bearer` are given: keep one");
        }
        let (given, prefix, encoding) = match (basic, bearer) {
            (Some(basic), _) => (basic, "", HeaderEncoding::Basic),
            (None, Some(bearer)) => (bearer, "Bearer ", HeaderEncoding::Plain),
            (None, None) => return None,
        };
        let mut value = Template::text(prefix);
        value.append(self.template(given));
        if encoding == HeaderEncoding::Basic
            && value.clone().fold_constants().constant().is_some_and(|text| !text.contains(':'))
        {
            self.problems.add_with_hint(
                &given.location,
                "a login has a user and a password",
                "write user:password, or user: without one",
            );
        }
        Some(SourcedHeader {
            name: "Authorization".to_owned(),
            value: value.fold_constants(),
            encoding,
            location: given.location.clone(),
        })
    }
}

/// Encodes a constant header for sending.
pub(super) fn encode_constant_header(header: &SourcedHeader) -> (String, String) {
    let value = header.value.constant().unwrap_or_default();
    (header.name.clone(), encode_header(value, header.encoding))
}

/// Encodes the value of a header for sending.
pub(crate) fn encode_header(value: &str, encoding: HeaderEncoding) -> String {
    match encoding {
        HeaderEncoding::Plain => value.to_owned(),
        HeaderEncoding::Basic => {
            let (user, password) = value.split_once(':').unwrap_or((value, ""));
            squall_http::basic_auth(user, password)
        }
    }
}
