//! A tenant that is not suspendable beside tenants that take turns: it keeps its memory and its share of GPU time. In virtual
//! time, by the simulator's exact record.

use serde_json::Value;
use vcuda_benches::lab::{Lab, Load};
use vcuda_tests::{Door, app};

const SECOND_NS: u64 = 1_000_000_000;
const WINDOW_NS: u64 = 4 * SECOND_NS;
/// At the end of a window the neighbour is behind or ahead by up to 40 ms, which is little of three.
const WINDOWS: usize = 3;
const WINDOWS_AT_MOST: usize = 10;
/// Number of suspensions to look at: each tenant is suspended several times.
const SWAPS: usize = 9;
/// A tenant that comes back has saved up GPU time (`burst_ns`), which the neighbour loses if the caps are more than the GPU.
const SAVED_UP_NS: u64 = 5_000_000;
/// A point of the GPU.
const POINT: f64 = 0.01;
/// A GPU of 256 MiB, whose checkpoints take next to no time.
const MACHINE: &str = "context_bytes = \"8MiB\"\n[[gpus]]\nmemory_bytes = \"256MiB\"\n[driver]\ncheckpoint_fixed_ns = 0\n\
                       checkpoint_bytes_per_us = 1_000_000\nrestore_bytes_per_us = 1_000_000\n";
const MANAGER: &str = "[admission]\nreserve = \"0\"\nsuspendable_overcommit = 2.0\ncores_overcommit = 2.0\n[suspend]\nresidence = \"300ms\"\n";

/// Tenants that are suspendable: their quota, and the memory (MiB) that the program of each fills.
#[derive(Clone, Copy)]
struct Others {
    quota: &'static str,
    mib: &'static str,
}

/// A neighbour with half of the GPU, and `count` others with 40 % each.
fn lab(others: Others, count: usize) -> Lab {
    let mut lab = Lab::new(&app("fills", Door::Dlsym), MACHINE).unwrap();
    lab.start_manager(MANAGER).unwrap();
    let mut start = |quota: &[&str], mib| {
        let program = &[mib, "1000000"];
        let load = Load { quota, program, processes: 1 };
        lab.start(load).unwrap();
    };
    start(&["--memory", "64MiB", "--cores", "50"], "40");
    for _ in 0..count {
        let quota = ["--memory", others.quota, "--cores", "40", "--suspendable"];
        start(&quota, others.mib);
    }
    // The first suspension waits until its tenant has registered.
    lab.run_for(4 * SECOND_NS).unwrap();
    lab
}

fn suspensions(lab: &Lab) -> usize {
    lab.manager_log().unwrap().matches("VcudaSuspended").count()
}

/// Memory of the neighbour (bytes).
fn memory(lab: &Lab) -> u64 {
    let smi: Value = serde_json::from_str(&lab.ask(&["smi", "--json"]).unwrap()).unwrap();
    let tenants = smi["gpus"][0]["tenants"].as_array().unwrap();
    let own = tenants.iter().find(|tenant| tenant["name"] == "tenant0-1").unwrap();
    own["memory_used_bytes"].as_u64().unwrap()
}

/// Compares the neighbour beside `count` tenants, of which the GPU holds `held`, with the neighbour beside `held` tenants.
fn keeps_its_share_and_its_memory(others: Others, count: usize, held: usize) {
    let undisturbed = lab(others, held);
    let share = undisturbed.windows(1, 2 * WINDOW_NS).unwrap()[0][0];
    assert_eq!(suspensions(&undisturbed), 0);
    let bytes = memory(&undisturbed);
    drop(undisturbed);

    let mut lab = lab(others, count);
    let before = suspensions(&lab);
    let mut swaps = 0;
    let mut shares = Vec::new();
    // Where the manager gets little of the processor, tenants stay for longer.
    while shares.len() < WINDOWS || swaps < SWAPS {
        assert!(shares.len() < WINDOWS_AT_MOST, "{swaps} suspensions");
        shares.push(lab.windows(1, WINDOW_NS).unwrap()[0][0]);
        assert_eq!(memory(&lab), bytes);
        swaps = suspensions(&lab) - before;
    }
    let run_ns = shares.len() as f64 * WINDOW_NS as f64;
    let least = share - POINT - swaps as f64 * SAVED_UP_NS as f64 / run_ns;
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean >= least, "{shares:.3?} beside {swaps} suspensions, {share:.3} without any");
    // Each program ends if its memory is not as it was written.
    lab.are_alive().unwrap();
}

#[test]
fn a_neighbour_of_two_tenants_that_take_turns_keeps_its_share_and_its_memory() {
    let others = Others { quota: "160MiB", mib: "100" };
    keeps_its_share_and_its_memory(others, 2, 1);
}

/// The caps together are more than the GPU.
#[test]
fn a_neighbour_of_three_tenants_two_of_which_fit_keeps_its_share_and_its_memory() {
    let others = Others { quota: "96MiB", mib: "70" };
    keeps_its_share_and_its_memory(others, 3, 2);
}
