//! Launches that cannot be measured or must not wait: while captures are open, at a graph's first launch, under a kernel
//! that the host feeds, with many competing threads.

use vcuda_region::process::{Identity, ProcessView};
use vcuda_region::usage_reader::UsageReader;
use vcuda_tests::virtual_time::{lab, shares};
use vcuda_tests::{Door, Fixture, Running, app, succeeded};

#[test]
fn a_program_that_captures_most_of_the_time_gets_its_cap() {
    let program = app("captures", Door::Dlsym);
    let share = shares(&lab("", &program, &[(&["--cores", "40"], &["60", "200000"])]))[0];
    assert!((share - 40.0).abs() <= 2.0, "{share:.1} % instead of 40 %");
}

#[test]
fn a_graph_is_charged_its_nodes_before_it_was_measured() {
    let fixture = Fixture::new();
    let tenant = fixture.keep("first", &["--cores", "90"]);
    let mut one = Running::start(&mut tenant.command(app("first_graph", Door::Dlsym)));
    one.wait_for("launched");
    let view = ProcessView::new(Identity::current().unwrap());
    let processes = UsageReader::open(&tenant.directory()).unwrap().processes(1, &view).unwrap();
    let in_flight_ns: u64 = processes.iter().map(|process| process.devices[0].in_flight_ns).sum();
    // Three kernels of half a second; an unknown kernel would count 60 us.
    assert!(in_flight_ns > 1_200_000_000, "{in_flight_ns} ns");
    assert!(one.0.wait().unwrap().success());
}

#[test]
fn a_kernel_that_the_host_feeds_is_not_waited_for() {
    let fixture = Fixture::new();
    let times: u32 =
        std::env::var_os("VCUDA_SOAK").map_or(1, |times| times.to_str().unwrap().parse().unwrap());
    let program = app("sim_persistent", Door::Dlsym);
    let mut tenant = fixture.tenant(&["--cores", "30"], program);
    let rounds = (times * 100).to_string();
    // It dies by SIGALRM if it hangs.
    succeeded(&tenant.arg(rounds).output().unwrap());
}

#[test]
fn what_goes_beside_a_kernel_without_end_keeps_to_the_cap() {
    let fixture = Fixture::new();
    let program = app("sim_persistent", Door::Dlsym);
    let mut tenant = fixture.tenant(&["--cores", "30"], program);
    let words = succeeded(&tenant.args(["beside", "2"]).output().unwrap());
    let line = words.lines().find_map(|line| line.strip_prefix("beside ")).unwrap();
    let kernels: u32 = line.parse().unwrap();
    // Two seconds at 30 %, and the burst. With waits of a second each there would be a handful.
    assert!((60..=640).contains(&kernels), "{kernels} kernels of 1 ms");
}
