//! Members, leases, desired state and sweep over memory or Redis.
