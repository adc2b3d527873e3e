//! Limits of a pod turned into a claim, for mode dra: one ResourceClaimTemplate for the pod, with a request for each GPU of
//! each container.
//!
//! A review only writes into the pod what the template is to be, as whoever reaches the webhook can send one. The template is
//! made when the API server has the pod ([`template_of`]): whoever made that was allowed to.
//!
//! The template's name is a hash of its owner and its content. So a pod that is made again, a second replica and a repeated
//! call ask for the template that is there. Its owner is the pod's controller, whose end ends it, or the pod.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use vcuda_quota::pods::quantity;

use super::pod;
use super::rules::Rules;
use super::share::Share;
use devices::{Amounts, Capacity, Constraint, DeviceRequest, Devices, Exactly};

mod devices;

/// Device class of shares, and the driver's name.
pub(super) const CLASS: &str = "vcuda.io";
/// Device class of suspendable shares.
const SUSPENDABLE_CLASS: &str = "vcuda.io-suspendable";
/// Name of the claim in the pod's specification.
pub(crate) const CLAIM: &str = "vcuda";
/// Step of memory (bytes): the driver's slices count whole MiB.
const STEP: u64 = 1 << 20;
/// Attribute in which GPUs of one container differ.
const DISTINCT: &str = "vcuda.io/uuid";
/// The least memory of a share (bytes).
const LEAST: u64 = 64 << 20;

/// Annotation with the devices of the claim's template, as JSON.
const DEVICES: &str = "claims.vcuda.io/devices";

/// A ResourceClaimTemplate that a pod's claim is made of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) object: Value,
}

/// Takes the counts out of a pod's containers, which have these shares in the order of [`pod::containers`], and puts a claim
/// in their place.
pub(crate) fn convert(pod: &mut Value, shares: &[Option<Share>], rules: &Rules) {
    let mut requests = Vec::new();
    let mut constraints = Vec::new();
    let of_containers = requests_of(pod, shares);
    for (share, names) in shares.iter().zip(&of_containers) {
        let Some(share) = share else { continue };
        if names.iter().all(|name| requests.iter().any(|request: &DeviceRequest| request.name == *name)) {
            continue;
        }
        requests.extend(names.iter().map(|name| request(name, share)));
        if names.len() > 1 {
            constraints.push(Constraint { requests: names.clone(), distinct_attribute: DISTINCT.to_owned() });
        }
    }
    let devices = serde_json::to_string(&Devices { requests, constraints }).unwrap_or_default();
    let name = name(&devices, controller(pod).as_ref());
    let mut of_containers = of_containers.into_iter();
    let edited: Result<(), std::convert::Infallible> = pod::edit_containers(pod, |container| {
        use_claim(container, &of_containers.next().unwrap_or_default(), rules);
        Ok(())
    });
    let Ok(()) = edited;
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let claim = json!({"name": CLAIM, "resourceClaimTemplateName": name});
        pod::push(spec, "resourceClaims", claim);
    }
    if let Some(pod) = pod.as_object_mut() {
        pod::entry(pod::entry(pod, "metadata"), "annotations").insert(DEVICES.to_owned(), json!(devices));
    }
}

/// The template of a pod that the API server has. `None` if the pod has no claim of ours, or says of it what [`convert`] does
/// not write.
pub(crate) fn template_of(pod: &Pod) -> Option<Template> {
    let metadata = &pod.metadata;
    let mut claims = pod.spec.as_ref()?.resource_claims.iter().flatten();
    let claim = claims.find(|claim| claim.name == CLAIM)?;
    let text = metadata.annotations.as_ref()?.get(DEVICES)?;
    let devices: Devices = serde_json::from_str(text).ok().filter(Devices::are_ours)?;
    let controller = controller(&serde_json::to_value(pod).ok()?);
    let name = name(text, controller.as_ref());
    if claim.resource_claim_template_name.as_ref() != Some(&name) {
        return None;
    }
    let owner = controller.unwrap_or(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        ..OwnerReference::default()
    });
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": name, "labels": {"app.kubernetes.io/managed-by": "vcuda-cluster"}, "ownerReferences": [owner],
        },
        "spec": {"spec": {"devices": devices}},
    });
    Some(Template { namespace: metadata.namespace.clone()?, name, object })
}

/// Names of the requests of each container. An init container that asks for what a container asks for uses that one's: it
/// has ended before the other begins.
fn requests_of(pod: &Value, shares: &[Option<Share>]) -> Vec<Vec<String>> {
    let names =
        |place: usize, share: &Share| (0..share.gpus).map(|gpu| format!("c{place}-gpu{gpu}")).collect();
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    let of_container = |(place, share): (usize, &Option<Share>)| {
        let Some(share) = share else {
            return Vec::new();
        };
        let is_init = place >= containers && !is_sidecar(pod, place - containers);
        let heir = shares.iter().take(containers).position(|other| other.as_ref() == Some(share));
        names(heir.filter(|_| is_init).unwrap_or(place), share)
    };
    shares.iter().enumerate().map(of_container).collect()
}

/// Whether an init container runs beside the containers.
fn is_sidecar(pod: &Value, place: usize) -> bool {
    pod.pointer(&format!("/spec/initContainers/{place}/restartPolicy")) == Some(&json!("Always"))
}

fn request(name: &str, share: &Share) -> DeviceRequest {
    let memory = share.memory_bytes.div_ceil(STEP).saturating_mul(STEP).max(LEAST);
    let requests = Amounts {
        memory: quantity::bytes(memory),
        cores: (!share.is_unpromised).then(|| share.each.percents.to_string()),
    };
    let class = if share.is_suspendable { SUSPENDABLE_CLASS } else { CLASS };
    DeviceRequest {
        name: name.to_owned(),
        exactly: Exactly { device_class_name: class.to_owned(), capacity: Capacity { requests } },
    }
}

/// The pod's controller, as an owner that does not wait for what it owns.
fn controller(pod: &Value) -> Option<OwnerReference> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&json!(true)))?;
    let field = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(OwnerReference {
        api_version: field("apiVersion"),
        kind: field("kind"),
        name: field("name"),
        uid: field("uid"),
        ..OwnerReference::default()
    })
}

/// Name of the template with these devices, of a pod with this controller.
fn name(devices: &str, controller: Option<&OwnerReference>) -> String {
    let mut hash = Sha256::new();
    hash.update(devices);
    hash.update(controller.map(|owner| owner.uid.as_str()).unwrap_or_default());
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("vcuda-{digest}")
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
