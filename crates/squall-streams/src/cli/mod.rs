//! The subcommands of `squall stream`: parse arguments, call the library, print text. Holds no
//! logic of its own. `squall-cli` mounts them.

mod args;

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

pub use args::{AppStreamSend, RecordSource, StreamCommand, StreamWorkerArgs};
use args::{ProcessorArgs, QuarantineArgs, RedisArgs, ResetArgs, SendArgs, SendManyArgs, SendTargetArgs, TailArgs};
use serde_json::{Value, json};
use squall_coord::{RedisClient, RedisConnectError};

use crate::{
    ConnectError, NameError, Namespace, PartitionHasher, ProcessorName, RecordStream, SendError, StreamApp, StreamName,
    StreamOpenError, WhenFull,
    admin::{AdminError, StreamAdmin, StreamDefinition},
    app::check_namespace,
};

/// Lines per call of `send_many`.
const CHUNK_LINES: usize = 1000;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages describe the variants
pub enum StreamCommandError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Redis(#[from] RedisConnectError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Open(#[from] StreamOpenError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("{place} is not a JSON object: {reason}")]
    Json { place: String, reason: String },
    #[error("{place} has no field `{field}`, which --partition-by names")]
    NoKey { place: String, field: String },
    #[error("cannot read `{file}`")]
    File {
        file: String,
        #[source]
        source: io::Error,
    },
    #[error("{} sent before the error", pluralize(*.sent, "record was", "records were"))]
    PartlySent {
        sent: usize,
        #[source]
        source: Box<StreamCommandError>,
    },
    #[error("{flag} does not go with `{stream}`: the Python app defines it")]
    DefinedByApp { stream: String, flag: &'static str },
    #[error(
        "processors are Python functions, and this program has no Python; run `squall stream worker` of the Python package"
    )]
    NoPython,
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl StreamCommandError {
    /// Whether the command failed because the server cannot be reached.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Redis(RedisConnectError::Connect { .. })
                | Self::Connect(ConnectError::Redis(RedisConnectError::Connect { .. }))
        )
    }
}

/// Runs a command and prints to standard output.
pub async fn run(command: StreamCommand) -> Result<ExitCode, StreamCommandError> {
    run_to(command, &mut io::stdout()).await
}

