//! Tests of a node's scrape.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use vcuda_quota::{DeviceConfig, NO_MEMORY_LIMIT, Quota};
use vcuda_region::GpuUuid;

use super::*;
use crate::gpu::Gpu;
use crate::grant::{GrantId, Holder};
use crate::observe::{Device, Snapshot, Tenant};

const GIB: u64 = 1 << 30;

fn uuid(number: u8) -> GpuUuid {
    GpuUuid::from_bytes([number; 16])
}

fn gpu(number: u8) -> Gpu {
    Gpu {
        memory_used_bytes: 3 * GIB,
        utilization_percent: Some(42),
        multiprocessors: Some(132),
        compute_capability: Some((9, 0)),
        pci_bus_id: "0000:3a:00.0".to_owned(),
        ..Gpu::new(uuid(number), "a \"GPU\"", 80 * GIB)
    }
}

fn grant(number: u64, pod: &str, gpus: &[u8]) -> Grant {
    let holder = Holder {
        namespace: "team".to_owned(),
        pod: pod.to_owned(),
        container: "main".to_owned(),
        pod_uid: String::new(),
    };
    let gpus = gpus.iter().map(|number| uuid(*number)).collect();
    Grant { holder, amounts: Quota::fixed(Some(8 * GIB), 300), ..Grant::example("key", number, gpus) }
}

fn tenant(id: &str, device: Device) -> Tenant {
    Tenant {
        id: id.to_owned(),
        devices: vec![device],
        attached: true,
        limits_generation: 3,
        findings: vec!["a finding".to_owned()],
        ..Tenant::default()
    }
}

fn used(gpu: u8, memory_limit_bytes: u64) -> Device {
    Device {
        used_bytes: 2 * GIB,
        peak_bytes: 4 * GIB,
        overhead_bytes: GIB / 2,
        denied: 7,
        launches: 1_000_000,
        served_ns: 1_500_000_000,
        held_ns: 250_000_000,
        debt_admits: 3,
        forgiven_ns: 500_000_000,
        cores_used_permille: 301,
        ..Device::unused(uuid(gpu), DeviceConfig::new(memory_limit_bytes, 300))
    }
}

#[test]
fn quota_and_what_was_forgiven_are_told() {
    let snapshot =
        Snapshot { number: 1, tenants: vec![tenant("key-1", used(1, 8 * GIB))], ..Snapshot::default() };
    let text = scrape(node(&[1]), snapshot, vec![grant(1, "p", &[1])], Arc::default());
    let (samples, labels) = (samples(&text), on(1, "p", "main"));
    let info = labels.replace('}', ",policy=\"fixed\",priority=\"normal\"}");
    for (name, value) in [
        (format!("vcuda_container_cores_guarantee_ratio{labels}"), 0.3),
        (format!("vcuda_container_quota_info{info}"), 1.0),
        (format!("vcuda_container_forgiven_seconds_total{labels}"), 0.5),
    ] {
        assert_eq!(samples.get(&name), Some(&value), "{name}");
    }
}

#[test]
fn guarantees_of_more_than_all_are_told() {
    let grants = vec![grant(1, "p", &[1]), grant(2, "q", &[1])];
    let grants = grants.into_iter().map(|grant| Grant { amounts: Quota::fixed(Some(GIB), 700), ..grant });
    let text = scrape(node(&[1]), Snapshot::default(), grants.collect(), Arc::default());
    let granted = format!("vcuda_gpu_cores_granted_ratio{{gpu_uuid=\"{}\"}}", uuid(1));
    assert_eq!(samples(&text)[&granted], 1.4);
}

fn cache(snapshot: Snapshot) -> Arc<SnapshotCache> {
    let cache = Arc::<SnapshotCache>::default();
    cache.publish(Arc::new(snapshot));
    cache
}

fn scrape(
    inventory: Inventory,
    snapshot: Snapshot,
    grants: Vec<Grant>,
    instruments: Arc<Instruments>,
) -> String {
    let grants: Vec<_> = grants.into_iter().map(Arc::new).collect();
    let sources = Sources {
        node: "node-a".to_owned(),
        inventory: watch::channel(Arc::new(inventory)).1,
        tenants: cache(snapshot),
        grants: Arc::new(move || grants.clone()),
        cordoned: Arc::new(|| [uuid(1)].into()),
        has_problem: Arc::new(|| true),
        states: Arc::new(|id| match id {
            "key-9" => SuspendState::Suspended,
            _ => SuspendState::Running,
        }),
    };
    Metrics::new(sources, instruments).scrape().unwrap()
}

/// Values by name and labels, without the node; each occurs once.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(series.contains("node=\"node-a\""), "{line}");
        let series = series.replace("node=\"node-a\",", "").replace("{node=\"node-a\"}", "");
        let before = samples.insert(series, value.parse().unwrap());
        assert_eq!(before, None, "twice: {line}");
    }
    samples
}

