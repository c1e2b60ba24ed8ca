//! Follows one run: reads what workers ship, merges it exactly once, judges each second as it closes, and notices who comes and goes.
//! Decides nothing; the leader and every live view have one of these each, and the leader's is saved for whoever comes next.

use serde::{Deserialize, Serialize};
use squall_coord::{FleetStores, RunStore, START_POSITION, StoreError};
use squall_metrics::{Collector, MergeError, RunView, SourceId, decode_delta};
use squall_model::{
    Plan, WorkerFacts, WorkerState,
    protocol::{RunNotes, SendBudgetReport, format_instance},
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};
use tracing::warn;

use super::WorkerInfo;
use crate::{ThresholdJudge, threshold_judge::JudgeCheckpoint};

/// Deltas read at once.
const DELTA_BATCH: usize = 500;

/// A run as it is seen from outside its workers.
pub struct RunAggregator<C: FleetStores> {
    run: C::Run,
    epoch: u64,
    window_s: u32,
    collector: Collector,
    stream_position: String,
    saved_position: String,
    roster: WorkerRoster,
    judge: ThresholdJudge,
    /// Load is still being made, as far as the judge has to know.
    load_active: bool,
    /// Seconds that were closed while nobody had asked for it.
    pending_closed_seconds: usize,
}

/// Who has worked on the run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WorkerRoster {
    /// By instance.
    pub(crate) members: BTreeMap<u64, RosterEntry>,
    pub(crate) events: Vec<(f64, String)>,
    /// Messages in the stream that nobody could read.
    pub(crate) refused: u64,
    /// What each has last announced, by instance.
    #[serde(default)]
    pub(crate) announced: BTreeMap<u64, SendBudgetReport>,
    /// Who could not carry it out, or not to its end, by instance.
    #[serde(default)]
    pub(crate) unable: BTreeMap<u64, UnableWorker>,
    /// Who led when this was kept.
    #[serde(default)]
    pub(crate) leader: Option<String>,
    /// What the leader's judge had seen by then.
    #[serde(default)]
    pub(crate) judged: JudgeCheckpoint,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RosterEntry {
    pub(crate) id: String,
    pub(crate) joined_s: f64,
    pub(crate) ended_s: Option<f64>,
    pub(crate) state: RosterEntryState,
    /// Requests that it will have sent at most, by what it said when its load was over, if it did.
    #[serde(default)]
    pub(crate) sealed: Option<u64>,
    pub(crate) first_cpu_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) max_rss_bytes: u64,
    pub(crate) threads: u32,
}

/// A worker that takes no part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UnableWorker {
    id: String,
    since_s: f64,
}

impl RosterEntry {
    /// It went when there was nothing to measure yet, and has nothing to say.
    fn left_before_the_start(&self) -> bool {
        self.state == RosterEntryState::Left && self.ended_s == Some(0.0)
    }

