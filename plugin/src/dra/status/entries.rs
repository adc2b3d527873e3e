//! This driver's entries of `status.devices`: an entry for each share, equal for equal grants.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use vcuda_manager_api::v1;
use vcuda_quota::pods::quantity;
use vcuda_quota::{Policy, Quota};

use crate::cdi::{ClaimRecord, Prepared};
use crate::dra::DRIVER;

pub(super) type Grants = BTreeMap<String, v1::Grant>;

/// The entries of a claim. The times at which conditions changed are not set yet: they are the epoch.
pub(super) fn status_entries(record: &ClaimRecord, grants: &Grants) -> Vec<AllocatedDeviceStatus> {
    let entry = |share: &Prepared| {
        let grant = share.key.as_ref().and_then(|key| grants.get(key));
        AllocatedDeviceStatus {
            driver: DRIVER.to_owned(),
            pool: share.pool.clone(),
            device: share.device.clone(),
            share_id: share.share_id.clone(),
            conditions: Some(vec![condition(share, grant)]),
            data: Some(RawExtension(Value::Object(data(share, grant)))),
            network_data: None,
        }
    };
    record.prepared.iter().map(entry).collect()
}

fn condition(share: &Prepared, grant: Option<&v1::Grant>) -> Condition {
    let (status, reason, message) = match (&share.key, grant) {
        (None, _) if share.is_unused => ("False", "Unused", "no container uses it".to_owned()),
        (None, _) => ("True", "Prepared", "the GPU is seen, without limits".to_owned()),
        (Some(_), Some(grant)) => ("True", "Prepared", format!("grant {}", grant.id)),
        (Some(_), None) => ("False", "NoGrant", "the manager has no grant of it (any more)".to_owned()),
    };
    Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

fn data(share: &Prepared, grant: Option<&v1::Grant>) -> Map<String, Value> {
    let mut data = Map::new();
    let mut add = |key: &str, value: Value| drop(data.insert(key.to_owned(), value));
    add("uuid", share.uuid.clone().into());
    let quota = grant.and_then(|grant| grant.amounts.as_ref()).map(Quota::from);
    match (quota, quota.and_then(|quota| quota.memory_bytes)) {
        (Some(quota), Some(bytes)) => {
            add("memory", quantity::bytes(bytes).into());
            add("cores", quantity::percent(quota.cores_permille).into());
            add("policy", quota.policy.name().into());
            add("priority", quota.priority.name().into());
            if quota.policy == Policy::Burst {
                add("coresMax", quantity::percent(quota.cores_max_permille).into());
            }
        }
        (Some(_), None) => add("whole", true.into()),
        (None, _) if share.key.is_none() && !share.is_unused => add("adminAccess", true.into()),
        (None, _) => {}
    }
    data
}

/// This driver's entries in the claim's present status.
pub(super) fn current_entries(claim: &ResourceClaim) -> Vec<AllocatedDeviceStatus> {
    let devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
    devices.filter(|device| device.driver == DRIVER).cloned().collect()
}

/// Whether the present entries are the desired ones, regardless of the times.
pub(super) fn is_current(current: &[AllocatedDeviceStatus], desired: &[AllocatedDeviceStatus]) -> bool {
    let without_times = |entry: &AllocatedDeviceStatus| {
        let mut entry = entry.clone();
        for condition in entry.conditions.iter_mut().flatten() {
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        entry
    };
    current.len() == desired.len() && current.iter().all(|entry| desired.contains(&without_times(entry)))
}

/// The entries with the times at which their conditions changed: the present entry's time if the condition is equal, else now.
pub(super) fn with_transition_times(
    entries: &[AllocatedDeviceStatus],
    current: &[AllocatedDeviceStatus],
) -> Vec<AllocatedDeviceStatus> {
    let mut timed = entries.to_vec();
    for entry in &mut timed {
        let before = current.iter().find(|current| is_same_share(current, entry));
        let before = before.and_then(|current| current.conditions.clone()).unwrap_or_default();
        for condition in entry.conditions.iter_mut().flatten() {
            let same = before
                .iter()
                .find(|known| known.type_ == condition.type_ && known.status == condition.status);
            condition.last_transition_time = match same {
                Some(known) => known.last_transition_time.clone(),
                None => Time(Timestamp::now()),
            };
        }
    }
    timed
}

fn is_same_share(current: &AllocatedDeviceStatus, entry: &AllocatedDeviceStatus) -> bool {
    (&current.pool, &current.device, &current.share_id) == (&entry.pool, &entry.device, &entry.share_id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(key: Option<&str>) -> ClaimRecord {
        ClaimRecord {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: "u".to_owned(),
            asked: BTreeMap::new(),
            of_pod: false,
            prepared: vec![Prepared {
                request: "gpu".to_owned(),
                pool: "node".to_owned(),
                device: "gpu-1".to_owned(),
                share_id: Some("s".to_owned()),
                cdi: Vec::new(),
                uuid: "GPU-1".to_owned(),
                key: key.map(str::to_owned),
                is_unused: false,
            }],
        }
    }

    fn grants(amounts: v1::Amounts) -> Grants {
        let grant = v1::Grant { id: "k-7".to_owned(), amounts: Some(amounts), ..v1::Grant::default() };
        Grants::from([("k".to_owned(), grant)])
    }

    fn shown_data(amounts: Option<v1::Amounts>, key: Option<&str>) -> Value {
        let grants = amounts.map(grants).unwrap_or_default();
        let [entry] = status_entries(&record(key), &grants).try_into().unwrap();
        assert_eq!(entry.share_id.as_deref(), Some("s"));
        entry.data.unwrap().0
    }

    #[test]
    fn an_entry_has_gpu_quota_and_policy() {
        let mut amounts =
            v1::Amounts { memory_bytes: 4 << 30, cores_permille: 125, ..v1::Amounts::default() };
        let expected = json!({"uuid": "GPU-1", "memory": "4Gi", "cores": "12.5", "policy": "fixed", "priority": "normal"});
        assert_eq!(shown_data(Some(amounts), Some("k")), expected);
        amounts.set_policy(v1::Policy::Burst);
        assert_eq!(shown_data(Some(amounts), Some("k"))["coresMax"], "100");
        let whole = json!({"uuid": "GPU-1", "whole": true});
        assert_eq!(shown_data(Some(v1::Amounts::default()), Some("k")), whole);
        let admin = json!({"uuid": "GPU-1", "adminAccess": true});
        assert_eq!(shown_data(None, None), admin);
        assert_eq!(shown_data(None, Some("k")), json!({"uuid": "GPU-1"}));
    }

    #[test]
    fn a_share_that_no_container_uses_has_no_admin_access() {
        let mut unused = record(None);
        unused.prepared[0].is_unused = true;
        let [entry] = status_entries(&unused, &Grants::new()).try_into().unwrap();
        assert_eq!(entry.data.unwrap().0, json!({"uuid": "GPU-1"}));
        let [condition] = entry.conditions.unwrap().try_into().unwrap();
        let shown = [&condition.status, &condition.reason, &condition.message].map(String::as_str);
        assert_eq!(shown, ["False", "Unused", "no container uses it"]);
    }

    #[test]
    fn a_time_stays_as_long_as_its_condition() {
        let desired = status_entries(&record(None), &Grants::new());
        let time = |entries: &[AllocatedDeviceStatus]| {
            entries[0].conditions.as_ref().unwrap()[0].last_transition_time.clone()
        };
        let first = with_transition_times(&desired, &[]);
        assert_ne!(time(&first), time(&desired));
        assert!(is_current(&first, &desired));
        assert_eq!(with_transition_times(&desired, &first), first);
        let lost = status_entries(&record(Some("k")), &Grants::new());
        assert_eq!(lost[0].conditions.as_ref().unwrap()[0].reason, "NoGrant");
        assert!(!is_current(&first, &lost));
        assert_ne!(time(&with_transition_times(&lost, &first)), time(&first));
    }
}
