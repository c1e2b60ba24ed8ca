//! The data of one user's operations of profiles: takes seeds, and generates rows and arguments. It
//! retries and records nothing.

use super::{
    DriverRun, NextOperation, OperationCounts, UserSeeds,
    partition_visits::{PartitionVisit, VisitChooser},
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
    /// Partitions of the next operation that others have begun.
    waiting: Vec<PartitionVisit>,
    /// How many partitions it begins.
    new_partitions: u64,
    /// The number of the next token range, if the workers of a fleet share them.
    range: Option<u64>,
}

impl ProfileUser {
    pub(super) fn new(run: Arc<DriverRun>, operations: Rc<ProfileOperations>) -> ProfileUser {
        ProfileUser {
            seeds: run.user_seeds(),
            visits: run.visits.chooser(),
            work: (0..operations.len()).map(|_| None).collect(),
            current: 0,
            waiting: Vec::new(),
            new_partitions: 0,
            range: None,
            operations,
            run,
        }
    }

    /// Takes the partitions of the next operation. Waits for them and their seeds, if the workers of a fleet
    /// share them.
    pub(super) async fn reserve_seeds(&mut self, index: usize) {
        let wanted = match self.operations.get(index) {
            PreparedOperation::Insert(insert) => insert.draw_partitions(),
            PreparedOperation::Validation(_) | PreparedOperation::Query(_) => 1,
            PreparedOperation::TokenRange(_) => return self.reserve_range(index).await,
        };
        self.new_partitions = self.run.limit.take(wanted).await;
        if let PreparedOperation::Insert(_) = self.operations.get(index) {
            let begun = (0..self.new_partitions).filter_map(|_| self.visits.take_waiting(&self.run.visits));
            self.waiting.extend(begun);
            self.new_partitions -= self.waiting.len() as u64;
        }
        self.seeds.reserve(self.new_partitions).await;
    }

    /// Takes a token range that another user has left, or waits for the number of one, unless this user is
    /// reading one.
    async fn reserve_range(&mut self, index: usize) {
        let reading = matches!(&self.work[index], Some(ProfileWork::TokenRange(scan)) if !scan.is_finished());
        if reading {
            return;
        }
        if let Some(scan) = self.run.token_ranges.take_left(index) {
            if self.work[index].replace(ProfileWork::TokenRange(scan)).is_some() {
                self.run.token_ranges.finish();
            }
        } else if self.range.is_none() {
            self.range = self.run.token_ranges.reserve().await;
        }
    }

    /// Whether the operation has read the last page of a token range.
    pub(super) fn ended_range(&self) -> bool {
        matches!(&self.work[self.current], Some(ProfileWork::TokenRange(scan)) if scan.is_finished())
    }

    /// Generates what the operation sends.
    pub(super) fn begin(&mut self, index: usize) -> NextOperation {
        self.generate(index).unwrap_or(NextOperation::AllUsed)
    }

    fn generate(&mut self, index: usize) -> Option<NextOperation> {
        let (run, seeds) = (&*self.run, &mut self.seeds);
        let work = match self.operations.get(index) {
            PreparedOperation::Insert(insert) => {
                ProfileWork::Insert(insert.begin(seeds, &mut self.visits, (&mut self.waiting, self.new_partitions))?)
            }
            PreparedOperation::Validation(_) | PreparedOperation::Query(_) if self.new_partitions == 0 => return None,
            PreparedOperation::Validation(check) => ProfileWork::Validation(check.begin(seeds)?),
            PreparedOperation::Query(query) => ProfileWork::Query(query.begin(seeds)?),
            PreparedOperation::TokenRange(query) => {
                let scan = match self.work[index].take() {
                    Some(ProfileWork::TokenRange(scan)) => Some(scan),
                    _ => None,
                };
                let reading = scan.as_ref().is_some_and(|scan| !scan.is_finished());
                let reserved = if reading { None } else { self.range.take() };
                match query.begin(run, scan, reserved) {
                    NextPage::Page(scan) => ProfileWork::TokenRange(scan),
                    NextPage::OthersRead => return Some(NextOperation::OthersRead),
                    NextPage::None => return None,
                }
            }
        };
        self.work[index] = Some(work);
        self.current = index;
        Some(NextOperation::Ready)
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

impl Drop for ProfileUser {
    fn drop(&mut self) {
        for (index, work) in self.work.iter_mut().enumerate() {
            if let Some(ProfileWork::TokenRange(scan)) = work.take() {
                self.run.token_ranges.leave(index, scan);
            }
        }
    }
}
