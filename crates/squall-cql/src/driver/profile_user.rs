//! The data of one user's operations of profiles: takes seeds, and generates rows and arguments. It
//! retries and records nothing.

use super::{
    Begun, DriverRun, OperationCounts, UserSeeds,
    partition_visits::VisitChooser,
    profile_operations::{NextPage, PreparedOperation, ProfileOperations, ProfileWork},
};
use crate::{Database, database::OperationError};
use std::{rc::Rc, sync::Arc};

pub(super) struct ProfileUser {
    run: Arc<DriverRun>,
    operations: Rc<ProfileOperations>,
    seeds: UserSeeds,
    visits: VisitChooser,
    /// What each operation sent last; a token-range query continues there.
    work: Vec<Option<ProfileWork>>,
    current: usize,
    /// The partitions that the next operation wants.
    wanted: u64,
}

impl ProfileUser {
    pub(super) fn new(run: Arc<DriverRun>, operations: Rc<ProfileOperations>) -> ProfileUser {
        ProfileUser {
            seeds: run.user_seeds(),
            visits: run.visits.chooser(),
            work: (0..operations.len()).map(|_| None).collect(),
            current: 0,
            wanted: 1,
            operations,
            run,
        }
    }

    /// Waits for the seeds of the next operation, if the workers of a fleet share them.
    pub(super) async fn reserve_seeds(&mut self, index: usize) {
        self.wanted = match self.operations.get(index) {
            PreparedOperation::Insert(insert) => insert.draw_partitions(),
            PreparedOperation::Validation(_) | PreparedOperation::Query(_) | PreparedOperation::TokenRange(_) => 1,
        };
        self.seeds.reserve_partitions(self.wanted).await;
    }

    /// Generates what the operation sends.
    pub(super) fn begin(&mut self, index: usize) -> Begun {
        self.generate(index).unwrap_or(Begun::AllUsed)
    }

    fn generate(&mut self, index: usize) -> Option<Begun> {
        let (run, seeds, wanted) = (&*self.run, &mut self.seeds, self.wanted);
        let work = match self.operations.get(index) {
            PreparedOperation::Insert(insert) => {
                ProfileWork::Insert(insert.begin(run, seeds, &mut self.visits, wanted)?)
            }
            PreparedOperation::Validation(check) => ProfileWork::Validation(check.begin(run, seeds)?),
            PreparedOperation::Query(query) => ProfileWork::Query(query.begin(run, seeds)?),
            PreparedOperation::TokenRange(query) => {
                let scan = match self.work[index].take() {
                    Some(ProfileWork::TokenRange(scan)) => Some(scan),
                    _ => None,
                };
                match query.begin(run, scan) {
                    NextPage::Page(scan) => ProfileWork::TokenRange(scan),
                    NextPage::OthersRead => return Some(Begun::OthersRead),
                    NextPage::None => return None,
                }
            }
        };
        self.work[index] = Some(work);
        self.current = index;
        Some(Begun::Ready)
    }

    /// Sends the operation once.
    pub(super) async fn send(&mut self, database: &Database) -> Result<OperationCounts, OperationError> {
        let work = self.work[self.current].as_mut().expect("begin has made the work");
        self.operations.get(self.current).send(&database.session, work).await
    }

    /// The text of the statement.
    pub(super) fn statement(&self) -> String {
        let text = |work| self.operations.get(self.current).statement(work).to_owned();
        self.work[self.current].as_ref().map(text).unwrap_or_default()
    }

    pub(super) fn finish(&mut self) {
        if let Some(ProfileWork::Insert(work)) = &self.work[self.current] {
            work.finish(&self.run, &self.seeds);
        }
    }

    pub(super) fn keys(&self) -> String {
        self.work[self.current].as_ref().map(ProfileWork::keys).unwrap_or_default()
    }
}
