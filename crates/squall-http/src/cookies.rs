//! One user's cookies. Costs nothing until a server sets the first one.

use cookie_store::CookieStore;
use url::Url;

use crate::response::Response;

/// A cookie jar.
#[derive(Debug, Default)]
pub(crate) struct Jar {
    store: Option<Box<CookieStore>>,
}

impl Jar {
    pub(crate) fn is_empty(&self) -> bool {
        self.store.is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.store = None;
    }

    /// Takes the Set-Cookie headers of a response. One that is malformed or for another domain is ignored, as browsers do.
    pub(crate) fn take(&mut self, url: &Url, response: Response<'_>) {
        let store = self.store.get_or_insert_default();
        for (_, value) in response.headers().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            let _ = store.parse(value, url);
        }
    }

    /// Writes what goes to this URL into `out`: `a=1; b=2`, or nothing.
    pub(crate) fn write(&self, url: &Url, out: &mut String) {
        let Some(store) = &self.store else { return };
        for (name, value) in store.get_request_values(url) {
            if !out.is_empty() {
                out.push_str("; ");
            }
            out.push_str(name);
            out.push('=');
            out.push_str(value);
        }
    }
}
