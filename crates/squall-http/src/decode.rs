//! Content codings: what we ask for and how it is undone.

/// The value of Accept-Encoding.
pub(crate) const ACCEPTED: &str = "gzip, deflate";
