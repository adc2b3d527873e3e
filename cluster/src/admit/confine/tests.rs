use serde_json::{Value, json};

use super::*;

fn check_spec(spec: Value, has_share: bool) -> Result<(), String> {
    check_pod(json!({"metadata": {}, "spec": spec}), has_share)
}

fn check_pod(pod: Value, has_share: bool) -> Result<(), String> {
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let listed = host_paths(&["/data/".to_owned(), "/var/run/own".to_owned()]).unwrap();
    check(&pod, has_share, &listed).map_err(|error| error.to_string())
}

fn host_path(path: &str) -> Value {
    json!({"containers": [], "volumes": [{"name": "b", "emptyDir": {}}, {"name": "a", "hostPath": {"path": path}}]})
}

fn container(more: Value) -> Value {
    let mut container = json!({"name": "main"});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"containers": [container]})
}

fn assert_refused(spec: Value, said: &str) {
    let error = check_spec(spec, true).unwrap_err();
    assert!(error.contains(said) && error.contains("vcuda.io/unconfined=true"), "{error}");
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
        assert_refused(container(json!({"volumeMounts": [{"name": "a", "mountPath": path}]})), said);
        assert_refused(container(json!({"volumeDevices": [{"name": "a", "devicePath": path}]})), said);
    }
}

#[test]
fn of_the_nodes_folders_only_those_that_are_listed_may_be_mounted() {
    for path in [
        "/",
        "/dev",
        "/dev/nvidia0",
        "/run",
        "/var/run/vcuda",
        "/var/lib/vcuda/lib",
        "/var/run/cdi",
        "/proc/1/root/run/vcuda",
        "/run/containerd",
        "/var/lib/kubelet/pods",
        "/var/lib/../../run/containerd/containerd.sock",
        "/sys/fs/cgroup",
        "/mnt",
        // Through a link that a pod made in a folder that it may write.
        "/data/link",
        "/data/../run",
    ] {
        assert_refused(host_path(path), &format!("hostPath {path}"));
        check_spec(host_path(path), false).unwrap();
    }
    for path in ["/data", "/data/", "//data/.", "/run/own"] {
        check_spec(host_path(path), true).unwrap();
    }
}

#[test]
fn folders_that_are_listed_are_plain_and_lie_apart() {
    for listed in [["data", "/x"], ["/", "/x"], ["/a/../b", "/x"], ["/x", "/x/y"], ["/x/y", "/x"]] {
        host_paths(&listed.map(str::to_owned)).unwrap_err();
    }
}

/// What a container of any kind may not have, and the words of the refusal.
fn refused_containers() -> Vec<(Value, &'static str)> {
    let context = |context: Value| json!({"name": "a", "securityContext": context});
    let env = |env: Value| json!({"name": "a", "env": env});
    let all = json!({"name": VISIBLE, "value": "all"});
    let void = json!({"name": VISIBLE, "value": "void"});
    vec![
        (context(json!({"privileged": true})), "a: privileged"),
        (context(json!({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}})), "a: capability SYS_ADMIN"),
        (context(json!({"capabilities": {"add": ["CAP_SYS_PTRACE"]}})), "a: capability CAP_SYS_PTRACE"),
        (context(json!({"capabilities": {"add": ["ALL"]}})), "a: capability ALL"),
        (context(json!({"procMount": "Unmasked"})), "a: procMount Unmasked"),
        (context(json!({"seccompProfile": {"type": "Unconfined"}})), "a: seccompProfile Unconfined"),
        (context(json!({"appArmorProfile": {"type": "Unconfined"}})), "a: appArmorProfile Unconfined"),
        (context(json!({"seLinuxOptions": {"type": "spc_t"}})), "a: seLinuxOptions with type \"spc_t\""),
        (env(json!([all])), "a: NVIDIA_VISIBLE_DEVICES is set"),
        (env(json!([{"name": VISIBLE, "valueFrom": {}}])), "a: NVIDIA_VISIBLE_DEVICES is set"),
        // The last one counts in the container.
        (env(json!([void, all])), "a: NVIDIA_VISIBLE_DEVICES is set to \"all\""),
        (
            json!({"name": "a", "volumeMounts": [{"name": "b", "mountPath": "/var/run/nvidia-container-devices/all"}]}),
            "a: mountPath /var/run/nvidia-container-devices/all",
        ),
    ]
}

