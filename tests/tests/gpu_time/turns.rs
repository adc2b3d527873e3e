//! Processes of a tenant that take turns, in virtual time: a stopped or killed one is not waited for, and a continued one is served
//! again. What a stopped process may still have run is charged to its tenant, so the others pay for up to two seconds of GPU time.

use vcuda_benches::lab::Lab;
use vcuda_tests::virtual_time::{lab, service_ns};
use vcuda_tests::{Door, app};

const MS: u64 = 1_000_000;
/// Part of the GPU of the tenant (percent).
const CAP: f64 = 50.0;
const QUOTA: &[&str] = &["--cores", "50"];
const KERNELS: &[&str] = &["600", "500000"];
/// A measurement (ns), and a window of it.
const SPAN_NS: u64 = 2_000 * MS;
const WINDOW_NS: u64 = SPAN_NS / 4;
/// Allowed error of a measurement, and of each window after the first (points): in that a waiting process believes in a silent one for
/// 30 ms, and pays what the dead one had launched. Over 100 kills at random places it lost 0 to 1.9 points of two seconds.
const POINTS: f64 = 2.5;
/// The most that a tenant is charged for the work of a stopped process (ns of GPU time; docs/limits.md), and the time in which half of
/// the GPU repays that.
const STOPPED_NS: u64 = 2_000 * MS;
const REPAID_NS: u64 = 2 * STOPPED_NS;
/// Number of stops, each at another place between two launches.
const STOPS: u64 = 5;

/// Checks the share of each process in the next two seconds (percent), on the whole and in each window.
#[track_caller]
fn have(what: &str, lab: &Lab, expected: &[f64]) {
    let windows: Vec<Vec<f64>> = (0..SPAN_NS / WINDOW_NS)
        .map(|_| service_ns(lab, WINDOW_NS).iter().map(|ns| 100.0 * *ns as f64 / WINDOW_NS as f64).collect())
        .collect();
    println!("{what}: {windows:.2?}");
    for (process, expected) in expected.iter().enumerate() {
        let shares: Vec<f64> = windows.iter().map(|window| window[process]).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let off = shares[1..].iter().map(|share| (share - expected).abs()).fold(0.0, f64::max);
        assert!(
            (mean - expected).abs() <= POINTS && off <= POINTS,
            "{what}: process {process} has {mean:.2} of {expected}, in windows {shares:.2?}"
        );
    }
}

#[test]
fn a_stopped_or_killed_process_is_not_waited_for() {
    let mut lab = lab("", &app("saturate", Door::Dlsym), &[(QUOTA, KERNELS)]);
    lab.join(0, QUOTA, KERNELS).unwrap();
    lab.run_for(1_000 * MS).unwrap();
    let half = CAP / 2.0;
    have("two that run", &lab, &[half, half]);
    for round in 0..STOPS {
        let stopped = usize::try_from(round % 2).unwrap();
        lab.run_for(round * 137_000).unwrap();
        lab.stop(0, stopped).unwrap();
        let span_ns = REPAID_NS + 500 * MS;
        let got_ns = service_ns(&lab, span_ns)[1 - stopped];
        let least_ns = span_ns / 2 - STOPPED_NS - 100 * MS;
        assert!(got_ns >= least_ns, "{got_ns} ns of {span_ns} beside one that is stopped");
        let mut alone = [CAP, CAP];
        alone[stopped] = 0.0;
        have("beside one that is stopped", &lab, &alone);
        lab.resume(0, stopped).unwrap();
        have("beside one that goes on", &lab, &[half, half]);
    }
    lab.kill(0, 0).unwrap();
    have("beside one that was killed", &lab, &[0.0, CAP]);
    lab.join(0, QUOTA, KERNELS).unwrap();
    have("beside one that came later", &lab, &[0.0, half, half]);
}
