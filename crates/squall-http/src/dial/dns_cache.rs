//! Resolves names: fixed addresses first, then the system's resolver with a short-lived cache
//! shared by all users. Ten thousand users that start together cause one lookup.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::{sync::Mutex, time::timeout_at};
use url::Host;

use crate::config::{HttpConfig, IpFamily};
use crate::error::{HttpError, is_local_resource_error};

/// Long enough to spare the resolver, short enough to follow a failover during a run.
const SUCCESS_TTL: Duration = Duration::from_secs(30);
/// A failing name is looked up at most once in this time, however many users wait for it.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// The cached lookups.
#[derive(Debug, Default)]
pub(crate) struct DnsCache {
    entries: Mutex<HashMap<String, CachedLookup>>,
}

#[derive(Debug, Clone)]
struct CachedLookup {
    expires_at: Instant,
    addresses: Result<Vec<IpAddr>, String>,
}

impl DnsCache {
    /// The usable addresses of a host, in order; never empty. A lookup that does not end before
    /// `deadline` fails.
    pub(crate) async fn resolve(
        &self,
        config: &HttpConfig,
        host: &Host<String>,
        port: u16,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, HttpError> {
        let found = match host {
            Host::Ipv4(address) => vec![(IpAddr::V4(*address), port).into()],
            Host::Ipv6(address) => vec![(IpAddr::V6(*address), port).into()],
            Host::Domain(name) => match static_addresses(config, name, port) {
                fixed if !fixed.is_empty() => fixed,
                _ => {
                    let silent = |_| Err(HttpError::DnsTimeout { host: name.clone() });
                    let addresses =
                        timeout_at(deadline.into(), self.lookup_cached(name)).await.unwrap_or_else(silent)?;
                    addresses.into_iter().map(|address| (address, port).into()).collect()
                }
            },
        };
        let usable: Vec<SocketAddr> = found.into_iter().filter(|address| matches_family(config.ip, address)).collect();
        if usable.is_empty() {
            let family = if config.ip == IpFamily::V6 { "IPv6" } else { "IPv4" };
            return Err(HttpError::Dns { host: host.to_string(), reason: format!("it has no {family} address") });
        }
        Ok(usable)
    }

    /// The lock is held during the lookup, so that only one user looks a name up. A user that gives up releases it.
    async fn lookup_cached(&self, name: &str) -> Result<Vec<IpAddr>, HttpError> {
        let mut known = self.entries.lock().await;
        let answer = match known.get(name) {
            Some(answer) if answer.expires_at > Instant::now() => answer.clone(),
            _ => {
                let addresses = match query_resolver(name).await {
                    // A timeout says nothing about the name, so it is not cached.
                    Err(reason) if is_local_resource_error(&reason) => return Err(HttpError::LocalLimit { reason }),
                    other => other.map_err(|reason| reason.to_string()),
                };
                let keep = if addresses.is_ok() { SUCCESS_TTL } else { FAILURE_TTL };
                let answer = CachedLookup { expires_at: Instant::now() + keep, addresses };
                known.insert(name.to_owned(), answer.clone());
                answer
            }
        };
        answer.addresses.map_err(|reason| HttpError::Dns { host: name.into(), reason })
    }
}

async fn query_resolver(name: &str) -> std::io::Result<Vec<IpAddr>> {
    let addresses: Vec<IpAddr> = tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect();
    if addresses.is_empty() { Err(std::io::Error::other("it has no address")) } else { Ok(addresses) }
}

fn static_addresses(config: &HttpConfig, name: &str, port: u16) -> Vec<SocketAddr> {
    let matching = config.resolve.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    matching
        .map(|(_, address)| match address.port() {
            0 => SocketAddr::new(address.ip(), port),
            _ => *address,
        })
        .collect()
}

fn matches_family(family: IpFamily, address: &SocketAddr) -> bool {
    match family {
        IpFamily::Any => true,
        IpFamily::V4 => address.is_ipv4(),
        IpFamily::V6 => address.is_ipv6(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user holds the lock until the resolver answers, so a held lock stands for a resolver that never answers.
    #[tokio::test(start_paused = true)]
    async fn a_silent_resolver_is_a_dns_timeout() {
        let names = DnsCache::default();
        let _asking = names.entries.lock().await;
        let host = Host::Domain("shop.example".to_owned());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        let answer = names.resolve(&HttpConfig::default(), &host, 80, deadline.into_std()).await;
        let error = answer.expect_err("nobody answered");
        assert_eq!((error.code(), error.category_name(), error.is_unreachable()), ("DNS_TIMEOUT", "timeout", true));
    }
}
