//! Pods that would defeat their own limits or those of others: mounts over the files that carry the limits, GPUs chosen by a
//! variable, powers over the node. An administrator exempts a namespace by the label `vcuda.io/unconfined: "true"`, which the
//! API server itself looks at before it asks.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EphemeralContainer, Pod, SecurityContext, Volume, VolumeMount,
};

use super::refusal::Refusal;

/// Paths in a container that carry its limits.
const OURS: [&str; 4] = [
    "/etc/vcuda",
    "/etc/ld.so.preload",
    "/usr/lib/vcuda",
    "/usr/local/bin/vcuda",
];
/// Folders of the node by which a container could reach GPUs or limits that are not its own.
const OF_THE_NODE: [&str; 6] = [
    "/run/vcuda",
    "/var/lib/vcuda",
    "/run/cdi",
    "/etc/cdi",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/plugins/vcuda.io",
];
/// Variable by which NVIDIA's toolkit is told GPUs.
const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// What of a container of any kind matters here.
struct Part<'a> {
    name: &'a str,
    env: &'a [EnvVar],
    mounts: &'a [VolumeMount],
    devices: Vec<&'a str>,
    context: Option<&'a SecurityContext>,
}

impl<'a> Part<'a> {
    fn of(container: &'a Container) -> Self {
        let devices = container.volume_devices.iter().flatten();
        Self {
            name: &container.name,
            env: container.env.as_deref().unwrap_or_default(),
            mounts: container.volume_mounts.as_deref().unwrap_or_default(),
            devices: devices.map(|device| device.device_path.as_str()).collect(),
            context: container.security_context.as_ref(),
        }
    }

    fn of_ephemeral(container: &'a EphemeralContainer) -> Self {
        let devices = container.volume_devices.iter().flatten();
        Self {
            name: &container.name,
            env: container.env.as_deref().unwrap_or_default(),
            mounts: container.volume_mounts.as_deref().unwrap_or_default(),
            devices: devices.map(|device| device.device_path.as_str()).collect(),
            context: container.security_context.as_ref(),
        }
    }
}

/// Checks that a pod takes no GPU by a variable, and, if it `has_share` of a GPU, that it cannot get around its limits.
///
/// # Errors
/// The first way around.
pub fn check(pod: &Pod, has_share: bool) -> Result<(), Refusal> {
    let Some(spec) = &pod.spec else {
        return Ok(());
    };
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(Part::of_ephemeral);
    let init = spec.init_containers.iter().flatten().map(Part::of);
    let parts: Vec<Part<'_>> = spec
        .containers
        .iter()
        .map(Part::of)
        .chain(init)
        .chain(ephemeral)
        .collect();
    for part in &parts {
        check_variable(part)?;
    }
    if !has_share {
        return Ok(());
    }
    if spec.host_pid == Some(true) {
        return refuse("hostPID: the pod could reach the files of other containers with shares");
    }
    for volume in spec.volumes.iter().flatten() {
        check_volume(volume)?;
    }
    for part in &parts {
        check_part(part)?;
    }
    Ok(())
}

fn refuse(why: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal::Defeats(why.into()))
}

fn check_variable(part: &Part<'_>) -> Result<(), Refusal> {
    let variable = part.env.iter().find(|variable| variable.name == VISIBLE);
    let Some(variable) = variable else {
        return Ok(());
    };
    let value = variable.value.as_deref().unwrap_or_default();
    // Both give no GPU, and so does an empty one.
    let is_none = variable.value_from.is_none() && matches!(value, "" | "void" | "none");
    if is_none {
        return Ok(());
    }
    refuse(format!(
        "container {}: {VISIBLE} is set: it would get GPUs around all limits; remove it",
        part.name
    ))
}

fn check_volume(volume: &Volume) -> Result<(), Refusal> {
    let Some(host) = &volume.host_path else {
        return Ok(());
    };
    let path = normal(&host.path);
    let is_device = path == Path::new("/dev") || path.to_string_lossy().starts_with("/dev/nvidia");
    let of_node = OF_THE_NODE
        .iter()
        .any(|ours| is_on_the_way(&path, Path::new(ours)));
    if !is_device && !of_node {
        return Ok(());
    }
    refuse(format!(
        "volume {}: hostPath {}: a container could reach GPUs or limits that are not its own; remove it",
        volume.name, host.path
    ))
}

