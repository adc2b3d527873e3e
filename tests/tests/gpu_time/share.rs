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
fn every_kind_of_launch_is_charged() {
    for how in ["graph", "ex", "cooperative", "sync"] {
        near(of(&[("40", &["60", "500000", how])])[0], 40.0);
    }
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
