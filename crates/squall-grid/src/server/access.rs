//! API keys: who may use the server, and whose session is whose.
//! Secrets are compared by their hashes and never kept. Every route except health checks asks
//! [`ApiKeys`]; the server's heartbeat reloads the keys of the store.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Uri, header};
use ring::{digest, rand::SecureRandom};
use squall_coord::{ApiKeyScope, SlotStore, StoreError, StoredApiKey};
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
    /// Empty if the server has no keys.
    pub(crate) name: String,
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
    /// Names of keys that the store had and has no more.
    revoked: BTreeSet<String>,
}

impl ApiKeys {
    pub(crate) fn new(configured: Vec<ApiKey>) -> Self {
        let required = !configured.is_empty();
        Self { configured, stored: Mutex::new(StoredKeys { required, ..StoredKeys::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, StoredKeys> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the keys of the store.
    pub(crate) async fn reload<S: SlotStore>(&self, store: &S) -> Result<(), StoreError> {
        let keys: Vec<ApiKey> = store.api_keys().await?.into_iter().map(ApiKey::from).collect();
        let mut stored = self.lock();
        stored.required |= !keys.is_empty();
        stored.loaded = Some(Instant::now());
        let before = std::mem::replace(&mut stored.keys, keys);
        let StoredKeys { keys, revoked, .. } = &mut *stored;
        revoked.extend(before.into_iter().map(|key| key.name));
        revoked.retain(|name| !self.configured.iter().chain(&*keys).any(|key| key.name == *name));
        Ok(())
    }

    /// The names of revoked keys. A key that this server has never had is not among them, because it may
    /// be a key of another server.
    pub(crate) fn revoked(&self) -> BTreeSet<String> {
        self.lock().revoked.clone()
    }

    /// Whether a session of this key may continue.
    pub(crate) fn is_valid(&self, name: &str) -> bool {
        let stored = self.lock();
        name.is_empty() || self.configured.iter().chain(&stored.keys).any(|key| key.name == name)
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
            return Ok(ClientKey { name: String::new(), limits: KeyLimits::default(), admin: true });
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
            true => Ok(ClientKey { name: key.name.clone(), limits: key.limits, admin }),
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
    use squall_coord::MemorySlotStore;

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
        found.map(|key| key.name).map_err(|refusal| refusal.status().as_u16())
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
        assert_eq!(ask("/".to_owned()).await.unwrap().name, "");
        store.add_api_key(&stored).await.unwrap();
        keys.reload(&store).await.unwrap();
        assert_eq!(ask("/".to_owned()).await.unwrap_err().status(), 401);
        assert_eq!(ask(format!("/?token={secret}")).await.unwrap().name, "ci");
        store.revoke_api_key("ci").await.unwrap();
        keys.reload(&store).await.unwrap();
        assert!(!keys.is_valid("ci"));
        assert_eq!(ask(format!("/?token={secret}")).await.unwrap_err().status(), 401);
    }

    #[tokio::test(start_paused = true)]
    async fn revoked_key_is_known_until_it_is_created_again_whoever_reloads_the_keys() {
        let (store, keys) = (MemorySlotStore::new(), ApiKeys::new(Vec::new()));
        let generate = |name: &str| ApiKey::generate(name, ApiKeyScope::Client, KeyLimits::default(), 0);
        let ((_, old), (secret, new)) = (generate("old"), generate("new"));
        store.add_api_key(&old).await.unwrap();
        keys.reload(&store).await.unwrap();
        store.revoke_api_key("old").await.unwrap();
        store.add_api_key(&new).await.unwrap();
        tokio::time::advance(RELOAD_PAUSE).await;
        // The unknown key makes a request reload them.
        let uri = format!("/?token={secret}").parse().unwrap();
        keys.authorize(&store, &HeaderMap::new(), &uri, ApiKeyScope::Client).await.unwrap();
        for _ in 0..2 {
            assert_eq!(keys.revoked(), BTreeSet::from(["old".to_owned()]));
            keys.reload(&store).await.unwrap();
        }
        store.add_api_key(&old).await.unwrap();
        keys.reload(&store).await.unwrap();
        assert!(keys.revoked().is_empty());
    }
}