/// As [`run`], but prints to `out`. A closed pipe is not an error, so that piping into `head`
/// works.
pub async fn run_to(command: StreamCommand, out: &mut impl Write) -> Result<ExitCode, StreamCommandError> {
    match perform(command, out).await {
        Err(StreamCommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        outcome => outcome,
    }
}

async fn perform(command: StreamCommand, out: &mut impl Write) -> Result<ExitCode, StreamCommandError> {
    match command {
        StreamCommand::Send(args) => send(args, out).await?,
        StreamCommand::Sendmany(args) => send_file(args, out).await?,
        StreamCommand::Tail(args) => tail(args, out).await?,
        StreamCommand::Lag(args) => lag(args, out).await?,
        StreamCommand::Members(args) => members(args, out).await?,
        StreamCommand::Reset(args) => reset(args, out).await?,
        // A program with Python runs this command itself and does not call this function.
        StreamCommand::Worker(_) => return Err(StreamCommandError::NoPython),
        StreamCommand::Quarantine(args) => return quarantine(args, out).await,
    }
    Ok(ExitCode::SUCCESS)
}

impl RedisArgs {
    async fn admin(&self) -> Result<StreamAdmin, StreamCommandError> {
        let (client, namespace) = (RedisClient::open(&self.redis).await?, Namespace::new(&self.namespace)?);
        check_namespace(&client, &namespace)?;
        Ok(StreamAdmin::new(client, namespace))
    }
}

impl SendTargetArgs {
    async fn open(&self) -> Result<RecordStream<Value>, StreamCommandError> {
        let name = StreamName::parse(&self.stream)?;
        let namespace = Namespace::new(self.namespace.as_deref().unwrap_or("squall"))?;
        let redis = self.redis.as_deref().unwrap_or("redis://127.0.0.1:6379");
        let app = StreamApp::connect_in(name.app(), redis, namespace.clone()).await?;
        let stored = StreamAdmin::new(app.client().clone(), namespace).definition(&name).await?;
        let stored = stored.unwrap_or(StreamDefinition { partitions: 16, hasher: PartitionHasher::default() });
        let mut stream = app
            .stream(name.stream())
            .partitions(self.partitions.unwrap_or(stored.partitions))
            .hasher(self.hasher.unwrap_or(stored.hasher))
            .layout(self.layout.unwrap_or_default())
            .compression(self.compression.unwrap_or_default());
        if let Some(size) = self.partition_size {
            stream = stream.partition_size(size);
        }
        if let Some(field) = &self.partition_by {
            stream = stream.partition_by(field);
        }
        if self.no_wait {
            stream = stream.when_full(WhenFull::Fail);
        }
        if self.drop_unread {
            stream = stream.drop_unread();
        }
        Ok(stream.open().await?)
    }

    /// Parses one record and checks that it has the partition key.
    fn parse_record(&self, text: &[u8], place: impl Fn() -> String) -> Result<Value, StreamCommandError> {
        let record: Value = serde_json::from_slice(text)
            .map_err(|error| StreamCommandError::Json { place: place(), reason: strip_line_number(&error) })?;
        let Some(fields) = record.as_object() else {
            return Err(StreamCommandError::Json {
                place: place(),
                reason: format!("it is {}", json_type_name(&record)),
            });
        };
        match &self.partition_by {
            Some(field) if !fields.contains_key(field) => {
                Err(StreamCommandError::NoKey { place: place(), field: field.clone() })
            }
            _ => Ok(record),
        }
    }
}

/// The message of serde without its line number, which is not the line number of the file.
fn strip_line_number(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let at = text.rfind(" at line ").unwrap_or(text.len());
    format!("{} at column {}", &text[..at], error.column())
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn pluralize(number: usize, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

async fn send(args: SendArgs, out: &mut impl Write) -> Result<(), StreamCommandError> {
    let record = args.target.parse_record(args.json.as_bytes(), || "the record".into())?;
    let stream = args.target.open().await?;
    let id = stream.send(&record).await?;
    let partition = stream.route(&record).map_err(SendError::from)?;
    writeln!(out, "{} {id}", stream.namespace().events_key(stream.name(), partition))?;
    Ok(())
}

async fn send_file(args: SendManyArgs, out: &mut impl Write) -> Result<(), StreamCommandError> {
    let file = args.file.display().to_string();
    let failed = |source| StreamCommandError::File { file: file.clone(), source };
    let input: Box<dyn BufRead> = match file.as_str() {
        "-" => Box::new(io::stdin().lock()),
        _ => Box::new(io::BufReader::new(std::fs::File::open(&args.file).map_err(failed)?)),
    };
    let stream = args.target.open().await?;
    let (mut chunk, mut sent) = (Vec::with_capacity(CHUNK_LINES), 0);
    let partly_sent = |sent: usize, source: StreamCommandError| match sent {
        0 => source,
        sent => StreamCommandError::PartlySent { sent, source: Box::new(source) },
    };
    // Splits bytes, not text: a line that is not UTF-8 becomes an error with its line number.
    for (number, line) in (1..).zip(input.split(b'\n')) {
        let line = line.map_err(failed)?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match args.target.parse_record(&line, || format!("line {number}")) {
            Ok(record) => chunk.push(record),
            Err(error) => {
                let before = stream.send_many(&chunk).await.map(|ids| ids.len());
                return Err(partly_sent(sent + before.unwrap_or(0), error));
            }
        }
        if chunk.len() == CHUNK_LINES {
            stream.send_many(&chunk).await.map_err(|error| partly_sent(sent, error.into()))?;
            sent += chunk.len();
            chunk.clear();
        }
    }
    stream.send_many(&chunk).await.map_err(|error| partly_sent(sent, error.into()))?;
    writeln!(out, "sent {} records to {} in {} partitions", sent + chunk.len(), stream.name(), stream.partitions())?;
    Ok(())
}

async fn tail(args: TailArgs, out: &mut impl Write) -> Result<(), StreamCommandError> {
    let name = StreamName::parse(&args.stream)?;
    let mut tail = args.server.admin().await?.tail(&name, args.from_start).await?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        for event in tail.next().await? {
            if left == 0 {
                break;
            }
            writeln!(out, "{}", serde_json::to_string(&event).expect("strings and numbers serialize"))?;
            left -= 1;
        }
        out.flush()?;
    }
    Ok(())
}

async fn lag(args: ProcessorArgs, out: &mut impl Write) -> Result<(), StreamCommandError> {
    let name = ProcessorName::parse(&args.processor)?;
    let all = args.server.admin().await?.lag(&name).await?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&all).expect("strings and numbers serialize"))?;
        return Ok(());
    }
    writeln!(out, "{:>9} {:>9} {:>9} {:>9}  last delivered", "partition", "waiting", "pending", "length")?;
    for partition_lag in &all {
        let suffix = if partition_lag.quarantined { "  quarantined" } else { "" };
        let (partition, waiting, pending, length) =
            (partition_lag.partition, partition_lag.waiting, partition_lag.pending, partition_lag.length);
        writeln!(
            out,
            "{partition:>9} {waiting:>9} {pending:>9} {length:>9}  {}{suffix}",
            partition_lag.last_delivered
        )?;
    }
    let behind: u64 = all.iter().map(|partition_lag| partition_lag.waiting + partition_lag.pending).sum();
    writeln!(out, "{name} is {behind} events behind")?;
    if all.iter().all(|partition_lag| !partition_lag.registered) {
        writeln!(out, "no worker has run this processor yet; is the name right?")?;
    }
    Ok(())
}

