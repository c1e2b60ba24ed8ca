//! API keys of a grid as a slot store keeps them: name, scope, limit and the hash of the secret.
//! It neither creates nor checks secrets; squall-grid does.

use serde::{Deserialize, Serialize};

/// What an API key allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiKeyScope {
    /// Open sessions, and see and end its own.
    Client,
    /// Offer slots.
    Worker,
    /// Everything.
    Admin,
}

impl ApiKeyScope {
    /// As it is stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Worker => "worker",
            Self::Admin => "admin",
        }
    }
}

/// An API key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredApiKey {
    /// Its name, unique in the grid.
    pub name: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// What it allows.
    pub scope: ApiKeyScope,
    /// The most sessions and waiting clients at once.
    #[serde(default)]
    pub max_sessions: Option<u64>,
    /// The most waiting clients at once.
    #[serde(default)]
    pub max_waiting: Option<u64>,
    /// When it was created, in seconds since 1970.
    pub created: u64,
}

impl StoredApiKey {
    /// What the sessions of this key carry.
    pub fn id(&self) -> String {
        api_key_id(&self.name, &self.hash)
    }
}

/// Tells keys of one name apart, so that a key that was created again owns no session of the key before it:
/// the name, and the first characters of the hash. No name contains a `:`.
pub fn api_key_id(name: &str, hash: &str) -> String {
    format!("{name}:{}", hash.get(..12).unwrap_or(hash))
}

/// The name in an [id](api_key_id).
pub fn api_key_name(id: &str) -> &str {
    id.split_once(':').map_or(id, |(name, _)| name)
}
