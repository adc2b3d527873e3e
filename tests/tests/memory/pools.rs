//! Memory held by pools and graphs is charged to the byte (I7, I9): as the driver holds it, not as it was allocated. The
//! programs check `cuMemGetInfo` against the driver's figures. Here the simulated machine's record is the judge: never
//! above the quota, and equal to `vcuda smi`.

use std::process::Command;
use std::time::Duration;

use vcuda_tests::{Door, Fixture, MIB, Running, app, eventually, succeeded};

/// Contexts that cost little and no rounding, so that every figure is exact.
const EXACT: &str = "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"80GiB\"\n\
                     [[gpus]]\nmemory_bytes = \"80GiB\"\n";

fn smi_bytes(fixture: &Fixture) -> u64 {
    fixture.smi()["gpus"][0]["tenants"][0]["memory_used_bytes"].as_u64().unwrap()
}

/// Runs a scenario in 256 MiB, through each door, and checks the peak.
fn within_quota(program: &str, scenario: &str, doors: &[Door]) {
    for door in doors {
        let fixture = Fixture::with_config(EXACT);
        let mut command = fixture.tenant(&["--memory", "256MiB"], app(program, *door));
        let said = succeeded(&command.arg(scenario).output().unwrap());
        assert!(said.ends_with(&format!("passed {scenario}\n")), "{said}");
        for gpu in 0..2 {
            let peak = fixture.peak_bytes(gpu);
            assert!(peak <= 256 * MIB, "{scenario}: {peak} bytes on GPU {gpu}");
        }
    }
}

/// Compares the machine's figure with `vcuda smi`'s, and after SIGKILL with those of a new process.
fn one_figure_and_none_left(program: &str, at_least: u64) {
    let fixture = Fixture::with_config(EXACT);
    let program = app(program, Door::Dlsym);
    let quota = ["--memory", "256MiB", "--name", "one"];
    let start = |command: &mut Command| {
        let mut running = Running::start(command.arg("hold"));
        running.wait_for("holding");
        running
    };
    let mut first = start(&mut fixture.tenant(&quota, &program));
    let used = fixture.used_bytes();
    assert!(used >= at_least + 4 * MIB, "{used}");
    assert_eq!(smi_bytes(&fixture), used);
    let mut second = start(&mut fixture.tenant(&quota, &program));
    assert_eq!(smi_bytes(&fixture), fixture.used_bytes());
    first.kill();
    eventually("the dead process's share is gone", Duration::from_secs(1), || {
        smi_bytes(&fixture) == used && fixture.used_bytes() == used
    });
    second.kill();
    assert!(fixture.peak_bytes(0) <= 256 * MIB);
}

vcuda_tests::rows! {
    a_pool_is_paid_for_up_to_its_threshold_and_down_to_its_trim: within_quota("pools", "threshold", &Door::ALL),
    idle_memory_of_pools_gives_way_before_a_request_is_refused: within_quota("pools", "full", &[Door::ProcAddress]),
    what_is_freed_in_order_is_paid_for_until_the_stream_is_there: within_quota("pools", "ordered", &[Door::Dlsym]),
    an_answer_looks_for_what_a_stream_has_given_back_meanwhile: within_quota("pools", "queried", &[Door::Dlsym]),
    a_destroyed_pool_is_paid_for_while_its_memory_lives: within_quota("pools", "destroyed", &[Door::Dlsym]),
    contexts_beside_a_destroyed_pool_cost_what_they_take: within_quota("pools", "contexts", &[Door::Dlsym]),
    a_pool_on_another_gpu_is_paid_for_there: within_quota("pools", "second", &[Door::Dlsym]),
    threads_on_one_pool_never_pass_the_quota: within_quota("pools", "threads", &[Door::Link]),
    what_a_synchronisation_gives_back_is_there_for_other_processes: within_quota("pools", "neighbour", &[Door::Dlsym]),
    pools_cost_the_same_everywhere_and_nothing_after_death: one_figure_and_none_left("pools", 70 * MIB),
    graphs_are_paid_for_from_launch_to_trim: within_quota("graph_memory", "launch", &Door::ALL),
    a_graph_beyond_the_quota_is_refused_and_a_smaller_one_runs: within_quota("graph_memory", "refused", &[Door::Dlsym]),
    memory_that_outlives_its_graph_is_paid_for: within_quota("graph_memory", "outlives", &[Door::Dlsym]),
    graphs_within_graphs_and_on_another_gpu_are_found: within_quota("graph_memory", "nested", &[Door::ProcAddress]),
    graphs_launched_by_threads_never_pass_the_quota: within_quota("graph_memory", "threads", &[Door::Link]),
    graphs_cost_the_same_everywhere_and_nothing_after_death: one_figure_and_none_left("graph_memory", 60 * MIB),
}

#[test]
fn what_the_driver_takes_from_an_idle_pool_is_no_longer_paid_for() {
    let fixture = Fixture::with_config(
        "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"160MiB\"\n",
    );
    // It belongs to no tenant.
    let mut neighbour = Running::start(fixture.bare(app("hold", Door::Link)).arg((50 * MIB).to_string()));
    neighbour.wait_for("holding");
    let others = fixture.used_bytes();
    let mut command = fixture.tenant(&["--memory", "150MiB"], app("pools", Door::Dlsym));
    // The quota suffices for all of it, so the shim has no reason to shrink the pool.
    let mut running = Running::start(command.arg("squeezed"));
    running.wait_for("squeezed");
    assert_eq!(smi_bytes(&fixture), fixture.used_bytes() - others);
}

#[test]
fn what_a_stream_has_yet_to_free_is_paid_for_where_no_event_can_be_made() {
    let fixture = Fixture::with_config(&format!(
        "{EXACT}[faults.functions]\ncuEventCreate = {{ every = 1, code = 2 }}\n"
    ));
    let mut command = fixture.tenant(&["--memory", "150MiB"], app("unmarked_free", Door::Dlsym));
    succeeded(&command.output().unwrap());
    let peak = fixture.peak_bytes(0);
    assert!(peak <= 150 * MIB, "{peak} bytes");
}
