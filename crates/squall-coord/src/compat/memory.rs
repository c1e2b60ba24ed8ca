//! The compat view of a fleet within one process. Other programs cannot read this process's memory,
//! so it stores nothing; it only rejects changes of an ended run, as the Redis view does.

use std::collections::BTreeMap;

use super::{CompatView, MetricEntry, SecondRow, UserLocations, UserMove};
use crate::{MemoryRunStore, ReportFields, StoreError};

impl CompatView for MemoryRunStore {
    async fn clear_compat_view(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn user_locations(&self, _: u64) -> Result<UserLocations, StoreError> {
        Ok(UserLocations::new())
    }

    async fn move_users(&self, epoch: u64, _: UserMove<'_>) -> Result<bool, StoreError> {
        Ok(self.is_current(epoch))
    }

    async fn mark_active_users(&self, epoch: u64, _: &str, _: &[u64], _: bool) -> Result<bool, StoreError> {
        Ok(self.is_current(epoch))
    }

    async fn append_user_count(&self, epoch: u64, _: u64, _: &str) -> Result<bool, StoreError> {
        Ok(self.is_current(epoch))
    }

    async fn active_user_count(&self, _: &str) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn extend_report(&self, _: &str, _: &ReportFields) -> Result<(), StoreError> {
        Ok(())
    }

    async fn metric_entries(&self, _: &mut BTreeMap<String, String>, _: &str) -> Result<Vec<MetricEntry>, StoreError> {
        Ok(Vec::new())
    }

    async fn append_metric_entries(&self, _: &[MetricEntry]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn append_second(&self, epoch: u64, _: u64, _: &[SecondRow]) -> Result<bool, StoreError> {
        Ok(self.is_current(epoch))
    }
}