#[test]
fn powers_and_choices_of_gpus_are_refused_in_containers_of_every_kind() {
    for kind in ["containers", "initContainers", "ephemeralContainers"] {
        for (container, said) in refused_containers() {
            let mut spec = json!({"containers": []});
            spec[kind] = json!([{"name": "first"}, container]);
            assert_refused(spec, said);
        }
    }
}

#[test]
fn powers_of_the_whole_pod_are_refused() {
    for name in ["hostPID", "hostIPC", "hostNetwork"] {
        assert_refused(json!({"containers": [], name: true}), name);
    }
    for context in
        [json!({"seccompProfile": {"type": "Unconfined"}}), json!({"seLinuxOptions": {"user": "system_u"}})]
    {
        assert_refused(json!({"containers": [], "securityContext": context}), "the pod: se");
    }
}

#[test]
fn annotations_that_a_container_runtime_follows_are_refused() {
    for (key, value, elsewhere) in [
        ("cdi.k8s.io/a", "nvidia.com/gpu=all", false),
        ("cdi.k8s.io/a", "x.com/a=b,vcuda.io/slot=1", false),
        ("cdi.k8s.io/a", "management.nvidia.com/gpu=all", false),
        ("cdi.k8s.io/a", "x.com/nic=0", true),
        ("devices.nri.containerd.io/container.main", "- path: /dev/nvidia1", true),
        ("cdi-devices.nri.io", "[\"nvidia.com/gpu=0\"]", false),
        ("io.kubernetes.cri-o.Devices", "/dev/nvidia1", true),
        ("container.apparmor.security.beta.kubernetes.io/main", "unconfined", true),
    ] {
        let pod = json!({"metadata": {"annotations": {"a/b": "c", key: value}}, "spec": {"containers": []}});
        let error = check_pod(pod.clone(), true).unwrap_err();
        assert!(error.contains(&format!("annotation {key}: {value}")), "{error}");
        assert_eq!(check_pod(pod, false).is_ok(), elsewhere, "{key}: {value}");
    }
}

#[test]
fn what_harms_no_limit_is_left_alone() {
    for spec in [
        container(
            json!({"env": [{"name": VISIBLE, "value": "void"}, {"name": VISIBLE, "value": "none"}, {"name": "A", "value": "all"}]}),
        ),
        container(
            json!({"volumeMounts": [{"name": "a", "mountPath": "/etc/app"}, {"name": "b", "mountPath": "/dev/shm"}]}),
        ),
        container(json!({"securityContext": {
            "privileged": false, "procMount": "Default", "seccompProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"type": "container_t", "level": "s0:c1"},
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "MKNOD"]},
        }})),
        json!({"containers": [], "hostPID": false, "volumes": [
            {"name": "b", "emptyDir": {}}, {"name": "c", "persistentVolumeClaim": {"claimName": "d"}},
        ]}),
    ] {
        check_spec(spec, true).unwrap();
    }
}

#[test]
fn a_container_with_a_share_tells_nvidias_toolkit_no_limits() {
    let limit =
        |value: Value| container(json!({"env": [{"name": "NVIDIA_GPU_MEMORY_REQUEST", "value": value}]}));
    let error = check_spec(limit(json!("80000")), true).unwrap_err();
    assert!(error.contains("NVIDIA_GPU_MEMORY_REQUEST: it would change the driver's limit"), "{error}");
    check_spec(limit(json!("")), true).unwrap();
    check_spec(limit(json!("80000")), false).unwrap();
}

#[test]
fn a_pod_without_a_share_may_not_choose_gpus() {
    check_spec(container(json!({"securityContext": {"privileged": true}})), false).unwrap();
    check_spec(json!({"containers": [], "hostNetwork": true}), false).unwrap();
    for container_alone in [
        json!({"env": [{"name": VISIBLE, "value": "0"}]}),
        json!({"volumeMounts": [{"name": "a", "mountPath": "/run/nvidia-container-devices/0"}]}),
    ] {
        check_spec(container(container_alone), false).unwrap_err();
    }
}
