//! Descriptors: every virtual user holds a connection, and many shells allow only 1,024 of them. Raises what this process may have to
//! what the system allows it; refuses nothing, since a run that needs fewer is not concerned.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Lifts the soft limit on open files to the hard one.
pub(crate) fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Where even this is forbidden, requests that find no descriptor say so themselves (LOCAL_LIMIT).
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_lifted_to_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let lower = before.maximum.map(|most| most.min(256));
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: lower, maximum: before.maximum }).unwrap();
        raise_open_file_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
