//! One virtual user: its session, its variables, its rows and leases. It sends constant tasks itself
//! (one constant request of which only the status is checked); a [`FlowRun`] runs all others. The
//! engine decides when a user runs which task.

use squall_engine::{Iteration, OnStartError, ResourceLease, UserIdentity, VirtualUser};
use squall_http::Session;
use std::{rc::Rc, time::Instant};

use super::{
    RequestRunner, RequestStart, ScenarioThreadState,
    flow_run::{FlowRun, UserState},
    step_request::StatusHandler,
};
use crate::{
    data::{RowOrder, UserRow},
    template::{RenderContext, TemplateValue},
};

/// One virtual user of a scenario.
pub struct ScenarioUser {
    shared: Rc<ScenarioThreadState>,
    session: Session,
    /// Seeded from `seed` and the iteration's number for every iteration, so that an iteration's random
    /// values depend on neither earlier iterations nor the time.
    rng: fastrand::Rng,
    seed: u64,
    number: u64,
    /// The user's variables, in the order of the compiled scenario.
    variables: Box<[Option<TemplateValue>]>,
    /// The current row of each data source.
    rows: Box<[Option<UserRow>]>,
    /// The current lease of each data source; empty where the scenario leases nothing.
    leases: Box<[Option<ResourceLease>]>,
}

impl ScenarioUser {
    pub(super) fn new(shared: Rc<ScenarioThreadState>, identity: UserIdentity) -> ScenarioUser {
        let compiled = &shared.compiled;
        let number = identity.number;
        let mut rng = fastrand::Rng::with_seed(identity.seed);
        let mut variables: Vec<Option<TemplateValue>> = Vec::with_capacity(compiled.variables.len());
        for variable in &compiled.variables {
            let mut context = RenderContext {
                variables: &variables,
                data: &[],
                rows: &[],
                user: number,
                iteration: 0,
                rng: &mut rng,
            };
            let mut text = String::new();
            let rendered =
                variable.initial.as_ref().is_some_and(|initial| initial.render(&mut context, &mut text).is_ok());
            variables.push(rendered.then_some(TemplateValue { text, literal: variable.literal }));
        }
        let session = Session::new(&compiled.connector);
        let rows = compiled.data.iter().map(|_| None).collect();
        let has_leases = compiled.data.iter().any(|table| matches!(table.order, RowOrder::Leased { .. }));
        let leases = (0..if has_leases { compiled.data.len() } else { 0 }).map(|_| None).collect();
        let seed = compiled.open_model_seed.unwrap_or(identity.seed);
        ScenarioUser { session, rng, seed, number, variables: variables.into(), rows, leases, shared }
    }

    fn flow_run(&mut self, iteration: u64) -> FlowRun<'_> {
        FlowRun {
            shared: &self.shared,
            session: &mut self.session,
            user: UserState {
                rng: &mut self.rng,
                variables: &mut self.variables,
                rows: &mut self.rows,
                leases: &mut self.leases,
                number: self.number,
                iteration,
            },
        }
    }
}

/// Spreads neighbouring numbers over all seeds (the finaliser of SplitMix64).
fn mix_seed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl VirtualUser for ScenarioUser {
    async fn on_start(&mut self) -> Result<(), OnStartError> {
        let shared = self.shared.clone();
        if shared.compiled.on_start.order.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let mut run = self.flow_run(0);
        match Box::pin(run.run(&shared.compiled.on_start, &shared.on_start, now, now)).await {
            true => Ok(()),
            false => Err(OnStartError("on_start did not succeed".to_owned())),
        }
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let index = iteration.task.0;
        let task = &self.shared.tasks[index];
        if !task.constant {
            let shared = self.shared.clone();
            self.rng = fastrand::Rng::with_seed(mix_seed(self.seed, iteration.number));
            let mut run = self.flow_run(iteration.number);
            let (flow, task) = (&shared.compiled.tasks[index], &shared.tasks[index]);
            return Box::pin(run.run(flow, task, iteration.intended, iteration.started)).await;
        }
        let (compiled, prepared) = (&self.shared.compiled.tasks[index].steps[0], &task.steps[0]);
        let mut handler = StatusHandler { shared: &self.shared, compiled, prepared };
        let Iteration { intended, started, .. } = iteration;
        let start = RequestStart { metric: prepared.metric, intended, started };
        RequestRunner::new(&self.shared.recorder)
            .run(&mut self.session, &prepared.base_request, start, &mut handler)
            .await
    }

    async fn on_stop(&mut self) {
        // Released, because other users may wait for these resources.
        self.leases.fill_with(|| None);
    }
}
