//! `squall up`: starts a fleet on this machine, in processes that outlive this one. Records each
//! process in the state file as soon as it is started, and stops all of them if the fleet does not
//! become ready.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    api_client::ApiClient,
    args::UpArgs,
    commands::down,
    exit::{CliError, PASSED},
    fleet_store,
    local_fleet_state::{self, FleetProcess, FleetStoreAddress, LocalFleetState},
    script_host::ScriptHost,
    terminal::{self, WAIT_NOTICE_DELAY, pluralize, print},
};

/// How long the fleet has to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many free ports are tried, because another process may take one first.
const MAX_PORT_ATTEMPTS: usize = 5;

fn check_no_fleet_running() -> Result<(), CliError> {
    // An unreadable state file is an error here: its processes may still run.
    let Some(state) = local_fleet_state::running_fleet()? else { return Ok(()) };
    let ended: Vec<&str> =
        state.processes.iter().filter(|process| !process.is_running()).map(|process| &*process.role).collect();
    Err(CliError::new(match ended.is_empty() {
        true => format!(
            "a fleet is running, its API is at {}: use it with `squall test start …`, or stop it with `squall down`",
            state.api
        ),
        false => format!(
            "a fleet was started here, but {} has ended: stop the rest with `squall down` first",
            ended.join(", ")
        ),
    }))
}

pub(crate) fn up<H: ScriptHost>(args: &UpArgs, host: &H) -> Result<u8, CliError> {
    check_no_fleet_running()?;
    check_listen_address(args)?;
    check_redis_reachable(args)?;
    // A second `squall up` waits here, and then finds the fleet of the first.
    let _lock = local_fleet_state::lock()?;
    check_no_fleet_running()?;
    let mut fleet = FleetStarter::new(args, host.interpreter())?;
    match fleet.start(args) {
        Ok(()) => fleet.print_summary(args),
        Err(error) => {
            let log = fleet.log_tail();
            down::stop_processes(&fleet.state.processes, String::new);
            down::clean_up();
            Err(CliError::new(format!("the fleet did not start: {error}{log}")))
        }
    }
}

/// Checks the address before anything is started.
fn check_listen_address(args: &UpArgs) -> Result<(), CliError> {
    let token = args.token.as_ref().map(|secret| squall_web::ApiToken::new(secret.0.clone())).transpose();
    let token = token.map_err(|error| CliError::new(format!("--token: {error}")))?;
    let config = squall_web::WebConfig { token, ..squall_web::WebConfig::local("") };
    config.check_address(args.listen).map_err(|error| CliError::new(error.to_string()))?;
    match args.listen.port() {
        0 => Err(CliError::new("--listen: give a port other than 0, so that the API can be found")),
        _ => TcpListener::bind(args.listen).map(drop).map_err(|error| {
            CliError::new(format!("cannot listen on {}: {error}; give another address with --listen", args.listen))
        }),
    }
}

/// Checks the Redis server before anything is started, because it has an exit code of its own.
fn check_redis_reachable(args: &UpArgs) -> Result<(), CliError> {
    let Some(url) = &args.redis else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    let on_wait = |reason: &str| terminal::print_stderr(format!("{reason}\n"));
    runtime.block_on(fleet_store::connect(url, on_wait)).map(drop)
}

/// A fleet that is being started.
struct FleetStarter {
    folder: PathBuf,
    state: LocalFleetState,
    children: Vec<(String, Child)>,
    /// The log to quote if the start fails.
    log: PathBuf,
    store: &'static str,
    /// The interpreter that runs this program, if it runs inside one.
    interpreter: Option<PathBuf>,
}

impl FleetStarter {
    fn new(args: &UpArgs, interpreter: Option<PathBuf>) -> Result<FleetStarter, CliError> {
        down::clean_up();
        let folder = local_fleet_state::create_folder()?;
        let mut api_address = args.listen;
        if api_address.ip().is_unspecified() {
            // Clients cannot connect to 0.0.0.0.
            api_address = SocketAddr::from(([127, 0, 0, 1], api_address.port()));
        }
        let state = LocalFleetState { api: format!("http://{api_address}"), store: None, processes: Vec::new() };
        local_fleet_state::write(&folder, &state)?;
        let log = folder.join("orchestrator.log");
        let store = "in memory, in the orchestrator's process";
        Ok(FleetStarter { folder, state, children: Vec::new(), log, store, interpreter })
    }

