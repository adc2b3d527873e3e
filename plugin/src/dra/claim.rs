//! The allocation of a ResourceClaim: its shares of GPUs, with amounts and parameters.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use thiserror::Error;
use vcuda_quota::pods::parameters::{self, Parameters, ParametersError};
use vcuda_quota::pods::quantity::{self, QuantityError};

use super::DRIVER;
use super::device::{CORES, MEMORY};
use crate::amounts::Counted;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ClaimError {
    #[error(
        "the claim was deleted, and another of its name was made: kubelet asks for that one when its pod starts"
    )]
    Other,
    #[error("the claim is not allocated (any more)")]
    NotAllocated,
    #[error("it was allocated devices of pool \"{0}\", and this node's is \"{1}\"")]
    OtherPool(String, String),
    #[error(
        "device {0}: no {1} was allocated of it; the feature gate DRAConsumableCapacity must be on in all of Kubernetes \
         (it is from 1.36)"
    )]
    NoAmount(String, &'static str),
    #[error("device {0}: {1}")]
    Amount(String, QuantityError),
    #[error("request {0}: memory {1}")]
    Asked(String, QuantityError),
    #[error(transparent)]
    Parameters(#[from] ParametersError),
}

/// Part of a GPU that was allocated for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// The request, without the name of a subrequest.
    pub(crate) request: String,
    pub(crate) device: String,
    pub(crate) share_id: Option<String>,
    /// Amounts that it consumes; `None` for admin access, which sees the GPU and consumes nothing.
    pub(crate) counted: Option<Counted>,
}

/// The shares of this driver that were allocated for `claim` in this node's `pool`. `uid` is the UID that kubelet names.
pub(crate) fn shares(claim: &ResourceClaim, uid: &str, pool: &str) -> Result<Vec<Share>, ClaimError> {
    if claim.metadata.uid.as_deref() != Some(uid) {
        return Err(ClaimError::Other);
    }
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_deref());
    let results = results.ok_or(ClaimError::NotAllocated)?;
    let ours = results.iter().filter(|result| result.driver == DRIVER);
    ours.map(|result| {
        if result.pool != pool {
            return Err(ClaimError::OtherPool(result.pool.clone(), pool.to_owned()));
        }
        Ok(Share {
            request: request_base(&result.request).to_owned(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            counted: match result.admin_access {
                Some(true) => None,
                _ => Some(counted(result, claim)?),
            },
        })
    })
    .collect()
}

pub(crate) fn is_ours(claim: &ResourceClaim) -> bool {
    results(claim).any(|result| result.driver == DRIVER)
}

/// Names of all requests of a claim, of other drivers too, without subrequests.
pub(crate) fn request_names(claim: &ResourceClaim) -> BTreeSet<String> {
    let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    let asked = devices.into_iter().flat_map(|devices| devices.requests.iter().flatten());
    let asked = asked.map(|request| request.name.as_str());
    let allocated = results(claim).map(|result| request_base(&result.request));
    asked.chain(allocated).map(str::to_owned).collect()
}

/// The results of a claim's allocation, of all drivers.
fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.into_iter().flat_map(|devices| devices.results.iter().flatten())
}

/// Name of the request without the subrequest: `gpu` for `gpu/large`, which the scheduler chose from a prioritized list.
pub(super) fn request_base(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}

fn counted(result: &DeviceRequestAllocationResult, claim: &ResourceClaim) -> Result<Counted, ClaimError> {
    let device = &result.device;
    let consumed = |name: &'static str| {
        let consumed = result.consumed_capacity.as_ref();
        let qualified = format!("{DRIVER}/{name}");
        let found = consumed.and_then(|all| all.get(name).or_else(|| all.get(&qualified)));
        let quantity = found.ok_or_else(|| ClaimError::NoAmount(device.clone(), name))?;
        quantity::parse(&quantity.0).map_err(|error| ClaimError::Amount(device.clone(), error))
    };
    let percent = consumed(CORES)?.min(100);
    let Parameters { quota_change, is_whole } = parameters(claim, &result.request)?;
    Ok(Counted {
        memory_bytes: consumed(MEMORY)?,
        cores_permille: u32::try_from(percent * 10).unwrap_or(1000),
        parameters: quota_change,
        is_whole,
    })
}

/// Refuses memory without a unit in a claim that has no grants yet.
pub(super) fn check_asked(claim: &ResourceClaim, shares: &[Share]) -> Result<(), ClaimError> {
    for Share { request, .. } in shares {
        if let Some(asked) = asked_memory(claim, request) {
            quantity::parse_memory(&asked.0).map_err(|error| ClaimError::Asked(request.clone(), error))?;
        }
    }
    Ok(())
}

/// The memory that the claim names for a request; the scheduler has rounded it up in what was allocated.
fn asked_memory<'a>(claim: &'a ResourceClaim, request: &str) -> Option<&'a Quantity> {
    let requests = claim.spec.as_ref()?.devices.as_ref()?.requests.as_ref()?;
    let asked = requests.iter().find(|asked| asked.name == request_base(request))?;
    let capacity = match request.split_once('/') {
        None => asked.exactly.as_ref()?.capacity.as_ref(),
        Some((_, name)) => {
            asked.first_available.iter().flatten().find(|one| one.name == name)?.capacity.as_ref()
        }
    };
    capacity?.requests.as_ref()?.get(MEMORY)
}

