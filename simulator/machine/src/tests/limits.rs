//! Memory limits of cgroups. Cgroups are numbers here; a chain goes from a cgroup up.

use super::*;
use crate::cgroup::{Cgroup, Level};
use crate::commit::Change;
use crate::layout::LIMITS;
use crate::{Limits, MemoryLimits, NotLimited};

const MIB: u64 = 1 << 20;
const NONE: u64 = u64::MAX;

fn chain(ids: &[u64]) -> Cgroup {
    Cgroup { levels: ids.iter().map(|id| Level { id: *id, has_files: true }).collect() }
}

/// As `chain`, with an own cgroup without files.
fn threaded(ids: &[u64]) -> Cgroup {
    let mut cgroup = chain(ids);
    cgroup.levels[0].has_files = false;
    cgroup
}

fn limited(backend: MemoryLimits, change: impl FnOnce(&mut Config)) -> Machine {
    let mut config = config();
    config.driver.memory_limits = backend;
    change(&mut config);
    Machine::in_memory(config).unwrap()
}

/// A process in a cgroup, without a context.
fn process(machine: &Machine, pid: u32, cgroup: &Cgroup) -> Client {
    let client = machine.attach(pid, "limited").unwrap();
    let shared = machine.shared();
    let placed = shared.transact(&mut shared.local.lock(), None, |core| {
        core.place(client.id(), cgroup).unwrap();
        Change::Made(())
    });
    placed.unwrap();
    client
}

fn limits(soft_bytes: u64, hard_bytes: u64, used_bytes: u64) -> Result<Limits, NotLimited> {
    Ok(Limits { soft_bytes, hard_bytes, used_bytes })
}

#[test]
fn a_hard_limit_holds_to_the_byte_over_all_processes_of_the_cgroup() {
    for backend in [MemoryLimits::Dmem, MemoryLimits::Misc] {
        let machine = limited(backend, |_| ());
        let (leaf, other) = (chain(&[2, 1]), chain(&[3, 1]));
        machine.set_memory_limits(0, &leaf, 0, 50 * MIB).unwrap();
        let (a, b) = (process(&machine, 1, &leaf), process(&machine, 2, &leaf));
        a.context_create(0).unwrap();
        a.take(0, 20 * MIB).unwrap();
        b.take(0, 20 * MIB - 1).unwrap();
        let refused = Refused::OutOfMemory { requested: 2, free: 1 };
        assert_eq!((b.take(0, 2), a.take(0, 1), b.take(0, 1).is_ok()), (Err(refused), Ok(()), false));
        process(&machine, 3, &other).take(0, 500 * MIB).unwrap();
        assert_eq!(machine.memory_limits(0, &leaf), limits(0, 50 * MIB, 50 * MIB));
        drop(a);
        b.take(0, 30 * MIB).unwrap();
    }
}

#[test]
fn managed_memory_does_not_count() {
    let machine = limited(MemoryLimits::Dmem, |_| ());
    let leaf = chain(&[1]);
    machine.set_memory_limits(0, &leaf, 0, 10 * MIB).unwrap();
    let client = process(&machine, 1, &leaf);
    client.take_managed(0, 100 * MIB).unwrap();
    client.take(0, 10 * MIB).unwrap();
    client.take_managed(0, MIB).unwrap();
    assert!(client.take(0, 1).is_err());
    client.give_managed(0, 101 * MIB);
    assert!(client.take(0, 1).is_err());
    client.give(0, 1);
    client.take(0, 1).unwrap();
}

#[test]
fn a_limit_below_what_is_in_use_refuses_what_comes() {
    let machine = limited(MemoryLimits::Dmem, |_| ());
    let leaf = chain(&[1]);
    let client = process(&machine, 1, &leaf);
    client.take(0, 100 * MIB).unwrap();
    machine.set_memory_limits(0, &leaf, 0, 10 * MIB).unwrap();
    assert!(client.take(0, 1).is_err());
    client.give(0, 95 * MIB);
    client.take(0, 5 * MIB).unwrap();
    assert!(client.take(0, 1).is_err());
    machine.set_memory_limits(0, &leaf, 0, NONE).unwrap();
    client.take(0, 500 * MIB).unwrap();
}

#[test]
fn with_dmem_a_parents_limit_holds_and_the_nearest_with_files_is_told() {
    let machine = limited(MemoryLimits::Dmem, |_| ());
    let (parent, leaf, inner) = (chain(&[1]), chain(&[2, 1]), threaded(&[3, 2, 1]));
    machine.set_memory_limits(0, &parent, 0, 30 * MIB).unwrap();
    let (a, b) = (process(&machine, 1, &leaf), process(&machine, 2, &inner));
    a.take(0, 20 * MIB).unwrap();
    b.take(0, 10 * MIB).unwrap();
    assert!(a.take(0, 1).is_err() && b.take(0, 1).is_err());
    assert_eq!(machine.memory_limits(0, &leaf), limits(0, NONE, 30 * MIB), "the parent's is not told");
    machine.set_memory_limits(0, &leaf, 0, 40 * MIB).unwrap();
    assert_eq!(machine.memory_limits(0, &inner), limits(0, 40 * MIB, 30 * MIB), "inherited");
    assert_eq!(machine.set_memory_limits(0, &inner, 0, MIB), Err(NotLimited::NotFound));
    assert_eq!(machine.memory_limits(0, &threaded(&[9])), Err(NotLimited::NotFound));
    assert!(a.take(0, 1).is_err(), "a larger limit below does not help");
}

