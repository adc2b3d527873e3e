//! Reasons of the manager's events, and what to do about each: the end of `vcuda events --help`, and docs/generated/events.md.

use std::fmt::Write as _;

/// Reasons that go together, and what they mean to a person.
const REASONS: &[(&[&str], &str)] = &[
    (
        &["VcudaMemoryDenied"],
        "A container was refused memory; the event names the last size. Raise the quota: a pod's annotation vcuda.io/memory, or vcuda set --memory.",
    ),
    (
        &["VcudaSmallMemory"],
        "A grant has less memory than admission.reserve, which one context takes. Ask for more.",
    ),
    (
        &["VcudaGrantRefused"],
        "A grant did not fit; the event names what is free. Release or shrink others, or ask for less.",
    ),
    (
        &["VcudaOverLimit"],
        "Use exceeds the limit by over 64 MiB. End the largest process; look for VcudaNotAttached.",
    ),
    (
        &["VcudaMemoryLeft"],
        "A tenant has ended, and another process keeps memory that it exported. It counts until that process closes the descriptors or ends.",
    ),
    (
        &["VcudaGpuMemoryFull"],
        "An allocation within a quota was out of memory, as no other tenant could be suspended in time. Let it wait longer, or grant less.",
    ),
    (
        &["VcudaNotAttached"],
        "A container's process uses the GPU without its limits (static, musl, LD_PRELOAD removed). End it, or name the shim in \
         /etc/ld.so.preload.",
    ),
    (
        &["VcudaKilled", "VcudaKillFailed"],
        "By audit.action = \"kill\" such a process was ended, or could not be: the manager needs CAP_KILL.",
    ),
    (
        &["VcudaUnregistered"],
        "A process of no known container is on a shared GPU. End it, or start it by vcuda run. Without CAP_SYS_PTRACE the manager knows no other user's.",
    ),
    (
        &["VcudaNotRegistered"],
        "A process with GPU memory has not registered for 10 readings. Mount the tenant's whole directory; compare releases.",
    ),
    (&["VcudaOlderShim"], "The shim is older than the manager. Restart the container when convenient."),
    (
        &["VcudaTimeOverstated"],
        "A tenant shows work for most of the time, and NVML far less. Its neighbours no longer share time with it. End it, or find what writes its usage.",
    ),
    (
        &["VcudaTampered"],
        "Files are damaged or replaced, or show less than NVML by over 64 MiB and 5 %. Start the container in a new directory.",
    ),
    (
        &["VcudaDetached", "VcudaDirectoryRestored"],
        "Files of a grant were deleted under its processes, which keep their old limits, or were made again. Restart the container, and find \
         what deletes below the manager's root.",
    ),
    (
        &["VcudaUsageGrown"],
        "A container's process made its usage longer or gave it attributes, which takes space from all. It is cut. If it goes on, end the container.",
    ),
    (
        &["VcudaDriverLimitRefused"],
        "NVML refuses to limit a tenant's cgroup, so that the library alone holds the quota. Do what the event says: root, or the controller dmem.",
    ),
    (&["VcudaGrantMissing"], "A directory without a grant is still used. End its processes."),
    (
        &["VcudaReturned"],
        "Memory of a suspended tenant is on the GPU again, and the manager did not bring it back. It is suspended anew. Find what restores it.",
    ),
    (
        &["VcudaSuspensionFailed"],
        "A process lost its GPU state, or the record of suspensions was damaged. End the tenant's processes.",
    ),
    (
        &["VcudaGpuUnhealthy"],
        "An XID, a failed probe, heat: no new container gets the GPU. See NVIDIA's XID catalogue; reset a GPU that does not recover \
         (docs/operations.md, \"Health\").",
    ),
    (
        &["VcudaGpuAppeared", "VcudaGpuVanished", "VcudaGpuChanged"],
        "NVML lists a GPU that was not there before, no longer does or does not list one that the ledger names, or shows other memory, links or MIG \
         mode. If not intended, check dmesg, the slot, the driver.",
    ),
    (&["VcudaNvmlFailed"], "NVML cannot be used. Install or reload the driver; set nvml_library."),
    (
        &["VcudaLedgerFailed", "VcudaDirectoryFailed", "VcudaUsageForgotten"],
        "A file in the manager's state or root is damaged, or cannot be written. Check space and permissions.",
    ),
    (
        &["VcudaHealthForgotten"],
        "The record of bad GPUs is lost, or cannot be written. Check space; cordon bad GPUs.",
    ),
    (
        &["VcudaLedgerRebuilt"],
        "The ledger was rebuilt from the grants' directories. Compare vcuda grant list with what runs; cordon bad GPUs again.",
    ),
    (
        &["VcudaShimFailed"],
        "The shim could not be installed, so no new container starts. Do what the event says; the manager tries again every 10 s.",
    ),
    (
        &["VcudaDeviceFailed"],
        "A grant has no CDI device, or an old one is still there. The event names what is missing (docs/operations.md, \"Docker and podman\").",
    ),
    (&["VcudaApiCrowded"], "A user has too many connections to the API. Find the client."),
    (
        &[
            "VcudaGrantCreated",
            "VcudaGrantResized",
            "VcudaGrantReleased",
            "VcudaGpuCordoned",
            "VcudaGpuUncordoned",
        ],
        "A user did so; the event names the user. Of pods' grants only the log tells it.",
    ),
    (
        &["VcudaSuspended", "VcudaResumed"],
        "Nothing is wrong. The event names the user who asked for it, if one did.",
    ),
    (
        &[
            "VcudaGpuRecovered",
            "VcudaNvmlRecovered",
            "VcudaLedgerRecovered",
            "VcudaLimitBelowUse",
            "VcudaChangeEnded",
        ],
        "Nothing is wrong.",
    ),
];

/// End of the help of `vcuda events`.
pub(super) fn help() -> String {
    let mut text = "Asks the node's manager, or the user's own. The same event is told once in 30 s and counted.\n\nReasons, and what to do:\n".to_owned();
    for (names, remedy) in REASONS {
        let _ = write!(text, "\n{}\n  {remedy}", names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "<!-- Made from cli/src/args/reasons.rs by VCUDA_UPDATE=1 cargo test -p vcuda-cli reasons -->
# Events: reasons, and what to do

`vcuda events --help` shows the same list; [operations](../operations.md#events) says when events are told.

";

    #[test]
    fn the_page_of_reasons_is_up_to_date() {
        let mut page = HEAD.to_owned();
        for (names, remedy) in REASONS {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            page += &format!("* {}: {remedy}\n", names.join(", "));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/events.md");
        if std::env::var_os("VCUDA_UPDATE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page,
            "docs/generated/events.md is stale: its first line has the command that writes it"
        );
    }
}
