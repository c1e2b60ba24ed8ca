//! The HTTP client of a virtual user.
