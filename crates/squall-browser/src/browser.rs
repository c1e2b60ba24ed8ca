//! A browser that this process started, or a session of a browser grid, and the pages that it opens. What
//! happens on a page is the business of [`Page`]. squall-scenario launches one browser for each engine
//! thread, or keeps as many sessions of a grid as it has iterations under way.

use serde_json::json;
use std::{path::PathBuf, rc::Rc, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, CertificateError, ClientConfig, pki_types::ServerName},
};
use tokio_tungstenite::tungstenite::{
    self,
    client::IntoClientRequest,
    handshake::client::Request,
    http::{HeaderValue, header::AUTHORIZATION},
    protocol::WebSocketConfig,
};

use crate::{
    CdpError, Page,
    connection::{Connection, ConnectionTasks, MAX_MESSAGE_BYTES},
    executable::{ExecutableError, find_executable},
    process::{BrowserPipes, BrowserProcess},
};

/// How to start a browser.
#[derive(Debug, Clone)]
pub struct BrowserConfig {
    /// The browser's binary; `None` takes the first one that is installed.
    pub executable: Option<PathBuf>,
    /// Further switches of Chromium.
    pub args: Vec<String>,
    /// Width and height of pages, in pixels.
    pub viewport: (u32, u32),
    /// The browser must answer within this time.
    pub launch_timeout: Duration,
    /// Whether the browser also listens on a port of 127.0.0.1, for a client in another process.
    pub listens: bool,
    /// How a grid with a `wss://` URL is verified; `None` connects to `ws://` only.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Default for BrowserConfig {
    fn default() -> BrowserConfig {
        let launch_timeout = Duration::from_secs(60);
        BrowserConfig {
            executable: None,
            args: Vec::new(),
            viewport: (1280, 720),
            launch_timeout,
            listens: false,
            tls: None,
        }
    }
}

/// Why a browser cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Executable(#[from] ExecutableError),
    #[error("cannot start {}: {source}", executable.display())]
    Spawn { executable: PathBuf, source: std::io::Error },
    #[error("{} did not become ready ({reason}): {last_stderr_lines}", executable.display())]
    NotReady { executable: PathBuf, reason: String, last_stderr_lines: String },
}

/// Why a grid gives no session.
#[derive(Debug, thiserror::Error)]
pub enum BrowserConnectError {
    #[error("{0} is no URL of a grid: write ws://host:port or wss://host")]
    Url(String),
    #[error("cannot connect to the grid at {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// The grid's own sentence says what to do.
    #[error("the grid at {url} refused a session with status {status}: {reason}")]
    Refused { url: String, status: u16, reason: String },
    #[error("the grid at {url} gave no session within {waited:?}")]
    Timeout { url: String, waited: Duration },
}

/// A running browser. Dropping the last clone ends it, or its session of the grid; pages do not keep it.
#[derive(Clone)]
pub struct Browser {
    connection: Connection,
    viewport: (u32, u32),
    held: Rc<HeldBrowser>,
}

/// What ends with the last clone of a [`Browser`].
struct HeldBrowser {
    _tasks: ConnectionTasks,
    /// `None` for a browser of a grid.
    process: Option<BrowserProcess>,
    endpoint: Option<String>,
}

