//! Keys of `--json`: the long help of that option, and docs/generated/json.md. They carry their unit and are stable.

/// Of `vcuda smi`.
pub(super) const SMI: &str = "Print JSON: {driver_version, cuda_version, gpus:[{uuid, name, memory_total_bytes, memory_used_bytes, memory_granted_bytes, cores_granted_permille, utilization_percent, memory_utilization_percent, temperature_celsius, power_draw_mw, power_limit_mw, tenants:[{name, memory_limit_bytes, memory_used_bytes, state, suspended_bytes, memory_denied, room_denied, held_by_driver, core_limit_permille, core_guarantee_permille, core_used_permille, gpu_seconds, host_copies, host_copied_bytes, policy, weight, priority, processes:[{pid, name, user, command, in_container, memory_used_bytes}]}], outside_processes:[as processes]}]}. null or missing: not known. A pod's tenant also has holder:\"namespace/pod/container\", one with a quota for a time temporary:{remaining_seconds, until_unix_ms, then_memory_bytes, then_cores_permille, then_policy}. A tenant's memory includes its CUDA contexts; core_guarantee_permille is 0 for fixed with 100 %, which has what is left; core_used_permille is its share over the last second";
/// Of `vcuda ps`.
pub(super) const PS: &str = "Print JSON: {processes:[{pid, name, tenant, holder, state, gpu_uuid, memory_used_bytes}], outside_processes:[as processes, without tenant and state]}. holder: a pod's";
/// Of `vcuda grant list`.
pub(super) const GRANT_LIST: &str = "Print JSON: {grants:[{id, key, holder, gpu_uuids, memory_bytes, cores_permille, cores_max_permille, policy, priority, weight, directory, cdi_device, created_unix_ms, generation, suspendable, user_uid, temporary}]}. memory_bytes 0: the whole GPU; cdi_device, user_uid, temporary (as in smi) only if there is one, suspendable only if true";
/// Of `vcuda usage`.
pub(super) const USAGE: &str = "Print JSON: {by, from_unix_ms, to_unix_ms, rows:[{key, gpu_seconds, memory_requested_bytes, memory_peak_bytes, denials, throttled_seconds}]}. key \"\": no namespace, an unknown user";
/// Of `vcuda gpu list`.
pub(super) const GPU_LIST: &str = "Print JSON: {gpus:[{uuid, name, memory_total_bytes, memory_grantable_bytes, memory_granted_bytes, cores_granted_permille, sharers, sharers_max, cordoned, healthy}]}";
/// Of `vcuda events`.
pub(super) const EVENTS: &str = "Print JSON: {number, unix_ms, severity:\"info\"|\"warning\"|\"error\", reason, message, container, gpu_uuid, host_pid, count}, an object a line. container, gpu_uuid, host_pid only if there is one";
/// Of `vcuda sim report`.
pub(super) const SIM_REPORT: &str = "Print JSON: {gpus:[{uuid, memory_total_bytes, memory_used_bytes, memory_peak_bytes, busy_ns, switched_ns}], processes:[{pid, gpu_uuid, alive, first_ns, last_ns, service_ns, memory_used_bytes, memory_peak_bytes, launches, denied_allocations}]}. service_ns is the GPU's time for the process";
/// Of `vcuda doctor`.
pub(super) const DOCTOR: &str = "Print JSON: {findings:[{health:\"ok\"|\"note\"|\"broken\", link, seen, remedy}]}. remedy only if there is one";
/// Of `vcuda bench`.
pub(super) const BENCH: &str = "Print JSON: {vcuda, gpu:{uuid, name, simulated}, processors, load_before, with_shim, measured_by, window_seconds, windows, shares:[{work, baseline_iterations_per_ms, tenants:[{cap_percent, share_percent, error_percent, mae_points, mae_floor_points, throughput_of_cap, windows_percent, over_time:[{second, share_percent}]}], ratio_error_percent, weighted_jain, used_of_caps}], changes:[{change, work, times, never, median_ms, worst_ms, goal_ms}], overhead:[{call, pairs, without_shim_ns, with_shim_ns, added_ns, without_shim_p99_ns, with_shim_p99_ns, added_p99_ns}], running:[{caps_percent, work, programs_cpu_percent, shim_cpu_percent, arbiter_cpu_percent, holds, late_median_us, late_p99_us, sleep_late_median_us, sleep_late_p99_us}], summary:{...}}";
/// Of `vcuda demo`.
pub(super) const DEMO: &str = "Print JSON: {checks:[{check, measured, expected, passed, not_measurable}]}. not_measurable only if it is the reason";

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "<!-- Made from cli/src/args/json.rs by VCUDA_UPDATE=1 cargo test -p vcuda-cli json -->
# JSON

The keys of `vcuda COMMAND --json`, which `vcuda COMMAND --help` shows, too. They carry their unit and are stable.

";
    const COMMANDS: &[(&str, &str)] = &[
        ("smi", SMI),
        ("ps", PS),
        ("grant list", GRANT_LIST),
        ("usage", USAGE),
        ("gpu list", GPU_LIST),
        ("events", EVENTS),
        ("sim report", SIM_REPORT),
        ("doctor", DOCTOR),
        ("bench", BENCH),
        ("demo", DEMO),
    ];

    #[test]
    fn the_page_of_json_is_up_to_date() {
        let mut page = HEAD.to_owned();
        for (command, text) in COMMANDS {
            let text = text.strip_prefix("Print JSON: ").unwrap();
            let (keys, notes) = text.split_once(". ").unwrap_or((text, ""));
            page += &format!(
                "## {command}\n\n```\n{keys}\n```\n\n{notes}{}",
                if notes.is_empty() { "" } else { ".\n\n" }
            );
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/generated/json.md");
        if std::env::var_os("VCUDA_UPDATE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page,
            "docs/generated/json.md is stale: its first line has the command that writes it"
        );
    }
}
