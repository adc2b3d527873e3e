//! Policies, priorities and weights between tenants, changed live, in virtual time. All tenants run kernels of 1 ms without end.
//!
//! Shares are in percent of the time that switches between contexts leave, as switches belong to no tenant.

use vcuda_benches::lab::Lab;
use vcuda_tests::virtual_time::lab;
use vcuda_tests::{Door, app};

const MS: u64 = 1_000_000;
/// Time for a change to take effect (ns): a launch that waits sees it after 25 ms (docs/policies.md), the split averages over 100 ms.
const SETTLES_NS: u64 = 500 * MS;
/// Windows of a measurement, one second each.
const WINDOWS: usize = 4;
/// Allowed error of a mean over all windows (points): a split is within 1 point beside one neighbour (docs/evidence.md), and what was
/// saved before a change (120 ms) may be spent in the first of four seconds.
const MEAN_POINTS: f64 = 2.0;
/// Allowed error of each window (points). A share that swings fails here although its mean is right.
const WINDOW_POINTS: f64 = 4.0;
/// Most that a tenant gets that would get nothing (percent): 1 % (docs/policies.md), and a half more.
const SCRAPS: f64 = 1.5;
/// Time for which a stopped process's neighbours pay as if they shared the GPU with it (ns; docs/limits.md).
const STOPPED_NS: u64 = 2_000 * MS;
/// Time in which half of the GPU runs what a tenant alone, that is not metered, has queued: a driver takes 1,024 launches (ns).
const QUEUED_NS: u64 = 2 * 1_024 * MS;

const KERNELS: &[&str] = &["600", "1000000"];

fn started(tenants: &[&[&str]]) -> Lab {
    let all: Vec<_> = tenants.iter().map(|quota| (*quota, KERNELS)).collect();
    lab("", &app("saturate", Door::Dlsym), &all)
}

fn joined(lab: &mut Lab, quota: &[&str]) {
    let load = vcuda_benches::lab::Load { quota, program: KERNELS, processes: 1 };
    lab.start(load).unwrap();
}

/// Share of each tenant in each window (percent), once a change has settled.
fn windows(lab: &Lab) -> Vec<Vec<f64>> {
    lab.run_for(SETTLES_NS).unwrap();
    let mut shares = vec![Vec::new(); lab.service_ns().unwrap().len()];
    for _ in 0..WINDOWS {
        let ((before, switched_ns), began_ns) = (lab.record_ns().unwrap(), lab.now_ns());
        lab.run_for(1000 * MS).unwrap();
        let (after, switched_after_ns) = lab.record_ns().unwrap();
        let left_ns = lab.now_ns() - began_ns - (switched_after_ns - switched_ns);
        for ((share, before), after) in shares.iter_mut().zip(&before).zip(&after) {
            let got_ns = after.iter().sum::<u64>() - before.iter().sum::<u64>();
            share.push(100.0 * got_ns as f64 / left_ns as f64);
        }
    }
    shares
}

fn mean(windows: &[f64]) -> f64 {
    windows.iter().sum::<f64>() / windows.len() as f64
}

/// Checks the share of each tenant (percent), on the whole and in each window.
#[track_caller]
fn have(what: &str, lab: &Lab, expected: &[f64]) {
    let shares = windows(lab);
    println!("{what}: {shares:.1?}");
    for (windows, expected) in shares.iter().zip(expected) {
        let off = windows.iter().map(|share| (share - expected).abs());
        assert!(
            (mean(windows) - expected).abs() <= MEAN_POINTS && off.fold(0.0, f64::max) <= WINDOW_POINTS,
            "{what}: {shares:.1?} instead of {expected}"
        );
    }
}

/// Checks that a tenant gets nearly nothing, in each window, and `least` of the GPU (percent), while the other one has all else.
#[track_caller]
fn has_scraps(what: &str, lab: &Lab, starved: usize, least: f64) {
    let shares = windows(lab);
    println!("{what}: {shares:.1?}");
    let (scraps, rest) = (mean(&shares[starved]), mean(&shares[1 - starved]));
    let most = shares[starved].iter().copied().fold(0.0, f64::max);
    assert!(
        (least..=SCRAPS).contains(&scraps) && most <= 2.0 * SCRAPS && rest >= 100.0 - SCRAPS - MEAN_POINTS,
        "{what}: {shares:.1?}"
    );
}

#[test]
fn burst_borrows_while_the_neighbour_idles_and_gives_back() {
    let mut lab = started(&[&["--cores", "20", "--cores-max", "90", "--policy", "burst"]]);
    have("borrowed while alone", &lab, &[90.0]);
    joined(&mut lab, &["--cores", "60"]);
    have("given back", &lab, &[40.0, 60.0]);
    lab.stop(1, 0).unwrap();
    lab.run_for(STOPPED_NS).unwrap();
    have("borrowed from one that stands still", &lab, &[90.0, 0.0]);
    lab.set(0, &["--cores-max", "40"]).unwrap();
    have("borrowed less", &lab, &[40.0, 0.0]);
    lab.set(0, &["--policy", "fixed"]).unwrap();
    have("borrowed no more", &lab, &[20.0, 0.0]);
}

#[test]
fn best_effort_gets_what_is_left() {
    let lab = started(&[&["--cores", "70"], &["--policy", "best-effort"]]);
    have("the promise first", &lab, &[70.0, 30.0]);
    lab.set(0, &["--cores", "20"]).unwrap();
    have("more is left", &lab, &[20.0, 80.0]);
    // One that borrows comes first.
    lab.set(0, &["--policy", "burst", "--cores-max", "100"]).unwrap();
    has_scraps("nothing is left", &lab, 1, 0.5);
}

#[test]
fn a_low_priority_yields_and_weights_divide() {
    let mut lab = started(&[&["--priority", "low"]]);
    have("the GPU is its own", &lab, &[100.0]);
    joined(&mut lab, &["--priority", "high"]);
    // It owes what it had queued, which its 1 % would repay in minutes.
    lab.run_for(QUEUED_NS).unwrap();
    has_scraps("it yields", &lab, 0, 0.3);
    lab.set(0, &["--priority", "high"]).unwrap();
    // With half of the GPU it has repaid that after as long.
    lab.run_for(QUEUED_NS).unwrap();
    have("equals have equal parts", &lab, &[50.0, 50.0]);
    lab.set(0, &["--weight", "3000"]).unwrap();
    have("three to one", &lab, &[75.0, 25.0]);
}