fn node(gpus: &[u8]) -> Inventory {
    Inventory {
        gpus: gpus.iter().map(|number| gpu(*number)).collect(),
        driver_version: "550.1".to_owned(),
        ..Inventory::default()
    }
}

fn on(gpu: u8, pod: &str, tenant: &str) -> String {
    let namespace = if pod.is_empty() { "" } else { "team" };
    format!("{{gpu_uuid=\"{}\",namespace=\"{namespace}\",pod=\"{pod}\",container=\"{tenant}\"}}", uuid(gpu))
}

#[test]
fn a_granted_tenant_is_there_with_zeros_before_the_first_look() {
    let text = scrape(node(&[1]), Snapshot::default(), vec![grant(1, "p", &[1])], Arc::default());
    let samples = samples(&text);
    let labels = on(1, "p", "main");
    for series in series::all().into_iter().flat_map(|(_, series)| series) {
        if series.labels == ["gpu_uuid", "namespace", "pod", "container"] {
            let value = samples.get(&format!("{}{labels}", series.name()));
            let wanted = match series.stem {
                "vcuda_container_memory_limit" => 8.0 * GIB as f64,
                "vcuda_container_cores_limit" | "vcuda_container_cores_guarantee" => 0.3,
                _ => 0.0,
            };
            assert_eq!(value, Some(&wanted), "{}", series.name());
        }
    }
    assert_eq!(samples["vcuda_shim_attached{namespace=\"team\",pod=\"p\",container=\"main\"}"], 0.0);
    assert!(!text.contains("vcuda_snapshot_age"), "before the first look");
    assert!(text.ends_with("# EOF\n"));
    // The grant was released.
    let text = scrape(node(&[1]), Snapshot::default(), vec![], Arc::default());
    assert!(!text.contains("vcuda_container"), "{text}");
}

/// The grant of a run.
fn run() -> Grant {
    let key = "run \"me\"".to_owned();
    Grant {
        id: GrantId::of_run(&key),
        key,
        holder: Holder::default(),
        amounts: Quota::fixed(None, 300),
        is_transient: true,
        ..grant(7, "", &[1])
    }
}

/// A tenant with a grant, a tenant whose grant is gone, and a tenant of `vcuda run`.
fn three_tenants() -> Snapshot {
    Snapshot {
        number: 1,
        taken_ns: clock::now_ns(),
        ended: Vec::new(),
        tenants: vec![
            tenant("key-1", used(1, 8 * GIB)),
            tenant("key-9", used(1, 8 * GIB)),
            tenant("run \"me\"", used(1, NO_MEMORY_LIMIT)),
        ],
    }
}

#[test]
fn what_is_used_is_shown_with_what_is_granted() {
    let instruments = Arc::<Instruments>::default();
    instruments.set_audited(Audited {
        unregistered_bytes: [(uuid(1), 5)].into(),
        over_bytes: [(("key-1".to_owned(), uuid(1)), 6)].into(),
    });
    let text = scrape(node(&[1]), three_tenants(), vec![grant(1, "p", &[1]), run()], instruments);
    let samples = samples(&text);
    let granted = on(1, "p", "main");
    let run = on(1, "", "run \\\"me\\\"");
    let of_gpu = format!("{{gpu_uuid=\"{}\"}}", uuid(1));
    for (name, value) in [
        (format!("vcuda_container_memory_used_bytes{granted}"), 2.0 * GIB as f64),
        (format!("vcuda_container_memory_peak_bytes{granted}"), 4.0 * GIB as f64),
        (format!("vcuda_container_memory_context_bytes{granted}"), 0.5 * GIB as f64),
        (format!("vcuda_container_memory_buffer_bytes{granted}"), 1.5 * GIB as f64),
        (format!("vcuda_container_cores_used_ratio{granted}"), 0.301),
        (format!("vcuda_container_denied_total{granted}"), 7.0),
        (format!("vcuda_container_launches_total{granted}"), 1e6),
        (format!("vcuda_container_gpu_seconds_total{granted}"), 1.5),
        (format!("vcuda_container_held_seconds_total{granted}"), 0.25),
        (format!("vcuda_container_launches_on_debt_total{granted}"), 3.0),
        (format!("vcuda_container_limits_generation{granted}"), 3.0),
        (format!("vcuda_audit_over_bytes{granted}"), 6.0),
        (format!("vcuda_audit_over_bytes{run}"), 0.0),
        (format!("vcuda_container_memory_limit_bytes{run}"), 80.0 * GIB as f64),
        (format!("vcuda_gpu_memory_granted_bytes{of_gpu}"), 88.0 * GIB as f64),
        (format!("vcuda_gpu_cores_granted_ratio{of_gpu}"), 0.6),
        (format!("vcuda_gpu_shares{of_gpu}"), 2.0),
        (format!("vcuda_gpu_utilization_ratio{of_gpu}"), 0.42),
        (format!("vcuda_gpu_healthy{of_gpu}"), 1.0),
        (format!("vcuda_gpu_cordoned{of_gpu}"), 1.0),
        (format!("vcuda_audit_unregistered_bytes{of_gpu}"), 5.0),
    ] {
        assert_eq!(samples.get(&name), Some(&value), "{name}");
    }
    assert!(!text.contains("key-9"), "it ended with its grant");
}

