//! The data of one user's operations of profiles: takes seeds, and generates rows and arguments. It
//! retries and records nothing.

use super::{
    DriverRun, NextOperation, OperationAnswer, UserSeeds,
    partition_visits::{PartitionVisit, VisitChooser},
    profile_operations::{
        NextPage, PreparedOperation, ProfileOperations, ProfileWork, TokenRangeQuery, TokenRangeScan,
    },
};
use crate::{Consistency, Database, database::OperationError};
use std::{rc::Rc, sync::Arc};

pub(super) struct ProfileUser {
    run: Arc<DriverRun>,
    operations: Rc<ProfileOperations>,
    seeds: UserSeeds,
    visits: VisitChooser,
    /// The number of the current operation.
    current: usize,
    /// What it sends.
    work: Option<ProfileWork>,
    /// Partitions of the next operation that others have begun.
    waiting: Vec<PartitionVisit>,
    /// How many partitions it begins.
    new_partitions: u64,
    /// The token range that the next operation continues.
    scan: Option<TokenRangeScan>,
    /// The number of the range that it begins, if the workers of a fleet share the ranges.
    range: Option<u64>,
}

impl ProfileUser {
    pub(super) fn new(run: Arc<DriverRun>, operations: Rc<ProfileOperations>) -> ProfileUser {
        ProfileUser {
            seeds: run.user_seeds(),
            visits: run.visits.chooser(),
            current: 0,
            work: None,
            waiting: Vec::new(),
            new_partitions: 0,
            scan: None,
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

    /// Takes a token range that is not read to its end, or waits for the number of a new one.
    async fn reserve_range(&mut self, index: usize) {
        self.scan = self.run.token_ranges.take_left(index);
        if self.scan.is_none() {
            self.range = self.run.token_ranges.reserve().await;
        }
    }

    /// Whether the operation has read the last page of a token range.
    pub(super) fn ended_range(&self) -> bool {
        matches!(&self.work, Some(ProfileWork::TokenRange(scan)) if scan.is_finished())
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
            PreparedOperation::TokenRange(_) => {
                match TokenRangeQuery::begin(run, self.scan.take(), self.range.take()) {
                    NextPage::Page(scan) => ProfileWork::TokenRange(scan),
                    NextPage::OthersRead => return Some(NextOperation::OthersRead),
                    NextPage::None => return None,
                }
            }
        };
        (self.current, self.work) = (index, Some(work));
        Some(NextOperation::Ready)
    }

    /// Sends the operation once.
    pub(super) async fn send(&mut self, database: &Database) -> Result<OperationAnswer, OperationError> {
        let work = self.work.as_mut().expect("begin has made the work");
        self.operations.get(self.current).send(&database.session, work).await
    }

    /// The bytes of the values that one try sends.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.work.as_ref().map_or(0, ProfileWork::bytes)
    }

    /// The level of the operation, if it has its own.
    pub(super) fn consistency(&self) -> Option<Consistency> {
        self.operations.get(self.current).consistency()
    }

    /// The text of the statement.
    pub(super) fn statement(&self) -> String {
        let text = |work| self.operations.get(self.current).statement(work).to_owned();
        self.work.as_ref().map(text).unwrap_or_default()
    }

    /// Ends the operation. A token range that has further pages is left for whichever user has the next
    /// operation: an open load may give this user none.
    pub(super) fn finish(&mut self) {
        match self.work.take() {
            Some(ProfileWork::Insert(work)) => work.finish(&self.run, &self.seeds),
            Some(ProfileWork::TokenRange(scan)) => self.run.token_ranges.leave(self.current, scan),
            Some(ProfileWork::Validation(_) | ProfileWork::Query(_)) | None => {}
        }
    }

    pub(super) fn keys(&self) -> String {
        self.work.as_ref().map(ProfileWork::keys).unwrap_or_default()
    }
}
