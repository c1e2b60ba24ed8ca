//! Opens the Redis stores of a fleet and of a grid, and explains why it cannot be opened. Stores nothing itself.
//! The run, worker, orchestrator and up commands call it.

use squall_coord::{RedisClient, RedisConnectError, RedisFleetStores, RedisSlotStore};

use crate::{
    command_line::without_credentials,
    exit::{CliError, error_chain},
    terminal::WAIT_NOTICE_DELAY,
};

/// Opens the stores of the fleet `name` on the server at `url`. Calls `on_wait` with a notice if
/// the server takes long.
pub(crate) async fn open(url: &str, name: &str, on_wait: impl FnOnce(&str)) -> Result<RedisFleetStores, CliError> {
    let client = connect(url, on_wait).await?;
    if name.is_empty() && client.is_cluster() {
        return Err(CliError::new(
            "a fleet on a Redis cluster needs a name, because its keys must be on one node. Give --fleet NAME",
        ));
    }
    Ok(RedisFleetStores::new(&client, name))
}

/// Opens the store of the browser grid `name` on the server at `url`.
pub(crate) async fn open_grid(url: &str, name: &str, on_wait: impl FnOnce(&str)) -> Result<RedisSlotStore, CliError> {
    let client = connect(url, on_wait).await?;
    if name.is_empty() && client.is_cluster() {
        return Err(CliError::new(
            "a grid on a Redis cluster needs a name, because its keys must be on one node. Give --grid NAME",
        ));
    }
    let prefix = if name.is_empty() { String::new() } else { format!("squall-grid:{{{name}}}:") };
    Ok(RedisSlotStore::new(&client, &prefix))
}

/// Connects to the server at `url`.
pub(crate) async fn connect(url: &str, on_wait: impl FnOnce(&str)) -> Result<RedisClient, CliError> {
    let mut opening = Box::pin(RedisClient::open(url));
    let opened = match tokio::time::timeout(WAIT_NOTICE_DELAY, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => {
            on_wait(&format!("waiting for Redis at {}, which has not responded yet", without_credentials(url)));
            opening.await
        }
    };
    opened.map_err(|error| connect_error(&error))
}

/// Why a Redis server cannot be used. An invalid URL is a usage error, a failed connection is
/// `unreachable`.
fn connect_error(error: &RedisConnectError) -> CliError {
    match error {
        // Without a detail, the source is only a category, which says nothing.
        RedisConnectError::InvalidAddress { source, .. } if source.detail().is_none_or(str::is_empty) => {
            CliError::new(error.to_string())
        }
        RedisConnectError::InvalidAddress { .. } => CliError::new(error_chain(error)),
        RedisConnectError::Connect { url, source } if source.category() == "invalid client config" => {
            let detail = source.detail().map_or_else(|| source.to_string(), str::to_owned);
            CliError::new(format!("the options of {url} cannot be used: {detail}"))
        }
        RedisConnectError::Connect { url, source } => {
            let text = error_chain(error);
            // A server without TLS takes the handshake for a command: it waits for more, or replies
            // with text.
            let tls = url.starts_with("rediss") || url.starts_with("valkeys");
            let looks_like_plaintext = source.is_timeout() || source.to_string().contains("InvalidContentType");
            let hint =
                if tls && looks_like_plaintext { ". Does the server speak TLS? redis:// is without" } else { "" };
            CliError::unreachable(format!("{text}{hint}"))
        }
    }
}
