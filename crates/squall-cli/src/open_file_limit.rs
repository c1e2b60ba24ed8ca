//! Raises the limit on open files to what the system allows, because every virtual user holds a
//! connection and many shells allow only 1,024 files. Never fails: a run with few users does not
//! need it. Called once, by `lib.rs`.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit.
pub(crate) fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // If the system forbids it, requests without a file descriptor fail as LOCAL_LIMIT.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let lower = before.maximum.map(|limit| limit.min(256));
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: lower, maximum: before.maximum }).unwrap();
        raise_open_file_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
