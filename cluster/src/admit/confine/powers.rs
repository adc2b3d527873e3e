//! Powers over the node that a pod with a share may have: those of the policy "baseline" of Kubernetes' Pod Security Standards.
//! Its controls that touch no limit (host ports, sysctls) are left to Pod Security itself.

use k8s_openapi::api::core::v1::{AppArmorProfile, PodSpec, SELinuxOptions, SeccompProfile};

use super::super::refusal::Refusal;
use super::{Part, refuse};

/// Capabilities that a container may add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// SELinux types that a container may have.
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// Profiles of a pod or a container that confine it.
#[derive(Clone, Copy)]
struct Profiles<'a> {
    seccomp: Option<&'a SeccompProfile>,
    apparmor: Option<&'a AppArmorProfile>,
    selinux: Option<&'a SELinuxOptions>,
}

/// Checks namespaces and profiles of the whole pod.
pub(super) fn check_pod(spec: &PodSpec) -> Result<(), Refusal> {
    for (name, is_shared) in
        [("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc), ("hostNetwork", spec.host_network)]
    {
        if is_shared == Some(true) {
            return refuse(format!(
                "{name}: the pod could reach processes of the node or of other containers; remove it"
            ));
        }
    }
    let Some(context) = &spec.security_context else {
        return Ok(());
    };
    check_profiles(
        "the pod",
        Profiles {
            seccomp: context.seccomp_profile.as_ref(),
            apparmor: context.app_armor_profile.as_ref(),
            selinux: context.se_linux_options.as_ref(),
        },
    )
}

pub(super) fn check_container(part: &Part<'_>) -> Result<(), Refusal> {
    let Some(context) = part.context else {
        return Ok(());
    };
    let container = format!("container {}", part.name);
    if context.privileged == Some(true) {
        return refuse(format!("{container}: privileged: it could open every GPU of the node; remove it"));
    }
    let added = context.capabilities.iter().flat_map(|all| all.add.iter().flatten());
    for capability in added {
        if !CAPABILITIES.contains(&capability.as_str()) {
            return refuse(format!(
                "{container}: capability {capability}: it goes beyond the baseline of Kubernetes' Pod Security Standards; remove it"
            ));
        }
    }
    if let Some(mount) = context.proc_mount.as_deref().filter(|mount| *mount != "Default") {
        return refuse(format!(
            "{container}: procMount {mount}: it could write to the node's kernel; remove it"
        ));
    }
    check_profiles(
        &container,
        Profiles {
            seccomp: context.seccomp_profile.as_ref(),
            apparmor: context.app_armor_profile.as_ref(),
            selinux: context.se_linux_options.as_ref(),
        },
    )
}

fn check_profiles(whose: &str, profiles: Profiles<'_>) -> Result<(), Refusal> {
    let types = [
        ("seccompProfile", profiles.seccomp.map(|profile| profile.type_.as_str())),
        ("appArmorProfile", profiles.apparmor.map(|profile| profile.type_.as_str())),
    ];
    for (name, type_) in types {
        if type_ == Some("Unconfined") {
            return refuse(format!("{whose}: {name} Unconfined: write RuntimeDefault"));
        }
    }
    let Some(selinux) = profiles.selinux else {
        return Ok(());
    };
    let type_ = selinux.type_.as_deref().unwrap_or_default();
    let is_plain =
        [&selinux.user, &selinux.role].into_iter().all(|text| text.as_deref().unwrap_or_default().is_empty());
    if !is_plain || !SELINUX_TYPES.contains(&type_) {
        return refuse(format!(
            "{whose}: seLinuxOptions with type \"{type_}\", a user or a role: leave them out, or write the type container_t"
        ));
    }
    Ok(())
}