    fn start(&mut self, args: &UpArgs) -> Result<(), CliError> {
        let redis = match (&args.redis, find_redis_server()) {
            (Some(url), _) => {
                self.store = "the Redis server of --redis";
                Some(url.clone())
            }
            (None, Some(program)) if !args.in_memory => Some(self.start_redis(&program)?),
            _ => None,
        };
        self.state.store = redis.clone().map(|redis| FleetStoreAddress { redis, fleet: args.fleet.clone() });
        let mut arguments = vec!["orchestrator".to_owned(), "--listen".to_owned(), args.listen.to_string()];
        if let Some(scenario) = &args.scenario {
            arguments.extend(["--scenario".to_owned(), scenario.display().to_string()]);
        }
        arguments.extend(args.shown.words());
        if let Some(folder) = &args.history.history {
            arguments.extend(["--history".to_owned(), folder.display().to_string()]);
            let limit = args.history.history_limit.map(|mib| ["--history-limit".to_owned(), mib.to_string()]);
            arguments.extend(limit.into_iter().flatten());
        }
        match &redis {
            Some(_) => arguments.extend(["--fleet".to_owned(), args.fleet.clone()]),
            None => arguments.extend(["--memory-workers".to_owned(), args.workers.to_string()]),
        }
        let token = args.token.as_ref().map(|secret| secret.0.as_str());
        self.start_squall("orchestrator", &arguments, redis.as_deref(), token)?;
        for number in (1..=args.workers).filter(|_| redis.is_some()) {
            let role = format!("worker-{number}");
            let arguments = ["worker", "--id", &role, "--fleet", &args.fleet].map(str::to_owned);
            self.start_squall(&role, &arguments, redis.as_deref(), None)?;
        }
        self.wait_until_ready(args)
    }

    /// Starts a Redis server for this fleet: on loopback, with a random password, without
    /// persistence.
    fn start_redis(&mut self, program: &Path) -> Result<String, CliError> {
        self.store = "redis-server, started for this fleet";
        let password = squall_coord::unique_id();
        let folder = self.folder.join("redis");
        fs::create_dir_all(&folder).map_err(|error| CliError::file_error("create", &folder, &error))?;
        for _ in 0..MAX_PORT_ATTEMPTS {
            let port = free_port().map_err(|error| CliError::new(format!("cannot find a free port: {error}")))?;
            let mut command = Command::new(program);
            // Settings on standard input, because every user of the machine can read arguments.
            command.arg("-").stdin(Stdio::piped());
            let child = self.spawn("redis-server", command)?;
            let settings = format!(
                "bind 127.0.0.1\nport {port}\ndir \"{}\"\nsave \"\"\nappendonly no\nrequirepass {password}\n",
                folder.display()
            );
            if let Some(mut stdin) = child.stdin.take() {
                let _ = stdin.write_all(settings.as_bytes());
            }
            if self.redis_is_up(port)? {
                return Ok(format!("redis://:{password}@127.0.0.1:{port}/"));
            }
        }
        Err(CliError::new(format!(
            "{} did not start: see its log, or use --redis URL or --in-memory",
            program.display()
        )))
    }

    fn redis_is_up(&mut self, port: u16) -> Result<bool, CliError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while Instant::now() < deadline {
            let (_, child) = self.children.last_mut().expect("the server was just started");
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                self.children.pop();
                self.state.processes.pop();
                local_fleet_state::write(&self.folder, &self.state)?;
                return Ok(false);
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(true);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(false)
    }

    fn start_squall(
        &mut self,
        role: &str,
        arguments: &[String],
        redis: Option<&str>,
        token: Option<&str>,
    ) -> Result<(), CliError> {
        let mut command = own_command(self.interpreter.as_deref())?;
        command.args(arguments).stdin(Stdio::null()).env_remove("SQUALL_TOKEN").env_remove("SQUALL_REDIS");
        // In the environment, which only the user can read.
        command
            .envs(redis.map(|url| ("SQUALL_REDIS", url)).into_iter().chain(token.map(|token| ("SQUALL_TOKEN", token))));
        self.spawn(role, command).map(drop)
    }

