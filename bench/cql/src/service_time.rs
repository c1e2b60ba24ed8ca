//! Compares the service times that `squall cql` records with the times that the driver itself measures for the
//! same requests: the operations run on the engine, as in the command. It judges nothing; `bench/cql/run` does.

use squall_cql::{CqlCommand, CqlDriver, DatabaseTarget, DriverWork, NodeList, Workload, parse_command_line};
use squall_engine::{Engine, EngineConfig};
use squall_model::{EngineLimits, Load, LoadModel, Pause, Profile, TaskSpec};
use std::time::{Duration, Instant};

use crate::Failure;

/// Longer than any run; the number of operations ends it.
const LONG: Duration = Duration::from_secs(3600);

/// Runs a command, and prints the mean recorded service time and the mean time of the driver in nanoseconds.
pub(crate) async fn compare(words: &[&str], concurrent: usize) -> Result<(), Failure> {
    let CqlCommand::Stress(settings) = parse_command_line(words)? else { return Err("no command makes load".into()) };
    let NodeList::Listed(nodes) = &settings.nodes.nodes else { return Err("give -node".into()) };
    let mut target = DatabaseTarget::new(&settings, nodes);
    let attempts = target.measure_attempts();
    let workload = Workload::new(&settings.command.operation, Vec::new())?;
    let driver = CqlDriver::new(&settings, &target, DriverWork { workload, partitions: None, engine_threads: 1 });
    let operations = match settings.command.stop {
        squall_cql::StopRule::Partitions(count) => count,
        _ => return Err("give n=".into()),
    };
    let model = LoadModel::Closed { users: Profile::constant(concurrent as f64, LONG)?, pause: Pause::NONE };
    let load = Load { model, iterations: Some(operations), warm_up: Duration::ZERO };
    let limits = EngineLimits { threads: Some(1), max_users: concurrent, ..EngineLimits::default() };
    let config = EngineConfig::with_limits(load, vec![TaskSpec::new("operation")], limits);
    let mut engine = Engine::prepare(driver, config).await?;
    let (mut recorded, mut service) = (0, 0);
    engine.start(Instant::now());
    while let Some(delta) = engine.next_delta().await {
        for metric in &delta.metrics {
            recorded += metric.service.count();
            service += metric.service.sum();
        }
    }
    engine.join()?;
    if (recorded, attempts.count()) != (operations, operations) {
        return Err(format!("{operations} operations, {recorded} recorded, {} answered", attempts.count()).into());
    }
    println!("{} {}", service / u128::from(operations), attempts.total().as_nanos() / u128::from(operations));
    Ok(())
}