#[test]
fn with_misc_the_nearest_limit_alone_holds() {
    let machine = limited(MemoryLimits::Misc, |_| ());
    let (parent, leaf, sibling) = (chain(&[1]), chain(&[2, 1]), chain(&[3, 1]));
    machine.set_memory_limits(0, &parent, 0, 30 * MIB).unwrap();
    machine.set_memory_limits(0, &leaf, 20 * MIB, 100 * MIB).unwrap();
    let (a, b) = (process(&machine, 1, &leaf), process(&machine, 2, &sibling));
    a.take(0, 100 * MIB).unwrap();
    b.take(0, 30 * MIB).unwrap();
    assert!(a.take(0, 1).is_err() && b.take(0, 1).is_err());
    assert_eq!(machine.memory_limits(0, &sibling), limits(0, 30 * MIB, 30 * MIB), "soft limits stay below");
    assert_eq!(machine.memory_limits(0, &chain(&[4])), Err(NotLimited::NotSet));
}

#[test]
fn a_soft_limit_reserves_on_ancestors_and_leaks_if_the_leaf_goes_first() {
    let machine = limited(MemoryLimits::Dmem, |_| ());
    let mut gapped = chain(&[3, 2, 1, 7]);
    gapped.levels[3].has_files = false;
    let of = |ids: &[u64]| machine.memory_limits(0, &chain(ids)).unwrap().soft_bytes / MIB;
    machine.set_memory_limits(0, &gapped, 8 * MIB, NONE).unwrap();
    machine.set_memory_limits(0, &chain(&[4, 2, 1]), 5 * MIB, 9 * MIB).unwrap();
    assert_eq!((of(&[3, 2, 1]), of(&[2, 1]), of(&[1]), of(&[7])), (8, 13, 13, 0));
    machine.set_memory_limits(0, &gapped, 0, NONE).unwrap();
    assert_eq!((of(&[3, 2, 1]), of(&[2, 1]), of(&[1])), (0, 5, 5));
    assert_eq!(machine.set_memory_limits(0, &gapped, 2, 1), Err(NotLimited::Impossible));
}

#[test]
fn limits_are_rounded_as_the_profile_says() {
    for (rounds_up, told) in [(false, 2 * MIB), (true, 4 * MIB)] {
        let machine = limited(MemoryLimits::Misc, |config| {
            config.driver.memory_limit_unit_bytes = 2 * MIB;
            config.driver.memory_limit_rounds_up = rounds_up;
        });
        let leaf = chain(&[1]);
        machine.set_memory_limits(0, &leaf, 0, 2 * MIB + 1).unwrap();
        assert_eq!(machine.memory_limits(0, &leaf), limits(0, told, 0));
        machine.set_memory_limits(0, &leaf, 2 * MIB, NONE).unwrap();
        assert_eq!(machine.memory_limits(0, &leaf).unwrap().hard_bytes, NONE);
    }
}

#[test]
fn without_mps_nothing_counts_where_the_profile_says() {
    for has_mps in [false, true] {
        let machine = limited(MemoryLimits::Misc, |config| {
            config.driver.memory_limits_need_mps = true;
            config.driver.nvml_mps_list = has_mps;
        });
        let leaf = chain(&[1]);
        machine.set_memory_limits(0, &leaf, 0, MIB).unwrap();
        let client = process(&machine, 1, &leaf);
        assert_eq!(client.take(0, 2 * MIB).is_err(), has_mps);
        assert_eq!(machine.memory_limits(0, &leaf), limits(0, MIB, 0));
    }
}

#[test]
fn a_full_table_forgets_removed_cgroups() {
    let machine = limited(MemoryLimits::Misc, |_| ());
    for id in 1..=LIMITS as u64 {
        machine.set_memory_limits(0, &chain(&[u64::MAX - id]), 0, MIB).unwrap();
    }
    machine.set_memory_limits(0, &chain(&[u64::MAX]), 0, MIB).unwrap();
    assert_eq!(machine.memory_limits(0, &chain(&[u64::MAX - 1])), Err(NotLimited::NotSet));
}

#[test]
fn other_drivers_have_no_limits() {
    let machine = machine();
    assert_eq!(machine.set_memory_limits(0, &chain(&[1]), 0, MIB), Err(NotLimited::NoFunction));
    assert_eq!(machine.memory_limits(0, &chain(&[1])), Err(NotLimited::NoFunction));
    assert_eq!(machine.memory_shown(0), None);
}
