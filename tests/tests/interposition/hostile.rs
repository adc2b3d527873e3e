//! Application behaviour that can trip the shim: unusual times, orders and numbers of threads. The same program passes
//! without shim.

use std::collections::HashSet;

use vcuda_tests::table::row_names;
use vcuda_tests::{Door, Fixture, app, eventually, succeeded, workspace};

const QUOTA: [&str; 4] = ["--memory", "2GiB", "--cores", "50"];

#[test]
fn look_ups_inside_malloc_and_before_main() {
    let fixture = Fixture::new();
    let program = app("early", Door::Dlsym);
    succeeded(&fixture.bare(&program).output().unwrap());
    succeeded(&fixture.tenant(&QUOTA, &program).output().unwrap());
    succeeded(&fixture.tenant(&QUOTA, &program).env("LD_BIND_NOW", "1").output().unwrap());
}

/// Every row of the real driver's table: the same status and variant, and the shim's address for hooked symbols.
#[test]
fn every_row_of_the_drivers_table() {
    let fixture = Fixture::new();
    let program = app("lookups", Door::Dlsym);
    let data = workspace().join("crates/driver-api/data/libcuda-550.163.01-procaddress.tsv");
    let arguments = [data.to_str().unwrap(), "libvcuda_shim.so"];
    let bare = succeeded(&fixture.bare(&program).args(arguments).output().unwrap());
    let tenant = succeeded(&fixture.tenant(&QUOTA, &program).args(arguments).output().unwrap());
    let hooked: HashSet<String> = row_names().into_iter().collect();
    assert!(hooked.contains("cuMemAlloc_v2"));
    assert_eq!(bare.lines().count(), std::fs::read_to_string(&data).unwrap().lines().count());
    for (bare, tenant) in bare.lines().zip(tenant.lines()) {
        let symbol = bare.split(' ').next().unwrap();
        let expected =
            if hooked.contains(symbol) { bare.replace(" driver", " shim") } else { bare.to_owned() };
        assert_eq!(tenant, expected);
        assert!(tenant.ends_with(" same"), "{tenant}");
    }
}

#[test]
fn every_kind_of_memory_comes_back() {
    for faults in ["", "[faults]\nfail_nth_allocation = 20\n"] {
        let fixture = Fixture::with_config(faults);
        let program = app("leaks", Door::Dlsym);
        succeeded(&fixture.bare(&program).output().unwrap());
        succeeded(&fixture.tenant(&["--memory", "4GiB"], &program).output().unwrap());
        eventually("all memory is back", std::time::Duration::from_secs(1), || fixture.used_bytes() == 0);
    }
}

#[test]
fn forks_of_every_kind_while_threads_are_busy() {
    let program = app("fork_busy", Door::Dlsym);
    let run = |heaps: &str, kinds: &[&str]| {
        let fixture = Fixture::new();
        let mut tenant = fixture.tenant(&QUOTA, &program);
        succeeded(&tenant.args(kinds).env("GLIBC_TUNABLES", heaps).output().unwrap());
    };
    run("", &[]);
    // One heap for all threads is locked whenever one of them allocates, and stays locked in the child of a raw clone.
    run("glibc.malloc.arena_max=1", &["raw"]);
}
