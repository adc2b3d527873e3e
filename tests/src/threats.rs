//! What a tenant may try against its limits and its neighbours, and the tests that show what happens: docs/generated/threats.md. A test is
//! cited as `file.rs: its_name`, another one of this file after it as `its_name` alone.

use std::fmt::Write as _;

/// Attempts that fail, with what happens and its test.
pub const STOPPED: &[(&str, &str)] = &[
    (
        "asks for more than its limit, by any entry point",
        "refused to the byte (`tests/tests/memory/quota.rs`, `tests/tests/interposition/{doors,hostile,plugins}.rs`)",
    ),
    (
        "changes its environment (`env -i`, `LD_PRELOAD=`, `VCUDA_DIR`, `VCUDA_MEMORY`) where `/etc/ld.so.preload` and `/etc/vcuda` are mounted",
        "the quota holds (`container.rs: a_containers_quota_holds`)",
    ),
    (
        "uses `RTLD_DEEPBIND`",
        "redirected to the shim, except in [one case](../limits.md#programs-that-escape) (`plugins.rs: a_plugin_is_limited_however_it_is_opened`)",
    ),
    (
        "damages, truncates, replaces, links or deletes `usage`, fills its directory",
        "its figures are bounded or reported as bad (`manager_watch.rs: a_hostile_tenant_harms_its_own_figures_only`; `files.rs: damaged_files_harm_their_own_container_only`, `flipped_bytes_under_a_running_tenant`; `crates/region/tests/it/{flips,hostile}.rs`; `fuzz/fuzz_targets/usage.rs`)",
    ),
    (
        "makes `usage` longer, gives it extended attributes",
        "cut every 2 s, and when a grant lacks space; `VcudaUsageGrown` names it (`files/grown.rs: a_usage_that_fills_the_file_system_is_cut_and_keeps_no_grant_from_others`). Not while its directory is released and its processes live, nor attributes whose names exceed 64 KiB",
    ),
    (
        "claims without need that it [lacks memory](../suspend.md#by-itself)",
        "compared with NVML's figures; a tenant that does not use the memory made for it is ignored for 1 s to 64 s (`suspend/demands.rs`)",
    ),
    (
        "exports memory to a process outside, run after run of one name",
        "charged to the name until it is released (`tests/tests/memory/given_away.rs: what_ended_runs_of_a_name_gave_to_others_stays_in_its_account`), except as a [dma-buf](../limits.md#memory)",
    ),
    (
        "restores its own memory while it is suspended",
        "`CUDA_ERROR_NOT_PERMITTED`; past the shim, suspended anew within a second or two and reported as `VcudaReturned` (`tests/tests/suspend/suspend/returned.rs`)",
    ),
    (
        "damages `limits` where it can write it",
        "no memory (`crates/region/tests/it/hostile.rs: limits_that_are_cut_under_a_running_process_are_a_limit_of_nothing`)",
    ),
    (
        "links its `manager.sock` or `usage` to another's",
        "not followed (`manager_watch.rs`, `manager/src/registration/tests.rs: sockets_follow_their_directories`)",
    ),
    (
        "registers as another process, or with a dead one's PID",
        "refused: the kernel identifies it, by `SO_PEERCRED`, pidfd and start time (`registration/peer.rs: a_message_must_speak_of_the_process_that_sent_it`)",
    ),
    (
        "sends malformed, endless or no messages to `manager.sock`",
        "refused, or closed after 1 s (`registration/tests.rs: strange_peers_are_refused_and_no_other_notices`; `fuzz/fuzz_targets/registration.rs`)",
    ),
    (
        "floods registration",
        "[bounded](../operations.md#bounds); neighbours register meanwhile (`registration/tests.rs: a_tenant_that_floods_waits_and_its_neighbour_does_not`; `manager_audit.rs: a_tenant_that_floods_registration_and_one_that_forks_hide_no_other`)",
    ),
    (
        "as root writes `limits`, removes `grant`, makes files in `/etc/vcuda`",
        "the mount is read-only (`manager_audit.rs: a_container_by_its_mounts_and_what_tampers_with_them`)",
    ),
    (
        "fills the table of processes",
        "its own: 512 (`registration/table.rs: a_tenant_fills_its_own_table_only`)",
    ),
    (
        "causes application errors (XID 13, 31, ...) to take the GPU from all",
        "they never make a GPU unhealthy (`inventory/health.rs: health_follows_the_words`; `manager_inventory.rs: an_applications_error_is_counted_and_another_makes_a_gpu_unhealthy`)",
    ),
    (
        "asks Kubernetes for a pod with powers over the node or folders of it, mounts over its limits, or chooses GPUs by a variable, a mount or an annotation",
        "refused by the [webhook](../kubernetes.md#at-admission) or the policy, if on and the namespace is not exempt (`admit/confine/tests.rs: mounts_over_the_limits_are_refused`, `of_the_nodes_folders_only_those_that_are_listed_may_be_mounted`, `powers_and_choices_of_gpus_are_refused_in_containers_of_every_kind`, `annotations_that_a_container_runtime_follows_are_refused`)",
    ),
    (
        "sends its own reviews to the webhook's port",
        "they make no object: a template is made for a pod that the API server has (`cluster_webhook.rs: reviews_make_no_object_and_a_pod_of_the_api_server_gets_its_template_once`)",
    ),
    (
        "is killed at any instruction",
        "no lock and no counted memory stays (`storm.rs`, `stepped/`, `manager_watch.rs: a_process_is_seen_until_it_is_killed_and_its_memory_with_it`)",
    ),
];

