//! Whether a pod asks for more than the cluster has at all: it would wait for ever. No network.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use vcuda_quota::MemorySize;
use vcuda_quota::pods::quantity;

use super::finding::Finding;
use super::no_place::{self, Pools};

/// Prefix of resources and device classes of vcuda.
pub(super) const OURS: &str = "vcuda.io";
/// The resources that the device plugin gives.
const COUNTS: [&str; 4] =
    ["vcuda.io/gpu", "vcuda.io/memory", "vcuda.io/cores", "vcuda.io/suspendable-memory"];

/// The most that one node has of each resource of vcuda, and one GPU of each capacity.
#[derive(Debug, Clone, Default)]
pub(crate) struct Largest {
    node: BTreeMap<String, u64>,
    gpu: BTreeMap<String, u64>,
    pools: Pools,
}

impl Largest {
    /// Adds what a node has in all. Its allocatable amounts fall to 0 while the plugin is away.
    pub(crate) fn add_node(&mut self, node: &Node) {
        let capacity = node.status.iter().flat_map(|status| &status.capacity);
        for (name, amount) in capacity.flatten() {
            if name.starts_with(OURS) {
                add(&mut self.node, name, quantity::parse(&amount.0).unwrap_or(0));
            }
        }
    }

    /// Adds what one claim can have of the GPUs of a slice.
    pub(crate) fn add_slice(&mut self, slice: &ResourceSlice) {
        if slice.spec.driver != OURS {
            return;
        }
        let devices = || slice.spec.devices.iter().flatten();
        for (name, capacity) in devices().flat_map(|device| device.capacity.iter().flatten()) {
            let policy = capacity.request_policy.as_ref();
            let most = policy.and_then(|policy| policy.valid_range.as_ref()?.max.as_ref());
            add(&mut self.gpu, name, quantity::parse(&most.unwrap_or(&capacity.value).0).unwrap_or(0));
        }
        self.pools.entry(slice.spec.pool.name.clone()).or_default().extend(devices().cloned());
    }

    /// What `pod` or its claims that are not allocated ask for beyond that, one finding each. What is not known, or 0, is not told.
    pub(crate) fn exceeded_by(&self, pod: &Pod, claims: &[ResourceClaim]) -> Vec<Finding> {
        let of_pod = asked_by(pod).into_iter().filter_map(|(name, amount)| {
            let most = *self.node.get(&name).filter(|most| (1..amount).contains(*most))?;
            Some(finding(format!("it asks for {amount} of {name}, and no node has more than {most}"), "pod"))
        });
        let waiting = claims.iter().filter(|claim| !is_allocated(claim));
        of_pod.chain(waiting.flat_map(|claim| self.exceeded_by_claim(claim))).collect()
    }

    fn exceeded_by_claim(&self, claim: &ResourceClaim) -> Vec<Finding> {
        let of_amount = |(request, name, amount): (&str, &str, u64)| {
            let most = *self.gpu.get(name).filter(|most| (1..amount).contains(*most))?;
            let claim = claim.metadata.name.as_deref().unwrap_or_default();
            let [amount, most] = [amount, most].map(|amount| match name {
                "memory" => MemorySize(amount).to_string(),
                _ => amount.to_string(),
            });
            let text = format!(
                "request {request} of claim {claim} asks for {amount} of {name}, and no GPU gives more than {most}"
            );
            Some(finding(text, "claim"))
        };
        let found: Vec<Finding> = requests(claim).filter_map(of_amount).collect();
        if found.is_empty() { no_place::unplaceable(claim, &self.pools) } else { found }
    }

    /// A pod that counts shares where there are only claims.
    pub(crate) fn unoffered_to(&self, pod: &Pod) -> Option<Finding> {
        let is_unoffered = |name: &String| self.node.get(name).is_none_or(|most| *most == 0);
        // Others may be extended resources of a device class.
        let name =
            asked_by(pod).into_keys().find(|name| COUNTS.contains(&name.as_str()) && is_unoffered(name))?;
        let is_by_claims = !self.gpu.is_empty() && self.node.values().all(|most| *most == 0);
        is_by_claims.then(|| Finding {
            source: "pod".to_owned(),
            reason: format!("it counts {name}, and this cluster gives shares by claims (mode dra)"),
            remedy: "claim a share in a new pod (deploy/examples/claims.yaml); or an administrator has the webhook make claims of counts: \
                     --set cluster.enabled=true"
                .to_owned(),
        })
    }
}

fn add(most: &mut BTreeMap<String, u64>, name: &str, amount: u64) {
    let of_name = most.entry(name.to_owned()).or_default();
    *of_name = amount.max(*of_name);
}

pub(super) fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

pub(super) fn finding(reason: String, source: &str) -> Finding {
    Finding {
        source: source.to_owned(),
        reason,
        remedy: "it can never start here: ask for less in a new pod (kubectl vcuda gpus shows what there is), or add larger GPUs, or more".to_owned(),
    }
}