/// The parameters of a request. The allocation lists those of the class first, so those of the claim win.
fn parameters(claim: &ResourceClaim, request: &str) -> Result<Parameters, ClaimError> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let mut parameters = Parameters::default();
    for config in devices.into_iter().flat_map(|devices| devices.config.iter().flatten()) {
        let requests: BTreeSet<&str> = config.requests.iter().flatten().map(String::as_str).collect();
        let applies =
            requests.is_empty() || requests.contains(request) || requests.contains(request_base(request));
        if let Some(opaque) = config.opaque.as_ref().filter(|opaque| applies && opaque.driver == DRIVER) {
            parameters::apply(&opaque.parameters.0, &mut parameters)?;
        }
    }
    Ok(parameters)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};
    use vcuda_quota::Policy;

    use super::*;

    /// A claim with these results, each for a device of this driver in the pool `node`.
    pub(in crate::dra) fn claim(name: &str, results: &[Value], config: &Value) -> ResourceClaim {
        let results: Vec<Value> = results
            .iter()
            .map(|result| {
                let mut whole = json!({"driver": DRIVER, "pool": "node", "shareID": "s"});
                whole.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
                whole
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "uid": format!("{name}-uid")},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results, "config": config}}},
        }))
        .unwrap()
    }

    fn policy_config(policy: &str) -> Value {
        json!({"driver": DRIVER, "parameters": {"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig", "policy": policy}})
    }

    #[test]
    fn a_share_has_its_amounts_and_parameters() {
        let result = json!({"request": "gpu/small", "device": "gpu-1", "consumedCapacity": {"memory": "4Gi", "cores": "30"}});
        let config = json!([
            {"source": "FromClass", "opaque": policy_config("best-effort")},
            {"source": "FromClaim", "requests": ["gpu"], "opaque": policy_config("burst")},
            {"source": "FromClaim", "requests": ["other"], "opaque": policy_config("nonsense")},
            {"source": "FromClaim", "opaque": {"driver": "other.io", "parameters": {}}},
        ]);
        let [share] = shares(&claim("a", &[result], &config), "a-uid", "node").unwrap().try_into().unwrap();
        assert_eq!((share.request.as_str(), share.device.as_str()), ("gpu", "gpu-1"));
        let counted = share.counted.unwrap();
        assert_eq!((counted.memory_bytes, counted.cores_permille), (4 << 30, 300));
        assert_eq!(counted.parameters.policy, Some(Policy::Burst));
    }

    #[test]
    fn admin_access_consumes_nothing_and_other_drivers_devices_are_not_ours() {
        let results = [
            json!({"request": "see", "device": "gpu-1", "adminAccess": true}),
            json!({"request": "nic", "device": "nic-1", "driver": "other.io", "pool": "other"}),
        ];
        let claim = claim("a", &results, &json!([]));
        let [share] = shares(&claim, "a-uid", "node").unwrap().try_into().unwrap();
        assert_eq!((share.request.as_str(), share.counted), ("see", None));
        assert!(is_ours(&claim));
        let mut claim = claim;
        claim.spec = serde_json::from_value(json!({"devices": {"requests": [{"name": "more"}]}})).unwrap();
        assert_eq!(request_names(&claim), ["more", "nic", "see"].map(str::to_owned).into());
    }

    #[test]
    fn an_error_names_the_fault_of_the_allocation() {
        let with = |consumed: Value| {
            claim(
                "a",
                &[json!({"request": "gpu", "device": "gpu-1", "consumedCapacity": consumed})],
                &json!([]),
            )
        };
        let whole = with(json!({"memory": "4Gi", "cores": "0"}));
        assert_eq!(shares(&whole, "b-uid", "node"), Err(ClaimError::Other));
        let said = |claim: &ResourceClaim, pool: &str| shares(claim, "a-uid", pool).unwrap_err().to_string();
        assert!(said(&whole, "here").contains("pool \"node\", and this node's is \"here\""));
        assert!(said(&with(json!({"cores": "1"})), "node").contains("no memory was allocated"));
        assert!(said(&with(json!({"memory": "-1", "cores": "1"})), "node").contains("'-1' is no quantity"));
        let mut bytes = whole.clone();
        let asks = json!({"name": "gpu", "exactly": {"deviceClassName": "c", "capacity": {"requests": {"memory": "16"}}}});
        bytes.spec = serde_json::from_value(json!({"devices": {"requests": [asks]}})).unwrap();
        let there = shares(&bytes, "a-uid", "node").unwrap();
        let error = check_asked(&bytes, &there).unwrap_err().to_string();
        assert!(error.starts_with("request gpu: memory '16' is less than 1 MiB"), "{error}");
        let mut gone = whole.clone();
        gone.status = None;
        assert_eq!(shares(&gone, "a-uid", "node"), Err(ClaimError::NotAllocated));
        assert!(!is_ours(&gone));
    }
}