    /// Starts a process that outlives this one, with a log of its own, and records it in the state
    /// file.
    fn spawn(&mut self, role: &str, mut command: Command) -> Result<&mut Child, CliError> {
        self.log = self.folder.join(format!("{role}.log"));
        let log = open_log(&self.log).map_err(|error| CliError::file_error("write", &self.log, &error))?;
        let errors = log.try_clone().map_err(|error| CliError::file_error("write", &self.log, &error))?;
        // In a process group of its own, so that Ctrl-C in this terminal does not stop it.
        command.stdout(log).stderr(errors).process_group(0);
        let child = command.spawn();
        let child = child.map_err(|error| CliError::new(format!("cannot start {role}: {error}")))?;
        let started = FleetProcess::from_pid(role, child.id() as i32);
        self.children.push((role.to_owned(), child));
        self.state.processes.extend(started);
        local_fleet_state::write(&self.folder, &self.state)?;
        Ok(&mut self.children.last_mut().expect("just pushed").1)
    }

    fn wait_until_ready(&mut self, args: &UpArgs) -> Result<(), CliError> {
        let mut api = ApiClient::with_base_url(&self.state.api, None, None)?;
        let started = Instant::now();
        let mut notified = false;
        loop {
            for (role, child) in &mut self.children {
                if let Ok(Some(status)) = child.try_wait() {
                    self.log = self.folder.join(format!("{role}.log"));
                    return Err(CliError::new(format!("{role} ended ({status})")));
                }
            }
            let ready = api.get("/readyz").ok().and_then(|ready| ready["alive_workers"].as_u64()).unwrap_or(0);
            if ready >= u64::from(args.workers) {
                return Ok(());
            }
            if started.elapsed() > WAIT_NOTICE_DELAY && !notified {
                notified = true;
                terminal::print_stderr(format!("waiting for the workers: {ready} of {} are ready\n", args.workers));
            }
            if started.elapsed() > READY_TIMEOUT {
                return Err(CliError::new(format!(
                    "{ready} of {} were ready in time: see the logs of the workers",
                    pluralize(args.workers, "worker")
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn print_summary(&self, args: &UpArgs) -> Result<u8, CliError> {
        let api = &self.state.api;
        let mut text = format!(
            "a fleet of {} is up\n  API    {api}\n  web UI {}\n  store  {}\n",
            pluralize(args.workers, "worker"),
            if squall_web::has_ui() { api } else { "none: this build has no web UI; `make ui` adds it" },
            self.store
        );
        for process in &self.state.processes {
            text += &format!("  {:<14} pid {}\n", process.role, process.pid);
        }
        text += &format!("  logs   {}\n\n", self.folder.display());
        let token = args.token.as_ref().map(|secret| secret.0.clone());
        // An error is ignored: the fleet has started.
        if let Ok(Some(epoch)) = ApiClient::with_base_url(api, token, None).and_then(|mut api| api.running_test_epoch())
        {
            text +=
                &format!("test {epoch} is running, and these workers take part in it; `squall test stop` ends it\n\n");
        }
        text += "next:\n";
        text += "  squall target                                              in another terminal: something to test\n";
        if self.state.store.is_some() {
            text += "  squall run http://127.0.0.1:8089/api/products --rate 200 --for 30s --cluster\n";
        }
        text += "  squall test start http://127.0.0.1:8089/api/products --rate 200 --for 30s\n";
        text += "  squall test status --watch\n  squall down\n";
        print::stdout(text.as_bytes())?;
        Ok(PASSED)
    }

    /// The last lines of the log, which most likely say why the start failed.
    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(5)..];
        tail.iter().map(|line| format!("\n  {line}")).collect()
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// The command that runs this program; inside Python, the interpreter with `-m squall`.
pub(super) fn own_command(interpreter: Option<&Path>) -> Result<Command, CliError> {
    if let Some(interpreter) = interpreter {
        let mut command = Command::new(interpreter);
        // `-P`: the current folder may hold a `squall.py`.
        command.args(["-P", "-m", "squall"]);
        return Ok(command);
    }
    let path = std::env::current_exe();
    path.map(Command::new).map_err(|error| CliError::new(format!("cannot find this program: {error}")))
}

fn find_redis_server() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found("redis-server").or_else(|| found("valkey-server"))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