#[test]
fn two_grants_of_one_pod_do_not_clash() {
    let grants = vec![grant(1, "p", &[1]), grant(2, "p", &[1])];
    let samples = samples(&scrape(node(&[1]), Snapshot::default(), grants, Arc::default()));
    let name = |tenant: &str| format!("vcuda_container_denied_total{}", on(1, "p", tenant));
    assert!(samples.contains_key(&name("main")) && samples.contains_key(&name("main (key-1)")));
}

#[test]
fn the_manager_tells_of_itself() {
    let instruments = Arc::<Instruments>::default();
    instruments.registered(Registration::Refused, 1);
    instruments.called("Grants/Create", "OK", Duration::from_millis(3));
    let inventory = Inventory {
        problem: Some("no NVML".to_owned()),
        xids: [((uuid(1), 79), 2)].into(),
        ..Inventory::default()
    };
    let text = scrape(inventory.clone(), Snapshot::default(), vec![], instruments.clone());
    assert!(!text.contains("vcuda_arbiter_age"));
    let one = samples(&text);
    assert_eq!(one["vcuda_registrations_total{result=\"refused\"}"], 1.0);
    assert_eq!(one["vcuda_registrations_total{result=\"accepted\"}"], 0.0);
    assert_eq!(one["vcuda_inventory_problem"], 1.0);
    assert_eq!(one["vcuda_ledger_problem"], 1.0);
    assert_eq!(one[&format!("vcuda_gpu_xid_total{{gpu_uuid=\"{}\",xid=\"79\"}}", uuid(1))], 2.0);
    assert_eq!(one["vcuda_api_duration_seconds_count{method=\"Grants/Create\",code=\"OK\"}"], 1.0);
    assert_eq!(
        one["vcuda_api_duration_seconds_bucket{le=\"0.005\",method=\"Grants/Create\",code=\"OK\"}"],
        1.0
    );
    instruments.arbitrated(clock::now_ns());
    let text = scrape(inventory, Snapshot::default(), vec![], instruments);
    assert!(samples(&text)["vcuda_arbiter_age_seconds"] >= 0.0);
}

fn any_device() -> impl Strategy<Value = Device> {
    (0_u8..4, any::<[u64; 7]>(), any::<u32>(), any::<u32>()).prop_map(|(gpu, numbers, permille, cap)| {
        Device {
            used_bytes: numbers[0],
            peak_bytes: numbers[1],
            overhead_bytes: numbers[2],
            denied: numbers[3],
            served_ns: numbers[4],
            held_ns: numbers[5],
            cores_used_permille: permille.min(1000),
            ..Device::unused(uuid(gpu), DeviceConfig::new(numbers[6], cap.min(1000)))
        }
    })
}

proptest! {
    /// Whatever names and values tenants have: each series occurs once, a tenant's ratios are within 0 and 1, and all names are known.
    #[test]
    fn any_scrape_is_well_formed(
        tenants in prop::collection::vec(("\\PC{0,8}|[a-b\"\\\\\n]{0,3}", prop::collection::vec(any_device(), 0..4)), 0..6),
        grants in prop::collection::vec((0_u64..4, "[a-b\"\\\\\n]{0,2}", prop::collection::vec(0_u8..4, 0..4)), 0..4),
    ) {
        let tenants = tenants.into_iter().map(|(id, devices)| Tenant { id, devices, ..Tenant::default() });
        let snapshot = Snapshot { number: 1, tenants: tenants.collect(), ..Snapshot::default() };
        let grants = grants.iter().map(|(number, pod, gpus)| grant(*number, pod, gpus)).collect();
        let text = scrape(node(&[1, 2]), snapshot, grants, Arc::default());
        let known: Vec<String> = series::all().into_iter().flat_map(|(_, series)| series).flat_map(|series| series.names()).collect();
        for (series, value) in samples(&text) {
            let name = series.split('{').next().unwrap();
            prop_assert!(known.iter().any(|known| known == name), "{name}");
            let is_part = name.ends_with("_ratio") && name != "vcuda_gpu_cores_granted_ratio";
            prop_assert!(value >= 0.0 && (!is_part || value <= 1.0), "{series} {value}");
        }
    }
}
