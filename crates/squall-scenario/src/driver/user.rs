//! One virtual user: its session, its variables, its rows. Plain requests are sent right here; everything else is a flow.

use squall_engine::{Iteration, ResourceLease, UserIdentity, UserStartError, VirtualUser};
use squall_http::{BodyMode, Session};
use std::{rc::Rc, time::Instant};

use super::{
    RequestGuard, ScenarioThreadState,
    exchange::{finish_fast_path, is_redirect, is_unsent, record_phases},
    flow_run::{FlowRun, IDLE_WAIT},
};
use crate::{
    data::{RowOrder, UserRow},
    template::{RenderContext, TemplateValue},
};

/// One virtual user of a scenario.
pub struct ScenarioUser {
    shared: Rc<ScenarioThreadState>,
    session: Session,
    /// Drawn anew from `seed` and the iteration's number each time: what came before, and when, changes nothing.
    rng: fastrand::Rng,
    seed: u64,
    user: u64,
    /// Its variables, in the program's order.
    slots: Box<[Option<TemplateValue>]>,
    /// The row in hand of each data source.
    rows: Box<[Option<UserRow>]>,
    /// The resources in hand, in the same order; empty where the scenario has none.
    leases: Box<[Option<ResourceLease>]>,
}

impl ScenarioUser {
    pub(super) fn new(shared: Rc<ScenarioThreadState>, seat: UserIdentity) -> ScenarioUser {
        let program = &shared.compiled;
        let mut rng = fastrand::Rng::with_seed(seat.seed);
        let mut slots: Vec<Option<TemplateValue>> = Vec::with_capacity(program.slots.len());
        for slot in &program.slots {
            let mut context =
                RenderContext { slots: &slots, data: &[], rows: &[], user: seat.number, iteration: 0, rng: &mut rng };
            let mut text = String::new();
            let made = slot.initial.as_ref().is_some_and(|initial| initial.render(&mut context, &mut text).is_ok());
            slots.push(made.then_some(TemplateValue { text, literal: slot.literal }));
        }
        let session = Session::new(&program.connector);
        let rows = program.data.iter().map(|_| None).collect();
        let borrows = program.data.iter().any(|table| matches!(table.order, RowOrder::Leased { .. }));
        let loans = (0..if borrows { program.data.len() } else { 0 }).map(|_| None).collect();
        let seed = program.open_model_seed.unwrap_or(seat.seed);
        ScenarioUser { session, rng, seed, user: seat.number, slots: slots.into(), rows, leases: loans, shared }
    }

    fn flow_run(&mut self, iteration: u64) -> FlowRun<'_> {
        FlowRun {
            shared: &self.shared,
            session: &mut self.session,
            rng: &mut self.rng,
            slots: &mut self.slots,
            rows: &mut self.rows,
            leases: &mut self.leases,
            user: self.user,
            iteration,
        }
    }
}

/// Neighbouring numbers lead far apart (the finaliser of SplitMix64).
fn mix_seed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl VirtualUser for ScenarioUser {
    async fn start(&mut self) -> Result<(), UserStartError> {
        let shared = self.shared.clone();
        if shared.compiled.on_start.steps.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let mut walk = self.flow_run(0);
        match Box::pin(walk.run(&shared.compiled.on_start, &shared.on_start, now, now)).await {
            true => Ok(()),
            false => Err(UserStartError("on_start did not succeed".to_owned())),
        }
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let index = iteration.task.0;
        let lane = &self.shared.tasks[index];
        if !lane.fast_path {
            let shared = self.shared.clone();
            self.rng = fastrand::Rng::with_seed(mix_seed(self.seed, iteration.number));
            let mut walk = self.flow_run(iteration.number);
            let (flow, lane) = (&shared.compiled.tasks[index], &shared.tasks[index]);
            return Box::pin(walk.run(flow, lane, iteration.intended, iteration.started)).await;
        }
        let here = &lane.steps[0];
        let probe = &self.shared.recorder;
        let started = probe.wait_for_budget(iteration.started).await;
        let Some(flight) = probe.begin(here.metric, iteration.intended, started) else { return false };
        let mut aloft = RequestGuard::new(flight, &mut self.session);
        let exchange = aloft.session.send(&here.prepared, BodyMode::Discard).await;
        let flight = aloft.in_flight.take().expect("it has not landed yet");
        let step = &self.shared.compiled.tasks[index].steps[0];
        match &exchange.result {
            Ok(response) if step.checks.accepts_status(response.status) && !is_redirect(response.status) => {
                let outcome = step.checks.passing_outcome(response.status);
                record_phases(&flight, &exchange);
                flight.end(exchange.ended, outcome, exchange.bytes_in, exchange.bytes_out);
                true
            }
            _ => match finish_fast_path(&self.shared, step, here.metric, &here.prepared, (flight, &exchange)) {
                Err(completed) => {
                    if is_unsent(&exchange) {
                        Box::pin(tokio::time::sleep(IDLE_WAIT)).await;
                    }
                    completed
                }
                Ok(next) => {
                    drop(aloft);
                    let shared = self.shared.clone();
                    let (step, lane) = (&shared.compiled.tasks[index].steps[0], &shared.tasks[index].steps[0]);
                    let mut walk = self.flow_run(iteration.number);
                    Box::pin(walk.follow_redirects(step, lane, next)).await
                }
            },
        }
    }

    async fn stop(&mut self) {
        // Others may be waiting for what it holds.
        self.leases.fill_with(|| None);
    }
}
