//! `squall grid key`: creates, lists and revokes the API keys of a grid on Redis. The secret of a key is
//! printed once and not stored. squall-grid's servers check keys.

use squall_coord::{ApiKeyScope, SlotStore, SlotWorkerId, StoreError, StoredApiKey};
use squall_grid::{ApiKey, KeyLimits};
use std::{
    fmt::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use super::open_store;
use crate::{
    args::{GridKeyCommand, GridKeyCreateArgs, GridKeyRevokeArgs, KeyScopeArg},
    exit::{CliError, error_chain},
    terminal::print,
};

pub(super) async fn run(command: &GridKeyCommand) -> Result<(), CliError> {
    match command {
        GridKeyCommand::Create(args) => create(args).await,
        GridKeyCommand::List(args) => {
            let store = open_store(&args.store.redis, &args.store.grid).await?;
            print::stdout(render(&store.api_keys().await.map_err(|error| store_error(&error))?).as_bytes())
        }
        GridKeyCommand::Revoke(args) => revoke(args).await,
    }
}

async fn create(args: &GridKeyCreateArgs) -> Result<(), CliError> {
    if SlotWorkerId::new("key", &args.name).is_none() {
        return Err(CliError::new("a key's name has up to 64 letters, digits, `-`, `_` and `.`"));
    }
    let scope = match args.scope {
        KeyScopeArg::Client => ApiKeyScope::Client,
        KeyScopeArg::Worker => ApiKeyScope::Worker,
        KeyScopeArg::Admin => ApiKeyScope::Admin,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let limits = KeyLimits { sessions: args.sessions, waiting: args.waiting };
    let (secret, stored) = ApiKey::generate(&args.name, scope, limits, now);
    let store = open_store(&args.store.redis, &args.store.grid).await?;
    if !store.add_api_key(&stored).await.map_err(|error| store_error(&error))? {
        return Err(CliError::new(format!(
            "there is a key {0} already: take another name, or revoke it with `squall grid key revoke {0}`",
            args.name
        )));
    }
    print::stdout(format!("{secret}\n").as_bytes())
}

async fn revoke(args: &GridKeyRevokeArgs) -> Result<(), CliError> {
    let store = open_store(&args.store.redis, &args.store.grid).await?;
    match store.revoke_api_key(&args.name).await.map_err(|error| store_error(&error))? {
        true => Ok(()),
        false => Err(CliError::new(format!("there is no key {}: `squall grid key list` shows them", args.name))),
    }
}

fn store_error(error: &StoreError) -> CliError {
    CliError::unreachable(error_chain(error))
}

fn render(keys: &[StoredApiKey]) -> String {
    if keys.is_empty() {
        return "there is no key: `squall grid key create NAME` makes one\n".to_owned();
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:<40} {:<8} {:>8} {:>8}  hash", "key", "scope", "sessions", "waiting");
    for key in keys {
        let scope = key.scope.name();
        let limit = |limit: Option<u64>| limit.map_or_else(|| "any".to_owned(), |limit| limit.to_string());
        let (sessions, waiting) = (limit(key.max_sessions), limit(key.max_waiting));
        let hash: String = key.hash.chars().take(12).collect();
        let _ = writeln!(text, "{:<40} {scope:<8} {sessions:>8} {waiting:>8}  {hash}", key.name);
    }
    text
}
