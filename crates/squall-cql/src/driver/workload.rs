//! What the users of a run do: basic operations, or the operations of profiles, with their weights. It
//! sends nothing. The command line makes it from the settings and the profiles' files.

use super::{RunCounts, coordinator_metrics::COORDINATOR};
use crate::{BasicOperation, StressOperation, UserProfile, hint::nearest};
use std::sync::Arc;

/// The operations of a run in alphabetical order.
#[derive(Debug, Clone)]
pub enum Workload {
    Standard(Vec<(BasicOperation, f64)>),
    Profiles(ProfileWorkload),
}

/// The operations of the `user` command.
#[derive(Debug, Clone)]
pub struct ProfileWorkload {
    pub(crate) profiles: Arc<[UserProfile]>,
    pub(crate) operations: Vec<ProfileOperation>,
}

/// One operation of a profile.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProfileOperation {
    /// As typed in `ops(…)`.
    pub(crate) name: String,
    pub(crate) weight: f64,
    /// The position of its profile.
    pub(crate) profile: usize,
    pub(crate) kind: ProfileOperationKind,
}

/// What an operation of a profile does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProfileOperationKind {
    Insert,
    Validate,
    /// The query with this name.
    Query(String),
    /// The token-range query with this name.
    TokenRange(String),
}

/// Why `ops(…)` and the profiles do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    #[error("ops({name}=…): the profile {spec_name} has no operation {operation}: {hint}")]
    UnknownOperation { name: String, operation: String, spec_name: String, hint: String },
    #[error("two profiles have the name {spec_name}: give one of them another specname")]
    SameName { spec_name: String },
}

impl Workload {
    /// `profiles` are those of the `user` command, in the order of `profile=`.
    pub fn new(operation: &StressOperation, profiles: Vec<UserProfile>) -> Result<Workload, WorkloadError> {
        let StressOperation::User { weights, .. } = operation else {
            return Ok(Workload::Standard(operation.basic_operations()));
        };
        for (number, profile) in profiles.iter().enumerate() {
            if profiles[..number].iter().any(|other| other.spec_name == profile.spec_name) {
                return Err(WorkloadError::SameName { spec_name: profile.spec_name.clone() });
            }
        }
        let used = weights.iter().filter(|(_, weight)| *weight > 0.0);
        let operations = used.map(|(name, weight)| ProfileOperation::find(name, *weight, &profiles));
        let mut operations = operations.collect::<Result<Vec<_>, _>>()?;
        operations.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Workload::Profiles(ProfileWorkload { profiles: profiles.into(), operations }))
    }

    /// The names of the operations, as the table shows them.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Workload::Standard(operations) => operations.iter().map(|(operation, _)| operation.name()).collect(),
            Workload::Profiles(workload) => workload.operations.iter().map(|operation| &*operation.name).collect(),
        }
    }

    /// Whether a run can have a metric with this name. Which nodes coordinate its operations is not known before.
    pub fn may_have_metric(&self, name: &str) -> bool {
        self.names().contains(&name) || RunCounts::new(self).has_metric(name) || name.starts_with(COORDINATOR)
    }

    /// The operation with this position alone, for its warm-up.
    #[must_use]
    pub fn only(&self, position: usize) -> Workload {
        match self {
            Workload::Standard(operations) => Workload::Standard(vec![operations[position]]),
            Workload::Profiles(workload) => Workload::Profiles(ProfileWorkload {
                profiles: workload.profiles.clone(),
                operations: vec![workload.operations[position].clone()],
            }),
        }
    }

    /// The token-range queries, as typed in `ops(…)`.
    pub fn token_range_queries(&self) -> impl Iterator<Item = &str> {
        let operations = match self {
            Workload::Standard(_) => &[][..],
            Workload::Profiles(workload) => &workload.operations,
        };
        operations.iter().filter(|operation| operation.reads_token_ranges()).map(|operation| operation.name.as_str())
    }

    pub(super) fn weights(&self) -> Vec<f64> {
        match self {
            Workload::Standard(operations) => operations.iter().map(|(_, weight)| *weight).collect(),
            Workload::Profiles(workload) => workload.operations.iter().map(|operation| operation.weight).collect(),
        }
    }
}

impl ProfileOperation {
    pub(super) fn reads_token_ranges(&self) -> bool {
        matches!(self.kind, ProfileOperationKind::TokenRange(_))
    }

