//! API keys: who may use the server, and whose session is whose.
//! Secrets are compared by their hashes and never kept. Every route except health checks asks
//! [`ApiKeys`]; the server's heartbeat reloads the keys of the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Uri, header};
use ring::{digest, rand::SecureRandom};
use squall_coord::{ApiKeyScope, SlotStore, StoreError, StoredApiKey, api_key_id};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::{query_value, refusal::Refusal};

/// An unknown key reloads the keys of the store, at most this often.
const RELOAD_PAUSE: Duration = Duration::from_millis(200);

/// An API key. A session belongs to the key that opened it.
#[derive(Clone)]
pub struct ApiKey {
    name: String,
    hash: String,
    scope: ApiKeyScope,
    limits: KeyLimits,
}

/// What an API key may use at once; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// The most sessions and waiting clients.
    pub sessions: Option<u64>,
    /// The most waiting clients.
    pub waiting: Option<u64>,
}

impl ApiKey {
    /// A key with a name for sessions and logs.
    pub fn new(name: &str, secret: &str, scope: ApiKeyScope, limits: KeyLimits) -> Self {
        Self { name: name.to_owned(), hash: hash_of(secret), scope, limits }
    }

    /// What its sessions carry. A key with another secret has another id, also under the same name.
    fn id(&self) -> String {
        api_key_id(&self.name, &self.hash)
    }

    /// Whether both have one secret, so that a server could not tell whose session it opens.
    pub fn has_secret_of(&self, other: &ApiKey) -> bool {
        self.hash == other.hash
    }

    /// A key with a new random secret, which is returned and cannot be had again, and what the store
    /// keeps of it.
    pub fn generate(name: &str, scope: ApiKeyScope, limits: KeyLimits, created: u64) -> (String, StoredApiKey) {
        let mut bytes = [0; 32];
        ring::rand::SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
        let secret = format!("sqg_{}", to_hex(&bytes));
        let hash = hash_of(&secret);
        let KeyLimits { sessions: max_sessions, waiting: max_waiting } = limits;
        (secret, StoredApiKey { name: name.to_owned(), hash, scope, max_sessions, max_waiting, created })
    }
}

impl From<StoredApiKey> for ApiKey {
    fn from(key: StoredApiKey) -> Self {
        let limits = KeyLimits { sessions: key.max_sessions, waiting: key.max_waiting };
        Self { name: key.name, hash: key.hash, scope: key.scope, limits }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.name)
    }
}

