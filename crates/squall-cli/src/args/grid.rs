//! The arguments of `squall grid`. squall-grid does the work.

use clap::{Args, Subcommand, ValueEnum};
use squall_grid::ServerConfig;
use squall_model::format_duration;
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use super::LogFormat;

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
const DEFAULT_GRID: &str = "main";

pub(crate) const GRID_EXAMPLES: &str = "\
Examples:
  squall grid up --workers 2             a grid on this machine
  squall grid serve --redis redis://127.0.0.1:6379
  squall grid worker --redis redis://127.0.0.1:6379 --slots 5
  squall grid status --redis redis://127.0.0.1:6379
  squall grid key create ci --redis redis://127.0.0.1:6379

docs/grid.md has clients in Node, Python, Java and .NET.";

const KEY_EXAMPLES: &str = "\
Examples:
  squall grid key create ci --redis redis://127.0.0.1:6379 > ci.key
  squall grid key list --redis redis://127.0.0.1:6379
  squall grid key revoke ci --redis redis://127.0.0.1:6379";

/// The commands of `squall grid`.
#[derive(Debug, Subcommand)]
pub(crate) enum GridCommand {
    /// Serve clients: give each a browser of a worker
    Serve(GridServeArgs),
    /// Run a worker: offer browsers of this machine
    Worker(GridWorkerArgs),
    /// Run a server and workers in one process, without Redis
    Up(GridUpArgs),
    /// Show workers, capacity and sessions
    Status(GridStatusArgs),
    /// Create, list and revoke API keys
    #[command(subcommand, after_help = KEY_EXAMPLES)]
    Key(GridKeyCommand),
    /// Become a browser that reads only files of the system and of its own folder; a worker runs this
    #[command(hide = true)]
    Confine(GridConfineArgs),
}

/// Arguments of `squall grid confine`.
#[derive(Debug, Args)]
pub(crate) struct GridConfineArgs {
    /// The browser's program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: PathBuf,
    /// The browser's arguments
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// The commands of `squall grid key`.
#[derive(Debug, Subcommand)]
pub(crate) enum GridKeyCommand {
    /// Create a key and print its secret, once
    Create(GridKeyCreateArgs),
    /// List the keys, without secrets
    List(GridKeyListArgs),
    /// Revoke a key; its sessions end within a second
    Revoke(GridKeyRevokeArgs),
}

/// Arguments of `squall grid key create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall grid key create ci --redis redis://127.0.0.1:6379 > ci.key
  squall grid key create nightly --sessions 4 --redis redis://127.0.0.1:6379
  squall grid key create ops --scope admin --redis redis://127.0.0.1:6379

The store keeps a hash of the secret. Servers accept the key at once. A grid
without Redis takes its keys from `squall grid serve --key`.")]
pub(crate) struct GridKeyCreateArgs {
    /// Name of the key, which sessions and logs show
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What the key allows
    #[arg(long, value_name = "SCOPE", default_value = "client")]
    pub(crate) scope: KeyScopeArg,
    /// The most sessions and waiting clients of the key
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sessions: Option<u64>,
    /// The most waiting clients of the key
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) waiting: Option<u64>,
    #[command(flatten)]
    pub(crate) store: GridStoreArgs,
}

/// What an API key allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyScopeArg {
    /// Open sessions, and see and end its own
    Client,
    /// Offer slots to a server without Redis
    Worker,
    /// Everything
    Admin,
}

/// Arguments of `squall grid key revoke`.
#[derive(Debug, Args)]
#[command(after_help = KEY_EXAMPLES)]
pub(crate) struct GridKeyRevokeArgs {
    /// Name of the key
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) store: GridStoreArgs,
}

/// The store of a grid.
#[derive(Debug, Args)]
pub(crate) struct GridStoreArgs {
    /// Redis server of the grid
    #[arg(long, value_name = "URL", env = "SQUALL_REDIS", hide_env_values = true)]
    pub(crate) redis: String,
    /// Name of the grid, if several share a server; empty for playwright-distributed's key names
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GRID, value_parser = crate::args::parse_fleet_name)]
    pub(crate) grid: String,
}

/// The store of a server, in Redis or in its memory.
#[derive(Debug, Args)]
pub(crate) struct GridServerStoreArgs {
    /// Redis server of the grid [default: the slots are in a server's memory]
    #[arg(long, value_name = "URL", env = "SQUALL_REDIS", hide_env_values = true)]
    pub(crate) redis: Option<String>,
    /// Name of the grid, if several share a server; empty for playwright-distributed's key names
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GRID, value_parser = crate::args::parse_fleet_name)]
    pub(crate) grid: String,
}