    /// `specname.operation`, or an operation of the first profile.
    fn find(name: &str, weight: f64, profiles: &[UserProfile]) -> Result<ProfileOperation, WorkloadError> {
        // A specname may have dots itself: without one in the file it is keyspace.table.
        let prefixed = profiles.iter().enumerate().find_map(|(number, profile)| {
            let operation = name.strip_prefix(&profile.spec_name)?.strip_prefix('.')?;
            Some((number, profile, operation))
        });
        let first = || profiles.first().map(|profile| (0, profile, name));
        let Some((number, profile, operation)) = prefixed.or_else(first) else {
            unreachable!("the command line requires profile=")
        };
        let kind = match operation {
            "insert" => ProfileOperationKind::Insert,
            "validate" => ProfileOperationKind::Validate,
            query if profile.queries.contains_key(query) => ProfileOperationKind::Query(query.to_owned()),
            query if profile.token_range_queries.contains_key(query) => {
                ProfileOperationKind::TokenRange(query.to_owned())
            }
            unknown => return Err(unknown_operation(name, unknown, profile)),
        };
        Ok(ProfileOperation { name: name.to_owned(), weight, profile: number, kind })
    }
}

fn unknown_operation(name: &str, operation: &str, profile: &UserProfile) -> WorkloadError {
    let queries = profile.queries.keys().chain(profile.token_range_queries.keys());
    let known: Vec<&str> = ["insert", "validate"].into_iter().chain(queries.map(String::as_str)).collect();
    let hint = match nearest(operation, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("it has {}", known.join(", ")),
    };
    WorkloadError::UnknownOperation {
        name: name.to_owned(),
        operation: operation.to_owned(),
        spec_name: profile.spec_name.clone(),
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CqlCommand, parse_command_line};

    fn workload(ops: &str) -> Result<Workload, WorkloadError> {
        let words = ["user", "profile=a.yaml,b.yaml", ops, "n=1"];
        let Ok(CqlCommand::Stress(settings)) = parse_command_line(&words) else { panic!("{ops}") };
        let one = "keyspace: shop\ntable: cars\nqueries: {by_id: {cql: select 1}}";
        let two = "specname: second\nkeyspace: a\ntable: b\ntoken_range_queries: {scan: {columns: '*'}}";
        let profiles = [one, two].map(|text| UserProfile::parse("p.yaml", text).unwrap());
        Workload::new(&settings.command.operation, profiles.to_vec())
    }

    #[test]
    fn an_operation_without_a_specname_is_one_of_the_first_profile() {
        let Ok(Workload::Profiles(found)) = workload("ops(second.scan=1,by_id=2,shop.cars.insert=1,second.insert=0)")
        else {
            panic!("the operations exist")
        };
        let found: Vec<_> = found.operations.iter().map(|op| (op.name.as_str(), op.profile, op.kind.clone())).collect();
        assert_eq!(
            found,
            [
                ("by_id", 0, ProfileOperationKind::Query("by_id".to_owned())),
                ("second.scan", 1, ProfileOperationKind::TokenRange("scan".to_owned())),
                ("shop.cars.insert", 0, ProfileOperationKind::Insert),
            ]
        );
    }

    #[test]
    fn the_metrics_of_a_run_are_operations_counts_and_coordinators() {
        let workload = workload("ops(by_id=1,second.scan=1)").expect("the operations exist");
        for name in ["by_id", "by_id:rows", "by_id:partitions", "second.scan:ranges", "coordinator:10.0.0.2 (dc1)"] {
            assert!(workload.may_have_metric(name), "{name}");
        }
        for name in ["insert", "insert:rows", "by_id:row", "rows", "coordinator"] {
            assert!(!workload.may_have_metric(name), "{name}");
        }
    }

    #[test]
    fn an_unknown_operation_is_named_with_a_near_one() {
        let message = |ops| workload(ops).unwrap_err().to_string();
        assert_eq!(
            message("ops(by_di=1)"),
            "ops(by_di=…): the profile shop.cars has no operation by_di: did you mean by_id?"
        );
        assert_eq!(
            message("ops(second.zzz=1)"),
            "ops(second.zzz=…): the profile second has no operation zzz: it has insert, validate, scan"
        );
    }
}
