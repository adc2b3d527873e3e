//! Share of GPU time in virtual time, by the simulator's exact record: alone, concurrent, for all kinds of launches,
//! changed live. Its accuracy for each program is tested in `accuracy.rs` and in the benchmark of that name.

use vcuda_tests::virtual_time::{lab, shares};
use vcuda_tests::{Door, app};

/// Shares of tenants with these caps that run the program with these arguments (percent).
fn of(tenants: &[(&str, &[&str])]) -> Vec<f64> {
    let quotas: Vec<_> = tenants.iter().map(|(cores, _)| ["--cores", cores]).collect();
    let all: Vec<(&[&str], &[&str])> =
        quotas.iter().zip(tenants).map(|(quota, (_, arguments))| (quota.as_slice(), *arguments)).collect();
    shares(&lab("", &app("saturate", Door::ProcAddress), &all))
}

fn near(got: f64, cap: f64) {
    assert!((got - cap).abs() <= 2.0, "{got:.1} % instead of {cap} %");
}

#[test]
fn a_tenant_alone_gets_its_cap() {
    for cap in ["20", "60"] {
        near(of(&[(cap, &["60", "1000000"])])[0], cap.parse().unwrap());
    }
}

#[test]
fn two_tenants_get_their_caps() {
    let got = of(&[("30", &["60", "500000"]), ("60", &["60", "500000"])]);
    // Context switches, which belong to no tenant, take 6.8 % of the GPU if contexts take turns all the time.
    let used: f64 = got.iter().sum();
    assert!(used > 0.93 * 90.0 && used < 92.0, "{got:?}");
    near(got[0] * 90.0 / used, 30.0);
    near(got[1] * 90.0 / used, 60.0);
}

#[test]
fn every_kind_of_launch_is_charged() {
    for how in ["graph", "ex", "cooperative", "sync"] {
        near(of(&[("40", &["60", "500000", how])])[0], 40.0);
    }
}

#[test]
fn streams_that_overlap_are_paid_once() {
    near(of(&[("50", &["60", "1000000", "kernel", "4"])])[0], 50.0);
}

#[test]
fn without_a_cap_nothing_is_held() {
    assert!(of(&[("100", &["60", "1000000"])])[0] > 98.0);
}

#[test]
fn a_changed_share_is_felt() {
    let program = app("saturate", Door::Dlsym);
    let lab = lab("", &program, &[(&["--cores", "20"], &["60", "1000000"])]);
    near(shares(&lab)[0], 20.0);
    lab.set(0, &["--cores", "70"]).unwrap();
    near(shares(&lab)[0], 70.0);
}

/// A program that waits for the host gets at least half of its cap; when waiting was charged, it got a tenth.
#[test]
fn waiting_for_the_host_is_not_charged() {
    for by in ["value", "function"] {
        let lab = lab("", &app("fed", Door::Dlsym), &[(&["--cores", "10"], &[by, "60", "10"])]);
        let share = shares(&lab)[0];
        assert!((5.0..=12.0).contains(&share), "{by}: {share:.1} %");
    }
}