/// How a server treats its clients.
#[derive(Debug, Args)]
pub(crate) struct GridClientArgs {
    /// Address to listen on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    pub(crate) listen: SocketAddr,
    /// API key of a client: NAME=SECRET, NAME=@FILE or NAME=$VARIABLE; repeatable
    #[arg(long, value_name = "NAME=SECRET")]
    pub(crate) key: Vec<String>,
    /// API key of an administrator, who sees all sessions and may drain workers
    #[arg(long, value_name = "NAME=SECRET")]
    pub(crate) admin_key: Vec<String>,
    /// API key of a worker that offers its slots with --server
    #[arg(long, value_name = "NAME=SECRET")]
    pub(crate) worker_key: Vec<String>,
    /// The most sessions and waiting clients of a key
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) key_sessions: Option<u64>,
    /// The most waiting clients of a key, so that one key does not fill the queue
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) key_waiting: Option<u64>,
    /// The most clients that wait for a browser, over all servers
    #[arg(long, value_name = "N", default_value_t = ServerConfig::QUEUE_LIMIT)]
    pub(crate) queue: u64,
    /// How long a client may wait for a browser
    #[arg(long, value_name = "TIME", default_value = format_duration(ServerConfig::QUEUE_TIMEOUT), value_parser = parse_time)]
    pub(crate) queue_timeout: Duration,
    /// How long sessions may last after a stop signal
    #[arg(long, value_name = "TIME", default_value = format_duration(ServerConfig::DRAIN_TIMEOUT), value_parser = parse_time)]
    pub(crate) grace: Duration,
    /// Whether clients and browsers may compress messages; off saves CPU
    #[arg(long, value_name = "ON|OFF", default_value = "on")]
    pub(crate) compression: Switch,
    /// Send Playwright clients to the worker itself, which they must reach
    #[arg(long)]
    pub(crate) direct: bool,
    /// Let --listen use addresses that other machines reach, without API keys
    #[arg(long, env = "SQUALL_ALLOW_REMOTE")]
    pub(crate) allow_remote: bool,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Arguments of `squall grid serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall grid serve --redis redis://127.0.0.1:6379
  squall grid serve --redis redis://127.0.0.1:6379 --listen 0.0.0.0:8080 \\
    --key ci=@ci.key --admin-key ops=$OPS_KEY
  squall grid serve --key ci=@ci.key --worker-key host=@host.key

Without --redis, the queue and the slots are in this server's memory: there is
one server, and workers join it with `squall grid worker --server URL`.
Clients connect to ws://HOST:PORT/?browser=chromium, with &token=SECRET if there
are keys. Several servers may share a grid. SIGTERM drains: sessions may last
for --grace, and new clients are refused.")]
pub(crate) struct GridServeArgs {
    #[command(flatten)]
    pub(crate) store: GridServerStoreArgs,
    #[command(flatten)]
    pub(crate) clients: GridClientArgs,
}

/// The browsers of a worker.
#[derive(Debug, Args)]
pub(crate) struct GridBrowserArgs {
    /// The most sessions at once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) slots: u32,
    /// The browser
    #[arg(long, value_name = "NAME", default_value = "chromium")]
    pub(crate) browser: BrowserName,
    /// The browser's program [default for chromium: Debian's headless shell, if it is installed]
    #[arg(long, value_name = "FILE")]
    pub(crate) executable: Option<PathBuf>,
    /// Another argument for the browser; repeatable
    #[arg(long = "arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
    /// Folder of the package playwright-core; repeat it to serve clients of several versions
    #[arg(long, value_name = "DIR", default_value = "node_modules/playwright-core", env = "SQUALL_PLAYWRIGHT")]
    pub(crate) playwright: Vec<PathBuf>,
    /// The program of Node.js
    #[arg(long, value_name = "FILE", default_value = "node")]
    pub(crate) node: PathBuf,
    /// Which sessions may share a browser
    #[arg(long, value_name = "WHO", default_value = "key")]
    pub(crate) isolation: IsolationArg,
    /// Files that pages and clients may read with file:// URLs
    #[arg(long, value_name = "WHICH", default_value = "own")]
    pub(crate) file_access: FileAccessArg,
    /// Browsers that stand by
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) spare: u16,
    /// A browser is replaced after this many sessions
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) recycle_after: u64,
    /// A browser is replaced at this age
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_age)]
    pub(crate) max_age: Duration,
    /// A browser is replaced when its processes have more memory of their own than this
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) max_memory: Option<u64>,
    /// How long sessions may keep a browser that is to be replaced
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_time)]
    pub(crate) recycle_timeout: Duration,
}

/// A browser of Playwright.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BrowserName {
    Chromium,
    Firefox,
    Webkit,
}

/// Which sessions may share a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// All
    Shared,
    /// Those of one API key
    Key,
    /// None
    Session,
}

/// Files that a browser may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileAccessArg {
    /// Those of the system, and its own
    Own,
    /// All that the worker's user may read
    Any,
}

/// Arguments of `squall grid worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall grid worker --redis redis://127.0.0.1:6379
  squall grid worker --redis redis://10.0.0.5 --listen 0.0.0.0:3131 \\
    --advertise worker-1:3131 --slots 10
  squall grid worker --server http://10.0.0.5:8080 --server-key @host.key
  squall grid worker --redis redis://10.0.0.5 \\
    --playwright v1.65/node_modules/playwright-core \\
    --playwright v1.64/node_modules/playwright-core

