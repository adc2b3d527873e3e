//! Ranks with kernels that spin until those of all ranks run, each under a cap: nothing hangs, collectives never wait, and
//! a tenant's GPUs stop and start together. `VCUDA_SOAK=N` makes it N times as long.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::time::SystemTime;

use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::usage_reader::UsageReader;
use vcuda_tests::{Door, Fixture, Running, Tenant, app};

const CAP_PERCENT: u64 = 30;
/// Duration of work and rendezvous of a round (ns), as in `sim_ranks`.
const ROUND_NS: u64 = 300_000;

/// Number of rounds that take three seconds under the cap, times the soak factor.
fn rounds() -> u64 {
    let times =
        std::env::var_os("VCUDA_SOAK").map_or(1, |times| times.to_str().unwrap().parse::<u64>().unwrap());
    times * 3_000_000_000 / 100 * CAP_PERCENT / ROUND_NS
}

/// Number of waits of launches in the tenant's living processes, on all its GPUs.
fn holds(tenant: &Tenant<'_>) -> u64 {
    let reader = UsageReader::open(&tenant.directory()).unwrap();
    let view = ProcessView::new(Identity::current().unwrap());
    let processes = reader.processes(2, &view).unwrap();
    let devices = processes.iter().flat_map(|process| &process.devices);
    devices.map(|device| device.holds).sum()
}

/// Runs a tenant of two GPUs with these processes. Returns the share of each GPU (percent), and the number of waits.
fn run(kernel: &str, processes: &[&str], rounds: u64, work_ns: &str) -> (Vec<f64>, u64) {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let tenant = fixture.keep("ranks", &["--cores", "30"]);
    let program = app("sim_ranks", Door::Dlsym);
    let rounds = rounds.to_string();
    let mut running: Vec<Running> = processes
        .iter()
        .map(|rank| {
            let mut command = tenant.command(&program);
            Running::start(command.args([kernel, &rounds, "2", rank, work_ns, "1000"]))
        })
        .collect();
    running.iter_mut().for_each(|one| drop(one.wait_for("started")));
    let begun = SystemTime::now();
    running.iter_mut().for_each(|one| drop(one.wait_for("met")));
    let elapsed = begun.elapsed().unwrap().as_nanos() as f64;
    let holds = holds(&tenant);
    let report = fixture.report();
    let busy = |gpu: usize| report["gpus"][gpu]["busy_ns"].as_f64().unwrap();
    (vec![busy(0) / elapsed * 100.0, busy(1) / elapsed * 100.0], holds)
}

fn share_together(processes: &[&str]) {
    let (shares, holds) = run("ncclDevKernel_vcuda_meet", processes, rounds(), "200000");
    assert!(holds > 0, "the cap never held anything");
    // Spinning for another rank is charged; on a busy machine that is most of the time.
    let cap = CAP_PERCENT as f64;
    let range = cap * 0.1..cap + 6.0;
    assert!(
        shares.iter().all(|share| range.contains(share)),
        "{shares:.1?} % of the GPUs"
    );
}

#[test]
fn two_processes_meet_under_a_cap() {
    share_together(&["0", "1"]);
}

#[test]
fn one_thread_with_two_gpus_meets_under_a_cap() {
    share_together(&["all"]);
}

#[test]
fn collectives_are_never_held() {
    for (kernel, is_held) in [("ncclDevKernel_vcuda_meet", false), ("plain_vcuda_meet", true)] {
        let (_, holds) = run(kernel, &["0", "1"], 40, "0");
        assert_eq!(holds > 0, is_held, "{kernel}: {holds} holds");
    }
}
