//! Tenants that write lies about GPU time into their `usage` (I12), in virtual time.

use std::sync::atomic::Ordering;

use vcuda_benches::lab::{Lab, Load};
use vcuda_limiter::busy;
use vcuda_region::DeviceIndex;
use vcuda_region::slots::Usage;
use vcuda_tests::virtual_time::lab;
use vcuda_tests::{Door, app};

const MS: u64 = 1_000_000;
/// Time for a lie to have its full effect, and for the audit to find it in three looks (ns).
const SETTLES_NS: u64 = 5_000 * MS;
const SPAN_NS: u64 = 4_000 * MS;
/// Interval of the lies (ns).
const STEP_NS: u64 = 10 * MS;
/// Tenants of the tests, each with kernels of 1 ms without end.
const KERNELS: &[&str] = &["600", "1000000"];
/// Allowed difference of a neighbour's share beside a lie and without it (points): as of all shares (docs/evidence.md).
const POINTS: f64 = 2.0;

/// Lets time pass (ns) while `lie` is written at each step. Returns each tenant's share (percent).
fn shares_beside(lab: &Lab, lie: &mut dyn FnMut(u64)) -> Vec<f64> {
    let mut pass = |ns: u64| {
        for _ in 0..ns / STEP_NS {
            lie(lab.now_ns());
            lab.run_for(STEP_NS).unwrap();
        }
    };
    let sums = || -> Vec<u64> {
        let services = lab.service_ns().unwrap();
        services.iter().map(|one| one.iter().sum()).collect()
    };
    pass(SETTLES_NS);
    let before = sums();
    pass(SPAN_NS);
    let part = |(after, before): (u64, &u64)| 100.0 * (after - before) as f64 / SPAN_NS as f64;
    sums().into_iter().zip(&before).map(part).collect()
}

#[track_caller]
fn are_alike(shares: &[f64], expected: &[f64]) {
    println!("{shares:.1?} instead of {expected:.1?}");
    for (share, expected) in shares.iter().zip(expected) {
        assert!((share - expected).abs() <= POINTS, "{shares:.1?} instead of {expected:.1?}");
    }
}

#[test]
fn a_claim_of_many_contexts_costs_its_own_tenant_alone() {
    let quotas = [30.0, 60.0, 10.0];
    let options: [&[&str]; 3] = [&["--cores", "30"], &["--cores", "60"], &["--cores", "10"]];
    let lab = lab("", &app("saturate", Door::Dlsym), &options.map(|quota| (quota, KERNELS)));
    let honest = shares_beside(&lab, &mut |_| ());
    let usage = Usage::open(&lab.directory(2).unwrap()).unwrap();
    let bucket = usage.bucket(DeviceIndex::new(0).unwrap());
    let beside = shares_beside(&lab, &mut |_| {
        bucket.contexts_ns.fetch_add(512 * STEP_NS, Ordering::Relaxed);
    });
    println!("{beside:.1?} beside a lie, {honest:.1?} without it");
    assert!(beside[2] < honest[2], "{beside:.1?}, {honest:.1?}");
    for neighbour in 0..2 {
        let allowed = honest[neighbour] - POINTS..quotas[neighbour] + POINTS;
        assert!(allowed.contains(&beside[neighbour]), "{beside:.1?}, {honest:.1?}");
    }
}

#[test]
fn a_busy_map_without_work_changes_no_neighbours_share_and_is_reported() {
    let mut lab = Lab::new(&app("saturate", Door::Dlsym), "").unwrap();
    lab.start_manager("").unwrap();
    for cores in ["30", "60", "10"] {
        let load = Load { quota: &["--memory", "4GiB", "--cores", cores], program: KERNELS, processes: 1 };
        lab.start(load).unwrap();
    }
    // What it had queued runs, and is charged; then it does nothing.
    lab.stop(2, 0).unwrap();
    let honest = shares_beside(&lab, &mut |_| ());
    let usage = Usage::open(&lab.directory(2).unwrap()).unwrap();
    let bucket = usage.bucket(DeviceIndex::new(0).unwrap());
    let beside = shares_beside(&lab, &mut |now_ns| {
        let _ = busy::mark(&bucket.busy, now_ns.saturating_sub(STEP_NS), now_ns + 2 * STEP_NS);
        bucket.charge(1);
        bucket.measured_ns.fetch_add(STEP_NS, Ordering::Relaxed);
        bucket.contexts_ns.fetch_add(512 * STEP_NS, Ordering::Relaxed);
    });
    are_alike(&beside[..2], &honest[..2]);
    let events = lab.ask(&["events"]).unwrap();
    assert!(events.contains("VcudaTimeOverstated"), "{events}");
}