It needs Node.js, the package playwright-core and a browser, and installs
nothing. SIGTERM drains: open sessions may last for --drain-timeout.")]
pub(crate) struct GridWorkerArgs {
    #[command(flatten)]
    pub(crate) store: GridServerStoreArgs,
    /// Server that has its store in memory; --redis is then not used
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// API key with the scope worker for --server: SECRET, @FILE or $VARIABLE
    #[arg(long, value_name = "SECRET", requires = "server")]
    pub(crate) server_key: Option<String>,
    /// Name of this worker, unique in the grid [default: the host's name and a random part]
    #[arg(long, value_name = "NAME")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) browsers: GridBrowserArgs,
    /// Address of the gateway, for servers; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Host and port under which servers reach the gateway [default: --listen]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_host_and_port)]
    pub(crate) advertise: Option<String>,
    /// The worker drains and ends after this many sessions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_lifetime_sessions: Option<u64>,
    /// How long sessions may last after the worker began to drain
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time)]
    pub(crate) drain_timeout: Duration,
    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log: LogFormat,
}

/// Arguments of `squall grid up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  npm install playwright-core && squall grid up
  squall grid up --workers 2 --slots 5 --listen 127.0.0.1:9222

Ctrl-C ends it.")]
pub(crate) struct GridUpArgs {
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) workers: u16,
    #[command(flatten)]
    pub(crate) browsers: GridBrowserArgs,
    #[command(flatten)]
    pub(crate) clients: GridClientArgs,
}

/// Arguments of `squall grid status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  squall grid status --redis redis://127.0.0.1:6379
  squall grid status --redis redis://127.0.0.1:6379 --grid ci --watch
  squall grid status --server http://127.0.0.1:8080 --watch

--server shows a grid without Redis, such as that of `squall grid up`.")]
pub(crate) struct GridStatusArgs {
    #[command(flatten)]
    pub(crate) store: GridServerStoreArgs,
    /// A server of the grid; --redis is then not used [default without --redis: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// API key for --server, which shows the key's sessions: SECRET, @FILE or $VARIABLE
    #[arg(long, value_name = "SECRET")]
    pub(crate) server_key: Option<String>,
    /// Show it again every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Arguments of `squall grid key list`.
#[derive(Debug, Args)]
#[command(after_help = KEY_EXAMPLES)]
pub(crate) struct GridKeyListArgs {
    #[command(flatten)]
    pub(crate) store: GridStoreArgs,
}

impl GridStatusArgs {
    /// The server to ask; `None` if the store in Redis has the grid. A server wins, because the address of Redis is
    /// often that of the environment.
    pub(crate) fn server_url(&self) -> Option<String> {
        let default = || self.store.redis.is_none() || self.server_key.is_some();
        self.server.clone().or_else(|| default().then(|| format!("http://{DEFAULT_LISTEN}")))
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    squall_model::parse_duration(text).map_err(|error| error.to_string())
}

/// A browser that is old at once would be replaced for ever.
fn parse_age(text: &str) -> Result<Duration, String> {
    let age = parse_time(text)?;
    if age < Duration::from_secs(1) { Err("give at least 1s".to_owned()) } else { Ok(age) }
}

fn parse_host_and_port(text: &str) -> Result<String, String> {
    let authority: Option<http::uri::Authority> = text.parse().ok();
    let complete = authority.is_some_and(|parts| {
        !parts.host().is_empty() && parts.port_u16().is_some_and(|port| port > 0) && !text.contains('@')
    });
    if complete { Ok(text.to_owned()) } else { Err("write HOST:PORT, such as worker-1:3131".to_owned()) }
}
