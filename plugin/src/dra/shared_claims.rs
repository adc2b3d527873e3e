//! Objects for the manager's events about grants of claims that several pods may share.
//!
//! The holder of a grant is one of the pods that use the claim. It may be gone, until the claim is looked at.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use vcuda_manager_api::v1;

use super::shared::Shared;
use crate::cdi::ClaimRecord;
use crate::cluster::Cluster;
use crate::mode::Mode;
use crate::pod_events::{OtherObjects, pod_reference};

pub(super) struct SharedClaims {
    pub(super) shared: Arc<Shared>,
    pub(super) cluster: Cluster,
}

impl OtherObjects for SharedClaims {
    fn of_grant(&self, grant: &v1::Grant) -> Option<Vec<ObjectReference>> {
        if Mode::from_grant(grant) != Some(Mode::Dra) {
            return None;
        }
        let records = self.shared.store.records::<ClaimRecord>().unwrap_or_default();
        objects(&records, grant, |holder| self.cluster.annotations(holder).is_some())
    }
}

/// The claim of the grant, and the holder's pod if `is_there`; `None` for a claim that was made for a single pod.
fn objects(
    records: &[ClaimRecord],
    grant: &v1::Grant,
    is_there: impl Fn(&v1::Holder) -> bool,
) -> Option<Vec<ObjectReference>> {
    let record = records.iter().find(|record| record.keys().contains(&grant.key))?;
    if record.of_pod {
        return None;
    }
    let pod = grant.holder.as_ref().filter(|holder| !holder.pod.is_empty() && is_there(holder));
    Some([claim_reference(record)].into_iter().chain(pod.map(pod_reference)).collect())
}

/// Reference to a claim, for events.
pub(super) fn claim_reference(record: &ClaimRecord) -> ObjectReference {
    ObjectReference {
        api_version: Some("resource.k8s.io/v1".to_owned()),
        kind: Some("ResourceClaim".to_owned()),
        name: Some(record.name.clone()),
        namespace: Some(record.namespace.clone()),
        uid: Some(record.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cdi::Prepared;

    fn record(of_pod: bool) -> ClaimRecord {
        ClaimRecord {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: "u".to_owned(),
            asked: BTreeMap::new(),
            of_pod,
            prepared: vec![Prepared {
                request: "gpu".to_owned(),
                pool: "node".to_owned(),
                device: "gpu-1".to_owned(),
                share_id: None,
                cdi: Vec::new(),
                uuid: "GPU-1".to_owned(),
                key: Some("claim-k".to_owned()),
                is_unused: false,
            }],
        }
    }

    /// Kinds of the objects for events about a grant of the pod `pod`.
    fn kinds(of_pod: bool, key: &str, pod: &str, is_there: bool) -> Option<Vec<String>> {
        let holder = v1::Holder { namespace: "n".to_owned(), pod: pod.to_owned(), ..v1::Holder::default() };
        let grant = v1::Grant { key: key.to_owned(), holder: Some(holder), ..v1::Grant::default() };
        let found = objects(&[record(of_pod)], &grant, |_| is_there)?;
        Some(found.into_iter().filter_map(|object| object.kind).collect())
    }

    #[test]
    fn a_shared_claim_is_told_and_its_first_pod_while_it_is_there() {
        let claim = || Some(vec!["ResourceClaim".to_owned()]);
        let both = Some(vec!["ResourceClaim".to_owned(), "Pod".to_owned()]);
        assert_eq!(kinds(false, "claim-k", "p", true), both);
        assert_eq!(kinds(false, "claim-k", "p", false), claim());
        assert_eq!(kinds(false, "claim-k", "", true), claim(), "no container uses the request yet");
        assert_eq!(kinds(true, "claim-k", "p", true), None);
        assert_eq!(kinds(false, "claim-other", "p", true), None);
    }
}
