//! Settings as written in the file, in code or as flags, before validation. All are optional and
//! carry their location. The command line and the Python module fill these structs too; a flag
//! overrides the file, and `build` validates only the merged result.

use serde::{Deserialize, Serialize};

use crate::error::SourceLocation;

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    pub value: T,
    pub location: SourceLocation,
}

impl<T> Sourced<T> {
    /// Given by a command-line flag, named as the user types it: `--rate`.
    pub fn from_flag(flag: impl Into<String>, value: impl Into<T>) -> Sourced<T> {
        Sourced { value: value.into(), location: SourceLocation::Flag(flag.into()) }
    }
}

/// The load, as text. The file's `[load]`, the arguments of `@scenario` and the flags become this.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawLoad {
    /// Open model: `500`, `200/s`, `90/m`.
    pub rate: Option<Sourced<String>>,
    /// Closed model: `50`.
    pub users: Option<Sourced<String>>,
    /// A user's pause between two iterations: `1s`, or `1s..3s` for a random one.
    pub pause: Option<Sourced<String>>,
    /// `30s`. The file's key is `for`.
    pub duration: Option<Sourced<String>>,
    /// Stop after this many iterations.
    pub requests: Option<Sourced<String>>,
    /// `5s`: from 0 to the full level, within the run.
    pub ramp_up: Option<Sourced<String>>,
    /// `10s:100,30s:500`.
    pub stages: Option<Sourced<String>>,
    /// `constant`, `ramp`, `step` or `spike`.
    pub profile: Option<Sourced<String>>,
    /// Plateaus of the profile `step`; default 5.
    pub steps: Option<Sourced<String>>,
    /// `even` or `poisson`.
    pub arrivals: Option<Sourced<String>>,
    /// `5s`: this first part of the run is not in the results.
    pub warm_up: Option<Sourced<String>>,
}

/// The settings of the HTTP client. Both the file's `[http]` and the flags become this.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawHttp {
    /// Sent with every request, unless the request has a header of the same name.
    pub headers: Vec<(Sourced<String>, Sourced<String>)>,
    /// Limit for a whole request; default 30 s.
    pub timeout: Option<Sourced<String>>,
    /// Limit for opening a connection; default 10 s.
    pub connect_timeout: Option<Sourced<String>>,
    /// `auto`, `1.1` or `2`.
    pub version: Option<Sourced<String>>,
    pub keep_alive: Option<Sourced<bool>>,
    pub insecure: Option<Sourced<bool>>,
    /// PEM files.
    pub ca: Option<Sourced<String>>,
    pub cert: Option<Sourced<String>>,
    pub key: Option<Sourced<String>>,
    /// The name to verify in certificates instead of the URL's host.
    pub server_name: Option<Sourced<String>>,
    pub proxy: Option<Sourced<String>>,
    /// How many redirects a request follows at most; 0 follows none. Default 10.
    pub redirects: Option<Sourced<u32>>,
    pub compression: Option<Sourced<bool>>,
    /// Each user keeps its cookies. Default on.
    pub cookies: Option<Sourced<bool>>,
    /// `user:password`.
    pub basic: Option<Sourced<String>>,
    /// A token.
    pub bearer: Option<Sourced<String>>,
    pub unix_socket: Option<Sourced<String>>,
    /// Measure dns, connect, tls, first byte and body.
    pub phases: Option<Sourced<bool>>,
    /// `any`, `4` or `6`.
    pub ip: Option<Sourced<String>>,
    /// `host` → `address:port` instead of DNS.
    pub resolve: Vec<(Sourced<String>, Sourced<String>)>,
}

/// The database of CQL statements. The file's `[cql]` and `@scenario(cql=…)` become this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawCql {
    /// Where `[cql]` begins; `None` without one.
    pub location: Option<SourceLocation>,
    pub nodes: Vec<Sourced<String>>,
    pub port: Option<Sourced<u64>>,
    pub user: Option<Sourced<String>>,
    pub password: Option<Sourced<String>>,
    /// JKS, PKCS12 or PEM files.
    pub truststore: Option<Sourced<String>>,
    pub truststore_password: Option<Sourced<String>>,
    pub keystore: Option<Sourced<String>>,
    pub keystore_password: Option<Sourced<String>>,
    pub hostname_verification: Option<Sourced<bool>>,
    pub keyspace: Option<Sourced<String>>,
    pub consistency: Option<Sourced<String>>,
    pub datacenter: Option<Sourced<String>>,
    pub connections: Option<Sourced<u64>>,
    /// The time limit of each statement.
    pub timeout: Option<Sourced<String>>,
    pub compression: Option<Sourced<String>>,
}