fn check_part(part: &Part<'_>) -> Result<(), Refusal> {
    if part.context.and_then(|context| context.privileged) == Some(true) {
        return refuse(format!(
            "container {}: privileged: it could open every GPU of the node; remove it",
            part.name
        ));
    }
    let mounts = part.mounts.iter().map(|mount| mount.mount_path.as_str());
    for path in mounts.chain(part.devices.iter().copied()) {
        let hides = OURS
            .iter()
            .find(|ours| is_on_the_way(&normal(path), Path::new(ours)));
        if let Some(ours) = hides {
            return refuse(format!(
                "container {}: mountPath {path}: it would hide {ours}, which carries the limits; mount it elsewhere",
                part.name
            ));
        }
    }
    Ok(())
}

/// Whether one of the paths lies in the other, or is it.
fn is_on_the_way(path: &Path, ours: &Path) -> bool {
    path.starts_with(ours) || ours.starts_with(path)
}

/// A path without `.`, `..` and doubled slashes; `/var/run` is a link to `/run` on all nodes.
fn normal(path: &str) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    match normal.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => normal,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check_spec(spec: Value, has_share: bool) -> Result<(), String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        check(&pod, has_share).map_err(|error| error.to_string())
    }

    fn container(more: Value) -> Value {
        let mut container = json!({"name": "main"});
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"containers": [container]})
    }

    fn assert_refused(spec: Value, said: &str) {
        let error = check_spec(spec, true).unwrap_err();
        assert!(
            error.contains(said) && error.contains("vcuda.io/unconfined=true"),
            "{error}"
        );
    }

    #[test]
    fn mounts_over_the_limits_are_refused() {
        for (path, said) in [
            ("/etc/vcuda/limits", "hide /etc/vcuda"),
            ("/etc/", "hide /etc/vcuda"),
            ("/srv/../etc/ld.so.preload", "ld.so.preload"),
            ("/usr/lib", "hide /usr/lib/vcuda"),
            ("//usr/local/./bin/vcuda", "/usr/local/bin"),
        ] {
            assert_refused(
                container(json!({"volumeMounts": [{"name": "a", "mountPath": path}]})),
                said,
            );
            assert_refused(
                container(json!({"volumeDevices": [{"name": "a", "devicePath": path}]})),
                said,
            );
        }
    }

    #[test]
    fn the_nodes_gpus_and_limits_are_out_of_reach() {
        for path in [
            "/dev",
            "/dev/",
            "/dev/nvidia0",
            "/",
            "/var/run/vcuda",
            "/run",
            "/var/lib/vcuda/lib",
            "/var/run/cdi",
        ] {
            let said = format!("hostPath {path}");
            assert_refused(
                json!({"containers": [], "volumes": [{"name": "a", "hostPath": {"path": path}}]}),
                &said,
            );
        }
        assert_refused(json!({"containers": [], "hostPID": true}), "hostPID");
    }

    #[test]
    fn powers_and_variables_are_refused_in_containers_of_every_kind() {
        let privileged = json!({"name": "a", "securityContext": {"privileged": true}});
        let visible = |how: Value| {
            let mut variable = json!({"name": VISIBLE});
            variable
                .as_object_mut()
                .unwrap()
                .extend(how.as_object().unwrap().clone());
            json!({"name": "a", "env": [variable]})
        };
        for kind in ["containers", "initContainers", "ephemeralContainers"] {
            for (container, said) in [
                (privileged.clone(), "container a: privileged"),
                (
                    visible(json!({"value": "all"})),
                    "container a: NVIDIA_VISIBLE_DEVICES is set",
                ),
                (
                    visible(json!({"valueFrom": {}})),
                    "container a: NVIDIA_VISIBLE_DEVICES is set",
                ),
            ] {
                let mut spec = json!({"containers": []});
                spec[kind] = json!([container]);
                assert_refused(spec, said);
            }
        }
    }

    #[test]
    fn what_harms_no_limit_is_left_alone() {
        for spec in [
            container(json!({"env": [{"name": VISIBLE, "value": "void"}, {"name": "A", "value": "all"}]})),
            container(
                json!({"volumeMounts": [{"name": "a", "mountPath": "/etc/app"}, {"name": "b", "mountPath": "/dev/shm"}]}),
            ),
            container(json!({"securityContext": {"privileged": false}})),
            json!({"containers": [], "volumes": [{"name": "a", "hostPath": {"path": "/dev/shm"}}, {"name": "b", "emptyDir": {}}]}),
        ] {
            check_spec(spec, true).unwrap();
        }
    }

    #[test]
    fn a_pod_without_a_share_may_not_choose_gpus() {
        check_spec(container(json!({"securityContext": {"privileged": true}})), false).unwrap();
        check_spec(
            container(json!({"env": [{"name": VISIBLE, "value": "0"}]})),
            false,
        )
        .unwrap_err();
    }
}
