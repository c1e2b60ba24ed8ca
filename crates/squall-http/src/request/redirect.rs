//! Makes the next request of a redirect. It sends nothing.

use bytes::Bytes;
use http::Method;

use super::{HttpRequest, PreparedRequest};
use crate::error::RequestError;
use crate::response::HttpResponse;

/// Headers that are meaningless or dangerous at another origin.
const ORIGIN_BOUND: [&str; 3] = ["authorization", "cookie", "host"];
/// Headers that every rendering sets again.
const SET_BY_RENDERER: [&str; 2] = ["content-length", "proxy-authorization"];

impl PreparedRequest {
    /// The request that a redirect leads to; `None` if the response does not redirect, or redirects are off.
    ///
    /// 301, 302 and 303 lead to GET (HEAD stays HEAD), 307 and 308 repeat the request. The request's own credentials
    /// and cookies are not sent to another origin.
    pub fn redirect(&self, response: &HttpResponse<'_>) -> Option<Result<PreparedRequest, RequestError>> {
        if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = response.header("location")?;
        match self.connector.config().max_redirects {
            0 => return None,
            most if self.redirects_followed >= most => return Some(Err(RequestError::TooManyRedirects)),
            _ => {}
        }
        Some(self.follow(response.status, location))
    }

    fn follow(&self, status: u16, location: &str) -> Result<PreparedRequest, RequestError> {
        let from = self.url();
        let url = from
            .join(location)
            .map_err(|error| RequestError::BadUrl { url: location.into(), reason: error.to_string() })?;
        let same_origin = url.origin() == from.origin();
        let repeat = matches!(status, 307 | 308);
        let method = match self.method {
            Method::HEAD => Method::HEAD,
            _ if repeat => self.method.clone(),
            _ => Method::GET,
        };
        let travels = |name: &str| {
            let one_of = |names: &[&str]| names.iter().any(|other| other.eq_ignore_ascii_case(name));
            !(one_of(&SET_BY_RENDERER)
                || !same_origin && one_of(&ORIGIN_BOUND)
                || !repeat && name.to_ascii_lowercase().starts_with("content-"))
        };
        let headers = self.header_lines().filter(|(name, _)| travels(name));
        let request = HttpRequest {
            method,
            url,
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: if repeat { Bytes::copy_from_slice(self.body()) } else { Bytes::new() },
            timeout: self.timeout,
        };
        let mut next = PreparedRequest::new(&request, &self.connector)?;
        next.redirects_followed = self.redirects_followed + 1;
        Ok(next)
    }
}