impl Browser {
    /// Starts a browser and waits until it answers. Call it inside a [`tokio::task::LocalSet`].
    pub async fn launch(config: &BrowserConfig) -> Result<Browser, LaunchError> {
        let executable = find_executable(config.executable.as_deref())?;
        let spawn_error = |source| LaunchError::Spawn { executable: executable.clone(), source };
        let (process, BrowserPipes { commands, messages }) =
            BrowserProcess::start(&executable, &config.args, config.listens).map_err(spawn_error)?;
        let writer = tokio::process::ChildStdin::from_std(commands).map_err(spawn_error)?;
        let reader = tokio::process::ChildStdout::from_std(messages).map_err(spawn_error)?;
        let (connection, tasks) = Connection::over_pipe(reader, writer);
        let ready = async {
            connection.call(None, "Browser.getVersion", json!({})).await?;
            Ok::<_, CdpError>(if config.listens { Some(process.endpoint(&connection).await?) } else { None })
        };
        let reason = match tokio::time::timeout(config.launch_timeout, ready).await {
            Ok(Ok(endpoint)) => {
                let held = Rc::new(HeldBrowser { _tasks: tasks, process: Some(process), endpoint });
                return Ok(Browser { connection, viewport: config.viewport, held });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", config.launch_timeout),
        };
        Err(LaunchError::NotReady { executable, reason, last_stderr_lines: process.last_stderr_lines() })
    }

    /// Opens a session of a grid: `url` is that of its CDP sessions, `ws://host:port/devtools/browser` or with
    /// `wss://`. Waits until the grid has a free slot. Call it inside a [`tokio::task::LocalSet`].
    pub async fn connect(
        url: &str,
        token: Option<&str>,
        config: &BrowserConfig,
    ) -> Result<Browser, BrowserConnectError> {
        let connecting = connect_websocket(url, token, config.tls.as_ref());
        let waited = config.launch_timeout;
        let (connection, tasks) = tokio::time::timeout(waited, connecting)
            .await
            .map_err(|_| BrowserConnectError::Timeout { url: shown(url), waited })??;
        let held = Rc::new(HeldBrowser { _tasks: tasks, process: None, endpoint: None });
        Ok(Browser { connection, viewport: config.viewport, held })
    }

    /// Opens a page with cookies, storage and cache of its own, all empty.
    pub async fn new_page(&self) -> Result<Page, CdpError> {
        Page::open(&self.connection, self.viewport).await
    }

    /// Gives up a browser that does not answer: all its commands fail, and it counts as ended.
    pub fn give_up(&self) {
        self.connection.give_up();
    }

    /// Whether the browser has ended by itself, or was given up.
    pub fn has_ended(&self) -> bool {
        self.connection.is_closed()
    }

    /// The process group that all processes of the browser belong to; `None` for a browser of a grid.
    pub fn process_group(&self) -> Option<i32> {
        self.held.process.as_ref().map(|process| process.group().as_raw_nonzero().get())
    }

    /// Where other CDP clients reach the browser, if it [listens](BrowserConfig::listens).
    pub fn endpoint(&self) -> Option<&str> {
        self.held.endpoint.as_deref()
    }
}

/// The URL for messages, which reports keep: the query may hold an API key.
fn shown(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

async fn connect_websocket(
    url: &str,
    token: Option<&str>,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<(Connection, ConnectionTasks), BrowserConnectError> {
    let no_url = || BrowserConnectError::Url(shown(url));
    let unreachable = |reason: String| BrowserConnectError::Unreachable { url: shown(url), reason };
    let mut request = url.into_client_request().map_err(|_| no_url())?;
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        request.headers_mut().insert(AUTHORIZATION, value.map_err(|_| unreachable("the token is no text".to_owned()))?);
    }
    let uri = request.uri();
    let (tls, default_port) = match (uri.scheme_str(), tls) {
        (Some("ws"), _) => (None, 80),
        (Some("wss"), Some(tls)) => (Some(tls), 443),
        _ => return Err(no_url()),
    };
    let host = uri.host().ok_or_else(no_url)?.to_owned();
    let port = uri.port_u16().unwrap_or(default_port);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(error.to_string()))?;
    // Commands are small and wait for their replies. Without it they would wait for acknowledgements too.
    stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
    let Some(tls) = tls else { return open_websocket(url, request, stream).await };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| no_url())?;
    let connecting = TlsConnector::from(tls.clone()).connect(name, stream);
    let stream = connecting.await.map_err(|error| unreachable(describe_tls_error(&error)))?;
    open_websocket(url, request, stream).await
}

/// The error with a remedy, if the user can give one.
fn describe_tls_error(error: &std::io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        // A trusted authority may have the name of the one that issued it, and another key.
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "no trusted authority issued its certificate; `ca` in [browser] names the file of one".to_owned()
        }
        _ => error.to_string(),
    }
}

async fn open_websocket(
    url: &str,
    request: Request,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
) -> Result<(Connection, ConnectionTasks), BrowserConnectError> {
    let limits =
        WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE_BYTES)).max_frame_size(Some(MAX_MESSAGE_BYTES));
    match tokio_tungstenite::client_async_with_config(request, stream, Some(limits)).await {
        Ok((socket, _)) => Ok(Connection::over_websocket(socket)),
        Err(tungstenite::Error::Http(response)) => {
            let (status, body) = (response.status().as_u16(), response.into_body().unwrap_or_default());
            let reason = String::from_utf8_lossy(&body).trim().chars().take(500).collect();
            Err(BrowserConnectError::Refused { url: shown(url), status, reason })
        }
        Err(error) => Err(BrowserConnectError::Unreachable { url: shown(url), reason: error.to_string() }),
    }
}
