//! Ranks with kernels that spin until those of all ranks run, each under a cap: nothing hangs, and whatever the kernels' names, a
//! tenant's GPUs and processes stop and start together. `VCUDA_SOAK=N` makes it N times as long.

use std::time::SystemTime;

use vcuda_benches::lab::{Lab, Load};
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
    assert!(shares.iter().all(|share| range.contains(share)), "{shares:.1?} % of the GPUs");
}

#[test]
fn one_thread_with_two_gpus_meets_under_a_cap() {
    share_together(&["all"]);
}

/// Two GPUs in virtual time.
const MACHINE: &str =
    "context_bytes = \"64MiB\"\n[[gpus]]\nmemory_bytes = \"24GiB\"\n[[gpus]]\nmemory_bytes = \"24GiB\"\n";
/// Kernels that meet, named as NCCL's and like any other.
const NAMES: [&str; 2] = ["ncclDevKernel_vcuda_meet", "plain_vcuda_meet"];

/// Virtual time that ranks take for so many meetings (s): one process for each, on two GPUs in turn, with so much work between two
/// meetings (ns). The first pauses halfway (s).
fn meet_in_virtual_time(kernel: &str, rounds: u64, work_ns: &[&str], cores: &str, pause_s: &str) -> f64 {
    let mut lab = Lab::new(&app("sim_ranks", Door::Dlsym), MACHINE).unwrap();
    let (rounds, ranks) = (rounds.to_string(), work_ns.len().to_string());
    let quota = ["--cores", cores];
    for (rank, work_ns) in work_ns.iter().enumerate() {
        let pause_s = if rank == 0 { pause_s } else { "0" };
        let program = [kernel, &rounds, &ranks, &rank.to_string(), work_ns, "0", pause_s];
        if rank == 0 {
            let load = Load { quota: &quota, program: &program, processes: 1 };
            lab.start(load).unwrap();
        } else {
            lab.join(0, &quota, &program).unwrap();
        }
    }
    let begun_ns = lab.now_ns();
    while lab.are_alive().is_ok() {
        lab.run_for(20_000_000).unwrap();
        assert!(lab.now_ns() - begun_ns < 120_000_000_000, "{kernel}: they hang");
    }
    (lab.now_ns() - begun_ns) as f64 / 1e9
}

/// What the cap allows is the time without one, over the cap.
fn take_what_the_cap_allows(kernels: &[&str], work_ns: &[&str], rounds: u64, most: f64) {
    for kernel in kernels {
        let alone = meet_in_virtual_time(kernel, rounds, work_ns, "100", "0");
        // Which rank's launch comes first is not drawn by the clock: a run alone lies within a tenth of the mean.
        let run = || meet_in_virtual_time(kernel, rounds, work_ns, "30", "0");
        let capped = (run() + run()) / 2.0;
        let times = capped * 0.3 / alone;
        println!(
            "{kernel}, work of {work_ns:?} ns: {alone:.2} s, under a cap {capped:.2} s, {times:.2} times what it allows"
        );
        assert!((0.9..=most).contains(&times), "{kernel}, {work_ns:?}: {times:.2}");
    }
}

#[test]
fn ranks_take_the_time_that_their_cap_allows() {
    take_what_the_cap_allows(&NAMES, &["200000", "200000"], 4_000, 1.5);
    take_what_the_cap_allows(&NAMES[1..], &["100000", "500000"], 2_500, 1.5);
}

#[test]
fn four_ranks_on_two_gpus_take_the_time_that_their_cap_allows() {
    take_what_the_cap_allows(&NAMES[1..], &["200000", "200000", "200000", "200000"], 1_000, 1.5);
    take_what_the_cap_allows(&NAMES[1..], &["50000", "100000", "200000", "400000"], 1_000, 1.5);
}

/// A rank that loads data for seconds, while kernels of the others wait for it: what they run up is more than a launch may owe at once.
#[test]
fn a_rank_that_pauses_is_waited_for() {
    for pause_s in ["1", "3", "10"] {
        let took_s = meet_in_virtual_time(NAMES[1], 1_000, &["200000", "200000"], "30", pause_s);
        println!("with a pause of {pause_s} s: {took_s:.2} s");
    }
}

/// Ranks of tenants of their own, as with one rank in each pod: they share no tokens, and each pays in full for waiting for the other. So a
/// meeting takes seconds, but they never hang.
#[test]
fn ranks_of_two_tenants_meet() {
    let mut lab = Lab::new(&app("sim_ranks", Door::Dlsym), MACHINE).unwrap();
    for (rank, work_ns) in [("0", "200000"), ("1", "300000")] {
        let load =
            Load { quota: &["--cores", "30"], program: &[NAMES[1], "20", "2", rank, work_ns], processes: 1 };
        lab.start(load).unwrap();
    }
    let begun_ns = lab.now_ns();
    while lab.are_alive().is_ok() {
        lab.run_for(20_000_000).unwrap();
        assert!(lab.now_ns() - begun_ns < 3_000_000_000_000, "20 meetings take more than 50 minutes");
    }
    println!("20 meetings in {} s", (lab.now_ns() - begun_ns) / 1_000_000_000);
}

/// No name exempts a kernel from the cap.
#[test]
fn kernels_with_the_names_of_collectives_keep_to_the_cap() {
    let mut lab = Lab::new(&app("sim_ranks", Door::Dlsym), MACHINE).unwrap();
    let load =
        Load { quota: &["--cores", "10"], program: &[NAMES[0], "1000000000", "1", "0", "0"], processes: 1 };
    lab.start(load).unwrap();
    lab.run_for(1_000_000_000).unwrap();
    let shares = lab.windows(4, 1_000_000_000).unwrap();
    assert!(shares[0].iter().all(|share| (0.09..=0.11).contains(share)), "{shares:?}");
}
