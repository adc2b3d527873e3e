//! Kernels and graphs of half a second to five seconds, as science, ray tracing and whole steps as one graph have them, in virtual time:
//! a cap holds over them, and their time is paid in full.

use vcuda_tests::virtual_time::{lab, service_ns};
use vcuda_tests::{Door, app};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// One launch may be under way at each end, and one more may go before its kernel was ever measured.
fn keeps_its_cap(script: &str, launch_ms: u64, cap_percent: u64) {
    let cap = cap_percent.to_string();
    let quota = ["--cores", cap.as_str()];
    let lab = lab("", &app("schedule", Door::Dlsym), &[(&quota, &[script])]);
    let span_ns = 40 * launch_ms * MS * 10 / cap_percent;
    let got_ns = service_ns(&lab, span_ns)[0];
    let due_ns = span_ns * cap_percent / 100;
    println!("{script} under {cap_percent} %: {:.1} %", 100.0 * got_ns as f64 / span_ns as f64);
    assert!(
        got_ns.abs_diff(due_ns) <= 2 * launch_ms * MS,
        "{script} under {cap_percent} %: {got_ns} ns of {due_ns}"
    );
}

#[test]
fn a_cap_holds_over_kernels_of_seconds() {
    for (ms, cap) in [(500, 10), (1_000, 10), (5_000, 10), (2_000, 30), (1_000, 75)] {
        let us = ms * 1_000;
        keeps_its_cap(&format!("1 4 | L3,9,{us},1000"), ms, cap);
        keeps_its_cap(&format!("1 4 | L3,9,{us},1 S3"), ms, cap);
    }
}

#[test]
fn a_cap_holds_over_graphs_of_seconds_and_several_streams() {
    keeps_its_cap("1 4 | G3,9,100000,20 S3", 2_000, 10);
    keeps_its_cap("1 8 | L3,9,1000000,1 L5,9,1000000,1 L7,9,1000000,1", 1_000, 10);
    keeps_its_cap("1 8 | L3,9,1000000,1 S3 | L5,9,1000000,1 S5 | L7,9,1000000,1 S7", 1_000, 10);
}

/// Persistent kernels and those that divide their work at run time have one function and grid, and take now this long, now that.
#[test]
fn a_cap_holds_over_a_kernel_of_changing_length_that_is_never_waited_for() {
    for cap in [20, 50] {
        keeps_its_cap("1 4 | L3,9,100,200 L3,9,50000,2", 50, cap);
        keeps_its_cap("1 4 | L3,9,10,500 L3,9,5000,20", 20, cap);
        keeps_its_cap("1 4 | L3,9,1000,10 L3,9,500000,1", 500, cap);
        keeps_its_cap("1 4 | L3,9,50,1000 L3,9,100000,3", 100, cap);
    }
}

/// Kernels of changing length run longer than predicted while launches of the other process are held. They do not wait for those.
#[test]
fn a_cap_holds_over_kernels_of_changing_length_in_several_processes() {
    for script in ["1 4 | L3,9,100,200 L3,9,50000,2", "1 4 | L3,9,1000,10 L3,9,500000,1"] {
        let quota = ["--cores", "20"];
        let mut lab = lab("", &app("schedule", Door::Dlsym), &[(&quota, &[script])]);
        lab.join(0, &quota, &[script]).unwrap();
        let span_ns = 40 * SECOND;
        let got_ns: u64 = service_ns(&lab, span_ns).iter().sum();
        let percent = 100.0 * got_ns as f64 / span_ns as f64;
        println!("two processes of {script} under 20 %: {percent:.1} %");
        assert!((16.0..=22.5).contains(&percent), "{script}: {percent:.1} %");
    }
}

/// Before, the long kernels had 45 to 88 % and the neighbour 69 to 48.
#[test]
fn a_neighbour_of_kernels_of_seconds_gets_its_share() {
    for ms in [500, 1_000, 5_000] {
        let long = format!("1 4 | L3,9,{},1000", ms * 1_000);
        let short = "1 4 | L3,9,1000,1000";
        let programs: [(&[&str], &[&str]); 2] =
            [(&["--cores", "10"], &[&long]), (&["--cores", "90"], &[short])];
        let lab = lab("", &app("schedule", Door::Dlsym), &programs);
        lab.run_for(2 * SECOND).unwrap();
        let span_ns = 40 * ms * MS;
        let shares: Vec<f64> =
            service_ns(&lab, span_ns).iter().map(|ns| 100.0 * *ns as f64 / span_ns as f64).collect();
        println!("kernels of {ms} ms under 10 %: {shares:.1?}");
        assert!(shares[0] <= 10.0 + 200.0 * ms as f64 * 1e6 / span_ns as f64, "{shares:?}");
        assert!(shares[1] >= 78.0, "{shares:?}");
    }
}
