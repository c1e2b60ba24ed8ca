//! `squall up`: a whole fleet on this machine, each part a process of its own that goes on when this one ends. Everything that is
//! started is written down first thing, and ended again if the fleet does not come up.

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
    api::Api,
    args::UpArgs,
    commands::down,
    exit::{PASSED, Refusal},
    fleet_store,
    program::Host,
    terminal::{self, SILENCE, counted, print},
    up_state::{self, Started, UpState},
};

/// A fleet that is not ready by then has a problem.
const READY_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// Another free port is tried this often, should somebody be faster.
const PORTS: usize = 5;

fn refuse_second_fleet() -> Result<(), Refusal> {
    // A record that cannot be read may be of processes that run: it is not written over.
    let Some(state) = up_state::running()? else { return Ok(()) };
    let ended: Vec<&str> = state.processes.iter().filter(|part| !part.is_running()).map(|part| &*part.role).collect();
    Err(Refusal::new(match ended.is_empty() {
        true => format!(
            "a fleet is running already, its API is at {}: use it with `squall test start …`, or end it with `squall down`",
            state.api
        ),
        false => format!(
            "a fleet was started here and has lost {}: end what is left of it with `squall down` first",
            ended.join(", ")
        ),
    }))
}

pub(crate) fn up<H: Host>(args: &UpArgs, host: &H) -> Result<u8, Refusal> {
    refuse_second_fleet()?;
    refuse_open_listener(args)?;
    refuse_dead_redis(args)?;
    // Whoever comes second waits, and finds the fleet of the first.
    let _alone = up_state::lock()?;
    refuse_second_fleet()?;
    let mut fleet = Starting::new(args, host.interpreter())?;
    match fleet.start(args) {
        Ok(()) => fleet.tell(args),
        Err(refusal) => {
            let log = fleet.last_lines();
            down::end(&fleet.state.processes, String::new);
            down::clean_up();
            Err(Refusal::new(format!("the fleet did not come up: {refusal}{log}")))
        }
    }
}

/// Said here already, before anything is started.
fn refuse_open_listener(args: &UpArgs) -> Result<(), Refusal> {
    let token = args.token.as_ref().map(|secret| squall_web::Token::new(secret.0.clone())).transpose();
    let token = token.map_err(|error| Refusal::new(format!("--token: {error}")))?;
    let config = squall_web::WebConfig { token, ..squall_web::WebConfig::local("") };
    config.check(args.listen).map_err(|error| Refusal::new(error.to_string()))?;
    match args.listen.port() {
        0 => Err(Refusal::new("--listen: give a port, so that the API can be found")),
        _ => TcpListener::bind(args.listen).map(drop).map_err(|error| {
            Refusal::new(format!("cannot listen on {}: {error}; give another address with --listen", args.listen))
        }),
    }
}

/// Said here already too, and with its own code.
fn refuse_dead_redis(args: &UpArgs) -> Result<(), Refusal> {
    let Some(url) = &args.redis else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::new(format!("cannot start a runtime: {error}")))?;
    let waiting = |why: &str| terminal::say(format!("{why}\n"));
    runtime.block_on(fleet_store::connect(url, waiting)).map(drop)
}

/// A fleet on its way up.
struct Starting {
    folder: PathBuf,
    state: UpState,
    children: Vec<(String, Child)>,
    /// The last log that was begun, for when it goes wrong.
    log: PathBuf,
    store: &'static str,
    /// What runs this program, if it is not one by itself.
    interpreter: Option<PathBuf>,
}

impl Starting {
    fn new(args: &UpArgs, interpreter: Option<PathBuf>) -> Result<Starting, Refusal> {
        down::clean_up();
        let folder = up_state::folder()?;
        let mut reach = args.listen;
        if reach.ip().is_unspecified() {
            // Not an address to go to.
            reach = SocketAddr::from(([127, 0, 0, 1], reach.port()));
        }
        let state = UpState { api: format!("http://{reach}"), processes: Vec::new() };
        up_state::write(&folder, &state)?;
        let log = folder.join("orchestrator.log");
        let store = "in memory, in the orchestrator's process";
        Ok(Starting { folder, state, children: Vec::new(), log, store, interpreter })
    }

    fn start(&mut self, args: &UpArgs) -> Result<(), Refusal> {
        let redis = match (&args.redis, server_in_path()) {
            (Some(url), _) => {
                self.store = "the Redis server that was given";
                Some(url.clone())
            }
            (None, Some(program)) if !args.in_memory => Some(self.start_redis(&program)?),
            _ => None,
        };
        let mut words = vec!["orchestrator".to_owned(), "--listen".to_owned(), args.listen.to_string()];
        if let Some(scenario) = &args.scenario {
            words.extend(["--scenario".to_owned(), scenario.display().to_string()]);
        }
        match &redis {
            Some(_) => words.extend(["--fleet".to_owned(), args.fleet.clone()]),
            None => words.extend(["--memory-workers".to_owned(), args.workers.to_string()]),
        }
        let token = args.token.as_ref().map(|secret| secret.0.as_str());
        self.start_squall("orchestrator", &words, redis.as_deref(), token)?;
        for number in (1..=args.workers).filter(|_| redis.is_some()) {
            let role = format!("worker-{number}");
            let words = ["worker", "--id", &role, "--fleet", &args.fleet].map(str::to_owned);
            self.start_squall(&role, &words, redis.as_deref(), None)?;
        }
        self.wait_until_ready(args)
    }