/// Secrets are long random texts, so a fast hash without salt is enough.
fn hash_of(secret: &str) -> String {
    to_hex(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key of a request.
#[derive(Clone, Debug)]
pub(crate) struct ClientKey {
    /// What its sessions carry; empty if the server has no keys.
    pub(crate) id: String,
    pub(crate) limits: KeyLimits,
    pub(crate) admin: bool,
}

/// The keys that a server accepts.
pub(crate) struct ApiKeys {
    configured: Vec<ApiKey>,
    stored: Mutex<StoredKeys>,
}

#[derive(Default)]
struct StoredKeys {
    keys: Vec<ApiKey>,
    /// `None` until the store has answered; no request is allowed so long.
    loaded: Option<Instant>,
    /// A server that had a key never becomes open to everybody, not even if the store loses its data.
    required: bool,
    /// The ids of revoked keys.
    revoked: BTreeMap<String, RevokedKey>,
}

/// A key that the store names as revoked.
struct RevokedKey {
    since: Instant,
    /// Whether no session of the key can be left.
    settled: bool,
}

impl ApiKeys {
    pub(crate) fn new(configured: Vec<ApiKey>) -> Self {
        let required = !configured.is_empty();
        Self { configured, stored: Mutex::new(StoredKeys { required, ..StoredKeys::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, StoredKeys> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the keys of the store. A key that is gone without being revoked opens no more sessions and ends
    /// none, because the store may have lost its data.
    pub(crate) async fn reload<S: SlotStore>(&self, store: &S) -> Result<(), StoreError> {
        let keys: Vec<ApiKey> = store.api_keys().await?.into_iter().map(ApiKey::from).collect();
        let valid: BTreeSet<String> = self.configured.iter().chain(&keys).map(ApiKey::id).collect();
        let revoked: BTreeSet<String> = store.revoked_api_keys().await?.into_iter().collect();
        let mut stored = self.lock();
        stored.required |= !keys.is_empty();
        stored.loaded = Some(Instant::now());
        stored.keys = keys;
        stored.revoked.retain(|id, key| !valid.contains(id) && (revoked.contains(id) || !key.settled));
        for id in revoked.difference(&valid) {
            stored.revoked.entry(id.clone()).or_insert(RevokedKey { since: Instant::now(), settled: false });
        }
        Ok(())
    }

    /// Whether the sessions of the key with this id must end.
    pub(crate) fn is_revoked(&self, id: &str) -> bool {
        self.lock().revoked.contains_key(id)
    }

    /// The ids of revoked keys that may have sessions.
    pub(crate) fn unsettled(&self) -> BTreeSet<String> {
        let stored = self.lock();
        stored.revoked.iter().filter(|(_, key)| !key.settled).map(|(id, _)| id.clone()).collect()
    }

    /// Settles the revoked keys that have no session, if no claim from the time before can be left.
    pub(crate) fn settle(&self, has_sessions: impl Fn(&str) -> bool, longest_claim: Duration) {
        for (id, key) in &mut self.lock().revoked {
            key.settled |= key.since.elapsed() > longest_claim && !has_sessions(id);
        }
    }

    /// Finds the key of a request: the header `Authorization: Bearer KEY`, or `?token=KEY`, because
    /// Playwright clients pass on a URL. Without keys every request is allowed.
    pub(crate) async fn authorize<S: SlotStore>(
        &self,
        store: &S,
        headers: &HeaderMap,
        uri: &Uri,
        scope: ApiKeyScope,
    ) -> Result<ClientKey, Refusal> {
        if self.lock().loaded.is_none() {
            self.reload(store).await?;
        }
        let found = self.find(headers, uri, scope);
        let stale = self.lock().loaded.is_some_and(|loaded| loaded.elapsed() >= RELOAD_PAUSE);
        if matches!(found, Err(Refusal::WrongKey)) && stale {
            self.reload(store).await?;
            return self.find(headers, uri, scope);
        }
        found
    }

    fn find(&self, headers: &HeaderMap, uri: &Uri, scope: ApiKeyScope) -> Result<ClientKey, Refusal> {
        let stored = self.lock();
        if !stored.required {
            return Ok(ClientKey { id: String::new(), limits: KeyLimits::default(), admin: true });
        }
        let given = bearer(headers).or_else(|| query_value(uri.query().unwrap_or_default(), "token"));
        let hash = hash_of(&given.ok_or(Refusal::NoKey)?);
        // Compares with every key, so that the time does not tell how many there are before it.
        let mut found = None;
        for key in self.configured.iter().chain(&stored.keys) {
            if bool::from(key.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(key);
            }
        }
        let key = found.ok_or(Refusal::WrongKey)?;
        let admin = key.scope == ApiKeyScope::Admin;
        match admin || key.scope == scope {
            true => Ok(ClientKey { id: key.id(), limits: key.limits, admin }),
            false => Err(Refusal::Scope { has: key.scope.name(), needs: scope.name() }),
        }
    }
}

/// Refuses requests of web pages, so that a page in a browser of the grid cannot use the grid.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.contains_key(header::ORIGIN) {
        true => Err(Refusal::WebPage),
        false => Ok(()),
    }
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::{MemorySlotStore, api_key_name};

    async fn check(uri: &str, authorization: Option<&str>, scope: ApiKeyScope) -> Result<String, u16> {
        let key = |name: &str, scope| ApiKey::new(name, &format!("{name}+secret"), scope, KeyLimits::default());
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        let keys =
            [key("blue", ApiKeyScope::Client), key("host", ApiKeyScope::Worker), key("root", ApiKeyScope::Admin)];
        let (keys, store) = (ApiKeys::new(keys.to_vec()), MemorySlotStore::new());
        let found = keys.authorize(&store, &headers, &uri.parse().unwrap(), scope).await;
        found.map(|key| api_key_name(&key.id).to_owned()).map_err(|refusal| refusal.status().as_u16())
    }

    #[tokio::test]
    async fn key_is_found_in_the_header_or_in_the_query() {
        use ApiKeyScope::{Admin, Client, Worker};
        assert_eq!(check("/", Some("Bearer blue+secret"), Client).await, Ok("blue".to_owned()));
        assert_eq!(check("/?a=b&token=blue%2Bsecret", None, Client).await, Ok("blue".to_owned()));
        for scope in [Client, Worker, Admin] {
            assert_eq!(check("/?token=root%2Bsecret", None, scope).await, Ok("root".to_owned()));
        }
    }

    #[tokio::test]
    async fn missing_wrong_and_weak_keys_are_refused() {
        use ApiKeyScope::{Admin, Client, Worker};
        assert_eq!(check("/", None, Client).await, Err(401));
        assert_eq!(check("/?token=", None, Client).await, Err(401));
        assert_eq!(check("/?token=green", None, Client).await, Err(401));
        assert_eq!(check("/", Some("Basic blue+secret"), Client).await, Err(401));
        assert_eq!(check("/?token=blue%2Bsecret", None, Admin).await, Err(403));
        assert_eq!(check("/?token=blue%2Bsecret", None, Worker).await, Err(403));
        assert_eq!(check("/?token=host%2Bsecret", None, Client).await, Err(403));
    }

    #[tokio::test]
    async fn server_that_had_a_key_is_never_open_again() {
        let (store, keys) = (MemorySlotStore::new(), ApiKeys::new(Vec::new()));
        let (secret, stored) = ApiKey::generate("ci", ApiKeyScope::Client, KeyLimits::default(), 0);
        assert!(!stored.hash.contains(&secret));
        let ask = |uri: String| {
            let (store, keys) = (&store, &keys);
            async move { keys.authorize(store, &HeaderMap::new(), &uri.parse().unwrap(), ApiKeyScope::Client).await }
        };
        assert_eq!(ask("/".to_owned()).await.unwrap().id, "");
        store.add_api_key(&stored).await.unwrap();
        keys.reload(&store).await.unwrap();
        assert_eq!(ask("/".to_owned()).await.unwrap_err().status(), 401);
        assert_eq!(ask(format!("/?token={secret}")).await.unwrap().id, stored.id());
        assert!(!keys.is_revoked(&stored.id()));
        store.revoke_api_key("ci").await.unwrap();
        keys.reload(&store).await.unwrap();
        assert!(keys.is_revoked(&stored.id()));
        assert_eq!(ask(format!("/?token={secret}")).await.unwrap_err().status(), 401);
    }

    #[tokio::test]
    async fn key_that_the_store_lost_ends_no_session_and_opens_none() {
        let (store, keys) = (MemorySlotStore::new(), ApiKeys::new(Vec::new()));
        let (secret, stored) = ApiKey::generate("ci", ApiKeyScope::Client, KeyLimits::default(), 0);
        store.add_api_key(&stored).await.unwrap();
        keys.reload(&store).await.unwrap();
        let emptied = MemorySlotStore::new();
        keys.reload(&emptied).await.unwrap();
        assert!(!keys.is_revoked(&stored.id()) && keys.unsettled().is_empty());
        let uri = format!("/?token={secret}").parse().unwrap();
        let refused = keys.authorize(&emptied, &HeaderMap::new(), &uri, ApiKeyScope::Client).await;
        assert_eq!(refused.unwrap_err().status(), 401);
    }

    #[tokio::test]
    async fn key_that_is_created_again_is_another_key() {
        let (store, keys) = (MemorySlotStore::new(), ApiKeys::new(Vec::new()));
        let generate = || ApiKey::generate("ci", ApiKeyScope::Client, KeyLimits::default(), 0).1;
        let (old, new) = (generate(), generate());
        store.add_api_key(&old).await.unwrap();
        keys.reload(&store).await.unwrap();
        store.revoke_api_key("ci").await.unwrap();
        store.add_api_key(&new).await.unwrap();
        keys.reload(&store).await.unwrap();
        assert!(keys.is_revoked(&old.id()) && !keys.is_revoked(&new.id()));
    }

    #[tokio::test(start_paused = true)]
    async fn revoked_key_is_settled_when_neither_a_session_nor_a_claim_is_left() {
        let (store, keys) = (MemorySlotStore::new(), ApiKeys::new(Vec::new()));
        let (_, stored) = ApiKey::generate("ci", ApiKeyScope::Client, KeyLimits::default(), 0);
        store.add_api_key(&stored).await.unwrap();
        store.revoke_api_key("ci").await.unwrap();
        keys.reload(&store).await.unwrap();
        let longest = Duration::from_secs(40);
        keys.settle(|_| false, longest);
        assert_eq!(keys.unsettled(), BTreeSet::from([stored.id()]), "a client may still wait");
        tokio::time::advance(longest * 2).await;
        keys.settle(|_| true, longest);
        assert_eq!(keys.unsettled().len(), 1);
        keys.settle(|_| false, longest);
        keys.reload(&store).await.unwrap();
        assert!(keys.unsettled().is_empty() && keys.is_revoked(&stored.id()));
    }
}
