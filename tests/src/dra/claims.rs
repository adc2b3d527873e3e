//! Claims and pods as scheduler and users leave them at the stand-in for the API server, and the grants that become of them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::resource_api::ResourceApi;
use crate::{Fixture, eventually, succeeded};

/// Time that an immediate effect may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// Name of the node, and of its pool.
pub const NODE: &str = "node-a";

/// The names of the devices in the slices, in their order.
pub fn devices(api: &ResourceApi) -> Vec<String> {
    let slices = api.slices();
    let devices =
        slices.iter().flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default());
    devices.map(|device| device["name"].as_str().unwrap().to_owned()).collect()
}

/// The same, once so many GPUs are published.
pub fn published(api: &ResourceApi, gpus: usize) -> Vec<String> {
    eventually("the GPUs are published", SOON, || devices(api).len() == gpus);
    devices(api)
}

/// The result of an allocation of memory and cores of a device for a request.
pub fn result(request: &str, device: &str, memory: &str, cores: &str) -> Value {
    json!({
        "request": request, "driver": "vcuda.io", "pool": NODE, "device": device, "shareID": format!("{request}-share"),
        "consumedCapacity": {"memory": memory, "cores": cores, "slots": "1"},
    })
}

/// Puts a claim that was allocated `results` for the pod `pod`.
pub fn put_claim(api: &ResourceApi, name: &str, pod: &str, results: &[Value], config: &Value) {
    let claim = json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("{name}-uid")}, "spec": {},
        "status": {
            "allocation": {
                "devices": {"results": results, "config": config},
                "nodeSelector": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]},
                ]},
            },
            "reservedFor": [{"resource": "pods", "name": pod, "uid": format!("{pod}-uid")}],
        },
    });
    api.put(&claim_path(name), &claim);
}

/// Puts a pod whose containers use these requests of these claims.
pub fn put_pod(api: &ResourceApi, name: &str, containers: &[(&str, &[(&str, &str)])]) {
    let mut claims: Vec<&str> =
        containers.iter().flat_map(|(_, uses)| uses.iter().map(|(claim, _)| *claim)).collect();
    claims.sort_unstable();
    claims.dedup();
    let claims: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    let containers: Vec<Value> = containers
        .iter()
        .map(|(container, uses)| {
            let uses: Vec<Value> =
                uses.iter().map(|(claim, request)| json!({"name": claim, "request": request})).collect();
            json!({"name": container, "resources": {"claims": uses}})
        })
        .collect();
    let pod = json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("{name}-uid")},
        "spec": {"containers": containers, "resourceClaims": claims},
    });
    api.put(&pod_path(name), &pod);
}

/// Annotations of the object at `path` from now on.
pub fn annotate(api: &ResourceApi, path: &str, annotations: &Value) {
    let mut object = api.object(path).unwrap();
    object["metadata"]["annotations"] = annotations.clone();
    api.put(path, &object);
}

/// Path of a claim of the namespace `default`.
pub fn claim_path(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}")
}

/// Path of a pod of the namespace `default`.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// The claim was made for this pod, of a template.
pub fn made_for(api: &ResourceApi, claim: &str, pod: &str) {
    let mut object = api.object(&claim_path(claim)).unwrap();
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("{pod}-uid"), "controller": true}
    ]);
    api.put(&claim_path(claim), &object);
}

/// Holders, memory limits (bytes) and shares (thousandths) of the manager's grants, by holder.
pub fn grants(fixture: &Fixture) -> Vec<(String, u64, u64)> {
    let listed = succeeded(&fixture.vcuda(["grant", "list", "--json"]).output().unwrap());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let mut grants: Vec<_> = listed["grants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|grant| {
            let number = |key: &str| grant[key].as_u64().unwrap_or_else(|| panic!("{key}: {grant}"));
            let holder = grant["holder"].as_str().unwrap().to_owned();
            (holder, number("memory_bytes"), number("cores_permille"))
        })
        .collect();
    grants.sort();
    grants
}