/// The command line's changes to a scenario.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScenarioOverrides {
    pub name: Option<Sourced<String>>,
    pub target: Option<Sourced<String>>,
    pub seed: Option<Sourced<u64>>,
    pub load: RawLoad,
    /// Added to the file's thresholds. One with the same left side replaces the file's; all of these are
    /// kept.
    pub thresholds: Vec<Sourced<String>>,
    pub http: RawHttp,
    /// Values for variables that the file declares, by name. Numbers and booleans keep their type;
    /// everything else is text.
    pub variables: Vec<(String, Sourced<String>)>,
    /// The target if neither the file nor a flag names one. Used only where nothing is sent.
    #[serde(skip)]
    pub placeholder_target: Option<&'static str>,
    /// Errors in flags that do not fit these fields, reported together with all others.
    #[serde(skip)]
    pub flag_errors: Vec<Sourced<String>>,
}

/// The one request of `squall run URL`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UrlRequest {
    /// Absolute; `http://` is assumed where no scheme is given.
    pub url: String,
    /// Default `GET`, or `POST` with a body.
    pub method: Option<Sourced<String>>,
    /// `name=value`, added to the URL's own query.
    pub query: Vec<Sourced<String>>,
    /// At most one of these four.
    pub body: Option<Sourced<String>>,
    pub body_file: Option<Sourced<String>>,
    /// JSON text; sets the content type.
    pub json: Option<Sourced<String>>,
    /// `name=value`; sets the content type.
    pub form: Vec<Sourced<String>>,
    /// Statuses that count as success: `200`, `2xx`, `200,404`.
    pub expect_status: Option<Sourced<String>>,
    /// A text that the body must contain.
    pub expect_body: Option<Sourced<String>>,
}

macro_rules! prefer {
    ($own:ident, $fallback:ident, $($field:ident)+) => { $($own.$field = $own.$field.take().or($fallback.$field);)+ };
}

impl RawLoad {
    /// These settings where they are given, `fallback` elsewhere. A setting that chooses another model or
    /// shape drops the fallback's settings of the other one, so that `--users 5` works on a file with a
    /// rate.
    #[must_use]
    pub fn with_fallback(mut self, mut fallback: RawLoad) -> RawLoad {
        if self.rate.is_some() {
            (fallback.users, fallback.pause) = (None, None);
        }
        if self.users.is_some() {
            (fallback.rate, fallback.arrivals) = (None, None);
        }
        if self.stages.is_some() {
            (fallback.ramp_up, fallback.profile, fallback.steps, fallback.duration) = (None, None, None, None);
        }
        if self.profile.is_some() || self.ramp_up.is_some() || self.duration.is_some() {
            fallback.stages = None;
        }
        if self.profile.is_some() {
            (fallback.ramp_up, fallback.steps) = (None, None);
        }
        if self.ramp_up.is_some() {
            (fallback.profile, fallback.steps) = (None, None);
        }
        prefer!(self, fallback, rate users pause duration requests ramp_up stages profile steps arrivals warm_up);
        self
    }
}

impl RawHttp {
    /// These settings where they are given, `fallback` elsewhere. Headers are merged by name. A setting that
    /// chooses another route drops the fallback's settings of the other one, so that `--unix-socket` works
    /// on a file with a proxy.
    #[must_use]
    pub fn with_fallback(mut self, mut fallback: RawHttp) -> RawHttp {
        if self.unix_socket.is_some() {
            (fallback.proxy, fallback.ip, fallback.resolve) = (None, None, Vec::new());
        }
        if self.proxy.is_some() || self.ip.is_some() || !self.resolve.is_empty() {
            fallback.unix_socket = None;
        }
        if self.insecure.is_some() {
            fallback.ca = None;
        }
        if self.ca.is_some() {
            fallback.insecure = None;
        }
        let own: Vec<String> = self.headers.iter().map(|(name, _)| name.value.to_ascii_lowercase()).collect();
        let kept = fallback.headers.into_iter().filter(|(name, _)| !own.contains(&name.value.to_ascii_lowercase()));
        self.headers = kept.chain(self.headers).collect();
        self.resolve.extend(fallback.resolve);
        if self.basic.is_some() || self.bearer.is_some() {
            self.headers.retain(|(name, _)| {
                matches!(name.location, SourceLocation::Flag(_)) || !name.value.eq_ignore_ascii_case("authorization")
            });
        } else if !own.iter().any(|name| name == "authorization") {
            (self.basic, self.bearer) = (fallback.basic, fallback.bearer);
        }
        prefer!(self, fallback, timeout connect_timeout version keep_alive insecure ca cert key server_name proxy redirects
            compression cookies unix_socket phases ip);
        self
    }
}
