//! Serves the web UI, whose files `make ui` puts into `dist` and the compiler embeds. A build without
//! them serves a page that says how to add them. The files are public; they contain no data.

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// The folder below which every file has a hash in its name.
pub(crate) const ASSETS: &str = "/assets/";

/// The files of `dist` by name, each as it is and with gzip. The build script writes the list.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/ui_files.rs"));

/// Nothing inline and nothing from another host, so that a name of a metric that contains markup
/// could not run as a script.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SECURITY_HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

const MISSING_UI: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Squall</title>\
<h1>This build of Squall has no web UI</h1>\
<p>The API works. To add the UI, run <code>make ui</code> in the source folder, then build Squall again.\
<p><a href=\"/openapi.json\">/openapi.json</a> describes the API.</html>\n";

/// Whether the UI is part of this build.
pub fn has_ui() -> bool {
    embedded("index.html").is_some()
}

pub(crate) async fn index(headers: HeaderMap) -> Response {
    match file("index.html", &headers, "no-cache") {
        Some(response) => response,
        None => secured((content_type("index.html"), MISSING_UI).into_response()),
    }
}

pub(crate) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let found = file(&format!("assets/{name}"), &headers, "public, max-age=31536000, immutable");
    // A page of an older build asks for files that this build does not have.
    found.unwrap_or_else(|| secured((StatusCode::NOT_FOUND, "this build has no such file\n").into_response()))
}

/// The page of the UI that shows the OpenAPI document.
pub(crate) async fn api_docs() -> Response {
    secured((StatusCode::SEE_OTHER, [(header::LOCATION, "/#/api")]).into_response())
}

fn file(path: &str, headers: &HeaderMap, cache: &'static str) -> Option<Response> {
    let accepts_gzip = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let accepts_gzip = accepts_gzip.is_some_and(|value| value.split(',').any(|name| is_gzip(name.trim())));
    let compressed = if accepts_gzip { embedded(&format!("{path}.gz")) } else { None };
    let is_compressed = compressed.is_some();
    let data = compressed.or_else(|| embedded(path))?;
    let mut response = secured((content_type(path), data).into_response());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

fn embedded(path: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, data)| *data)
}

/// `gzip` or `gzip;q=0.5`, but not `gzip;q=0`.
fn is_gzip(coding: &str) -> bool {
    let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
    let quality = parameters.trim().strip_prefix("q=").map_or(1.0, |q| q.parse().unwrap_or(0.0));
    name.trim().eq_ignore_ascii_case("gzip") && quality > 0.0
}

fn content_type(path: &str) -> [(HeaderName, &'static str); 1] {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let value = match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    };
    [(header::CONTENT_TYPE, value)]
}

fn secured(mut response: Response) -> Response {
    for (name, value) in SECURITY_HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