    fn new(id: &str, joined_s: f64) -> RosterEntry {
        RosterEntry {
            id: id.to_owned(),
            joined_s,
            ended_s: None,
            state: RosterEntryState::Working,
            sealed: None,
            first_cpu_s: 0.0,
            cpu_s: 0.0,
            max_rss_bytes: 0,
            threads: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RosterEntryState {
    Working,
    Finished,
    /// Gone in good order.
    Left,
    Lost,
}

impl<C: FleetStores> RunAggregator<C> {
    /// Takes the run up where it was last saved.
    pub async fn open(cell: &C, epoch: u64, plan: &Plan, keep_s: u32) -> Result<RunAggregator<C>, StoreError> {
        let window_s = ThresholdJudge::longest_window(plan).max(keep_s);
        let mut follower = RunAggregator {
            run: cell.run(),
            epoch,
            window_s,
            collector: Collector::new([], window_s),
            stream_position: START_POSITION.to_owned(),
            saved_position: START_POSITION.to_owned(),
            roster: WorkerRoster::default(),
            judge: ThresholdJudge::new(plan),
            load_active: true,
            pending_closed_seconds: 0,
        };
        follower.restore_checkpoint().await?;
        Ok(follower)
    }

    /// Forgets what it has and takes up what was last saved.
    async fn restore_checkpoint(&mut self) -> Result<(), StoreError> {
        let Some((place, made)) = self.run.load_checkpoint(self.epoch).await? else {
            // Nobody has, or it is gone: the next saving is the first again, and has everything that is known here.
            START_POSITION.clone_into(&mut self.saved_position);
            return Ok(());
        };
        if let Some((crew, collector)) = decode_checkpoint(&made, self.window_s) {
            self.judge.resume(&crew.judged);
            (self.roster, self.collector) = (crew, collector);
            (self.stream_position, self.saved_position) = (place.clone(), place);
        }
        Ok(())
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn view(&self) -> &RunView {
        self.collector.view()
    }

    /// The thresholds, judged second by second as they closed.
    pub(crate) fn judge(&self) -> &ThresholdJudge {
        &self.judge
    }

    /// Says whether load is still being made; see [`ThresholdJudge::look`].
    pub(crate) fn set_load_active(&mut self, loading: bool) {
        self.load_active = loading;
    }

    /// How the run would look if it were over.
    pub(crate) fn final_view(&self) -> Option<RunView> {
        final_view_of(&self.checkpoint(), self.window_s)
    }

    /// The view in what a leader saved.
    pub(crate) fn view_of_checkpoint(made: &[u8]) -> Option<RunView> {
        final_view_of(made, 1)
    }

    pub(crate) fn roster(&self) -> &WorkerRoster {
        &self.roster
    }

    /// Entries in the stream of the run's deltas that were none, and were passed over.
    pub fn rejected_entries(&self) -> u64 {
        self.roster.refused
    }

    pub(crate) fn record_event(&mut self, elapsed: Duration, text: String) {
        self.roster.events.push((elapsed.as_secs_f64(), text));
    }

    /// `member`, an orchestrator that is called `name`, leads from now on.
    pub(crate) fn set_leader(&mut self, name: &str, member: &str, elapsed: Duration) {
        match self.roster.leader.replace(member.to_owned()) {
            None => {}
            Some(before) if before == member => self.record_event(elapsed, format!("orchestrator {name} leads again")),
            Some(_) => self.record_event(elapsed, format!("orchestrator {name} leads now; the one before it is gone")),
        }
    }

    /// How much of who worked on it is known: what a successor must not have to find out again.
    pub(crate) fn roster_version(&self) -> (usize, usize) {
        (self.roster.members.len(), self.roster.events.len())
    }

    /// Waits for a worker from now on; says whether it was not known.
    fn add_worker(&mut self, instance: u64, id: &str, joined_s: f64) -> bool {
        let Entry::Vacant(place) = self.roster.members.entry(instance) else { return false };
        place.insert(RosterEntry::new(id, joined_s));
        self.collector.add_source(worker_source(instance));
        true
    }

    /// Learns who is there from their reports.
    pub async fn update_roster(&mut self, workers: &[WorkerInfo], elapsed: Duration) -> Result<(), StoreError> {
        let (at, epoch) = (elapsed.as_secs_f64(), self.epoch);
        // Of them nothing more will come, not even a last delta, unless that is there already.
        let broken = |worker: &WorkerInfo| worker.failed == epoch && worker.done == epoch;
        if workers.iter().any(|worker| broken(worker) && !self.collector.is_finished(worker_source(worker.instance))) {
            self.pending_closed_seconds += self.poll().await?;
        }
        for worker in workers.iter().filter(|worker| worker.ready == epoch && worker.instance != 0) {
            if self.add_worker(worker.instance, &worker.id, at) && at > 0.5 {
                self.record_event(elapsed, format!("worker {} joined", worker.id));
            }
            let Some(member) = self.roster.members.get_mut(&worker.instance) else { continue };
            // Its deltas may have been there before its report.
            member.id.clone_from(&worker.id);
            if worker.cpu_s > 0.0 {
                if member.first_cpu_s == 0.0 {
                    member.first_cpu_s = worker.cpu_s;
                }
                member.cpu_s = worker.cpu_s;
            }
            member.max_rss_bytes = member.max_rss_bytes.max(worker.max_rss_bytes);
            member.threads = member.threads.max(worker.threads);
            if broken(worker) && !self.collector.is_finished(worker_source(worker.instance)) {
                if member.state != RosterEntryState::Lost {
                    (member.state, member.ended_s) = (RosterEntryState::Lost, Some(at));
                    self.pending_closed_seconds += self.collector.mark_lost(worker_source(worker.instance));
                }
                continue;
            }
            // Of one that is leaving it is told when it has left.
            if worker.done == self.epoch && worker.is_healthy() && member.state == RosterEntryState::Working {
                (member.state, member.ended_s) = (RosterEntryState::Finished, Some(at));
            }
            // Also one that was frozen before the start, and was thought to have left.
            if member.state == RosterEntryState::Lost || member.state == RosterEntryState::Left && worker.done != epoch
            {
                (member.state, member.ended_s) = (RosterEntryState::Working, None);
                self.collector.restore_source(worker_source(worker.instance));
                let text = format!("worker {} is back", worker.id);
                self.record_event(elapsed, text);
            }
        }
        for worker in workers.iter().filter(|worker| worker.failed == epoch && worker.instance != 0) {
            let Entry::Vacant(place) = self.roster.unable.entry(worker.instance) else { continue };
            place.insert(UnableWorker { id: worker.id.clone(), since_s: at });
            let what = match self.roster.members.contains_key(&worker.instance) {
                true => "has ended its part before its time, and its load moves to the others",
                false => "takes no part: it cannot carry out the run",
            };
            self.record_event(elapsed, format!("worker {} {what}: {}", worker.id, worker.message));
        }
        let present = |instance: &u64| workers.iter().any(|worker| worker.instance == *instance);
        let gone: Vec<(u64, String)> = self
            .roster
            .members
            .iter()
            .filter(|(instance, member)| member.state == RosterEntryState::Working && !present(instance))
            .map(|(instance, member)| (*instance, member.id.clone()))
            .collect();
        if !gone.is_empty() {
            // Whoever left in good order has shipped its last delta before it was gone.
            self.pending_closed_seconds += self.poll().await?;
        }
        for (instance, id) in gone {
            // Before the start there is nothing to lose.
            let complete = elapsed.is_zero() || self.collector.is_finished(worker_source(instance));
            let state = if complete { RosterEntryState::Left } else { RosterEntryState::Lost };
            if let Some(member) = self.roster.members.get_mut(&instance) {
                (member.state, member.ended_s) = (state, Some(at));
            }
            self.mark_lost(instance);
            let what = if complete { "left" } else { "was lost" };
            let able = |worker: &WorkerInfo| worker.is_healthy() && worker.failed != epoch;
            let then = match workers.iter().any(able) {
                true => "its load moves to the others",
                false => "no worker is left, and nobody makes its load until one comes",
            };
            self.record_event(elapsed, format!("worker {id} {what}; {then}"));
        }
        Ok(())
    }

    /// Merges everything that has been shipped; says how many seconds were closed since it was last asked.
    pub async fn poll(&mut self) -> Result<usize, StoreError> {
        let mut closed = std::mem::take(&mut self.pending_closed_seconds);
        loop {
            let deltas = self.run.deltas(self.epoch, &self.stream_position, DELTA_BATCH).await?;
            if deltas.is_empty() {
                return Ok(closed);
            }
            for shipped in deltas {
                match self.merge_entry(&shipped.bytes) {
                    Ok(seconds) => closed += seconds,
                    Err(MergeError::Gap { .. }) => {
                        // Others were faster and what lies between is in their savings.
                        self.restore_checkpoint().await?;
                        return Ok(closed + 1);
                    }
                    Err(_) => {}
                }
                self.stream_position = shipped.position;
            }
        }
    }

    fn merge_entry(&mut self, bytes: &[u8]) -> Result<usize, MergeError> {
        if let Some(said) = SendBudgetReport::decode(bytes) {
            self.roster.announced.insert(said.instance, said);
            return Ok(0);
        }
        let delta = match decode_delta(bytes) {
            Ok(delta) => delta,
            Err(error) => {
                warn!(%error, "something in the stream of deltas is none");
                self.roster.refused += 1;
                return Ok(0);
            }
        };
        let source = delta.source;
        // Its report may not have been seen yet; the delta says enough.
        self.add_worker(source.instance, &format_instance(source.instance), f64::from(delta.second));
        let closed = self.collector.merge(delta)?;
        if closed > 0 {
            let _ = self.judge.judge_closed_seconds(self.collector.view(), self.load_active);
        }
        Ok(closed)
    }

    /// What a lost worker may have sent that is not reported, by what it has announced.
    pub(crate) fn lost_at_most(&self, instance: u64) -> u64 {
        match self.roster.members.get(&instance) {
            Some(member)
                if member.state == RosterEntryState::Lost && !self.collector.is_finished(worker_source(instance)) =>
            {
                let announced = self.roster.announced.get(&instance).map_or(0, |said| said.most);
                let most = member.sealed.map_or(announced, |sealed| sealed.min(announced));
                most.saturating_sub(self.collector.recorded_of(worker_source(instance)))
            }
            _ => 0,
        }
    }

    /// Requests of one iteration at most, if every worker has said so.
    pub(crate) fn max_requests_per_iteration(&self) -> Option<u64> {
        let each = |instance: &u64| self.roster.announced.get(instance).and_then(|said| said.each);
        let all: Option<Vec<u64>> = self.roster.members.keys().map(each).collect();
        all?.into_iter().max()
    }

    /// Who made what of a run whose load was over at `active`. `unreported`: no more than this can be missing of all together.
    pub(crate) fn worker_facts(&self, active: Duration, unreported: u64) -> Vec<WorkerFacts> {
        let facts = |(instance, member): (&u64, &RosterEntry)| WorkerFacts {
            id: member.id.clone(),
            instance: format_instance(*instance),
            requests: self.collector.recorded_of(worker_source(*instance)),
            state: match member.state {
                RosterEntryState::Lost => WorkerState::Lost,
                RosterEntryState::Left if member.ended_s.is_some_and(|at| at < active.as_secs_f64()) => {
                    WorkerState::Left
                }
                RosterEntryState::Working | RosterEntryState::Finished | RosterEntryState::Left => {
                    WorkerState::Finished
                }
            },
            joined_s: member.joined_s,
            ended_s: member.ended_s,
            lost_at_most: self.lost_at_most(*instance).min(unreported),
        };
        let unable = |(instance, unable): (&u64, &UnableWorker)| WorkerFacts {
            id: unable.id.clone(),
            instance: format_instance(*instance),
            requests: 0,
            state: WorkerState::Unable,
            joined_s: unable.since_s,
            ended_s: Some(unable.since_s),
            lost_at_most: 0,
        };
        let idle = self.roster.unable.iter().filter(|(instance, _)| !self.roster.members.contains_key(instance));
        self.roster.members.iter().map(facts).chain(idle.map(unable)).collect()
    }

    /// Gives up waiting for anybody who has not said its last. Unless the run `began` nobody is lost: no worker was ever given a
    /// time to start at.
    pub(crate) async fn close(&mut self, elapsed: Duration, began: bool) -> Result<(), StoreError> {
        let notes = RunNotes::from(self.run.notes(self.epoch).await?);
        self.close_with_notes(elapsed, began, &notes);
        Ok(())
    }

    pub(crate) fn close_with_notes(&mut self, elapsed: Duration, began: bool, notes: &RunNotes) {
        let open: Vec<u64> = self
            .roster
            .members
            .iter()
            .filter(|(instance, member)| {
                !member.left_before_the_start() && !self.collector.is_finished(worker_source(**instance))
            })
            .map(|(instance, _)| *instance)
            .collect();
        for instance in open {
            if let Some(member) = self.roster.members.get_mut(&instance) {
                member.state = if began { RosterEntryState::Lost } else { RosterEntryState::Finished };
                member.ended_s.get_or_insert(elapsed.as_secs_f64());
                member.sealed = notes.max_sent(instance);
            }
            self.mark_lost(instance);
        }
    }

    /// Waits no longer for a worker.
    fn mark_lost(&mut self, instance: u64) {
        self.pending_closed_seconds += self.collector.mark_lost(worker_source(instance));
        // Before the next second closes: its histograms are there until then.
        let _ = self.judge.judge_closed_seconds(self.collector.view(), self.load_active);
    }

    /// What was made so far, to be kept.
    pub(crate) fn checkpoint(&self) -> Vec<u8> {
        encode_checkpoint(&self.roster, &self.collector)
    }

    /// What a run needs must outlive it.
    pub(crate) async fn extend_retention(&self, bundle: &str) -> Result<(), StoreError> {
        self.run.extend_retention(self.epoch, bundle).await
    }

    /// Keeps what was made so far for whoever comes next; `false` if somebody else has.
    pub(crate) async fn save_checkpoint(&mut self) -> Result<bool, StoreError> {
        self.roster.judged = self.judge.checkpoint();
        let made = self.checkpoint();
        let kept = self.run.save_checkpoint(self.epoch, &self.saved_position, &self.stream_position, &made).await?;
        if kept {
            self.saved_position.clone_from(&self.stream_position);
        } else {
            self.restore_checkpoint().await?;
        }
        Ok(kept)
    }
}

/// What was made, as if the run were over.
fn final_view_of(made: &[u8], window_s: u32) -> Option<RunView> {
    let (crew, collector) = decode_checkpoint(made, window_s)?;
    let mut view = collector.finish();
    // The most that each worker had do not add up: users that move within a second are counted by both.
    if crew.members.len() > 1
        && let Some(most) = view.timeline.iter().map(|second| second.users).max().filter(|most| *most > 0)
    {
        view.engine.peak_users = most;
    }
    Some(view)
}

fn encode_checkpoint(crew: &WorkerRoster, collector: &Collector) -> Vec<u8> {
    let aux = serde_json::to_vec(crew).expect("a crew is text and numbers");
    let mut made = (aux.len() as u32).to_le_bytes().to_vec();
    made.extend_from_slice(&aux);
    made.extend_from_slice(&collector.save());
    made
}

/// Takes a saving apart; `None` if it is none.
fn decode_checkpoint(made: &[u8], window_s: u32) -> Option<(WorkerRoster, Collector)> {
    let (length, rest) = made.split_first_chunk::<4>()?;
    let (aux, collector) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((serde_json::from_slice(aux).ok()?, Collector::restore(collector, window_s).ok()?))
}

pub(crate) fn worker_source(instance: u64) -> SourceId {
    SourceId { instance, thread: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::MemoryFleetStores;
    use squall_metrics::{Delta, EngineDelta};
    use squall_model::{Load, LoadModel, Pause};

    fn delta(instance: u64, second: u32, users: u64, peak_users: u64) -> Delta {
        let engine = EngineDelta { users, peak_users, ..EngineDelta::default() };
        let (source, seq) = (worker_source(instance), u64::from(second));
        Delta { source, seq, second, metrics: vec![], errors: vec![], engine, last: second == 1 }
    }

    /// Nobody waits for what will not come: a thread of it fell, or the store has lost what it had shipped.
    #[tokio::test]
    async fn a_worker_that_ended_before_its_time_is_not_waited_for_and_stated_once() {
        let (cell, model) = (MemoryFleetStores::default(), LoadModel::Closed { users: profile(), pause: Pause::NONE });
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let tasks = vec![squall_model::TaskSpec::new("a")];
        let plan = Plan { name: "p".into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
        let run = cell.run();
        run.compare_and_set(&run.read_record().await.unwrap(), "RUNNING", "{}", true).await.unwrap().expect("alone");
        let mut follower = RunAggregator::open(&cell, 1, &plan, 1).await.unwrap();
        let worker = |instance: u64, failed: u64, done: u64| WorkerInfo {
            id: format!("w{instance}"),
            instance,
            status: "healthy".into(),
            ready: 1,
            failed,
            done,
            message: "told to".into(),
            ..WorkerInfo::default()
        };
        let ship = async |instance: u64, delta: Delta| {
            run.ship(1, &format!("{instance:016x}.0"), delta.seq, &squall_metrics::encode_delta(&delta)).await.unwrap();
        };
        let second = Duration::from_secs(1);
        follower.update_roster(&[worker(1, 0, 0), worker(2, 0, 0), worker(3, 0, 0)], second / 10).await.unwrap();
        for instance in 1..=3 {
            ship(instance, delta(instance, 0, 3, 3)).await;
        }
        assert_eq!(follower.poll().await.unwrap(), 1);
        // The second ends with its last delta in the store, the third without one; both say so at once.
        ship(1, Delta { last: false, ..delta(1, 1, 3, 3) }).await;
        ship(2, delta(2, 1, 3, 3)).await;
        for at in [2, 3] {
            follower.update_roster(&[worker(1, 0, 0), worker(2, 1, 1), worker(3, 1, 1)], at * second).await.unwrap();
        }
        assert_eq!(follower.poll().await.unwrap(), 1, "the second second waits for nobody");
        let states: Vec<_> = follower.worker_facts(4 * second, u64::MAX).into_iter().map(|facts| facts.state).collect();
        assert_eq!(states, [WorkerState::Finished, WorkerState::Finished, WorkerState::Lost]);
        let told: Vec<_> = follower.roster().events.iter().map(|(_, text)| text.as_str()).collect();
        let text =
            |id| format!("worker {id} has ended its part before its time, and its load moves to the others: told to");
        assert_eq!(told, [text("w2"), text("w3")]);
    }

    fn profile() -> squall_model::Profile {
        squall_model::Profile::constant(9.0, Duration::from_secs(60)).expect("a load")
    }

    #[test]
    fn users_that_move_within_a_second_are_counted_once() {
        let mut crew = WorkerRoster::default();
        crew.members.extend([(1, RosterEntry::new("a", 0.0)), (2, RosterEntry::new("b", 0.0))]);
        let mut collector = Collector::new([worker_source(1), worker_source(2)], 1);
        // Nine users; in the second second three of them go from the first to the second worker.
        for delta in [delta(1, 0, 6, 6), delta(2, 0, 3, 3), delta(1, 1, 3, 6), delta(2, 1, 6, 6)] {
            collector.merge(delta).expect("it is the next");
        }
        assert_eq!(collector.view().engine.peak_users, 12, "the most of each worker");
        let view = RunAggregator::<MemoryFleetStores>::view_of_checkpoint(&encode_checkpoint(&crew, &collector))
            .expect("a saving");
        assert_eq!(view.engine.peak_users, 9);
    }
}
