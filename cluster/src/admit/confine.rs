//! Pods that would defeat their own limits or those of others: mounts over the files that carry the limits, folders of the
//! node, GPUs chosen by a variable, a mount or an annotation, powers over the node. What a pod with a share may have of the node
//! is a list ([`paths`], [`powers`]): what is not on it is refused. An administrator exempts a namespace by the label
//! `vcuda.io/unconfined: "true"`, which the API server itself looks at before it asks.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{EnvVar, Pod, PodSpec, SecurityContext, VolumeMount};

use super::refusal::Refusal;

mod paths;
mod powers;

pub(crate) use paths::host_paths;

const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";
/// Beginning of the variables by which the toolkit has the driver limit a container.
const OF_LIMITS: &str = "NVIDIA_GPU_MEMORY_";
/// Domains of annotations by which container runtimes and their plugins are told devices and mounts; their subdomains, too.
const OF_RUNTIMES: [&str; 3] = ["cdi.k8s.io", "nri.io", "nri.containerd.io"];
/// Beginning of the annotations that CRI-O follows (`io.kubernetes.cri-o.Devices` and others).
const OF_CRIO: &str = "io.kubernetes.cri-o.";
/// Beginning of the annotations that were `appArmorProfile` before Kubernetes 1.30, and are still followed.
const OF_APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Domains of CDI devices that are GPUs; their subdomains, too.
const OF_GPUS: [&str; 2] = ["nvidia.com", "vcuda.io"];

/// What of a container of any kind matters here.
struct Part<'a> {
    name: &'a str,
    env: &'a [EnvVar],
    mounts: &'a [VolumeMount],
    devices: Vec<&'a str>,
    context: Option<&'a SecurityContext>,
}

/// The part of a container of either type: both have the same fields.
macro_rules! part {
    ($container:expr) => {
        Part {
            name: &$container.name,
            env: $container.env.as_deref().unwrap_or_default(),
            mounts: $container.volume_mounts.as_deref().unwrap_or_default(),
            devices: $container.volume_devices.iter().flatten().map(|device| &*device.device_path).collect(),
            context: $container.security_context.as_ref(),
        }
    };
}

impl<'a> Part<'a> {
    /// Containers of each kind.
    fn all(spec: &'a PodSpec) -> Vec<Self> {
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        containers.map(|one| part!(one)).chain(ephemeral.map(|one| part!(one))).collect()
    }
}

/// Checks that a pod takes no GPU by a variable, a mount or an annotation, and, if it `has_share` of a GPU, that it cannot get
/// around its limits. Of the node's folders it may have `host_paths`.
pub(crate) fn check(pod: &Pod, has_share: bool, host_paths: &[PathBuf]) -> Result<(), Refusal> {
    check_annotations(pod, has_share)?;
    let Some(spec) = &pod.spec else {
        return Ok(());
    };
    let parts = Part::all(spec);
    for part in &parts {
        check_variable(part)?;
        paths::check_toolkit(part)?;
    }
    if !has_share {
        return Ok(());
    }
    powers::check_pod(spec)?;
    for volume in spec.volumes.iter().flatten() {
        paths::check_volume(volume, host_paths)?;
    }
    for part in &parts {
        check_limits(part)?;
        powers::check_container(part)?;
        paths::check_mounts(part)?;
    }
    Ok(())
}

fn refuse(why: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal::Defeats(why.into()))
}

/// Checks every entry of the name: the last one counts in the container.
fn check_variable(part: &Part<'_>) -> Result<(), Refusal> {
    let mut entries = part.env.iter().filter(|variable| variable.name == VISIBLE);
    let gives = |variable: &&EnvVar| {
        let value = variable.value.as_deref().unwrap_or_default();
        // Both give no GPU, and so does an empty one.
        variable.value_from.is_some() || !matches!(value, "" | "void" | "none")
    };
    match entries.find(gives) {
        None => Ok(()),
        Some(variable) => refuse(format!(
            "container {}: {VISIBLE} is set to \"{}\": it would get GPUs around all limits; remove it",
            part.name,
            variable.value.as_deref().unwrap_or("a value from elsewhere")
        )),
    }
}

/// Checks that NVIDIA's container toolkit is told no limits, which could guarantee memory that others were given.
fn check_limits(part: &Part<'_>) -> Result<(), Refusal> {
    let tells = |variable: &&EnvVar| {
        let is_empty = variable.value.as_deref().unwrap_or_default().is_empty();
        variable.name.starts_with(OF_LIMITS) && (variable.value_from.is_some() || !is_empty)
    };
    match part.env.iter().find(tells) {
        None => Ok(()),
        Some(variable) => refuse(format!(
            "container {}: {}: it would change the driver's limit of a container with a share; remove it",
            part.name, variable.name
        )),
    }
}

/// Checks annotations that container runtimes follow: none in a pod with a share, and none for a GPU in another.
fn check_annotations(pod: &Pod, has_share: bool) -> Result<(), Refusal> {
    for (key, value) in pod.metadata.annotations.iter().flatten() {
        let domain = key.split('/').next().unwrap_or_default();
        if has_share && key.starts_with(OF_APPARMOR) && value == "unconfined" {
            return refuse(format!("annotation {key}: {value}: write runtime/default"));
        }
        let is_followed = OF_RUNTIMES.iter().any(|of| is_within(domain, of)) || key.starts_with(OF_CRIO);
        let names_gpu = value.split([',', '"', ' ', '\n']).any(|device| {
            let vendor = device.split('/').next().unwrap_or_default();
            OF_GPUS.iter().any(|of| is_within(vendor, of))
        });
        if is_followed && (has_share || names_gpu) {
            return refuse(format!(
                "annotation {key}: {value}: the container runtime could give devices or mounts around all limits; remove it"
            ));
        }
    }
    Ok(())
}

/// Whether a domain is this one or a subdomain.
fn is_within(domain: &str, of: &str) -> bool {
    domain.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests;