/// Attempts that succeed, with what the audit reports and its test.
pub const SEEN: &[(&str, &str)] = &[
    (
        "runs a **static** or **musl** program, or drops the preload (under `vcuda run` also the library path) where no `/etc/ld.so.preload` names it",
        "`VcudaNotAttached` once it uses the GPU, if its root or environment names the container; else `VcudaUnregistered` (`audit/tests.rs: a_process_of_a_tenant_without_its_limits_is_found_by_its_environment`)",
    ),
    (
        "the same under [`audit.action = \"kill\"`](../operations.md#events)",
        "ended at the third reading, **unless it maps `usage` itself** and so looks limited (`manager_audit.rs: a_process_without_its_limits_is_ended_where_the_operator_wants_that_and_no_other_is`; `audit/held_processes.rs: only_the_process_that_was_held_is_ended`)",
    ),
    (
        "uses the device files itself (**raw ioctl**, a client without libcuda.so)",
        "the same, if NVML lists the process (not tried)",
    ),
    (
        "opens the driver in another link-map namespace (**`dlmopen`**)",
        "charged afterwards as overhead; named in `VCUDA_LOG` and by `vcuda doctor` (`plugins.rs: what_a_driver_in_another_namespace_takes_is_charged_and_named`, `doctor_tells_of_a_driver_in_another_namespace`)",
    ),
    (
        "**lies about its usage**; **replaces or damages its files**",
        "`VcudaTampered`, the lie from 64 MiB and 5 % below NVML's figure (`audit/tests.rs: more_than_the_quota_and_less_than_the_truth`, `damaged_files_and_refusals_are_told`)",
    ),
    (
        "**claims GPU time that it does not use**",
        "`VcudaTimeOverstated`; from then on it counts as idle for others (`tests/tests/gpu_time/lies.rs: a_busy_map_without_work_changes_no_neighbours_share_and_is_reported`)",
    ),
    (
        "**mounts limits of its own** over `/etc/vcuda` (needs `CAP_SYS_ADMIN`; or a volume whose `mountPath` is a link in the image, which no webhook sees: not tried)",
        "`VcudaUnregistered`, with its bytes (`manager_audit.rs: a_container_by_its_mounts_and_what_tampers_with_them`)",
    ),
    (
        "hides from registration (no `manager.sock` in its root, another protocol)",
        "`VcudaNotRegistered` while it holds memory (`manager_audit.rs: who_cannot_reach_the_managers_socket_is_found`)",
    ),
    (
        "**its directory is deleted** under it",
        "`VcudaDetached`, by the files it has mapped; its memory counts against the grant (`manager_audit.rs: a_directory_that_is_deleted_under_a_container_does_not_hide_it`)",
    ),
    (
        "names itself another's in `usage`",
        "the kernel's identification overrides it (`audit/tests.rs: whom_the_kernel_named_comes_before_whom_a_slot_names`)",
    ),
    (
        "a process of no tenant uses a shared GPU",
        "`VcudaUnregistered`, with its bytes (`audit/tests.rs: a_process_that_nothing_binds_is_told_once_it_stays`; `manager_audit.rs: a_process_of_no_tenant_is_found_with_its_bytes`)",
    ),
];

const HEAD: &str = "<!-- Made from tests/src/threats.rs by VCUDA_UPDATE=1 cargo test -p vcuda-tests --test documents threats -->
# What a tenant may try, and the tests

Tests without a folder are in a folder of `tests/tests/`, or in `manager/src/`. [What is promised](../limits.md) has the summary.

## Stopped

| a tenant | what happens (test) |
|---|---|
";

const ONLY_SEEN: &str = "
A broken client of the API or the metrics harms only itself (`manager/tests/it/api/hostile.rs`, `manager/tests/it/metrics_http.rs`); a quarter of
the API's connections is for callers that may change all (`serve/peer.rs`). Files that a daemon locks are its user's alone
(`crates/daemon/src/lock_file.rs`). Setting the clock changes no interval (`tests/tests/manager/manager_clock.rs`).

## Only seen

Once a second the audit compares NVML's processes with registrations and `usage`. It sees nothing if NVML does not list processes or their memory
(`an_nvml_that_does_not_answer_finds_nothing`), nor what lasts less than three readings.
Behind the [driver's own limit](../limits.md#programs-that-escape), static programs, raw ioctl and `dlmopen` get no memory beyond the quota
(`tests/tests/memory/driver_limits.rs: what_escapes_the_library_stops_at_the_drivers_limit`; documented, no such driver was seen).

| a tenant | reported as (test) |
|---|---|
";

/// Text of docs/generated/threats.md.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for (attempt, outcome) in STOPPED {
        let _ = writeln!(page, "| {attempt} | {outcome} |");
    }
    page += ONLY_SEEN;
    for (attempt, report) in SEEN {
        let _ = writeln!(page, "| {attempt} | {report} |");
    }
    page
}