    /// A server of our own: only on loopback, with a password that only our processes know, without files.
    fn start_redis(&mut self, program: &Path) -> Result<String, Refusal> {
        self.store = "redis-server, started for this fleet";
        let password = squall_coord::MemberId::unique().to_string();
        let folder = self.folder.join("redis");
        fs::create_dir_all(&folder).map_err(|error| Refusal::file("create", &folder, &error))?;
        for _ in 0..PORTS {
            let port = free_port().map_err(|error| Refusal::new(format!("no port is free: {error}")))?;
            let mut command = Command::new(program);
            // Its settings come by standard input: arguments can be read by everybody on the machine.
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
        Err(Refusal::new(format!("{} did not start", program.display())))
    }

    fn redis_is_up(&mut self, port: u16) -> Result<bool, Refusal> {
        let give_up = Instant::now() + READY_WITHIN;
        while Instant::now() < give_up {
            let (_, child) = self.children.last_mut().expect("the server was just started");
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                self.children.pop();
                self.state.processes.pop();
                up_state::write(&self.folder, &self.state)?;
                return Ok(false);
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(true);
            }
            std::thread::sleep(LOOK);
        }
        Ok(false)
    }

    fn start_squall(
        &mut self,
        role: &str,
        words: &[String],
        redis: Option<&str>,
        token: Option<&str>,
    ) -> Result<(), Refusal> {
        let mut command = this_program(self.interpreter.as_deref())?;
        command.args(words).stdin(Stdio::null()).env_remove("SQUALL_TOKEN").env_remove("SQUALL_REDIS");
        // By the environment, which only its owner can read.
        command
            .envs(redis.map(|url| ("SQUALL_REDIS", url)).into_iter().chain(token.map(|token| ("SQUALL_TOKEN", token))));
        self.spawn(role, command).map(drop)
    }

    /// Starts a process that outlives this one, with a log of its own, and writes it down.
    fn spawn(&mut self, role: &str, mut command: Command) -> Result<&mut Child, Refusal> {
        self.log = self.folder.join(format!("{role}.log"));
        let log = open_log(&self.log).map_err(|error| Refusal::file("write", &self.log, &error))?;
        let errors = log.try_clone().map_err(|error| Refusal::file("write", &self.log, &error))?;
        // A group of its own: Ctrl-C in this terminal is not for it.
        command.stdout(log).stderr(errors).process_group(0);
        let child = command.spawn();
        let child = child.map_err(|error| Refusal::new(format!("cannot start {role}: {error}")))?;
        let started = Started::now(role, child.id() as i32);
        self.children.push((role.to_owned(), child));
        self.state.processes.extend(started);
        up_state::write(&self.folder, &self.state)?;
        Ok(&mut self.children.last_mut().expect("just pushed").1)
    }

    fn wait_until_ready(&mut self, args: &UpArgs) -> Result<(), Refusal> {
        let mut api = Api::at(&self.state.api, None, None)?;
        let began = Instant::now();
        let mut told = false;
        loop {
            for (role, child) in &mut self.children {
                if let Ok(Some(status)) = child.try_wait() {
                    self.log = self.folder.join(format!("{role}.log"));
                    return Err(Refusal::new(format!("{role} ended ({status})")));
                }
            }
            let ready = api.get("/readyz").ok().and_then(|ready| ready["alive_workers"].as_u64()).unwrap_or(0);
            if ready >= u64::from(args.workers) {
                return Ok(());
            }
            if began.elapsed() > SILENCE && !told {
                told = true;
                terminal::say(format!("waiting for the workers: {ready} of {} are ready\n", args.workers));
            }
            if began.elapsed() > READY_WITHIN {
                return Err(Refusal::new(format!("{ready} of {} were ready in time", counted(args.workers, "worker"))));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn tell(&self, args: &UpArgs) -> Result<u8, Refusal> {
        let api = &self.state.api;
        let mut text =
            format!("a fleet of {} is up\n  API    {api}\n  store  {}\n", counted(args.workers, "worker"), self.store);
        for process in &self.state.processes {
            text += &format!("  {:<14} pid {}\n", process.role, process.pid);
        }
        text += &format!("  logs   {}\n\n", self.folder.display());
        let token = args.token.as_ref().map(|secret| secret.0.clone());
        // That it cannot be asked is no fault of the fleet, which is up.
        if let Ok(Some(epoch)) = Api::at(api, token, None).and_then(|mut api| api.test_under_way()) {
            text += &format!(
                "test {epoch} is under way, and these workers take part in it; `squall test stop` ends it\n\n"
            );
        }
        text += "next:\n";
        text += "  squall target                                              in another terminal: something to test\n";
        text += "  squall test start http://127.0.0.1:8089/api/products --rate 200 --for 30s\n";
        text += "  squall test status --watch\n  squall down\n";
        print::stdout(text.as_bytes())?;
        Ok(PASSED)
    }

    /// Why it went wrong, most likely.
    fn last_lines(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(5)..];
        tail.iter().map(|line| format!("\n  {line}")).collect()
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// This program again; inside Python it is the interpreter with our package.
fn this_program(interpreter: Option<&Path>) -> Result<Command, Refusal> {
    if let Some(interpreter) = interpreter {
        let mut command = Command::new(interpreter);
        command.args(["-m", "squall"]);
        return Ok(command);
    }
    let path = std::env::current_exe();
    path.map(Command::new).map_err(|error| Refusal::new(format!("cannot find this program: {error}")))
}

fn server_in_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found("redis-server").or_else(|| found("valkey-server"))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
