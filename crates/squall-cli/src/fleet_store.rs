//! Where a fleet keeps what it shares: opened the same way by whoever takes part.

use squall_coord::{RedisClient, RedisConnectError, RedisFleetStores};

use crate::{
    command_line::without_credentials,
    exit::{CliError, error_chain},
    terminal::WAIT_NOTICE_DELAY,
};

/// The store of the fleet called `name` on the server at `url`. What is waited for meanwhile is given to `waiting`.
pub(crate) async fn open(url: &str, name: &str, waiting: impl FnOnce(&str)) -> Result<RedisFleetStores, CliError> {
    let link = connect(url, waiting).await?;
    if name.is_empty() && link.is_cluster() {
        return Err(CliError::new(
            "a cluster needs a fleet with a name: without one its keys lie on different nodes. Give --fleet NAME",
        ));
    }
    Ok(RedisFleetStores::new(&link, name))
}

/// Connects to the server at `url`.
pub(crate) async fn connect(url: &str, waiting: impl FnOnce(&str)) -> Result<RedisClient, CliError> {
    let mut opening = Box::pin(RedisClient::open(url));
    let opened = match tokio::time::timeout(WAIT_NOTICE_DELAY, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => {
            waiting(&format!("waiting for Redis at {}, which has not answered yet", without_credentials(url)));
            opening.await
        }
    };
    opened.map_err(|error| connect_error(&error))
}

/// Why a Redis server cannot be used: an address that is none, or that names a file that cannot be read, is a mistake of whoever wrote it.
fn connect_error(error: &RedisConnectError) -> CliError {
    match error {
        // What is wrong with it is not always known, and a category alone says nothing.
        RedisConnectError::InvalidAddress { source, .. } if source.detail().is_none_or(str::is_empty) => {
            CliError::new(error.to_string())
        }
        RedisConnectError::InvalidAddress { .. } => CliError::new(error_chain(error)),
        RedisConnectError::Connect { url, source } if source.category() == "invalid client config" => {
            let what = source.detail().map_or_else(|| source.to_string(), str::to_owned);
            CliError::new(format!("the options of {url} cannot be used: {what}"))
        }
        RedisConnectError::Connect { url, source } => {
            let text = error_chain(error);
            // A server without TLS waits for the rest of what it takes for a command, or says that there is none such.
            let tls = url.starts_with("rediss") || url.starts_with("valkeys");
            let unlike_tls = source.is_timeout() || source.to_string().contains("InvalidContentType");
            let hint = if tls && unlike_tls { ". Does the server speak TLS? redis:// is without" } else { "" };
            CliError::unreachable(format!("{text}{hint}"))
        }
    }
}
