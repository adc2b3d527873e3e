//! Cost of a scrape on a large node: 64 GPUs, 1,000 tenants of one GPU each: `cargo bench -p vcuda-manager --bench scrape`.

mod timed;

use std::hint::black_box;
use std::sync::Arc;

use tokio::sync::watch;
use vcuda_manager::gpu::{Gpu, Health, Inventory, Sensors};
use vcuda_manager::grant::{Grant, GrantId, Holder};
use vcuda_manager::metrics::{Metrics, Sources};
use vcuda_manager::observe::{Device, Snapshot, SnapshotCache, Tenant};
use vcuda_quota::{DeviceConfig, Quota};
use vcuda_region::GpuUuid;
use vcuda_region::suspension::SuspendState;

fn uuid(number: u64) -> GpuUuid {
    GpuUuid::from_bytes(u128::from(number).to_be_bytes())
}

fn gpu(number: u64) -> Gpu {
    Gpu {
        uuid: uuid(number),
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        memory_total_bytes: 80 << 30,
        memory_reserved_bytes: 600 << 20,
        memory_used_bytes: 40 << 30,
        utilization_percent: Some(80),
        sensors: Sensors::default(),
        is_persistent: None,
        multiprocessors: Some(132),
        compute_capability: Some((9, 0)),
        numa_node: Some(0),
        pci_bus_id: format!("0000:{number:02x}:00.0"),
        pci_root: String::new(),
        minor_number: None,
        nvlinks: Vec::new(),
        health: Health::Healthy,
    }
}

fn grant(number: u64, gpus: u64) -> Grant {
    Grant {
        id: GrantId::new("3f9a3f9a3f9a3f9a", number),
        key: format!("key-{number}"),
        number,
        holder: Holder {
            namespace: "a-namespace".to_owned(),
            pod: format!("deployment-7d4b9c6f5-{number:05}"),
            container: "main".to_owned(),
            pod_uid: "2f1c5f0e-7a55-4cfb-9d0e-5a8f3f9a3f9a".to_owned(),
        },
        amounts: Quota::fixed(Some(5 << 30), 60),
        lasting: None,
        owner: None,
        gpus: vec![uuid(number % gpus)],
        created_unix_ms: 0,
        generation: 1,
        created_by: "request".to_owned(),
        changed_by: None,
        is_suspendable: false,
        memory_wait_ms: None,
        is_transient: false,
    }
}

fn tenant(grant: &Grant) -> Tenant {
    let device = |gpu: &GpuUuid| Device {
        used_bytes: 3 << 30,
        peak_bytes: 4 << 30,
        overhead_bytes: 500 << 20,
        launches: 123_456_789,
        served_ns: 987_654_321_987,
        held_ns: 123_456_789,
        ..Device::unused(*gpu, DeviceConfig::new(5 << 30, 60))
    };
    Tenant {
        id: grant.id.as_str().to_owned(),
        limits_generation: 1,
        devices: grant.gpus.iter().map(device).collect(),
        attached: true,
        ..Tenant::default()
    }
}

fn node(gpus: u64, tenants: u64) -> Metrics {
    let grants: Vec<Arc<Grant>> = (1..=tenants).map(|number| Arc::new(grant(number, gpus))).collect();
    let inventory = Inventory {
        gpus: (0..gpus).map(gpu).collect(),
        driver_version: "550.163.01".to_owned(),
        ..Inventory::default()
    };
    let snapshot = Snapshot {
        number: 1,
        tenants: grants.iter().map(|grant| tenant(grant)).collect(),
        ..Snapshot::default()
    };
    let snapshots = SnapshotCache::default();
    snapshots.publish(Arc::new(snapshot));
    let sources = Sources {
        node: "node-a".to_owned(),
        inventory: watch::channel(Arc::new(inventory)).1,
        tenants: Arc::new(snapshots),
        grants: Arc::new(move || grants.clone()),
        cordoned: Arc::new(std::collections::BTreeSet::new),
        has_problem: Arc::new(|| false),
        states: Arc::new(|_| SuspendState::Running),
    };
    Metrics::new(sources, Arc::default())
}

fn main() {
    for (gpus, tenants) in [(8, 100), (64, 1000)] {
        let metrics = node(gpus, tenants);
        let bytes = metrics.scrape().map_or(0, |text| text.len());
        let name = format!("scrape/{gpus} GPUs, {tenants} containers, {} KiB", bytes >> 10);
        timed::report(&name, || {
            black_box(metrics.scrape().ok());
        });
    }
}
