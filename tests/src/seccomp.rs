//! System call filters that container runtimes ship.

use std::fs;

use crate::skip;
use serde_json::{Value, json};

/// Filter installed by Debian's package of podman's defaults (similar to docker's), for a process without capabilities, in
/// the runtime's format.
pub fn shipped_filter() -> Option<Value> {
    let file = fs::read("/usr/share/containers/seccomp.json");
    let Ok(profile) = file else {
        skip("container: no /usr/share/containers/seccomp.json (package golang-github-containers-common)");
        return None;
    };
    let profile: Value = serde_json::from_slice(&profile).unwrap();
    let machine = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let names = |rule: &Value, kind: &str, list: &str| {
        rule[kind][list]
            .as_array()
            .map(|names| names.iter().map(|one| one.as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let applies = |rule: &&Value| {
        names(rule, "includes", "caps").is_none()
            && names(rule, "includes", "arches").is_none_or(|names| names.iter().any(|one| one == machine))
            && names(rule, "excludes", "arches").is_none_or(|names| names.iter().all(|one| one != machine))
    };
    let rules: Vec<Value> = profile["syscalls"]
        .as_array()
        .unwrap()
        .iter()
        .filter(applies)
        .map(|rule| {
            let mut rule = rule.clone();
            for key in ["includes", "excludes", "comment", "errno"] {
                rule.as_object_mut().unwrap().remove(key);
            }
            rule
        })
        .collect();
    assert!(rules.len() > 5, "{rules:?}");
    Some(json!({
        "defaultAction": profile["defaultAction"], "defaultErrnoRet": profile["defaultErrnoRet"], "syscalls": rules,
    }))
}

/// Filter of an older runtime: unknown calls are refused with EPERM, from which programs cannot tell that they should try
/// another call (seccomp(2), clone(2)), as are the usual forbidden ones.
pub fn old_filter() -> Value {
    const REFUSED: &str = "statx faccessat2 openat2 close_range pidfd_open pidfd_getfd pidfd_send_signal process_madvise \
        futex_waitv membarrier rseq memfd_secret landlock_create_ruleset io_uring_setup ptrace \
        process_vm_readv process_vm_writev kcmp bpf perf_event_open userfaultfd unshare setns mount \
        umount2 pivot_root keyctl add_key request_key quotactl reboot swapon init_module kexec_load mbind \
        set_mempolicy get_mempolicy sched_setattr name_to_handle_at";
    let refused: Vec<&str> = REFUSED.split(' ').collect();
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
        ],
    })
}
