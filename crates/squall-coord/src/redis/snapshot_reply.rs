//! Parses the replies of `snapshot.lua` and `member_snapshot.lua` into a [`LeaseSnapshot`] or a
//! [`MemberSnapshot`].
//! It rejects replies that it does not understand.

use std::{collections::BTreeMap, time::Duration};

use redis::Value;
use serde_json::Value as Json;

use super::{LeaseKeys, unreadable_record};
use crate::{
    LeaseEpoch, LeaseHolder, LeaseSnapshot, LiveMember, MemberId, MemberSnapshot, Revision, StoreError, UnitId,
};

/// time in ms, revision, members record, (member, deadline)…, (field, value)…
pub(super) type SnapshotReply = (String, u64, String, Vec<(String, f64)>, BTreeMap<String, String>);

pub(super) fn parse_snapshot(
    (now, revision, record, live, held): SnapshotReply,
    keys: &LeaseKeys,
) -> Result<LeaseSnapshot, StoreError> {
    let wrong_record = || unreadable_record(keys);
    let now: f64 = now.parse().map_err(|_| wrong_record())?;
    let record: BTreeMap<String, Json> = serde_json::from_str(&record).map_err(|_| wrong_record())?;
    let mut members = Vec::new();
    let mut assignment = BTreeMap::new();
    for (id, deadline) in live {
        // The record was deleted. The member joins again when it does not find itself.
        let Some(entry) = record.get(&id) else { continue };
        let number = |field: &str| entry.get(field).and_then(Json::as_f64).ok_or_else(wrong_record);
        let id = MemberId::new(id);
        let units = entry.get(keys.units_field).and_then(Json::as_array).ok_or_else(wrong_record)?;
        assignment.insert(id.clone(), units.iter().map(parse_unit).collect());
        let leaving = entry.get("leaving").is_some();
        let member = LiveMember {
            id,
            age: duration_between(now, number("joined_at")?),
            expires_in: duration_between(deadline, now),
            leaving,
        };
        members.push((number("entry")?, member));
    }
    members.sort_by(|a, b| a.0.total_cmp(&b.0));
    let leases = held.iter().filter_map(|(field, value)| parse_lease(field, value));
    let members = members.into_iter().map(|(_, member)| member).collect();
    Ok(LeaseSnapshot { revision: Revision(revision), members, assignment, leases: leases.collect() })
}

/// Parses: revision, number of members, number of older members, units, (unit, lease)…
pub(super) fn parse_member_snapshot(reply: Vec<Value>, keys: &LeaseKeys) -> Result<MemberSnapshot, StoreError> {
    let wrong_record = || unreadable_record(keys);
    let fields: Vec<String> = redis::from_redis_value(Value::Array(reply)).map_err(|_| wrong_record())?;
    let [revision, members, older_members, units, leases @ ..] = &fields[..] else { return Err(wrong_record()) };
    let number = |text: &String| text.parse::<i64>().map_err(|_| wrong_record());
    let units: Vec<Json> = serde_json::from_str(units).map_err(|_| wrong_record())?;
    Ok(MemberSnapshot {
        revision: Revision(revision.parse().map_err(|_| wrong_record())?),
        member_count: usize::try_from(number(members)?).map_err(|_| wrong_record())?,
        older_members: usize::try_from(number(older_members)?).ok(),
        assigned: units.iter().map(parse_unit).collect(),
        leases: leases.chunks_exact(2).filter_map(|pair| parse_lease(&format!("unit:{}", pair[0]), &pair[1])).collect(),
    })
}

fn parse_lease(field: &str, value: &str) -> Option<(UnitId, LeaseHolder)> {
    let unit = UnitId::new(field.strip_prefix("unit:")?);
    let (epoch, holder) = value.split_once(' ')?;
    Some((unit, LeaseHolder { member: MemberId::new(holder), epoch: LeaseEpoch(epoch.parse().ok()?) }))
}

fn parse_unit(value: &Json) -> UnitId {
    value.as_str().map_or_else(|| UnitId::new(value.to_string()), UnitId::new)
}

fn duration_between(later: f64, earlier: f64) -> Duration {
    Duration::from_secs_f64(((later - earlier) / 1000.0).max(0.0))
}