async fn members(args: ProcessorArgs, out: &mut impl Write) -> Result<(), StreamCommandError> {
    let name = ProcessorName::parse(&args.processor)?;
    let admin = args.server.admin().await?;
    admin.check_stream_exists(name.stream()).await?;
    let (snapshot, of_runnel) = (admin.members(&name).await?, admin.runnel_members(&name).await?);
    let held = |id: &squall_coord::MemberId| -> Vec<u64> {
        let mine = snapshot.leases.iter().filter(|(_, holder)| holder.member == *id);
        let mut units: Vec<u64> = mine.filter_map(|(unit, _)| unit.as_str().parse().ok()).collect();
        units.sort_unstable();
        units
    };
    if args.json {
        let own = snapshot.members.iter().map(|member| {
            json!({
                "id": member.id, "age_ms": member.age.as_millis() as u64, "expires_in_ms": member.expires_in.as_millis() as u64,
                "leaving": member.leaving, "partitions": held(&member.id),
            })
        });
        let of_runnel = of_runnel.iter().map(|member| {
            json!({
                "id": member.id, "runnel": true, "joined_at": member.joined_at,
                "expires_in_ms": member.expires_in.as_millis() as u64, "partitions": member.partitions,
            })
        });
        writeln!(out, "{}", Value::Array(own.chain(of_runnel).collect()))?;
        return Ok(());
    }
    let count = snapshot.members.len() + of_runnel.len();
    writeln!(out, "{} {name}", pluralize(count, "worker runs", "workers run"))?;
    for member in &snapshot.members {
        let state = if member.leaving { "leaving" } else { "active" };
        writeln!(out, "{}  {state}  for {:.0?}  holds {:?}", member.id, member.age, held(&member.id))?;
    }
    for member in &of_runnel {
        writeln!(out, "{}  runnel  since {}  assigned {:?}", member.id, member.joined_at, member.partitions)?;
    }
    Ok(())
}

async fn reset(args: ResetArgs, out: &mut impl Write) -> Result<(), StreamCommandError> {
    let name = ProcessorName::parse(&args.processor)?;
    let admin = args.server.admin().await?;
    if args.remove {
        let partitions = admin.remove_processor(&name).await?;
        writeln!(out, "{name} is removed from {partitions} partitions")?;
    } else {
        let partitions = admin.reset_processor(&name, &args.start).await?;
        writeln!(out, "{name} restarts at {} in {partitions} partitions", args.start)?;
    }
    Ok(())
}

async fn quarantine(args: QuarantineArgs, out: &mut impl Write) -> Result<ExitCode, StreamCommandError> {
    let name = ProcessorName::parse(&args.processor)?;
    let admin = args.server.admin().await?;
    let found = admin.quarantined_partitions(&name).await?;
    let to_clear: Vec<u32> = match args.clear {
        Some(partition) => vec![partition],
        None if args.clear_all => found.keys().copied().collect(),
        None => {
            for (partition, reason) in &found {
                writeln!(out, "{partition}  {reason}")?;
            }
            let stopped = pluralize(found.len(), "partition", "partitions");
            writeln!(out, "{stopped} of {name} in quarantine")?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let mut cleared = 0;
    for partition in &to_clear {
        cleared += usize::from(admin.clear_quarantine(&name, *partition, args.skip).await?);
    }
    if let (Some(partition), 0) = (args.clear, cleared) {
        writeln!(out, "partition {partition} of {name} is not in quarantine")?;
        return Ok(ExitCode::FAILURE);
    }
    writeln!(out, "{} of {name} cleared", pluralize(cleared, "partition", "partitions"))?;
    Ok(ExitCode::SUCCESS)
}
