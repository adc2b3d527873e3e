//! Limits of a pod turned into a claim, for mode dra: one ResourceClaimTemplate for the pod, with a request for each GPU of
//! each container.
//!
//! The template's name is a hash of its owner and its content. So a pod that is made again, a second replica and a repeated
//! call ask for the template that is there. Its owner is the pod's controller, whose end ends it; a pod without a controller
//! has no UID yet when it is admitted, so its template stays, one for each size in the namespace.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use vcuda_quota::pods::quantity;

use super::pod;
use super::rules::Rules;
use super::share::Share;

/// Device class of shares, and the driver's name.
pub(super) const CLASS: &str = "vcuda.io";
/// Device class of suspendable shares.
const SUSPENDABLE_CLASS: &str = "vcuda.io-suspendable";
/// Name of the claim in the pod's specification.
pub const CLAIM: &str = "vcuda";
/// Step of memory (bytes): the driver's slices count whole MiB.
const STEP: u64 = 1 << 20;
/// The least memory of a share (bytes).
const LEAST: u64 = 64 << 20;

/// A ResourceClaimTemplate that has to be there before the pod is.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// All of it but for the namespace.
    pub object: Value,
}

/// Takes the counts out of a pod's containers, which have these shares in the order of [`pod::containers`], and puts a claim
/// in their place.
pub fn convert(pod: &mut Value, shares: &[Option<Share>], rules: &Rules) -> Template {
    let mut requests = Vec::new();
    let mut constraints = Vec::new();
    let of_containers = requests_of(pod, shares);
    for (share, names) in shares.iter().zip(&of_containers) {
        let Some(share) = share else { continue };
        if names
            .iter()
            .all(|name| requests.iter().any(|request: &Value| request["name"] == *name))
        {
            continue;
        }
        requests.extend(names.iter().map(|name| request(name, share)));
        if names.len() > 1 {
            constraints.push(json!({"requests": names, "distinctAttribute": "vcuda.io/uuid"}));
        }
    }
    let mut devices = json!({"requests": requests});
    if let Some(devices) = devices.as_object_mut().filter(|_| !constraints.is_empty()) {
        devices.insert("constraints".to_owned(), json!(constraints));
    }
    let template = template(json!({"spec": {"devices": devices}}), owner(pod));
    let mut of_containers = of_containers.into_iter();
    let edited: Result<(), std::convert::Infallible> = pod::edit_containers(pod, |container| {
        use_claim(container, &of_containers.next().unwrap_or_default(), rules);
        Ok(())
    });
    let Ok(()) = edited;
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let claim = json!({"name": CLAIM, "resourceClaimTemplateName": template.name});
        pod::push(spec, "resourceClaims", claim);
    }
    template
}

/// Names of the requests of each container. An init container that asks for what a container asks for uses that one's: it
/// has ended before the other begins.
fn requests_of(pod: &Value, shares: &[Option<Share>]) -> Vec<Vec<String>> {
    let names =
        |place: usize, share: &Share| (0..share.gpus).map(|gpu| format!("c{place}-gpu{gpu}")).collect();
    let containers = pod
        .pointer("/spec/containers")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let of_container = |(place, share): (usize, &Option<Share>)| {
        let Some(share) = share else {
            return Vec::new();
        };
        let is_init = place >= containers && !is_sidecar(pod, place - containers);
        let heir = shares
            .iter()
            .take(containers)
            .position(|other| other.as_ref() == Some(share));
        names(heir.filter(|_| is_init).unwrap_or(place), share)
    };
    shares.iter().enumerate().map(of_container).collect()
}

/// Whether an init container runs beside the containers.
fn is_sidecar(pod: &Value, place: usize) -> bool {
    pod.pointer(&format!("/spec/initContainers/{place}/restartPolicy")) == Some(&json!("Always"))
}

fn request(name: &str, share: &Share) -> Value {
    let memory = share.memory_bytes.div_ceil(STEP).saturating_mul(STEP).max(LEAST);
    let mut capacity = Map::new();
    capacity.insert("memory".to_owned(), json!(quantity::bytes(memory)));
    // Left out, none is promised.
    if !share.is_unpromised {
        capacity.insert("cores".to_owned(), json!(share.each.percents.to_string()));
    }
    let class = if share.is_suspendable {
        SUSPENDABLE_CLASS
    } else {
        CLASS
    };
    json!({"name": name, "exactly": {"deviceClassName": class, "capacity": {"requests": capacity}}})
}

/// The pod's controller, as an owner that does not wait for what it owns.
fn owner(pod: &Value) -> Option<Value> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&json!(true)))?;
    let field = |name: &str| owner.get(name).cloned().unwrap_or_default();
    Some(json!({
        "apiVersion": field("apiVersion"), "kind": field("kind"), "name": field("name"), "uid": field("uid"),
    }))
}

fn template(spec: Value, owner: Option<Value>) -> Template {
    let mut hash = Sha256::new();
    hash.update(spec.to_string());
    hash.update(owner.as_ref().map(Value::to_string).unwrap_or_default());
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let name = format!("vcuda-{digest}");
    let mut metadata = json!({"name": name, "labels": {"app.kubernetes.io/managed-by": "vcuda-cluster"}});
    if let (Some(metadata), Some(owner)) = (metadata.as_object_mut(), owner) {
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec,
    });
    Template { name, object }
}

fn use_claim(container: &mut Map<String, Value>, requests: &[String], rules: &Rules) {
    if requests.is_empty() {
        return;
    }
    for name in rules.all_names() {
        pod::set_amount(container, name, None);
    }
    let resources = pod::entry(container, "resources");
    for request in requests {
        pod::push(resources, "claims", json!({"name": CLAIM, "request": request}));
    }
}
