//! A GPU that shares the processor's memory (GB10): a tenant with a memory quota sees it as a GPU of its own memory, so that
//! programs size by the quota and not by the node's free memory.

use vcuda_tests::{Door, Fixture, GIB, app, succeeded};

/// `NVML_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u64 = 3;

/// Whether it is integrated; totals of `cuDeviceTotalMem` and `cuMemGetInfo`; status and total of both versions of NVML's.
fn told(fixture: &Fixture, quota: Option<&[&str]>, door: Door) -> Vec<u64> {
    let program = app("integrated", door);
    let mut command = match quota {
        Some(quota) => fixture.tenant(quota, program),
        None => fixture.bare(program),
    };
    let said = succeeded(&command.output().unwrap());
    said.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn an_integrated_gpu_shows_a_tenant_its_quota_as_memory_of_its_own() {
    let fixture = Fixture::with_profile("gb10");
    let (all, quota) = (119 * GIB, 4 * GIB);
    let untold = [1, all, all, NOT_SUPPORTED, 0, NOT_SUPPORTED, 0];
    for door in Door::ALL {
        assert_eq!(told(&fixture, None, door), untold, "{door:?} without the shim");
        let limited = told(&fixture, Some(&["--memory", "4GiB"]), door);
        assert_eq!(limited, [0, quota, quota, 0, quota, 0, quota], "{door:?}");
    }
    // Without a memory quota the driver alone answers.
    assert_eq!(told(&fixture, Some(&["--cores", "50"]), Door::Dlsym), untold);
}

#[test]
fn a_gpu_with_memory_of_its_own_is_not_integrated_with_or_without_a_quota() {
    let fixture = Fixture::with_profile("h200-580");
    assert_eq!(told(&fixture, None, Door::Dlsym)[0], 0);
    let limited = told(&fixture, Some(&["--memory", "4GiB"]), Door::Dlsym);
    assert_eq!(limited, [0, 4 * GIB, 4 * GIB, 0, 4 * GIB, 0, 4 * GIB]);
}
