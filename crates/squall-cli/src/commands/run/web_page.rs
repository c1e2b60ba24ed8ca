//! `squall run --web`: serves the web UI during a run on this machine. A leader and one worker in this
//! process make the run a fleet in memory, so that the page has the feed and the control of a fleet.
//! The page stays after the run while a person looks at it. `commands::run` calls it.

use squall_coord::MemoryFleetStores;
use squall_model::Bundle;
use squall_orchestrator::{FleetRunRequest, RunControl, RunObserver, RunResult, run_fleet};
use squall_web::{ViewerCount, WebConfig};
use squall_worker::{Worker, WorkerConfig};
use std::{collections::BTreeMap, thread::JoinHandle, time::Duration};
use tokio::{net::TcpListener, task::LocalSet};
use tokio_util::sync::CancellationToken;

use crate::{
    bundle::BundleOpener,
    commands::orchestrator::{bind_api, lead_and_serve},
    exit::{CliError, error_chain},
    script_host::ScriptHost,
    stop_button::StopButton,
    terminal,
};

/// The name of the leader and of the only worker.
const WORKER: &str = "this-machine";
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The page of a run, served by a thread of its own.
pub(super) struct WebPage {
    stores: MemoryFleetStores,
    viewers: ViewerCount,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
    pub(super) url: String,
}

impl WebPage {
    /// Serves the page at `address`.
    pub(super) fn start(address: &str, config: WebConfig) -> Result<WebPage, CliError> {
        let (stores, stop, viewers) = (MemoryFleetStores::default(), CancellationToken::new(), config.viewers.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
        let listener: TcpListener = runtime
            .block_on(bind_api(address, &config))
            .map_err(|error| CliError::new(error.to_string().replace("--listen", "--web")))?;
        let url = listener.local_addr().map_or_else(|_| address.to_owned(), |address| address.to_string());
        let serving = lead_and_serve(stores.clone(), WORKER.to_owned(), config, listener, stop.clone());
        let thread = std::thread::Builder::new().name("web".to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(Box::pin(serving)) {
                terminal::print_stderr(format!("the page has ended: {error}\n"));
            }
        });
        let thread = thread.map_err(|error| CliError::new(format!("cannot start a thread for --web: {error}")))?;
        Ok(WebPage { stores, viewers, stop, thread: Some(thread), url: format!("http://{url}/") })
    }

    /// Runs the bundle on the worker of this process.
    pub(super) async fn run<H: ScriptHost>(
        &self,
        bundle: &Bundle,
        host: &H,
        histogram_window_s: u32,
        control: &RunControl,
        observers: &mut [&mut dyn RunObserver],
    ) -> Result<RunResult, CliError> {
        let stop = CancellationToken::new();
        let opener = BundleOpener::new(host.clone());
        let worker = Worker::new(self.stores.clone(), opener, WorkerConfig::new(WORKER)).run(stop.clone());
        let request = FleetRunRequest { bundle, params: BTreeMap::new(), histogram_window_s };
        let running = async {
            // Boxed, because the future is large.
            let finished = Box::pin(run_fleet(&self.stores, request, control, observers)).await;
            stop.cancel();
            finished.map_err(|error| CliError::new(error_chain(&error)))
        };
        let working = async { worker.await.map_err(|error| CliError::new(error_chain(&error))) };
        // Drivers stay on their threads, so the worker's tasks are local.
        LocalSet::new().run_until(async { tokio::try_join!(running, working) }).await.map(|(finished, ())| finished)
    }

    /// Keeps the page while a person looks at it and has not pressed the button.
    pub(super) fn wait_for_viewers(&self, button: &StopButton, quiet: bool) {
        if self.viewers.count() == 0 || button.presses() > 0 {
            return;
        }
        button.keep_process_on_next_press();
        if !quiet {
            terminal::print_stderr(format!("{} stays while it is open; Ctrl-C ends it\n", self.url));
        }
        terminal::background_writer::flush_stderr();
        while self.viewers.count() > 0 && button.presses() == 0 {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for WebPage {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
