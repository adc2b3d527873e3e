//! The hook table as a whole. That its rows are the library's exports is checked by `scripts/check-shim.sh`.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::collections::BTreeSet;
use std::process::Command;

use vcuda_tests::{Bed, Door, app, release_dir, succeeded, workspace};

/// The names of the rows of `hooks!`.
fn rows() -> Vec<String> {
    let table = std::fs::read_to_string(workspace().join("shim/src/hooks.rs")).unwrap();
    let rows: Vec<String> = table
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("deny ")
                .or(line.trim().strip_prefix("pass "))
        })
        .filter_map(|row| Some(row.split_once("=>")?.0.trim().to_owned()))
        .collect();
    assert!(rows.len() > 50, "{rows:?}");
    rows
}

#[test]
fn every_row_is_a_function_of_the_driver() {
    let mut exports = BTreeSet::new();
    for library in ["libvcuda_simulator_cuda.so", "libvcuda_simulator_nvml.so"] {
        let listed = Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(release_dir().join(library))
            .output()
            .unwrap();
        exports.extend(
            succeeded(&listed)
                .lines()
                .filter_map(|line| Some(line.split_whitespace().next_back()?.split('@').next()?.to_owned())),
        );
    }
    let missing: Vec<String> = rows()
        .into_iter()
        .filter(|name| !exports.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "not exported by the simulated driver: {missing:?}"
    );
}

#[test]
fn arguments_of_zero_get_the_drivers_own_answer() {
    let bed = Bed::new();
    let nulls = app("nulls", Door::Dlsym);
    for context in ["0", "1"] {
        let bare = succeeded(&bed.bare(&nulls).arg(context).args(rows()).output().unwrap());
        let quota = ["--memory", "4GiB", "--cores", "50"];
        let tenant = succeeded(
            &bed.tenant(&quota, &nulls)
                .arg(context)
                .args(rows())
                .output()
                .unwrap(),
        );
        assert_eq!(bare, tenant, "with context: {context}");
    }
}
