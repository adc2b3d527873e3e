//! Tests of the JSON and of the table of a snapshot.

use vcuda_quota::Quota;

use super::words::width;
use super::*;

fn process(pid: u32, command: &str, memory_used_bytes: Option<u64>) -> ProcessView {
    ProcessView {
        pid,
        name: "python".to_owned(),
        user: Some("a-user-of-a-directory-service".to_owned()),
        command: Some(command.to_owned()),
        is_in_container: pid == 1,
        memory_used_bytes,
    }
}

fn snapshot() -> Snapshot {
    let tenant = TenantView {
        holder: Some("a-namespace-of-a-team/a-pod-of-a-deployment-7d9f-x2x/main".to_owned()),
        memory_used_bytes: (1 << 40) - 2,
        memory_denied: 1234,
        core_limit_permille: 999,
        core_guarantee_permille: 998,
        core_used_permille: 1001,
        is_ranked: true,
        processes: vec![
            process(4_194_304, "python\u{1b}[2J train.py --epochs 100 --data /srv/data/set", Some(3 << 29)),
            process(1, "日本語", Some(1 << 30)),
        ],
        ..TenantView::unused(
            "a-very-long-tenant-name-from-a-pipeline-123456",
            &Quota::UNLIMITED,
            (1 << 40) - 1,
        )
    };
    let gpu = GpuView {
        memory_total_bytes: 80 << 30,
        memory_used_bytes: 79 << 30,
        memory_granted_bytes: 12 << 30,
        cores_granted_permille: 125,
        utilization_percent: Some(100),
        memory_utilization_percent: Some(7),
        power_draw_mw: Some(258_400),
        power_limit_mw: Some(700_000),
        tenants: vec![tenant],
        outside_processes: vec![process(7, "./miner", None)],
        ..GpuView::new(0, "GPU-00000000-0000-0000-0000-000000000000", "Simulated")
    };
    let empty = GpuView::new(1, "GPU-1", "Empty");
    Snapshot { driver_version: Some("580.65.06".to_owned()), ..Snapshot::of(vec![gpu, empty]) }
}

#[test]
fn a_table_fits_each_width_and_carries_no_control_characters() {
    for columns in 40..=200 {
        let look = Look { width: columns, is_colored: false, has_uuids: columns % 2 == 0 };
        let text = overview(&snapshot(), look);
        for line in text.lines().skip(1) {
            assert_eq!(width(line), columns, "{line}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        for word in ["vcuda ", "580.65.06", "TENANT", "PID", "4194304", "Simulated"] {
            assert!(text.contains(word), "{columns}: {word}\n{text}");
        }
    }
}

#[test]
fn a_tenant_that_does_not_run_says_so_at_each_width() {
    let mut snapshot = snapshot();
    for (state, suspended_bytes, text) in [
        ("suspending", 0, "     suspending "),
        ("suspended", 16 << 30, "     suspended: 16384MiB in ho"),
        ("resuming", 16 << 30, "     resuming: 16384MiB in ho"),
        ("failed", 0, "     failed: a process lost its"),
    ] {
        let tenant = &mut snapshot.gpus[0].tenants[0];
        (tenant.state, tenant.suspended_bytes) = (state, suspended_bytes);
        is_shown_at_each_width(&snapshot, text);
    }
}

/// The overview has this text, and lines as wide as the terminal.
fn is_shown_at_each_width(snapshot: &Snapshot, text: &str) {
    for columns in 40..=200 {
        let look = Look { width: columns, is_colored: false, has_uuids: false };
        let table = overview(snapshot, look);
        assert!(table.contains(text), "{table}");
        assert!(table.lines().skip(1).all(|line| width(line) == columns), "{table}");
    }
}

#[test]
fn a_gpu_that_gets_no_tenants_says_why_at_each_width() {
    let mut snapshot = snapshot();
    snapshot.gpus[0].closed = Some(format!("no new tenants: unhealthy: XID 79{}", "; again".repeat(9)));
    is_shown_at_each_width(&snapshot, "     no new tenants: unhealthy: XID");
}

#[test]
fn each_figure_is_in_the_table() {
    let text = overview(&snapshot(), Look { width: 160, is_colored: false, has_uuids: true });
    for word in [
        "100%",
        "258W / 700W",
        "80896MiB / 81920MiB",
        "12288MiB",
        "12.5%",
        "N/A",
        "GPU-00000000-",
        "1048575MiB / 1048575MiB",
        "100.1 / 99.8-99.9 %",
        "a-user-of-a-directory-service",
        "(in container) 日本語",
        "outside vcuda",
        "./miner",
    ] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}

#[test]
fn colour_is_for_terminals() {
    assert!(!table(&snapshot(), false).contains('\x1b'));
    let colored = table(&snapshot(), true);
    assert!(colored.contains("\x1b[31m80896MiB / 81920MiB\x1b[0m"), "{colored}");
}

#[test]
fn no_tenant_shows_less_than_one_of_its_processes() {
    let tenant = TenantView {
        memory_used_bytes: 5 << 20,
        processes: vec![process(7, "x", Some(9 << 20))],
        ..TenantView::unused("a", &Quota::UNLIMITED, 1 << 30)
    };
    let seen = Snapshot::of(vec![GpuView { tenants: vec![tenant], ..GpuView::new(0, "GPU-0", "S") }]);
    assert_eq!(seen.gpus[0].tenants[0].memory_used_bytes, 9 << 20);
}

#[test]
fn json_keys_are_the_promised_ones() {
    let json = serde_json::to_value(snapshot()).unwrap();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(keys(&json), "driver_version gpus");
    let gpu = &json["gpus"][0];
    assert_eq!(
        keys(gpu),
        "cores_granted_permille memory_granted_bytes memory_total_bytes memory_used_bytes \
         memory_utilization_percent name outside_processes power_draw_mw power_limit_mw temperature_celsius tenants utilization_percent uuid"
    );
    let tenant = &gpu["tenants"][0];
    assert_eq!(
        keys(tenant),
        "core_guarantee_permille core_limit_permille core_used_permille gpu_seconds held_by_driver holder host_copied_bytes host_copies \
         memory_denied memory_limit_bytes memory_used_bytes name policy priority processes room_denied state \
         suspended_bytes weight"
    );
    assert_eq!(keys(&tenant["processes"][0]), "command memory_used_bytes name pid user");
    assert_eq!(tenant["processes"][1]["in_container"], true);
}

#[test]
fn a_tenant_without_a_share_of_its_own_has_no_guarantee() {
    let guarantee = |quota: &Quota| TenantView::unused("a", quota, 1 << 30).core_guarantee_permille;
    assert_eq!(guarantee(&Quota::UNLIMITED), 0);
    assert_eq!(guarantee(&Quota::fixed(None, 300)), 300);
}