/// Resources of vcuda that a node needs for the pod: those of containers that run at the same time, or of the largest init
/// container.
fn asked_by(pod: &Pod) -> BTreeMap<String, u64> {
    let mut asked: BTreeMap<String, u64> = BTreeMap::new();
    let Some(spec) = &pod.spec else {
        return asked;
    };
    let init = || spec.init_containers.iter().flatten();
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    for container in spec.containers.iter().chain(init().filter(is_sidecar)) {
        for (name, amount) in resources(container) {
            let sum = asked.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    for container in init() {
        for (name, amount) in resources(container) {
            add(&mut asked, &name, amount);
        }
    }
    asked
}

/// Resources of vcuda in a container's limits, which are also its requests.
fn resources(container: &Container) -> impl Iterator<Item = (String, u64)> {
    let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
    limits
        .filter(|(name, _)| name.starts_with(OURS))
        .filter_map(|(name, amount)| Some((name.clone(), quantity::parse(&amount.0).ok()?)))
}

/// Requests of a claim for devices of our classes: name, capacity, amount.
fn requests(claim: &ResourceClaim) -> impl Iterator<Item = (&str, &str, u64)> {
    let devices = claim.spec.iter().filter_map(|spec| spec.devices.as_ref());
    let requests = devices.flat_map(|devices| devices.requests.iter().flatten());
    requests
        .filter_map(|request| Some((request.name.as_str(), request.exactly.as_ref()?)))
        .filter(|(_, exactly)| exactly.device_class_name.starts_with(OURS))
        .flat_map(|(request, exactly)| {
            let capacities = exactly.capacity.iter().flat_map(|capacity| capacity.requests.iter().flatten());
            capacities.filter_map(move |(name, amount)| {
                Some((request, name.as_str(), quantity::parse(&amount.0).ok()?))
            })
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn largest() -> Largest {
        let mut largest = Largest::default();
        for chunks in ["0", "32", "96"] {
            largest.add_node(&of(json!({"metadata": {"name": chunks},
                "status": {"allocatable": {"vcuda.io/memory": "0"}, "capacity": {"vcuda.io/memory": chunks, "cpu": "4"}}})));
        }
        largest.add_slice(&of(json!({"metadata": {"name": "s"}, "spec": {"driver": "vcuda.io",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [
                {"name": "gpu-0", "capacity": {"memory": {"value": "32Gi", "requestPolicy": {"validRange": {"min": "64Mi", "max": "16Gi"}}}, "cores": {"value": "100"}}}]}})));
        largest
    }

    fn pod(containers: &[&str], init: &[&str]) -> Pod {
        let of_each = |chunks: &&str| json!({"name": "c", "resources": {"limits": {"vcuda.io/memory": chunks, "cpu": "99"}}});
        let of_all = |all: &[&str]| all.iter().map(of_each).collect::<Vec<_>>();
        of(json!({"metadata": {"name": "p"},
            "spec": {"containers": of_all(containers), "initContainers": of_all(init)}}))
    }

    #[test]
    fn containers_count_together_and_init_containers_alone() {
        let reasons = |pod: Pod| -> Vec<String> {
            let findings = largest().exceeded_by(&pod, &[]);
            findings.into_iter().map(|finding| finding.reason).collect()
        };
        assert_eq!(reasons(pod(&["48", "48"], &["96", "96"])), Vec::<String>::new());
        let sum = reasons(pod(&["48", "49"], &[]));
        assert_eq!(sum, ["it asks for 97 of vcuda.io/memory, and no node has more than 96"]);
        assert_eq!(reasons(pod(&["1"], &["97"])).len(), 1);
        assert!(Largest::default().exceeded_by(&pod(&["97"], &[]), &[]).is_empty());
    }

    #[test]
    fn counts_where_there_are_only_claims_are_told() {
        let asks = pod(&["4"], &[]);
        assert_eq!((largest().unoffered_to(&asks), Largest::default().unoffered_to(&asks)), (None, None));
        let only_claims = Largest { node: BTreeMap::new(), ..largest() };
        assert!(only_claims.unoffered_to(&asks).unwrap().reason.contains("counts vcuda.io/memory"));
        assert_eq!(only_claims.unoffered_to(&pod(&[], &[])), None);
    }

    #[test]
    fn a_claim_is_held_against_one_gpu() {
        let claim = |class: &str, memory: &str| -> ResourceClaim {
            of(
                json!({"metadata": {"name": "one"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": class, "capacity": {"requests": {"memory": memory, "cores": "100"}}}}]}}}),
            )
        };
        let exceeded = |class, memory| largest().exceeded_by(&Pod::default(), &[claim(class, memory)]);
        assert_eq!(exceeded("vcuda.io", "16Gi"), []);
        assert_eq!(exceeded("gpu.nvidia.com", "17Gi"), []);
        let [found] = &exceeded("vcuda.io", "17Gi")[..] else {
            panic!();
        };
        let text = "request gpu of claim one asks for 17 GiB of memory, and no GPU gives more than 16 GiB";
        assert_eq!(found.reason, text);
        assert!(found.remedy.contains("never"));
    }
}
