//! Names to addresses: fixed answers first, then the system's resolver with a short memory shared by all users.
//! Ten thousand users that start together ask once.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use url::Host;

use crate::config::{HttpConfig, IpFamily};
use crate::error::HttpError;

/// Long enough to spare the resolver, short enough to follow a failover during a run.
const KEEP_ANSWER: Duration = Duration::from_secs(30);
/// A failing name is asked for at most once in this time, however many users wait for it.
const KEEP_FAILURE: Duration = Duration::from_secs(1);

/// The memory of answers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: Mutex<HashMap<String, Answer>>,
}

#[derive(Debug, Clone)]
struct Answer {
    until: Instant,
    addresses: Result<Vec<IpAddr>, String>,
}

impl Names {
    /// All addresses of a host that may be used, in order; never empty.
    pub(crate) async fn resolve(
        &self,
        config: &HttpConfig,
        host: &Host<String>,
        port: u16,
    ) -> Result<Vec<SocketAddr>, HttpError> {
        let found = match host {
            Host::Ipv4(address) => vec![(IpAddr::V4(*address), port).into()],
            Host::Ipv6(address) => vec![(IpAddr::V6(*address), port).into()],
            Host::Domain(name) => match fixed(config, name, port) {
                fixed if !fixed.is_empty() => fixed,
                _ => self.look_up(name).await?.into_iter().map(|address| (address, port).into()).collect(),
            },
        };
        let usable: Vec<SocketAddr> = found.into_iter().filter(|address| allowed(config.ip, address)).collect();
        if usable.is_empty() {
            let family = if config.ip == IpFamily::V6 { "IPv6" } else { "IPv4" };
            return Err(HttpError::Dns { host: host.to_string(), reason: format!("it has no {family} address") });
        }
        Ok(usable)
    }

    /// The lock is held while asking, so that only one user asks; a user that gives up releases it.
    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, HttpError> {
        let mut known = self.known.lock().await;
        let answer = match known.get(name) {
            Some(answer) if answer.until > Instant::now() => answer.clone(),
            _ => {
                let addresses = ask(name).await;
                let keep = if addresses.is_ok() { KEEP_ANSWER } else { KEEP_FAILURE };
                let answer = Answer { until: Instant::now() + keep, addresses };
                known.insert(name.to_owned(), answer.clone());
                answer
            }
        };
        answer.addresses.map_err(|reason| HttpError::Dns { host: name.into(), reason })
    }
}

async fn ask(name: &str) -> Result<Vec<IpAddr>, String> {
    let found = tokio::net::lookup_host((name, 0)).await.map_err(|error| error.to_string())?;
    let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    if addresses.is_empty() { Err("it has no address".into()) } else { Ok(addresses) }
}

fn fixed(config: &HttpConfig, name: &str, port: u16) -> Vec<SocketAddr> {
    let matching = config.resolve.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    matching
        .map(|(_, address)| match address.port() {
            0 => SocketAddr::new(address.ip(), port),
            _ => *address,
        })
        .collect()
}

fn allowed(family: IpFamily, address: &SocketAddr) -> bool {
    match family {
        IpFamily::Any => true,
        IpFamily::V4 => address.is_ipv4(),
        IpFamily::V6 => address.is_ipv6(),
    }
}
