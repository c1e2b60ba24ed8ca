//! `squall target`: serves the built-in shop of squall-target until a stop signal.

use squall_target::TargetServer;
use std::net::ToSocketAddrs;

use crate::{
    args::TargetArgs,
    exit::{CliError, PASSED, error_chain},
    signals::BlockingStopSignals,
    terminal::print,
};

pub(crate) fn serve(args: &TargetArgs) -> Result<u8, CliError> {
    if !args.allow_remote && !is_loopback(&args.listen) {
        return Err(CliError::new(format!(
            "{} can be reached from other machines without authentication: \
             listen on 127.0.0.1, or add --allow-remote",
            args.listen
        )));
    }
    let threads = match args.threads {
        Some(threads) => threads.into(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let stop =
        BlockingStopSignals::listen().map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let target = TargetServer::start_on(&args.listen, threads).map_err(|error| CliError::new(error_chain(&error)))?;
    let plural = if threads == 1 { "" } else { "s" };
    print::stdout(
        format!(
            "serving a shop at {} with {threads} thread{plural}\n\
             try: squall run {} --rate 500 --for 10s        (Ctrl-C stops)\n",
            target.url("/"),
            target.url("/api/products")
        )
        .as_bytes(),
    )?;
    stop.wait();
    print::stdout(format!("received {} requests\n", target.requests()).as_bytes())?;
    Ok(PASSED)
}

fn is_loopback(listen: &str) -> bool {
    // The target itself refuses a name that does not resolve, with a better message.
    listen.to_socket_addrs().map_or(true, |mut addrs| addrs.all(|addr| addr.ip().is_loopback()))
}
