//! A tenant that is not suspendable beside tenants that take turns: it keeps its memory and its share of GPU time. In virtual
//! time, by the simulator's exact record.

use serde_json::Value;
use vcuda_benches::lab::{Lab, Load};
use vcuda_tests::{Door, app};

const SECOND_NS: u64 = 1_000_000_000;
/// With several swaps in each: a tenant that comes back has saved up GPU time, which the neighbour catches up on later.
const WINDOW_NS: u64 = 4 * SECOND_NS;
const WINDOWS_AT_MOST: usize = 10;
/// Number of suspensions to look at: each tenant is suspended several times.
const SWAPS: usize = 9;
/// A point of the GPU.
const POINT: f64 = 0.01;
/// A GPU of 256 MiB, whose checkpoints take next to no time.
const MACHINE: &str = "context_bytes = \"8MiB\"\n[[gpus]]\nmemory_bytes = \"256MiB\"\n[driver]\ncheckpoint_fixed_ns = 0\n\
                       checkpoint_bytes_per_us = 1_000_000\nrestore_bytes_per_us = 1_000_000\n";
const MANAGER: &str =
    "[admission]\nreserve = \"0\"\nsuspendable_overcommit = 2.0\n[suspend]\nresidence = \"300ms\"\n";

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
        let load = Load {
            quota,
            program,
            processes: 1,
        };
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
    let own = tenants.iter().find(|tenant| tenant["name"] == "tenant0").unwrap();
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
    let mut swaps = 0;
    // Where the manager gets little of the processor, tenants stay for longer.
    for _ in 0..WINDOWS_AT_MOST {
        let before = suspensions(&lab);
        let shares = lab.windows(1, WINDOW_NS).unwrap().concat();
        let more = suspensions(&lab) - before;
        assert!(
            shares[0] >= share - POINT,
            "{shares:.3?} beside {more} suspensions, {share:.3} without any"
        );
        assert_eq!(memory(&lab), bytes);
        swaps += more;
        if swaps >= SWAPS {
            break;
        }
    }
    assert!(swaps >= SWAPS, "{swaps} suspensions");
    // Each program ends if its memory is not as it was written.
    lab.are_alive().unwrap();
}

#[test]
fn a_neighbour_of_two_tenants_that_take_turns_keeps_its_share_and_its_memory() {
    let others = Others {
        quota: "160MiB",
        mib: "100",
    };
    keeps_its_share_and_its_memory(others, 2, 1);
}

/// The caps together are more than the GPU.
#[test]
fn a_neighbour_of_three_tenants_two_of_which_fit_keeps_its_share_and_its_memory() {
    let others = Others {
        quota: "96MiB",
        mib: "70",
    };
    keeps_its_share_and_its_memory(others, 3, 2);
}
