//! The browser pools of a worker, one for each version of Playwright that it serves.
//! It launches nothing itself. The first pool starts with the worker, and each other one, with its
//! Node process, at its first session.

use std::{path::PathBuf, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::{
    GridWorkerConfig,
    browser_pool::{BrowserPool, HostStart, PoolConfig, PoolError},
    node_host::{NodeHostConfig, NodeHostError},
};
use crate::playwright_version::{client_version, installed_version};

/// The pools of a worker, at least one. Clones share them.
#[derive(Clone)]
pub(crate) struct BrowserPools {
    pools: Arc<[VersionPool]>,
}

/// The browsers of one version.
pub(crate) struct VersionPool {
    /// `major.minor`.
    pub(crate) version: String,
    pub(crate) pool: BrowserPool,
}

impl BrowserPools {
    /// Reads the versions of the folders. `folder` is for everything of the browsers.
    pub(crate) fn new(config: &GridWorkerConfig, folder: &std::path::Path) -> Result<Self, NodeHostError> {
        let mut pools: Vec<VersionPool> = Vec::new();
        for (number, playwright) in config.playwright.iter().enumerate() {
            let shown = || playwright.display().to_string();
            let version = installed_version(playwright)
                .map_err(|reason| NodeHostError::Playwright { folder: shown(), reason })?;
            if pools.iter().any(|pool| pool.version == version) {
                return Err(NodeHostError::SameVersion { folder: shown(), version });
            }
            let start = if number == 0 { HostStart::AtOnce } else { HostStart::AtFirstSession };
            let pool =
                BrowserPool::new(pool_config(config, playwright.clone(), folder.join(format!("p{number}")), start));
            pools.push(VersionPool { version, pool });
        }
        Ok(Self { pools: pools.into() })
    }

    /// The pool for a client with this User-Agent. A client without a version, and one of a version
    /// that the worker does not have, get the first pool; Playwright refuses the latter.
    pub(crate) fn for_client(&self, agent: Option<&str>) -> &VersionPool {
        let version = agent.and_then(client_version);
        self.pools.iter().find(|pool| Some(&pool.version) == version.as_ref()).unwrap_or(&self.pools[0])
    }

    /// The versions that clients may ask for.
    pub(crate) fn versions(&self) -> Vec<String> {
        let usable = self.pools.iter().filter(|pool| pool.pool.is_usable());
        usable.map(|pool| pool.version.clone()).collect()
    }

    /// Whether a browser runs.
    pub(crate) fn is_ready(&self) -> bool {
        self.pools.iter().any(|pool| pool.pool.is_ready())
    }

    /// Waits until the first browser runs.
    pub(crate) async fn wait_until_ready(&self) {
        self.pools[0].pool.wait_until_ready().await;
    }

    /// Keeps the browsers running until `stop`, and ends them.
    pub(crate) async fn run(&self, stop: &CancellationToken) -> Result<(), PoolError> {
        let mut running: FuturesUnordered<_> = self.pools.iter().map(|pool| pool.pool.run(stop)).collect();
        while let Some(ended) = running.next().await {
            ended?;
        }
        Ok(())
    }
}

fn pool_config(config: &GridWorkerConfig, playwright: PathBuf, folder: PathBuf, start: HostStart) -> PoolConfig {
    PoolConfig {
        host: NodeHostConfig {
            node: config.node.clone(),
            playwright,
            browser: config.id.kind().to_owned(),
            folder,
            confined: config.confine_with.is_some(),
        },
        start,
        executable: config.executable.clone(),
        args: config.args.clone(),
        rules: config.rules,
        launch_timeout: config.launch_timeout,
        probe_every: config.probe_every,
        probe_timeout: config.probe_timeout,
    }
}
